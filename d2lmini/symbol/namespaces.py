"""The functions of `sym`, its sub-namespaces and the methods of Symbols: every op, by its names.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     a, b = sym.var("a"), sym.var("b")
...     print(sym.linalg.gemm2(a, b), sym.SwapAxis(a), sym.maximum(a, 0), sym.arange(3))
...     print(a.reshape((0, -1)).softmax(name="p").get_internals().list_outputs())
<Symbol gemm20> <Symbol swapaxis0> <Symbol _maximumscalar0> <Symbol _arange0>
['a', 'reshape0_output', 'p_output']

A function names its node after the name it was called by: 'swapaxis0' or 'swapaxes0'. A method is
the function of the same name. Arrays have the same methods, so one `hybrid_forward` works for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from d2lmini.ndarray import namespaces
from d2lmini.ops.core import Op, registry
from d2lmini.ops.fluent import FUNCTIONS, NUMBERS
from d2lmini.ops.methods import METHODS
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


def _power(base: Any, exp: Any) -> Any:
    """base to the power of exp, element by element: Symbols, numbers or one of each."""
    if isinstance(exp, Symbol) and isinstance(base, NUMBERS):
        # The operator `2 ** x` names the node '_rpower_scalar0'.
        return compose(registry["_rpower_scalar"], (exp,), {"scalar": base}, "_rpowerscalar")
    return FUNCTIONS["power"](base, exp)


# -- nodes without inputs, and groups --------------------------------------------------------------


def _creator(name: str) -> Function:
    """The function that makes a node without inputs, float32 by default. A size of 0 in its shape
    is unknown; shape inference determines it."""
    op = registry[f"_{name}"]

    def function(*args: Any, **kwargs: Any) -> Symbol:
        words = {**op.defaults, **dict(zip(op.attr_names, args)), **kwargs}
        return compose(op, (), {**words, "dtype": words["dtype"] or "float32"})

    return name_function(function, op, "d2lmini.symbol", name)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Every element is `val`."""
    words = {"shape": shape, "value": float(val), "dtype": dtype or "float32"}
    return compose(registry["_full"], (), {**words, **kwargs})


def concatenate(arrays: Iterable[Symbol], axis: int = 0, always_copy: bool = True) -> Symbol:
    """`concat` of a list along `axis`."""
    return compose(registry["concat"], tuple(arrays), {"dim": axis})


def Group(symbols: Iterable[Symbol]) -> Symbol:
    """All outputs of these Symbols as one Symbol; TypeError for other arguments."""
    given = [] if isinstance(symbols, Symbol) else list(symbols)
    if not given or not all(isinstance(s, Symbol) for s in given):
        raise TypeError(f"Group: expected a list of Symbols, got {symbols!r}")
    kind = type(given[0])
    return kind(tuple([entry for s in given for entry in s._entries]))


def public_functions() -> dict[str, Function]:
    """The public functions of `sym`: the ops whose names do not begin with an underscore, the
    functions that also take numbers, and those that make nodes and groups."""
    ops = {n: function_of(op, n) for n, op in registry.items() if not n.startswith("_")}
    numbers = {**FUNCTIONS, "power": _power, "pow": _power}
    created = {name: _creator(name) for name in ("zeros", "ones", "arange", "linspace", "eye")}
    return {**ops, **numbers, **created, "full": full, "concatenate": concatenate, "Group": Group}


# -- methods ---------------------------------------------------------------------------------------


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


def _without_inplace(name: str) -> Function:
    """A method that accepts `inplace` (a view, for arrays) and ignores it."""
    function = function_of(registry[name], name)

    def method(self: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, function.__doc__
    return method


_methods = {
    **{name: function_of(registry[name], name) for name in METHODS},
    **{name: _without_inplace(name) for name in ("expand_dims", "squeeze", "flatten")},
    "copy": function_of(registry["_copy"], "_copy"),
    "detach": function_of(registry["BlockGrad"], "blockgrad"),
    "reshape": reshape, "astype": astype,
}  # fmt: skip
for _name, _function in _methods.items():
    setattr(Symbol, _name, _function)
del _name, _function, _methods
