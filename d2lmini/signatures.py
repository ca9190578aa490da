"""Constructors that repeat another's parameters, with one description of both.

MXNet's classes take long lists of arguments, which a subclass extends by one or two. The subclass
writes only its own; `inspect.signature` and `help` show all, in MXNet's order:

>>> import inspect
>>> def draw(x, y=0, color="black"):
...     return f"{color} at {x}, {y}"
>>> @with_parameters_of(draw)
... def draw_disc(x, *, radius=1, **kwargs):
...     return f"disc of {radius}, {draw(x, **kwargs)}"
>>> inspect.signature(draw_disc)
<Signature (x, y=0, color='black', radius=1)>
>>> draw_disc(3, 4, "red", 2)
'disc of 2, red at 3, 4'
>>> inspect.signature(with_defaults(draw, color="blue"))
<Signature (x, y=0, color='blue')>
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def with_parameters_of(other: Callable[..., Any], *, without: str = "") -> _Decorator:
    """Decorator: the function's `**kwargs` stand for the parameters of `other` that it lacks, but
    those named in `without`.

    The order is: the function's own parameters, those of `other`, then the function's keyword-only
    ones; all may be given by position. The function gets the parameters of `other` by name.
    """
    theirs = dict(inspect.signature(other).parameters)
    for name in without.split():
        del theirs[name]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        *mine, _ = inspect.signature(function).parameters.values()  # the last is **kwargs
        own = {p.name: p for p in mine if p.kind is p.POSITIONAL_OR_KEYWORD}
        last = {p.name: p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in mine if p.name not in own}
        rest = {name: p for name, p in theirs.items() if name not in own and name not in last}
        every = sorted([*own.values(), *rest.values(), *last.values()], key=lambda p: p.kind)
        names = [p.name for p in every if p.kind is p.POSITIONAL_OR_KEYWORD]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) > len(names):
                raise TypeError(
                    f"{function.__qualname__}() takes {len(names)} positional arguments but "
                    f"{len(args)} were given"
                )
            by_name = dict(zip(names[len(own) :], args[len(own) :]))
            return function(*args[: len(own)], **by_name, **kwargs)

        call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        return call

    return decorate


def with_defaults(function: Callable[..., Any], **defaults: Any) -> Callable[..., Any]:
    """A copy of the function with other defaults of these parameters."""
    parameters = inspect.signature(function).parameters.values()
    values = tuple(
        defaults.get(p.name, p.default)
        for p in parameters
        if p.default is not p.empty or p.name in defaults
    )
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__, function.__globals__, "__init__", values, function.__closure__
    )
    copy.__annotations__ = function.__annotations__
    return copy
