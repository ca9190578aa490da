"""`sym`: Symbols and the functions on them, by MXNet's names.

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> sym.relu(x * 2).list_arguments()
['x']

Every op of `nd` is here under the same names; `sym.random`, `sym.linalg`, `sym.contrib`, `sym.op`
and `sym._internal` are its sub-namespaces. They take Symbols, return a Symbol, and raise at the
call what is wrong with attributes (MXNetError) and arguments (TypeError); shapes are looked at
where they are known, by `infer_shape`, `bind` and `simple_bind`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.ndarray.left_out import explain
from d2lmini.ops.core import registry
from d2lmini.symbol.attribute import AttrScope
from d2lmini.symbol.compose import variable
from d2lmini.symbol.creation import Group, arange, concatenate, eye, full, linspace, ones, zeros
from d2lmini.symbol.json import load, load_json, save
from d2lmini.symbol.namespaces import Namespace, public_functions
from d2lmini.symbol.naming import NameManager, Prefix
from d2lmini.symbol.symbol import NotImplementedForSymbol, Symbol, Traced

from d2lmini.symbol import evaluate, infer, methods, picture, random  # isort: skip

__all__ = [
    "AttrScope", "Group", "NameManager", "NotImplementedForSymbol", "Prefix", "Symbol", "Traced",
    "arange", "concatenate", "evaluate", "eye", "full", "infer", "linspace", "load", "load_json",
    "methods", "ones", "picture", "random", "save", "zeros",
]  # fmt: skip

var = Variable = variable

globals().update(
    {name: function for name, function in public_functions().items() if name not in globals()},
    op=Namespace("sym.op"),
    _internal=Namespace("sym._internal", "_"),
    linalg=Namespace("sym.linalg", "linalg_", "_linalg_"),
    contrib=Namespace("sym.contrib", "_contrib_"),
)


def _boolean_mask(data: Symbol, index: Symbol, axis: int = 0) -> None:
    """Not for Symbols: how much is left depends on values, and a graph knows its shapes."""
    raise NotImplementedForSymbol("contrib.boolean_mask")


vars(globals()["contrib"])["boolean_mask"] = _boolean_mask


def __getattr__(name: str) -> Any:
    if name in registry:  # those with an underscore in front
        return getattr(globals()["op"], name)
    raise explain("sym", name)
