"""x[key] of a traced value: one node, with the same rules as for arrays.

>>> from d2lmini.ops.spec import Spec
>>> from d2lmini.symbol import Traced
>>> from d2lmini.graph.ir import Node
>>> x = Traced(((Node(None, "x", specs=(Spec((4, 3), "float32"),)), 0),))
>>> x[1:3].shape, x[:, None, 0].shape, x[..., ::2].shape
((2, 3), (4, 1), (4, 2))
>>> [row.shape for row in x]
[(3,), (3,), (3,), (3,)]

Numbers, slices, None and `...` are attributes of the node. A list or NumPy array of integers
becomes a constant input, so it is allowed only where arrays are: in a compiled `forward`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.ndarray.creation import array
from d2lmini.ndarray.keys import parse
from d2lmini.ops.core import Value, invoke, registry


def getitem(x: Any, key: Any) -> Any:
    """x[key] for a value of known shape; errors as for `ndarray.keys.parse`."""
    if key is Ellipsis or (type(key) in (slice, tuple) and key in (slice(None), ())):
        return x
    index = parse(key, x.shape)
    return invoke(registry["_getitem"], (x, *_places(index.arrays, x)), {"key": index.key}, None)


def _places(arrays: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """The index arrays concatenated as one input; () if there are none."""
    if not arrays:
        return ()
    if not any(isinstance(a, Value) for a in arrays):
        return (array(np.concatenate([a.ravel() for a in arrays]), x.context, "int64"),)
    if len(arrays) == 1:
        return arrays
    values = [a if isinstance(a, Value) else array(a, x.context, "int64") for a in arrays]
    flat = [v.astype("int64").reshape((-1,)) for v in values]  # type: ignore[attr-defined]
    return (registry["concat"](*flat, dim=0),)
