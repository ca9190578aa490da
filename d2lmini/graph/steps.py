"""Ops as steps: the calls of NumPy's ufuncs that compute an op, one after the other in one array.

An elementwise op on floats is a formula such as 1 / (1 + exp(-data)). As a chain of calls, each of
which works on the result so far, the formula needs no memory except that of the result. A generated
program can print the calls, run them block by block, and join them to the calls of other ops:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> known = {x._entry[0]: Spec((3,), "float32")}
>>> _, [(node, _)] = infer_types(sym.sigmoid(x)._entries, known, False)
>>> for step in steps_of(node):
...     print(step)
y = negative(0)
y = exp(y)
y = add(fit 1, y)
y = divide(fit 1, y)

The steps are found by a trace: the op's own `compute` runs on proxies (`ops.symbolic`). In each
step at most one operand may be a result, otherwise the chain would need a second array. Other ops,
and dtypes that are converted on the way (float16 to float32, integers to float64), have no steps:
the program calls their `compute`. The values of the steps equal those of `compute` to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini.graph.ir import Node, spec_of
from d2lmini.ops import scalar_cache
from d2lmini.ops.core import Op
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.kernels import has_bfloat16
from d2lmini.ops.symbolic import NotTraceable, Proxy, SymbolicModule, trace

#: Stands for the result so far.
Y = "y"


class Number(NamedTuple):
    """A scalar operand: the entry `table[xp][dtype][value]` of ops/scalar_cache.py."""

    table: str
    dtype: np.dtype
    value: Any

    def __str__(self) -> str:
        return f"{self.table} {self.value}"


class Step(NamedTuple):
    """One call of a ufunc. `args`: indices of inputs, `Number`s, or Y, the result so far."""

    ufunc: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"y = {self.ufunc}({', '.join(map(str, self.args))})"


def steps_of(node: Node) -> tuple[Step, ...] | None:
    """The steps of a typed node; None if the op must be computed by its own `compute`."""
    if node.steps is None:
        node.steps = _find_steps(node) or ()
    return node.steps or None


def _find_steps(node: Node) -> tuple[Step, ...] | None:
    op, specs = node.op, node.specs
    if op is None or not op.elementwise or op.mutates or op.injects or not node.inputs:
        return None
    if None in node.inputs or specs is None or len(specs) != 1:
        return None
    if has_bfloat16([specs[0], *map(spec_of, node.sources)]):
        return None
    dtypes = tuple([spec_of(entry).dtype for entry in node.sources])
    attrs = node.attrs
    # The text distinguishes -0.0 from 0.0 and 2 from 2.0, which compare equal.
    return _steps(op, dtypes, specs[0].dtype, tuple(attrs.items()), str(attrs))


@lru_cache(maxsize=4096)
def _steps(
    op: Op, dtypes: tuple[np.dtype, ...], dtype: np.dtype, attrs: tuple[Any, ...], _text: str
) -> tuple[Step, ...] | None:
    """The steps of an op on inputs of `dtypes` with a result of `dtype`; None as in `steps_of`."""
    inputs = [Proxy(_xp, i, given) for i, given in enumerate(dtypes)]
    out = {"out": _xp.empty((), dtype)} if op.takes_out else {}
    try:
        result = trace(_xp, op.compute, inputs, dict(attrs), **out)
    except NotTraceable:
        return None
    last = result.expr if isinstance(result, Proxy) else None
    steps: list[Step] = []
    while isinstance(last, _Call):
        computed = [arg for arg in last.args if isinstance(arg, _Call)]
        if last.dtype != dtype or len(computed) > 1:
            return None
        args = [Y if isinstance(arg, _Call) else arg for arg in last.args]
        steps.insert(0, Step(last.ufunc, tuple(args)))
        last = computed[0] if computed else None
    return tuple(steps) or None


def may_overwrite(steps: tuple[Step, ...], i: int) -> bool:
    """True if the result may overwrite input i, because only the first step reads that input."""
    return all(i not in [a for a in step.args if type(a) is int] for step in steps[1:])


# -- the trace -------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """The expression of a result. `args`: indices of inputs, `Number`s and calls. `dtype`: that of
    the array which the ufunc writes to."""

    ufunc: str
    args: tuple[Any, ...]
    dtype: np.dtype


#: The table of the scalar operands of a ufunc, if it is not `fit`.
_TABLES = {family.ufunc: family.numbers for family in FAMILIES.values()}


class _Ufuncs(SymbolicModule):
    """The array module whose expressions are the index of an input, a `Number` or a `_Call`."""

    def call(
        self, ufunc: np.ufunc, args: Sequence[Any], loop: Sequence[np.dtype], result: np.dtype
    ) -> Proxy:
        name = ufunc.__name__
        dtype = next(arg.dtype for arg in args if isinstance(arg, Proxy))

        def argument(arg: Any) -> Any:
            if isinstance(arg, Proxy):
                return arg.expr
            if type(arg) in (int, float) and dtype.kind == "f":
                return Number(_TABLES.get(name, "fit"), dtype, arg)
            raise NotTraceable(f"the operand {arg!r} with an array of {dtype.name}")

        exprs = tuple(map(argument, args))
        if None in exprs or all(isinstance(expr, Number) for expr in exprs):
            raise NotTraceable(f"{name} without an array")
        return Proxy(self, _Call(name, exprs, result), result)

    def convert(self, expr: Any, old: np.dtype, new: np.dtype) -> Any:
        """A ufunc converts its result while it writes; other values are not converted."""
        if old != new and isinstance(expr, _Call) and np.can_cast(old, new, "same_kind"):
            return expr._replace(dtype=new)
        return super().convert(expr, old, new)


class _Table:
    """A table of `scalar_cache` in a trace: `table[dtype][value]` is a proxy of a `Number`."""

    def __init__(self, name: str, dtype: Any = None):
        self.name = name
        self.dtype = dtype

    def __getitem__(self, key: Any) -> Any:
        if self.dtype is None:
            return _Table(self.name, key)
        found = getattr(scalar_cache, self.name)[np][self.dtype][key]
        return Proxy(_xp, Number(self.name, self.dtype, key), found.dtype)


_xp = _Ufuncs()
for _name in ("fit", "limit"):
    getattr(scalar_cache, _name)[_xp] = _Table(_name)
