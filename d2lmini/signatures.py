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
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def by_name(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> Callable[..., Any]:
    """The function with these parameters, which a call may give by position; the function gets
    those of the call by name. TypeError for a call that does not fit."""
    signature = inspect.Signature(parameters)
    places = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = [p.name for p in places]
    known, required = set(names), {p.name for p in places if p.default is p.empty}

    function.__annotations__.setdefault("return", "Any")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args), **kwargs)
        is_known = known.issuperset(given) and required.issubset(given)
        if not is_known or len(given) < len(args) + len(kwargs):
            try:
                signature.bind(*args, **kwargs)
            except TypeError as problem:
                raise TypeError(f"{call.__name__}(): {problem}") from None
        return function(**given)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def with_parameters_of(other: Callable[..., Any], *, without: str = "") -> _Decorator:
    """Decorator: the function's `**kwargs` stand for the parameters of `other` that it lacks, but
    those named in `without`.

    The order is: the function's own parameters, those of `other`, then the function's keyword-only
    ones; all may be given by position. The function gets them by name.
    """
    theirs = dict(inspect.signature(other).parameters)
    for name in without.split():
        del theirs[name]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        *mine, _ = inspect.signature(function).parameters.values()  # the last is **kwargs
        own = {p.name: p for p in mine if p.kind is p.POSITIONAL_OR_KEYWORD}
        last = {p.name: p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in mine if p.name not in own}
        rest = {name: p for name, p in theirs.items() if name not in own and name not in last}
        every = [*own.values(), *rest.values(), *last.values()]
        return by_name(function, sorted(every, key=lambda p: p.kind))

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
