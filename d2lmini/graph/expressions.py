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

#: Stands for the result so far.
Y = "y"

# -- formulas, by the dtypes for which they hold ---------------------------------------------------

#: Any numbers.
_ANY = {
    "broadcast_add elemwise_add": "lhs + rhs",
    "broadcast_sub elemwise_sub": "lhs - rhs",
    "broadcast_mul elemwise_mul": "lhs * rhs",
    "broadcast_maximum _maximum": "maximum(lhs, rhs)",
    "broadcast_minimum _minimum": "minimum(lhs, rhs)",
    "_plus_scalar": "data + scalar",
    "_minus_scalar": "data - scalar",
    "_rminus_scalar": "scalar - data",
    "_mul_scalar": "data * scalar",
    "_maximum_scalar": "maximum(data, scalar)",
    "_minimum_scalar": "minimum(data, scalar)",
    "abs": "absolute(data)",
    "sign": "sign(data)",
    "negative": "-data",
    "square": "square(data)",
    "relu": "maximum(data, 0)",
    "clip": "minimum(maximum(data, a_min), a_max)",
    "broadcast_equal _equal": "equal(lhs, rhs)",
    "broadcast_not_equal _not_equal": "not_equal(lhs, rhs)",
    "broadcast_greater _greater": "greater(lhs, rhs)",
    "broadcast_greater_equal _greater_equal": "greater_equal(lhs, rhs)",
    "broadcast_lesser _lesser": "less(lhs, rhs)",
    "broadcast_lesser_equal _lesser_equal": "less_equal(lhs, rhs)",
    "broadcast_logical_and _logical_and": "logical_and(lhs, rhs)",
    "broadcast_logical_or _logical_or": "logical_or(lhs, rhs)",
    "broadcast_logical_xor _logical_xor": "logical_xor(lhs, rhs)",
    "_equal_scalar": "equal(data, scalar)",
    "_not_equal_scalar": "not_equal(data, scalar)",
    "_greater_scalar": "greater(data, scalar)",
    "_greater_equal_scalar": "greater_equal(data, scalar)",
    "_lesser_scalar": "less(data, scalar)",
    "_lesser_equal_scalar": "less_equal(data, scalar)",
}

#: float16, float32 and float64.
_FLOATING = {
    "broadcast_div elemwise_div": "lhs / rhs",
    "_div_scalar": "data / scalar",
    "_rdiv_scalar": "scalar / data",
    "broadcast_power _power": "power(lhs, rhs)",
    "_rpower_scalar": "power(scalar, data)",
    "broadcast_hypot _hypot": "hypot(lhs, rhs)",
    "_hypot_scalar": "hypot(data, scalar)",
    "broadcast_arctan2 _arctan2": "arctan2(lhs, rhs)",
    "_arctan2_scalar": "arctan2(data, scalar)",
    "_rarctan2_scalar": "arctan2(scalar, data)",
    "floor": "floor(data)",
    "ceil": "ceil(data)",
    "trunc fix": "trunc(data)",
    "_relu_backward": "greater(output, 0) * g",
    "_sigmoid_backward": "(1 - output) * output * g",
    "_tanh_backward": "(1 - output * output) * g",
}

#: float32 and float64.
_WIDE = {
    "sqrt": "sqrt(data)",
    "rsqrt": "1 / sqrt(data)",
    "cbrt": "cbrt(data)",
    "rcbrt": "1 / cbrt(data)",
    "reciprocal": "1 / data",
    "exp": "exp(data)",
    "expm1": "expm1(data)",
    "log": "log(data)",
    "log2": "log2(data)",
    "log10": "log10(data)",
    "log1p": "log1p(data)",
    "sin": "sin(data)",
    "cos": "cos(data)",
    "tan": "tan(data)",
    "arcsin": "arcsin(data)",
    "arccos": "arccos(data)",
    "arctan": "arctan(data)",
    "sinh": "sinh(data)",
    "cosh": "cosh(data)",
    "tanh": "tanh(data)",
    "arcsinh": "arcsinh(data)",
    "arccosh": "arccosh(data)",
    "arctanh": "arctanh(data)",
    "degrees": "degrees(data)",
    "radians": "radians(data)",
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

_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}

_COMPARISONS = frozenset(
    "equal not_equal greater greater_equal less less_equal logical_and logical_or logical_xor"
    .split()
)  # fmt: skip


class Number(NamedTuple):
    """A number beside an array: as `table[xp][dtype][value]` of ops/numbers.py has it."""

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
        limits = ufunc in ("maximum", "minimum")
        return Number(
            "exact" if ufunc in _COMPARISONS else "limit" if limits else "fit", dtype, value
        )

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
