"""Two selections that are not ops: `boolean_mask` waits, `onehot_encode` writes into an argument.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2], [3, 4], [5, 6]])
>>> nd.contrib.boolean_mask(x, nd.array([0, 1, 1]))
<BLANKLINE>
[[3. 4.]
 [5. 6.]]
<NDArray 2x2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ndarray.indexing import getitem
from d2lmini.ops.core import invoke, normalize_axis
from d2lmini.ops.index import one_hot


def boolean_mask(data: Any, index: Any, axis: int = 0) -> Any:
    """The slices of `data` along `axis` where `index` is not zero.

    data (A..., n, B...), index (n,) -> (A..., k, B...), where k is the number of nonzero elements
    of index. The shape depends on values, so this function waits for `index` (not for `data`);
    the gradient goes to `data`. MXNetError when index is not (n,). MXNet supports only axis=0.
    """
    axis = normalize_axis(axis, data.ndim, "boolean_mask: axis")
    if index.shape != data.shape[axis : axis + 1]:
        raise MXNetError(
            f"boolean_mask: index is {index.shape}, need {data.shape[axis : axis + 1]}: one "
            f"element for each place along axis {axis} of data {data.shape}"
        )
    places = np.flatnonzero(index._read("boolean_mask"))
    return getitem(data, (slice(None),) * axis + (places,))


def onehot_encode(indices: Any, out: Any) -> Any:
    """Write the one-hot rows of `indices` (N,) into `out` (N, depth); returns out.

    The older form of `one_hot`. A number outside gives a row of zeros. MXNetError when the shapes
    do not fit; unlike in MXNet any dtype is allowed.
    """
    if out.ndim != 2 or indices.shape != out.shape[:1]:
        raise MXNetError(
            f"onehot_encode: indices is {indices.shape}, out {out.shape}, need (N,) and (N, depth)"
        )
    attrs = {**one_hot.defaults, "depth": out.shape[1], "dtype": out.dtype}
    return invoke(one_hot, (indices,), attrs, out)
