"""Operations that Symbols refuse, since they have no contents, and methods from add-ons.

>>> from d2lmini import sym
>>> if sym.var("x") > 0: ...
Traceback (most recent call last):
d2lmini.symbol.unsupported.NotImplementedForSymbol: bool is not implemented for Symbol and only ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from d2lmini import addons
from d2lmini.base import MXNetError, explain_left_out


class NotImplementedForSymbol(MXNetError, NotImplementedError):
    """An operation on a Symbol needs contents, which a Symbol does not have."""

    def __init__(self, what: str):
        super().__init__(
            f"{what} is not implemented for Symbol and only available in NDArray: when a net is "
            "hybridized its code runs once, on Symbols that have no contents yet. Compute with "
            "operators, or F.where for a choice by value; do what needs the contents outside of "
            "the net, or run it imperatively with net.hybridize(False)"
        )


def explain(kind: str, name: str) -> str:
    """The message for a name that Symbols do not have."""
    left_out = explain_left_out(f"{kind}.{name}")
    if left_out:
        return left_out
    hint = ""
    if name in ("shape", "dtype", "size", "ndim", "context", "ctx"):
        hint = (
            ": what it is like is not known before it runs. In hybrid_forward use operations that "
            "adapt (reshape codes 0 and -1, F.shape_array, F.zeros_like), or write a plain "
            "`forward(self, x)`, which sees shapes also when it is compiled"
        )
    return f"{kind!r} object has no attribute {name!r}{hint}"


def make_refusal(what: str) -> Callable[..., NoReturn]:
    """A method that raises NotImplementedForSymbol."""

    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedForSymbol(what)

    method.__name__ = what
    method.__doc__ = "Refused: a Symbol has no contents yet."
    return method


def from_executor(name: str) -> Callable[..., Any]:
    """A method of `compat.bind`: the first call imports that module, which replaces the method."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        addons.find("Symbol.bind")
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{name}` of `compat.bind`, which it loads."
    return method
