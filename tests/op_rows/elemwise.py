"""Rows of `ops/unary.py`, `ops/activation.py`, `ops/unary.py` and `ops/create.py`."""

from __future__ import annotations

import math

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

KINDER = "what MXNet does here is an accident; the docstring says what we do"

inf, nan = math.inf, math.nan
#: Where nan, inf and signed zeros come out by the rules.
EDGES = np.float32([0.0, -0.0, 1.0, -1.0, inf, -inf, nan])


def f32(*numbers):
    return np.float32(numbers)


def kept(function):
    """The NumPy function in MXNet's dtypes: computed wide, integers cut, the dtype kept."""

    def expect(x, **attrs):
        y = function(np.asarray(x, np.float64), **attrs)
        if x.dtype.kind in "iu":
            return np.trunc(y).astype(np.int64).astype(x.dtype)
        return np.asarray(y).astype(x.dtype)

    return expect


def over(function, pole=nan):
    """A function of Python's `math` over an array; where Python raises, what C returns."""

    def one(x):
        try:
            return function(x)
        except OverflowError:
            return inf
        except ValueError:
            return pole if x < 0 else inf

    return lambda x: np.vectorize(one, otypes=[np.float64])(x)


def slope(function, step=1e-4):
    """The derivative by differences of fourth order."""
    return lambda x: (
        8 * (function(x + step) - function(x - step)) - function(x + 2 * step)
        + function(x - 2 * step)
    ) / (12 * step)  # fmt: skip


gamma, gammaln, erf = over(math.gamma), over(math.lgamma, inf), over(math.erf)


# name: (function, range of the usual row, whether a random point may be differentiated)
FUNCTIONS = {
    "square": (np.square, -2, 2), "sqrt": (np.sqrt, 0.1, 4), "cbrt": (np.cbrt, 0.1, 4),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 4), "rcbrt": (lambda x: 1 / np.cbrt(x), 0.1, 4),
    "reciprocal": (lambda x: 1 / x, 0.2, 4), "exp": (np.exp, -2, 2), "expm1": (np.expm1, -2, 2),
    "log": (np.log, 0.1, 4), "log2": (np.log2, 0.1, 4), "log10": (np.log10, 0.1, 4),
    "log1p": (np.log1p, -0.9, 4), "sin": (np.sin, -4, 4), "cos": (np.cos, -4, 4),
    "tan": (np.tan, -1.5, 1.5), "arcsin": (np.arcsin, -0.9, 0.9),
    "arccos": (np.arccos, -0.9, 0.9), "arctan": (np.arctan, -4, 4),
    "degrees": (np.degrees, -4, 4), "radians": (np.radians, -360, 360),
    "sinh": (np.sinh, -2, 2), "cosh": (np.cosh, -2, 2), "tanh": (np.tanh, -2, 2),
    "arcsinh": (np.arcsinh, -4, 4), "arccosh": (np.arccosh, 1.1, 4),
    "arctanh": (np.arctanh, -0.9, 0.9), "abs": (np.abs, -2, 2), "sign": (np.sign, -2, 2),
    "negative": (np.negative, -2, 2), "relu": (lambda x: np.maximum(x, 0), -2, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -8, 8),
    "softsign": (lambda x: x / (1 + np.abs(x)), -4, 4),
    "floor": (np.floor, -4, 4), "ceil": (np.ceil, -4, 4), "trunc": (np.trunc, -4, 4),
    "fix": (np.trunc, -4, 4), "rint": (lambda x: np.ceil(x - 0.5), -4, 4),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), -4, 4),
    "erf": (erf, -3, 3), "gamma": (gamma, 0.2, 8),
    "gammaln": (gammaln, 0.2, 8), "digamma": (slope(gammaln), 0.5, 8),
    "_copy": (np.array, -2, 2), "BlockGrad": (np.array, -2, 2),
    "zeros_like": (np.zeros_like, -2, 2), "ones_like": (np.ones_like, -2, 2),
}  # fmt: skip
#: MXNet has none of these for nd.
INTERNAL = {"digamma"}

ROWS: list[Case] = []
for i, (name, (function, low, high)) in enumerate(FUNCTIONS.items()):
    loose = {"rtol": 1e-5} if name not in INTERNAL else {"rtol": 1e-3, "atol": 1e-4}
    known = {"mxnet": name not in INTERNAL, "why": "MXNet does not show it"}
    expect = kept(function)
    ROWS += [
        Case(name, (draw((3, 4), low, high),), expect, grad=name not in INTERNAL, **loose, **known),
        Case(name, (draw((5,), low, high, "float64"),), expect, grad=False, **known,
             **({"rtol": 1e-12, "atol": 1e-13} if name not in INTERNAL else loose)),
        Case(name, (draw((2, 3), low, high, "float16"),), expect, grad=False, **known,
             rtol=2e-3, atol=1e-3),
        Case(name, (draw(EDGE_SHAPES[i % 7], low, high),), expect, grad=False, **loose, **known),
    ]  # fmt: skip
    if name not in ("arcsin", "arccos", "arctanh"):
        ROWS += [Case(name, (np.int32([1, 2, 3, 4]),), expect, **known)]
for shape in EDGE_SHAPES:
    for name in ("exp", "relu", "gamma", "erf"):
        function = FUNCTIONS[name][0]
        ROWS += [Case(name, (draw(shape, 0.5, 3),), kept(function))]

# -- at the edges ----------------------------------------------------------------------------------

with np.errstate(all="ignore"):
    for name in (
        "square sqrt rsqrt cbrt rcbrt reciprocal exp expm1 log log2 log10 log1p arcsin arccos "
        "arctan sinh cosh tanh arcsinh arccosh arctanh abs negative sigmoid floor ceil trunc "
        "relu erf"
    ).split():
        ROWS += [Case(name, (EDGES,), kept(FUNCTIONS[name][0]), grad=False)]
ROWS += [
    Case("sign", (EDGES,), np.sign, grad=False, mxnet=False, why="MXNet: sign(nan) is 0"),
    Case("relu", (f32(-1, 0, 2, nan, -inf, inf),), lambda x: f32(0, 0, 2, nan, 0, inf), grad=False),
    Case("round", (f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609, 4194304.5, inf, nan),),
         lambda x: f32(1, 2, 3, -1, -2, -3, 0, 8388609, 4194305, inf, nan), grad=False),
    Case("round", (np.float64([0.49999999999999994, 4503599627370497, -2.5]),),
         lambda x: np.float64([0, 4503599627370497, -3]), grad=False),
    Case("rint", (f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609, -1e-30, inf, nan),),
         lambda x: f32(0, 1, 2, -1, -2, -3, 0, 8388609, 0, inf, nan), grad=False),
    Case("gamma", (np.float64([1, 2, 3, 10, 18, 172, 0, -1, inf, -0.5, -1.5, 1e-10]),),
         lambda x: np.float64([1, 1, 2, 362880, math.factorial(17), inf, inf, nan, inf,
                               math.gamma(-0.5), math.gamma(-1.5), math.gamma(1e-10)]),
         rtol=2e-14, atol=0, grad=False),
    Case("gammaln", (np.float64([1e-300, 0.1, 1, 2, 1e5, 1e30, 0, -1, inf, -0.5, -7.3]),),
         gammaln, rtol=1e-14, atol=1e-14, grad=False),
    Case("gamma", (np.arange(1, 10, dtype="int32"),),
         lambda x: np.int32([math.factorial(n - 1) for n in x])),
    Case("erf", (np.float64([1e-300, -1e-9, 0.4999, 0.5, 0.5001, 3, 5.9, 6.1, -30]),), erf,
         rtol=1e-15, atol=0, grad=False),
    Case("gamma", (np.float64([-0.5, -1.6, 2.5]),), gamma),
    Case("gammaln", (np.float64([-0.5, -1.6, 2.5]),), gammaln),
]  # fmt: skip

# -- integers --------------------------------------------------------------------------------------

LARGE = np.int64([2**24 + 1, -(2**24) - 1, 2**53 + 1, -(2**62) - 1])
for name in ("floor", "ceil", "trunc", "fix", "round", "rint"):
    ROWS += [Case(name, (LARGE,), lambda x: x), Case(name, (np.int8([-3, 0, 7]),), lambda x: x)]
for name in ("abs", "negative", "sign"):
    ROWS += [Case(name, (LARGE,), FUNCTIONS[name][0])]
ROWS += [
    Case("square", (np.uint8([0, 1, 200]),), lambda x: np.uint8([0, 1, 64])),
    Case("negative", (np.uint8([0, 1, 200]),), lambda x: np.uint8([0, 255, 56])),
]

# -- activations with attributes, clip -------------------------------------------------------------


def smooth_l1(x, scalar=1.0):
    a, square = np.abs(x.astype(np.float64)), scalar * scalar
    y = np.where(a * square < 1, 0.5 * square * a * a, a - 0.5 / max(square, 1e-30))
    return y.astype(x.dtype)


def clip(x, a_min, a_max):
    return np.clip(x, a_min, a_max).astype(x.dtype)


ROWS += [
    Case("smooth_l1", (draw((3, 4)),), smooth_l1),
    Case("smooth_l1", (draw((3, 4)),), smooth_l1, {"scalar": 2.0}),
    Case("smooth_l1", (draw((3, 4)),), lambda x, scalar: x * 0, {"scalar": 0.0}, grad=False),
    Case("smooth_l1", (np.int32([-3, -1, 0, 1, 4]),), lambda x: np.int32([2, 0, 0, 0, 3])),
    Case("clip", (draw((3, 4)),), clip, {"a_min": -1, "a_max": 0.5}),
    Case("clip", (f32(nan, -inf, inf, 0),), clip, {"a_min": 0, "a_max": inf}, grad=False),
    Case("clip", (np.int32([1, 2, 3, -4]),), lambda x, **_: np.int32([1, 2, 2, -1]),
         {"a_min": -1.5, "a_max": 2.7}),
    Case("clip", (np.uint8([0, 1, 200]),), lambda x, **_: x, {"a_min": -1, "a_max": 300}),
    Case("clip", (np.int8([-100, 5, 100]),), lambda x, **_: x, {"a_min": -inf, "a_max": inf},
         mxnet=False, why=KINDER),
    Case("clip", (LARGE,), lambda x, **_: np.clip(x, 0, 2**53 + 1),
         {"a_min": 0, "a_max": 2**53 + 1}, mxnet=False, why="MXNet's limits are float32"),
]  # fmt: skip
ROWS += [Case("clip", (draw(shape),), clip, {"a_min": 0, "a_max": 1}) for shape in EDGE_SHAPES]

# -- yes or no -------------------------------------------------------------------------------------


def answer(function):
    return lambda x: function(x).astype(x.dtype)


for name, function in {
    "logical_not": np.logical_not, "_contrib_isnan": np.isnan, "_contrib_isinf": np.isinf,
    "_contrib_isfinite": np.isfinite,
}.items():  # fmt: skip
    public = name.replace("_contrib_", "contrib.")
    ROWS += [
        Case(public, (EDGES,), answer(function)),
        Case(public, (np.int32([0, 1, -2]),), answer(function)),
        Case(public, (np.array([True, False]),), answer(function), mxnet=False,
             why="we allow what MXNet refuses"),
    ]  # fmt: skip

# -- casts and copies ------------------------------------------------------------------------------

DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool")


def cast(x, dtype):
    if np.dtype(dtype).kind in "iu" and x.dtype.kind == "f":
        x = x.astype(np.int64)
    return x.astype(dtype)


def multicast(*arrays, num_outputs):
    halves = [x.dtype == np.float16 for x in arrays if x.dtype.kind == "f"]
    common = np.float16 if all(halves) else np.float32
    found = [x.astype(common) if x.dtype.kind == "f" else x for x in arrays]
    return found if num_outputs > 1 else found[0]


ROWS += [
    Case("cast", (draw((2, 3), 0, 3, source),), cast, {"dtype": target})
    for source in DTYPES
    for target in DTYPES
]
ROWS += [
    Case("cast", (f32(300, 11.1, 10.9, -1, -3),), cast, {"dtype": "uint8"}),
    Case("Cast", (LARGE,), cast, {"dtype": "int32"}),
    Case("amp_cast", (draw((2, 3)),), cast, {"dtype": "float16"}, rtol=1e-3),
    Case("amp_cast", (draw((2, 3), dtype="float64"),), lambda x, dtype: x, {"dtype": "float32"},
         mxnet=False, why="MXNet: unknown type for MKLDNN"),
    *[Case("amp_multicast", tuple(draw((2, 3), dtype=dtype) for dtype in dtypes), multicast,
           {"num_outputs": len(dtypes)}, rtol=1e-3,
           mxnet="float16" not in dtypes, why="MXNet: unknown type for MKLDNN")
      for dtypes in (("float16", "float32"), ("int32", "float16", "float32", "float16"),
                     ("float16", "float16"), ("float32",), ("int32", "float32"))],
]  # fmt: skip
for name in ("_copy", "BlockGrad", "zeros_like", "ones_like"):
    for dtype in ("bool", "uint8"):
        ROWS += [
            Case(name, (draw((2, 3), dtype=dtype),),
                 {"zeros_like": np.zeros_like, "ones_like": np.ones_like}.get(name, np.array),
                 mxnet=dtype != "bool", why="we allow what MXNet refuses"),
        ]  # fmt: skip
ROWS += [Case(name, (draw((2, 3)),), lambda x, **_: x) for name in ("identity", "stop_gradient")]
ROWS += [  # the gradient is not the slope, on purpose: tests/ops/test_pointwise.py has it
    Case("make_loss", (draw((2, 3)),), lambda x: x, grad=False),
    Case("_identity_with_attr_like_rhs", (draw((2, 3)), draw((2, 3), seed=1)), lambda x, y: x),
]  # fmt: skip
# -- several inputs --------------------------------------------------------------------------------

x, y = draw((3, 4)), draw((3, 4), seed=1)
CONDITION = np.int32([[0, 1, -2, 0], [1, 0, 0, 3], [0, 0, 1, 1]])
ROWS += [
    Case("where", (CONDITION.astype(kind), x, y), np.where, grad=kind in ("int32", "uint8"))
    for kind in ("float32", "int32", "uint8", "float16")
]
ROWS += [
    Case("where", (np.int32([1, 0, 2]), x, y), lambda c, x, y: np.where(c[:, None], x, y)),
    Case("where", (np.array([True, False, True]), x[:, 0], y[:, 0]), np.where, mxnet=False,
         why="we allow what MXNet refuses"),
    Case("where", (CONDITION, CONDITION, -CONDITION), np.where),
]  # fmt: skip
for n in (1, 2, 3, 5):
    ROWS += [
        Case("add_n", tuple(draw((3, 4), seed=k) for k in range(n)), lambda *xs: sum(xs), rtol=1e-5)
    ]
ROWS += [
    Case("ElementWiseSum", (x, y, x), lambda a, b, c: a + b + c),
]  # fmt: skip
