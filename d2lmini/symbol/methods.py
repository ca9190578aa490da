"""Methods of Symbols that call ops: `x.sum(axis=1)` is `sym.sum(x, axis=1)`, including the name.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     x = sym.var("x").reshape((0, -1)).softmax(name="p")
>>> x.list_outputs(), x.get_internals().list_outputs()
(['p_output'], ['x', 'reshape0_output', 'p_output'])

Arrays have the same methods, so one `hybrid_forward` works for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.ops.core import registry
from d2lmini.ops.methods import METHODS
from d2lmini.symbol.compose import compose
from d2lmini.symbol.json_format import load_json, tojson
from d2lmini.symbol.namespaces import HINTS
from d2lmini.symbol.symbol import Symbol, Traced


def _method(name: str, op: str, hint: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return compose(registry[op], (self, *args), kwargs, hint)

    method.__name__ = name
    method.__doc__ = f"`{registry[op].usage}`\n\n{registry[op].__doc__ or ''}"
    return method


def reshape(self: Symbol, *shape: Any, **kwargs: Any) -> Any:
    """Reshape: `reshape(2, 3)` or `reshape((2, 3))`, with MXNet's codes."""
    target = shape or kwargs.pop("shape", None)
    if target is None:
        raise TypeError("reshape: takes a shape, as in x.reshape((2, 3))")
    if len(target) == 1 and isinstance(target[0], (tuple, list)):
        target = target[0]
    kwargs["shape"] = tuple(target) if isinstance(target, (tuple, list)) else target
    return compose(registry["reshape"], (self,), kwargs, "reshape")


def astype(self: Symbol, dtype: Any, copy: bool = True, **kwargs: Any) -> Any:
    """Convert to `dtype`."""
    return compose(registry["Cast"], (self,), {"dtype": dtype, **kwargs}, "cast")


def _reduce(self: Symbol) -> tuple[Callable[[str], Symbol], tuple[str]]:
    """For pickles: the text form, as in files."""
    return load_json, (tojson(self, remove_amp_cast=False),)


def _as_nd_ndarray(self: Symbol) -> Symbol:
    """The Symbol itself: there is no other interface here."""
    return self


for _name in (*METHODS, "expand_dims", "squeeze", "flatten"):
    # The operator `abs()` and the method `abs` are equal.
    setattr(Symbol, _name, _method(_name, _name, HINTS.get(_name) or _name))
Symbol.copy = _method("copy", "_copy", "_copy")  # type: ignore[attr-defined]
Symbol.detach = _method("detach", "BlockGrad", "blockgrad")  # type: ignore[attr-defined]
Symbol.reshape = reshape  # type: ignore[attr-defined]
Symbol.astype = astype  # type: ignore[attr-defined]
Symbol.__reduce__ = _reduce  # type: ignore[method-assign,assignment]
Symbol.as_nd_ndarray = _as_nd_ndarray  # type: ignore[attr-defined]
del _name


def _in_place(name: str) -> Callable[..., Any]:
    """expand_dims, squeeze and flatten of a traced value, which accept `inplace` (a view, for
    arrays) and ignore it."""
    plain = getattr(Symbol, name)

    def method(self: Traced, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        return plain(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


for _name in ("expand_dims", "squeeze", "flatten"):
    setattr(Traced, _name, _in_place(_name))
del _name
