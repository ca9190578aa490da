"""`sym`: Symbols and the functions on them, by MXNet's names.

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> sym.relu(x * 2).list_arguments()
['x']

The namespace has every op of `nd` under the same names; `sym.random`, `sym.linalg`, `sym.contrib`,
`sym.sparse`, `sym.op` and `sym._internal` are its sub-namespaces. The functions take Symbols and
return a Symbol. Errors of attributes (MXNetError) and arguments (TypeError) are raised at the call;
shapes are checked where they are known, by `infer_shape`, `bind` and `simple_bind`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import loaders, missing_attribute
from d2lmini.ops.core import registry
from d2lmini.symbol.functions import Namespace, public_functions, random, variable
from d2lmini.symbol.json_format import load, load_json, save
from d2lmini.symbol.naming import AttrScope, NameManager, Prefix
from d2lmini.symbol.symbol import NotImplementedForSymbol, Symbol, Traced

from d2lmini.symbol import infer, picture  # isort: skip

__all__ = [
    "AttrScope", "NameManager", "NotImplementedForSymbol", "Prefix", "Symbol", "Traced",
    "infer", "load", "load_json", "picture", "random", "save",
]  # fmt: skip

var = Variable = variable

globals().update(
    public_functions(),
    op=Namespace("sym.op"),
    _internal=Namespace("sym._internal", "_"),
    sparse=Namespace("sym.sparse"),
    linalg=Namespace("sym.linalg", "linalg_", "_linalg_"),
    contrib=Namespace("sym.contrib", "_contrib_"),
)


def __getattr__(name: str) -> Any:
    if name in registry:  # ops with a leading underscore
        return getattr(globals()["op"], name)
    if name in ("np", "npx"):  # defined in a higher layer
        return loaders[name]()
    raise missing_attribute("sym", name, __dir__(), "; dir(sym) lists the names")


def __dir__() -> list[str]:
    namespaces = ("contrib", "linalg", "op", "sparse")
    return sorted({*__all__, *public_functions(), *namespaces, "Variable", "var"})
