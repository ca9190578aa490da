"""Rows of `ops/binary.py`, and of the functions in `ops/fluent.py`."""

from __future__ import annotations

import math

import numpy as np

from op_rows.case import Case, draw

KINDER = "what MXNet does here is an accident; the docstring says what we do"
NOT_THERE = "MXNet 1.9 has no such name"

inf, nan = math.inf, math.nan


def divide(a, b):
    return a / b if a.dtype.kind == "f" else np.trunc(a / b).astype(a.dtype)


def modulo(a, b):
    """0 where b is 0; a zero has the sign of a, or is positive where a and b have two signs."""
    with np.errstate(all="ignore"):
        if a.dtype.kind != "f":
            return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))).astype(a.dtype)
        rest = np.fmod(a, b)
        moved = np.where(rest == 0, 0, rest + b)
        return np.where(b == 0, 0, np.where((a < 0) == (b < 0), rest, moved)).astype(a.dtype)


def power(a, b):
    if a.dtype.kind == "f":
        return np.power(a, b)
    return np.trunc(np.power(a.astype("float64"), b)).astype(a.dtype)


def hypot(a, b):
    return np.hypot(a, b).astype(a.dtype)


def truth(function):
    return lambda a, b: function(a, b).astype(a.dtype)


#: name: (NumPy function, whether the gradient rule holds at random points of both signs)
ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": divide, "mod": modulo,
    "power": power, "maximum": np.maximum, "minimum": np.minimum, "hypot": hypot,
    "arctan2": np.arctan2,
}  # fmt: skip
COMPARISONS = {
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "lesser": np.less, "lesser_equal": np.less_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
ELEMWISE = {name: f"elemwise_{name}" for name in ("add", "sub", "mul", "div")}
ONLY_OURS = {"arctan2"}

#: Shapes that broadcast: same, either side, both sides, a missing axis, size one, none, empty.
SHAPES = [
    ((3, 4), (3, 4)), ((2, 1), (1, 3)), ((3,), (2, 3)), ((2, 3), (3,)), ((2, 3, 4), (1, 1, 4)),
    ((4, 1, 3), (5, 3)), ((1,), (2, 2)),
]  # fmt: skip
BARE = [((), ()), ((), (3,)), ((0,), (1,)), ((3, 0, 2), (1, 0, 1)), ((2, 1), (0,))]

ROWS: list[Case] = []
for name, function in ARITHMETIC.items():
    ours = {"mxnet": name not in ONLY_OURS, "why": NOT_THERE}
    for lhs, rhs in SHAPES + BARE:
        pair = (draw(lhs, 0.5, 3), draw(rhs, 0.5, 3, seed=1))
        ROWS += [Case(f"broadcast_{name}", pair, function, **ours)]
    both = (draw((2, 3)), draw((2, 3), seed=1))
    same = Case(ELEMWISE.get(name, f"_{name}"), both, function, **ours, grad=name != "power")
    ROWS += [same, Case(f"broadcast_{name}", both, function, **ours, grad=name != "power")]
    for dtype in ("float16", "float64"):
        pair = (draw((2, 3), 0.5, 3, dtype), draw((3,), 0.5, 3, dtype, seed=1))
        ROWS += [Case(f"broadcast_{name}", pair, function, **ours,
                      rtol=2e-3 if dtype == "float16" else 1e-12)]  # fmt: skip
    if name != "arctan2":
        a, b = np.int32([7, -7, 7, -7, 0, 6]), np.int32([3, 3, -3, -3, 2, 3])
        ROWS += [Case(f"broadcast_{name}", (a, b), function, mxnet=name != "power", why=KINDER)]
for name, function in COMPARISONS.items():
    for lhs, rhs in SHAPES[:4]:
        pair = (draw(lhs, 0, 3, "int32").astype("float32"),
                draw(rhs, 0, 3, "int32", seed=1).astype("float32"))  # fmt: skip
        ROWS += [Case(f"broadcast_{name}", pair, truth(function))]
    for lhs, rhs in BARE[1:4]:
        pair = (draw(lhs, 0, 2), draw(rhs, 0, 2, seed=1))
        ROWS += [Case(f"broadcast_{name}", pair, truth(function))]
    for dtype in ("float16", "int64", "uint8", "int8", "bool"):
        pair = (draw((9,), 0, 3, dtype), draw((9,), 0, 3, dtype, seed=1))
        ROWS += [
            Case(f"_{name}" if dtype == "int8" else f"broadcast_{name}", pair, truth(function),
                 mxnet=dtype != "bool", why="we allow what MXNet refuses")
        ]  # fmt: skip
    pair = (np.float32([nan, nan, inf, 1]), np.float32([nan, 1, inf, nan]))
    ROWS += [Case(f"broadcast_{name}", pair, truth(function))]

# -- what is easy to get wrong ---------------------------------------------------------------------

ROWS += [
    Case("broadcast_div", (np.int32([-7, 7, -3, 2**31 - 1]), np.int32([2, -2, -2, 1])),
         lambda a, b: np.int32([-3, -3, 1, 2**31 - 1])),
    Case("broadcast_div", (np.int64([2**62 + 1, -(2**62) - 1]), np.int64([1, 3])),
         lambda a, b: np.int64([2**62 + 1, -((2**62 + 1) // 3)])),
    Case("broadcast_div", (np.int32([5, 0]), np.int32([0, 0])), lambda a, b: np.int32([0, 0]),
         mxnet=False, why="MXNet's process dies of it"),
    Case("broadcast_mod", (np.int8([7, -7, 7, -7]), np.int8([3, 3, -3, -3])),
         lambda a, b: np.int8([1, 2, -2, -1])),
    Case("broadcast_power", (np.int32([2, -1, -1, 1, 0, 3]), np.int32([-1, -3, -2, -5, -1, 4])),
         lambda a, b: np.int32([0, -1, 1, 1, 0, 81]), mxnet=False, why=KINDER),
    *(Case(f"broadcast_{name}", pair, ARITHMETIC[name], grad=False)
      for name in ("maximum", "minimum")
      for pair in [(np.float32([nan, 1, 2]), np.float32([1, nan, 2])),
                   (np.int64([2**53 + 1, -5]), np.int64([2**53, 5]))]),
    *(Case(f"broadcast_{name}", (np.int32([2**24 + 1, 5]), np.int32([2**24, 5])), truth(function))
      for name, function in COMPARISONS.items()),
    Case("contrib.allclose", (np.float32([1, 2, nan]), np.float32([1, 2.000001, nan])),
         lambda a, b: np.uint8(1)),
    Case("contrib.allclose", (np.float32([1, 2]), np.float32([1, 2.1])),
         lambda a, b, rtol: np.uint8(1), {"rtol": 0.1}),
]  # fmt: skip

# -- an array and a number -------------------------------------------------------------------------


def beside(function, mirrored=False):
    """The number takes the array's dtype: cut and wrapped around for integers."""

    def expect(x, scalar):
        if x.dtype.kind == "b":
            x = x.astype("int64")
        with np.errstate(all="ignore"):
            number = np.array(scalar) if x.dtype.kind == "f" else np.array(int(scalar))
            number = np.broadcast_to(number.astype(x.dtype), x.shape)
        y = function(number, x) if mirrored else function(x, number)
        return np.asarray(y).astype(x.dtype)

    return expect


SCALARS = {
    "_plus_scalar": beside(np.add), "_minus_scalar": beside(np.subtract),
    "_rminus_scalar": beside(np.subtract, True), "_mul_scalar": beside(np.multiply),
    "_div_scalar": beside(divide), "_rdiv_scalar": beside(divide, True),
    "_mod_scalar": beside(modulo), "_rmod_scalar": beside(modulo, True),
    "_power_scalar": beside(power), "_rpower_scalar": beside(power, True),
    "_maximum_scalar": beside(np.maximum), "_minimum_scalar": beside(np.minimum),
    "_hypot_scalar": beside(np.hypot), "_arctan2_scalar": beside(np.arctan2),
    "_rarctan2_scalar": beside(np.arctan2, True),
}  # fmt: skip
FLOAT_ONLY = {"_arctan2_scalar", "_rarctan2_scalar"}
for name, function in SCALARS.items():
    ours = {"mxnet": name not in FLOAT_ONLY, "why": NOT_THERE}
    for scalar in (2, 0.5, 1.7):
        ROWS += [Case(name, (draw((3, 4), 0.5, 3),), function, {"scalar": scalar}, **ours)]
    for dtype in ("float16", "float64"):
        ROWS += [Case(name, (draw((5,), 0.5, 3, dtype),), function, {"scalar": 1.3}, **ours,
                      rtol=3e-3 if dtype == "float16" else 1e-12)]  # fmt: skip
    for shape in ((), (0,)):
        x = draw(shape, 0.5, 3)
        ROWS += [Case(name, (x,), function, {"scalar": 2}, **ours)]
    if name in FLOAT_ONLY:
        continue
    for dtype, scalar in (("int32", 2), ("int64", 2.7), ("uint8", 2.7), ("int8", 2), ("bool", 2.7)):
        x = np.array([1, 2, 3, 5]).astype(dtype)
        ROWS += [Case(name, (x,), function, {"scalar": scalar})]
    ROWS += [Case(name, (draw((3, 4)),), function, {"scalar": -2}, grad=name != "_rpower_scalar")]

BIG = np.int64([2**53, 2**53 + 1, 2**62 + 1])
SIGNS = np.float32([7, -7, 2.5, -2.5, 0])
ROWS += [
    Case("_plus_scalar", (np.int32([1, -4]),), beside(np.add), {"scalar": 0.5}),
    Case("_minus_scalar", (np.uint8([0, 1, 200]),), lambda x, scalar: np.uint8([255, 0, 199]),
         {"scalar": 1}),
    Case("_plus_scalar", (np.uint8([0, 1, 200]),), lambda x, scalar: np.uint8([44, 45, 244]),
         {"scalar": 300}),
    Case("_mul_scalar", (np.int8([100, -100]),), lambda x, scalar: np.int8([-56, 56]),
         {"scalar": 2}),
    Case("_mul_scalar", (BIG,), lambda x, scalar: x, {"scalar": 1}),
    Case("_power_scalar", (np.int32([1, 2, 3, -4]),), lambda x, scalar: np.int32([1, 0, 0, 0]),
         {"scalar": -1}),
    Case("_maximum_scalar", (np.float32([nan, 1, inf]),), beside(np.maximum), {"scalar": 2},
         grad=False),
    Case("_div_scalar", (SIGNS,), lambda x, scalar: np.float32([inf, -inf, inf, -inf, nan]),
         {"scalar": 0}, grad=False),
]  # fmt: skip
for dtype in ("float16", "float32", "float64", "int8", "int64", "uint8"):
    numbers = (0.0, 1, 2, 7, 2.5, 100) if dtype == "uint8" else (0.0, -0.0, 1, -2, 7, -2.5, 100)
    special = numbers if "int" in dtype else (*numbers, inf, -inf, nan)
    points = np.array(special).astype(dtype)
    ROWS += [Case("broadcast_mod", (points[:, None], points), modulo, grad=False)]
    ROWS += [
        Case(name, (points,), SCALARS[name], {"scalar": scalar}, grad=False)
        for name in ("_mod_scalar", "_rmod_scalar")
        for scalar in special
    ]
for scalar in (0, 1, 2, 3, 4, 5, -1, -2, -3, 0.5, -0.5, 1.5, 7.25):
    data = np.float32([0.3, 2, 1, 1.5, 0.7])
    ROWS += [Case("_power_scalar", (data,), beside(power), {"scalar": scalar})]
    if float(scalar).is_integer():
        data = np.float32([-0.3, 2, -1, -0.0, inf, -inf, nan, 0])
        ROWS += [Case("_power_scalar", (data,), beside(power), {"scalar": scalar}, grad=False)]

for name, function in COMPARISONS.items():
    scalar_op = f"_{name}_scalar"

    def compared(x, scalar, function=function):
        kind = "int64" if x.dtype.kind == "b" else x.dtype
        if x.dtype.kind != "f":
            least = np.iinfo(kind).min if np.iinfo(kind).bits > 16 else 0  # nan and inf in C++
            scalar = int(scalar) % 2**64 if np.isfinite(scalar) else least % 2**64
        number = np.array(scalar).astype(kind)
        return function(x.astype(kind), number).astype(kind)

    points = np.float32([0, 1, 2, -1, nan])
    ROWS += [Case(scalar_op, (points,), compared, {"scalar": s}) for s in (1, -0.0)]
    ROWS += [Case(scalar_op, (np.float32([0.1, 0.2]),), compared, {"scalar": 0.1})]
    ROWS += [
        Case(scalar_op, (np.array([0, 1, 2, 3]).astype(dtype),), compared, {"scalar": scalar},
             mxnet=scalar in (1, 1.5), why="C++ leaves open what such numbers become")
        for dtype, scalar in (
            ("int32", 1), ("int32", 1.5), ("int32", nan), ("uint8", -1), ("uint8", 300),
            ("int8", -inf), ("bool", 1),
        )
    ]  # fmt: skip
    ROWS += [
        Case(scalar_op, (BIG,), compared, {"scalar": 2**53}),
        Case(scalar_op, (np.int32([2**24, 2**24 + 1]),), compared, {"scalar": 2**24 + 1}),
        Case(scalar_op, (draw(()),), compared, {"scalar": 0}),
        Case(scalar_op, (draw((0, 3)),), compared, {"scalar": 0}),
    ]

# -- the public functions --------------------------------------------------------------------------

PUBLIC = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "true_divide": np.divide, "modulo": np.mod, "power": np.power, "maximum": np.maximum,
    "minimum": np.minimum, "hypot": np.hypot, "arctan2": np.arctan2, "pow": np.power,
    **COMPARISONS,
}  # fmt: skip
for name, function in PUBLIC.items():

    def alike(a, b, function=function):
        return np.asarray(function(np.float32(a), np.float32(b))).astype("float32")

    there = {"mxnet": name not in ("hypot", "arctan2", "pow"), "why": NOT_THERE}
    x, y = draw((2, 3), 0.5, 3), draw((3,), 0.5, 3, seed=1)
    ROWS += [Case(name, inputs, alike, **there) for inputs in ((x, y), (x, 2), (1.5, x), (x, 1))]


# -- bits ------------------------------------------------------------------------------------------


def by_ufunc(a, b, how):
    return getattr(np, how)(a, b)


OWN = {"grad": False, "mxnet": False, "why": "of np alone"}
for how in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    for dtype in ("int32", "int64", "uint8", "bool"):
        a, b = draw((2, 1), 0, 9, dtype), draw((3,), 0, 9, dtype, seed=1)
        ROWS += [Case("_by_ufunc", (a, b), by_ufunc, {"how": how}, **OWN)]
for how in ("floor_divide", "fmod"):
    for dtype in ("int32", "int8", "float32"):
        a, b = draw((2, 1), -9, 9, dtype), draw((3,), 1, 4, dtype, seed=1)
        ROWS += [Case("_by_ufunc", (a, b), by_ufunc, {"how": how}, **OWN)]
ROWS += [
    Case("_bitwise_not", (draw((4,), 0, 9, dtype),), np.invert, **OWN)
    for dtype in ("int32", "bool")
]
