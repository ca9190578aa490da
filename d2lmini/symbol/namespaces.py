"""The functions of `sym` and its sub-namespaces: every op, under its names in `nd`.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     a, b = sym.var("a"), sym.var("b")
...     print(sym.linalg.gemm2(a, b), sym.SwapAxis(a), sym.maximum(a, 0), sym.arange(3))
<Symbol gemm20> <Symbol swapaxis0> <Symbol _maximumscalar0> <Symbol _arange0>

A function names its node after the name it was called by: 'swapaxis0' or 'swapaxes0'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.ndarray import namespaces
from d2lmini.ops.core import Op, registry
from d2lmini.ops.fluent import FUNCTIONS, NUMBERS
from d2lmini.ops.signature import name_function
from d2lmini.symbol.compose import compose
from d2lmini.symbol.symbol import Symbol

Function = Callable[..., Any]

#: Functions whose nodes have another name in MXNet.
HINTS = {"split_v2": "_split_v2"}


def function_of(op: Op, name: str, space: str = "") -> Function:
    """The op as a function on Symbols with the name `name`, found at `sym.SPACE.NAME`."""
    hint = HINTS.get(name) or name.lower()

    def function(*args: Any, **kwargs: Any) -> Any:
        return compose(op, args, kwargs, hint)

    return name_function(function, op, "d2lmini.symbol", f"{space}{name}")


class Namespace(namespaces.Namespace):
    """Ops under one of the prefixes, as functions on Symbols."""

    def _wrap_op(self, op: Op, name: str) -> Function:
        return function_of(op, name, f"{self.__name__.partition('.')[2]}.")


def public_functions() -> dict[str, Function]:
    """The public functions of `sym`: the ops whose names do not begin with an underscore, and the
    functions that also take numbers."""
    ops = {n: function_of(op, n) for n, op in registry.items() if not n.startswith("_")}
    return {**ops, **FUNCTIONS, "power": _power, "pow": _power}


def _power(base: Any, exp: Any) -> Any:
    """base to the power of exp, element by element: Symbols, numbers or one of each."""
    if isinstance(exp, Symbol) and isinstance(base, NUMBERS):
        # The operator `2 ** x` names the node '_rpower_scalar0'.
        return compose(registry["_rpower_scalar"], (exp,), {"scalar": base}, "_rpowerscalar")
    return FUNCTIONS["power"](base, exp)
