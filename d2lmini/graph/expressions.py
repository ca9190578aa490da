"""Ops as formulas: which calls of NumPy's ufuncs compute them, one after the other in one place.

An elementwise op on floats is a formula such as 1 / (1 + exp(-data)). Written as a chain of calls
that each work on the result so far, it needs no memory but the result's own, and a generated
program can print the calls, run them block by block, and join them to those of its neighbours:

>>> for step in parsed("1 / (1 + exp(-data))", ("data",)):
...     print(step)
y = negative(data)
y = exp(y)
y = add(1, y)
y = divide(1, y)

A formula uses the inputs and attributes of its op by their names. In each operation at most one
side is computed, else the chain would need a second place; ops for which this cannot be, and
dtypes that take a detour (float16 by way of float32, integers by way of float64), are left to the
op's own `compute`. The values are those of `compute`, to the bit.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini.graph.ir import Node
from d2lmini.ops.checks import check_float
from d2lmini.ops.elementwise import FAMILIES, Family
from d2lmini.ops.unary import UFUNCS

#: Stands for the result so far.
Y = "y"

# -- formulas, by the dtypes for which they hold ---------------------------------------------------

# Of ops that are one ufunc the rows of ops/unary.py and ops/binary.py say so; here are the others.

#: Any numbers.
_ANY = {
    "relu": "maximum(data, 0)",
    "clip": "minimum(maximum(data, a_min), a_max)",
}

#: float16, float32 and float64.
_FLOATING = {
    "_relu_backward": "greater(output, 0) * g",
    "_sigmoid_backward": "(1 - output) * output * g",
    "_tanh_backward": "(1 - output * output) * g",
}

#: float32 and float64.
_WIDE = {
    "rsqrt": "1 / sqrt(data)",
    "rcbrt": "1 / cbrt(data)",
    "reciprocal": "1 / data",
    "sigmoid": "1 / (1 + exp(-data))",
    "softsign": "data / (absolute(data) + 1)",
    "hard_sigmoid": "minimum(maximum(data * alpha + beta, 0), 1)",
}

#: (op, kind of dtype) -> formula; kinds are "any", "floating", "wide".
FORMULAS = {
    (name, kind): formula
    for kind, table in (("any", _ANY), ("floating", _FLOATING), ("wide", _WIDE))
    for names, formula in table.items()
    for name in names.split()
}
_KINDS = {"exact": "any", "kept": "floating", "converted": "wide"}
FORMULAS.update({(n, _KINDS[integers]): f"{u}(data)" for n, (u, integers) in UFUNCS.items()})


def _formulas_of(family: Family) -> dict[tuple[str, str], str]:
    """Each of its ops as the family's ufunc."""
    kind = "floating" if family.integers or family.check is check_float else "any"
    operands = {family.broadcast: "lhs, rhs", family.equal: "lhs, rhs"}
    if family.reflected.family is family:
        operands[family.reflected] = "scalar, data"
    operands[family.scalar] = "data, scalar"
    return {(op.name, kind): f"{family.ufunc}({names})" for op, names in operands.items()}


for _family in FAMILIES.values():
    if _family.ufunc:
        FORMULAS.update(_formulas_of(_family))

#: Which table has the numbers beside the arrays of a ufunc, if it is not `fit`.
_TABLES = {family.ufunc: family.numbers for family in FAMILIES.values()}

_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}


class Number(NamedTuple):
    """A number beside an array: as `table[xp][dtype][value]` of ops/scalar_cache.py has it."""

    table: str
    dtype: np.dtype
    value: Any


class Step(NamedTuple):
    """One call of a ufunc; `args` are names of inputs, numbers, or Y, the result so far."""

    ufunc: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"y = {self.ufunc}({', '.join(map(str, self.args))})"


@cache
def parsed(formula: str, inputs: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps of a formula; names that are no inputs are attributes (written '@name')."""
    steps: list[Step] = []

    def operand(tree: ast.expr) -> Any:
        if isinstance(tree, ast.Constant):
            return tree.value
        if isinstance(tree, ast.Name):
            return tree.id if tree.id in inputs else "@" + tree.id
        if isinstance(tree, ast.BinOp):
            name, sides = _OPERATORS[type(tree.op)], [tree.left, tree.right]
        elif isinstance(tree, ast.UnaryOp):
            name, sides = "negative", [tree.operand]
        else:
            assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)
            name, sides = tree.func.id, tree.args
        args = tuple(map(operand, sides))
        assert args.count(Y) <= 1, f"{formula}: two sides of {name} are computed"
        steps.append(Step(name, args))
        return Y

    operand(ast.parse(formula, mode="eval").body)
    return tuple(steps)


def steps_of(node: Node) -> tuple[Step, ...] | None:
    """The steps of a typed node, args being inputs by position, `Number`s or Y; None where the
    op's own `compute` has to do it."""
    op = node.op
    if op is None or not node.inputs or any(e is None for e in node.inputs):
        return None
    dtype = _dtype(node)
    attrs = node.attrs
    name = attrs["act_type"] if op.name == "Activation" else op.name
    names: tuple[str, ...] = op.input_names
    if name == "add_n" and len(node.inputs) > 1:
        first = Step("add", (0, 1))
        return (first, *(Step("add", (Y, i)) for i in range(2, len(node.inputs))))
    if name == "_power_scalar":
        formula = _power(attrs["scalar"]) if dtype.kind == "f" else None
    else:
        formula = formula_for(name, dtype)
    if formula is None:
        return None

    def argument(ufunc: str, arg: Any) -> Any:
        if arg == Y or arg in names:
            return arg if arg == Y else names.index(arg)
        value = attrs[arg[1:]] if isinstance(arg, str) else arg
        return Number(_TABLES.get(ufunc, "fit"), dtype, value)

    return tuple(
        Step(step.ufunc, tuple(argument(step.ufunc, arg) for arg in step.args))
        for step in parsed(formula, names)
    )


def formula_for(name: str, dtype: np.dtype) -> str | None:
    """The formula of an op on arrays of this dtype."""
    kinds = ["any"] + ["floating"] * (dtype.kind == "f") + ["wide"] * (dtype.char in "fd")
    return next((FORMULAS[name, kind] for kind in kinds if (name, kind) in FORMULAS), None)


def _power(scalar: Any) -> str:
    """`data ** scalar` on floats, as `_power_scalar` does it: whole powers by way of abs(data)."""
    if scalar == 2:
        return "square(data)"
    if scalar == 0.5:
        return "sqrt(data)"
    if not float(scalar).is_integer():
        return "power(data, scalar)"
    if scalar % 2 == 0:
        return "power(absolute(data), scalar)"
    return "copysign(power(absolute(data), scalar), data)"


def may_overwrite(steps: tuple[Step, ...], i: int) -> bool:
    """May the result lie where input i lies? If that is read in the first step only."""
    return all(i not in [a for a in step.args if type(a) is int] for step in steps[1:])


def _dtype(node: Node) -> np.dtype:
    entry = node.inputs[0]
    assert entry is not None and entry[0].specs is not None
    return entry[0].specs[entry[1]].dtype
