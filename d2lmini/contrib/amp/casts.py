"""Casts before ops: `amp.init` puts them where an op is called, on arrays and on Symbols.

>>> from d2lmini import nd
>>> x, w = nd.ones((2, 3)), nd.ones((4, 3))
>>> with init("float16"):
...     y = nd.FullyConnected(x, w, no_bias=True, num_hidden=4)
...     p = nd.softmax(y)
>>> y.dtype.__name__, p.dtype.__name__
('float16', 'float32')

Parameters and gradients stay in float32: each call casts the weights it uses, and the gradient of
the cast goes back to float32. A call that needs no cast costs one look-up; while mixed precision is
off, calls on arrays do not come here at all.

Gradient rules run without casts, in the dtypes of the forward pass. Arrays of `np` get no casts, as
in MXNet 1.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from d2lmini.base.scopes import Standing
from d2lmini.contrib.amp import lists
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.dispatch import apply, apply_with_casts
from d2lmini.ops.core import Modes, Op, as_dtype
from d2lmini.ops.create import amp_cast, amp_multicast, is_castable
from d2lmini.symbol import Symbol

FLOAT32 = np.dtype("float32")


class Casts:
    """Casts the inputs of calls: those of `lists` with 16 bits to `target`, float16 or bfloat16.

    AssertionError, as in MXNet, for another dtype; ImportError for bfloat16 without the package
    ml_dtypes."""

    def __init__(self, target: Any):
        dtype = None
        with suppress(TypeError):
            dtype = as_dtype(target)
        assert dtype is not None and dtype.name in ("float16", "bfloat16"), (
            "AMP currently supports only float16 or bfloat16 as a target_dtype, got "
            f"{getattr(target, '__name__', target)!r}"
        )
        self.target = dtype
        self.kinds = lists.kinds()

    def __call__(self, op: Op, inputs: tuple, attrs: dict[str, Any]) -> tuple:
        """The inputs of a call, cast where needed."""
        attribute, values = lists.CONDITIONAL.get(op.name, ("", ()))
        kind = "float32" if str(attrs.get(attribute)) in values else self.kinds.get(op)
        if kind is None or not inputs or inputs[0].is_np:
            return inputs
        if op.variadic:
            inputs = tuple([part for x in inputs for part in _parts(x)])
        if kind in ("low", "float32"):
            target = self.target if kind == "low" else FLOAT32
            return tuple([_cast(x, target) for x in inputs])
        n = len(inputs)
        bound = range(n) if kind == "widest" else op.of_one_dtype(n)
        places = [i for i in bound if inputs[i] is not None]
        together = [inputs[i] for i in places]
        if len(together) < 2:
            return inputs
        if not all([hasattr(type(x), "_spec") for x in together]):  # Symbols of an untyped graph
            together = amp_multicast(*together, num_outputs=len(together))
        elif len({x._spec.dtype for x in together if is_castable(x._spec.dtype)}) > 1:
            together = [_cast(x, FLOAT32) for x in together]
        cast = dict(zip(places, together))
        return tuple([cast.get(i, x) for i, x in enumerate(inputs)])


def _parts(x: Any) -> Sequence[Any]:
    """The Symbols of a group, of which a variadic op takes each as an input; else `x` alone."""
    entries = getattr(x, "_entries", ()) if isinstance(x, Symbol) else ()
    return [type(x)((entry,)) for entry in entries] if len(entries) > 1 else [x]


def _cast(x: Any, dtype: np.dtype) -> Any:
    """`x` as `dtype`; `x` itself where it is known that nothing changes."""
    if x is None:
        return None
    if hasattr(type(x), "_spec"):
        own = x._spec.dtype
        if own == dtype or not is_castable(own):
            return x
    return amp_cast(x, dtype=dtype)


def _set(casts: Any) -> None:
    Modes.casting = casts
    NDArray._apply = staticmethod(apply if casts is None else apply_with_casts)


def init(target_dtype: Any = "float16") -> Standing:
    """Turn mixed precision on, for calls of ops on arrays and on Symbols in all threads.

    target_dtype: 'float16' or 'bfloat16'; `lists.py` has the ops that are cast to this dtype.
    (MXNet's other arguments, which replace its lists, are left out.)

    Two additions to MXNet: `with amp.init(): ...` restores at its end what was set before, and
    `amp.init(None)` turns mixed precision off. A second call replaces the first (MXNet ignores it).
    A compiled net keeps the casts of its first call: call `net.hybridize()` to compile it anew.

    Arrays get the casts of all lists; MXNet 1.9.1 casts arrays only for the low and the widest
    lists, and Symbols for all, so that there a hybridized net differs from an eager one.

    AssertionError for another dtype.
    """
    casts = None if target_dtype is None else Casts(target_dtype)
    scope = Standing()
    scope.undo.append(partial(_set, Modes.casting))
    scope.install(partial(_set, casts))
    return scope
