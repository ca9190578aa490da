"""From definitions to the functions and methods of `np`: a definition is a row of their table.

Its first line says the name, the parameters in NumPy's order with their defaults, and with `Array`
that the first one must be an `np.ndarray`; its docstring is that of the function and the method:

    def ravel(x: Array, order="C"):
        '''The elements in one axis.'''
        return reshape(x, x.size, order)

The definitions call each other as they are, so an argument is checked once, where a program calls.

>>> from d2lmini import np
>>> np.ravel([1, 2])
Traceback (most recent call last):
    ...
TypeError: np.ravel: expected an np.ndarray, got list; make one with np.array(x)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

from d2lmini.np.values import check_array

#: Annotates a first parameter that must be an `np.ndarray`, or stand for one in a trace.
Array = Any


def functions_of(definitions: dict[str, Any], module: str = "d2lmini.np") -> dict[str, Callable]:
    """The public functions among the global names of a module, as `module` shows them."""
    return {
        name: _bind(value, module)
        for name, value in definitions.items()
        if isinstance(value, FunctionType)
        and value.__globals__ is definitions
        and not name.startswith("_")
    }


@cache
def _bind(function: Any, module: str) -> Callable[..., Any]:
    """The function that checks its first argument, if the definition says so."""
    bound, name = function, f"{module}.{function.__name__}".removeprefix("d2lmini.np.")
    first, needs = next(iter(function.__annotations__.items()), ("", ""))
    if needs == "Array":

        @wraps(function)
        def bound(*args: Any, **kwargs: Any) -> Any:
            if args or first in kwargs:
                check_array(name, args[0] if args else kwargs[first])
            return function(*args, **kwargs)

    bound.__module__ = module  # where pickle finds it
    bound.__annotations__.setdefault("return", "Any")
    return bound
