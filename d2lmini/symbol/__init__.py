"""`sym`: Symbols and the functions on them, by MXNet's names.

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> sym.relu(x * 2).list_arguments()
['x']

Every op of `nd` is here under the same names; `sym.random`, `sym.linalg`, `sym.contrib`, `sym.op`
and `sym._internal` are its sub-namespaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.ops.core import Op, registry
from d2lmini.symbol.attribute import AttrScope
from d2lmini.symbol.compose import composed, variable
from d2lmini.symbol.json import load, load_json, save
from d2lmini.symbol.naming import NameManager, Prefix
from d2lmini.symbol.symbol import NotImplementedForSymbol, Symbol, Traced

__all__ = [
    "AttrScope", "NameManager", "NotImplementedForSymbol", "Prefix", "Symbol", "Traced", "load",
    "load_json", "save",
]  # fmt: skip

var = Variable = variable


def function_of(op: Op) -> Callable[..., Any]:
    """The op as a function on Symbols."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return composed(op, args, kwargs)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.__doc__
    return function


def __getattr__(name: str) -> Any:
    op = registry.get(name)
    if op is None:
        raise AttributeError(f"sym has no {name!r}")
    function = globals()[name] = function_of(op)
    return function
