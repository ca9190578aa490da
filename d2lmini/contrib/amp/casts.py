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
from functools import partial
from typing import Any

import numpy as np

from d2lmini.base.scopes import Standing
from d2lmini.contrib.amp import lists
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.dispatch import apply, apply_with_casts
from d2lmini.ops.core import Modes, Op, registry
from d2lmini.ops.create import amp_cast, amp_multicast, is_castable
from d2lmini.symbol import Symbol

FLOAT32 = np.dtype("float32")


class Casts:
    """Says which casts a call needs. A call of the object returns the inputs with casts.

    target      float16 or bfloat16
    kinds       op -> "low", "float32" or "widest"; "bound" of ops in no list, whose inputs are cast
                to the widest dtype among those that must have one: PReLU's data and slopes
    conditions  op -> (attribute, values) for which the inputs are cast to float32
    """

    def __init__(self, target: Any = "float16"):
        self.target = lists.check_target(target)
        self.kinds = {**dict.fromkeys(lists.bound(), "bound"), **lists.kinds()}
        self.conditions = {
            registry[name]: (attribute, values) for name, attribute, values in lists.CONDITIONAL
        }

    def kind_of(self, op: Op, attrs: dict[str, Any]) -> str | None:
        """The kind of a call, or None for no casts."""
        if op in self.conditions:
            attribute, values = self.conditions[op]
            if str(attrs.get(attribute)) in values:
                return "float32"
        return self.kinds.get(op)

    def __call__(self, op: Op, inputs: tuple, attrs: dict[str, Any]) -> tuple:
        """The inputs of a call, cast where needed."""
        kind = self.kind_of(op, attrs)
        if kind is None or not inputs or inputs[0].is_np:
            return inputs
        if op.variadic:
            inputs = tuple([part for x in inputs for part in _parts(x)])
        if kind in ("low", "float32"):
            target = self.target if kind == "low" else FLOAT32
            return tuple([_cast(x, target) for x in inputs])
        places = bound_places(kind, op, inputs)
        together = [inputs[i] for i in places]
        if len(together) < 2:
            return inputs
        if not all([hasattr(type(x), "_spec") for x in together]):  # Symbols of an untyped graph
            together = amp_multicast(*together, num_outputs=len(together))
        elif len({x._spec.dtype for x in together if is_castable(x._spec.dtype)}) > 1:
            together = [_cast(x, FLOAT32) for x in together]
        cast = dict(zip(places, together))
        return tuple([cast.get(i, x) for i, x in enumerate(inputs)])


def bound_places(kind: str, op: Op, inputs: Sequence[Any]) -> list[int]:
    """The positions of the inputs that a call of this kind casts to the widest dtype."""
    places = range(len(inputs)) if kind == "widest" else op.of_one_dtype(len(inputs))
    return [i for i in places if inputs[i] is not None]


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


class Scope(Standing):
    """What `init` returns: leaving the scope restores what was set before."""

    def __init__(self) -> None:
        super().__init__()
        self.undo.append(partial(_set, current()))


def _set(casts: Casts | None) -> None:
    Modes.casting = casts
    NDArray._apply = staticmethod(apply if casts is None else apply_with_casts)


def current() -> Casts | None:
    """The casts in force; None if mixed precision is off."""
    casts: Any = Modes.casting
    return casts


def init(target_dtype: Any = "float16") -> Scope:
    """Turn mixed precision on, for calls of ops on arrays and on Symbols in all threads.

    target_dtype: 'float16' or 'bfloat16', AssertionError for others. MXNet's lists of ops that
    replace its own (`contrib.amp.lists`) are left out.

    Two additions to MXNet: `with amp.init(): ...` restores at its end what was set before, and
    `amp.init(None)` turns mixed precision off. A second call replaces the first (MXNet ignores it).
    A compiled net keeps the casts of its first call: call `net.hybridize()` to compile it anew.

    Arrays get the casts of all lists; MXNet 1.9.1 casts arrays only for the low and the widest
    lists, and Symbols for all, so that there a hybridized net differs from an eager one.
    """
    casts = None if target_dtype is None else Casts(target_dtype)
    scope = Scope()
    scope.install(partial(_set, casts))
    return scope
