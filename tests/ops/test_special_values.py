"""Infinities, zeros of both signs, nan, the smallest and the largest numbers, through every
elementwise function: forward and gradient, eager and hybridized, here and in the real MXNet 1.9.1
(`make test-mxnet`). What differs from MXNet is listed with its reason.
"""

from __future__ import annotations

import numpy as np
import pytest
from generators.agree import results
from oracle import Oracle

from d2lmini import autograd, nd

inf, nan = np.inf, np.nan
VALUES = [
    0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 8, -8, 20, -20, 89, -89, 104, -104, 1e3, -1e3,
    1e-20, -1e-20, 1e-40, 1e20, -1e20, 3e38, -3e38, inf, -inf, nan,
]  # fmt: skip

UNARY = """
    square sqrt rsqrt cbrt rcbrt reciprocal exp expm1 log log2 log10 log1p sin cos tan arcsin arccos
    arctan degrees radians sinh cosh tanh arcsinh arccosh arctanh abs sign negative floor ceil trunc
    fix round rint relu sigmoid softsign erf gamma gammaln
    logical_not""".split()
BINARY = "add sub mul div mod power maximum minimum hypot".split()

#: Expressions of x (and z), by what a failure calls them.
TABLE = {name: f"nd.{name}(x)" for name in UNARY}
TABLE |= {
    f"Activation {kind}": f"nd.Activation(x, act_type={kind!r})"
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")
}
TABLE |= {
    f"LeakyReLU {kind} {slope}": f"nd.LeakyReLU(x, act_type={kind!r}, slope={slope})"
    for kind, slope in (
        ("leaky", 0.25), ("elu", 0.25), ("elu", 1.5), ("elu", -0.5), ("selu", 0.25), ("gelu", 0.25),
    )
}  # fmt: skip
TABLE |= {
    op.format(number): op.format(number)
    for op in ("x ** {}", "{} ** x", "x % {}", "{} % x", "{} / x", "x / {}", "x * {}")
    for number in (0.0, 0.5, 1.0, 2.0, -1.0, 3.0)
    if number >= 0 or op != "{} ** x"
}
TABLE |= {
    "smooth_l1": "nd.smooth_l1(x, scalar=1.0)", "clip": "nd.clip(x, -1, 2)",
    "prelu": "nd.LeakyReLU(x.reshape((1, -1)), z, act_type='prelu')",
}  # fmt: skip
TABLE |= {f"broadcast_{name}": f"nd.broadcast_{name}(x, z)" for name in BINARY}

#: (what, output; 0 the value, 1 the gradient of x, 2 of z): (where it may differ, why).
DIFFERS = {
    ("rsqrt", 1): ("x == 0", "y ** 3 has the sign of y"),
    ("abs", 1): ("x != x", "nan goes on"), ("sign", 0): ("x != x", "nan goes on"),
    ("relu", 1): ("x != x", "0 where y is not above 0"),
    ("LeakyReLU leaky 0.25", 1): ("x != x", "0, as that of relu"),
    ("clip", 1): ("x != x", "0 outside"),
    ("gamma", 1): ("x == 0", "the slope at the pole has the other sign"),
    ("gammaln", 1): ("x <= 0", "nan or -inf at the poles, as PyTorch's; MXNet has inf below 0"),
    ("Activation relu", 0): ("x != x", "nan goes on"),
    ("Activation softrelu", 0): ("x == -20", "MXNet's vector exp loses digits"),
    ("Activation softsign", 1): ("abs(x) == inf", "y is nan there"),
    ("x ** 0.0", 1): ("(abs(x) < 1e-30) | (x != x)", "the slope of 1 is 0; MXNet has 0 * inf"),
    ("x ** 0.5", 0): ("x == -inf", "a square root"),
    ("0.0 / x", 1): ("abs(x) == 1e-40", "MXNet squares x"),
    ("broadcast_div", 2): ("abs(z) >= 1e19", "MXNet squares z"),
    ("broadcast_hypot", 1): ("abs(y) < 1e-30", "0 / 0"),
    ("broadcast_hypot", 2): ("abs(y) < 1e-30", "0 / 0"),
    ("x / 0.0", 1): ("x == x", "g / 0"),
}  # fmt: skip
for _kind in ("elu 0.25", "elu 1.5", "elu -0.5"):
    DIFFERS[f"LeakyReLU {_kind}", 1] = ("(abs(x) < 1e-19) | (x != x)", "MXNet asks y > 0")
DIFFERS["LeakyReLU selu 0.25", 1] = ("(x < 0) | (x != x)", "MXNet misses a factor")
DIFFERS["prelu", 0] = ("abs(z) == inf", "0 times an infinite slope, above 0")
DIFFERS["prelu", 1] = ("(x != x) | (abs(z) == inf)", "nan goes on")
DIFFERS["prelu", 2] = ("x != x", "nan goes on")

PROGRAM = """
numbers = np.array({values}, "float32")
{pairs}
class Net(gluon.HybridBlock):
    def hybrid_forward(self, nd, x, z):
        return {expression}
net = Net()
if {hybridize}:
    net.hybridize()
x, z = nd.array(a), nd.array(b)
x.attach_grad()
z.attach_grad()
with autograd.record():
    y = net(x, z)
y.backward()
keep(y)
keep(x.grad)
keep(z.grad)
"""


def program(expression: str, hybridize: bool = False) -> str:
    """The text of one row."""
    both = "nd.broadcast" in expression
    pairs = (
        "a, b = (m.ravel() for m in np.meshgrid(numbers, numbers))" if both else "a = b = numbers"
    )
    return PROGRAM.format(
        values=repr(VALUES).replace("inf", "np.inf").replace("nan", "np.nan"), pairs=pairs,
        expression=expression, hybridize=hybridize,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", TABLE)
def test_eager_and_hybridized_keep_the_same_bits(name):
    for one, other in zip(*(results(program(TABLE[name], how)) for how in (False, True))):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", TABLE)
def test_special_values_equal_mxnet(name, mxnet: Oracle):
    ours = results(program(TABLE[name]))
    theirs = mxnet.results(program(TABLE[name]))
    x = np.array(VALUES, "float32")
    z = x
    if "broadcast" in name:
        x, z = (m.ravel() for m in np.meshgrid(x, x))
    for output, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        alike = np.isclose(a, b, 1e-3, 1e-6, equal_nan=True).ravel()
        if (name, output) in DIFFERS:
            where, _ = DIFFERS[name, output]
            alike |= eval(where, {"x": x, "z": z, "y": a.ravel(), "inf": inf, "abs": abs})
        wrong = [(float(v), p, q) for v, p, q, ok in zip(x, a.ravel(), b.ravel(), alike) if not ok]
        assert not wrong, f"{name}, output {output}: (x, ours, MXNet's) {wrong}"


@pytest.mark.parametrize(
    "how, slope",
    [
        ({"act_type": "leaky"}, 1), ({"act_type": "elu"}, 1),
        ({"act_type": "elu", "slope": -2.0}, 1),
        ({"act_type": "selu"}, 1.0507009), ({"act_type": "prelu"}, 1),
    ],
)  # fmt: skip
def test_units_that_are_linear_above_0_have_a_slope_at_infinity(how, slope):
    x, gamma = nd.array([[-2.0, 3.0, inf]]), nd.array([0.5])
    gamma.attach_grad()
    x.attach_grad()
    with autograd.record():
        y = nd.LeakyReLU(x, *[gamma] * (how["act_type"] == "prelu"), **how)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy()[0, 1:], [slope, slope], 1e-6)
    assert np.isfinite(x.grad.asnumpy()).all()
    assert gamma.grad.asscalar() == (-2 if how["act_type"] == "prelu" else 0)


def test_values_at_the_ends():
    assert nd.gamma(nd.array([172, 1e3, inf])).asnumpy().tolist() == [inf, inf, inf]
    assert nd.gammaln(nd.array([-inf, inf, 0])).asnumpy().tolist() == [inf, inf, inf]
    assert nd.LeakyReLU(nd.array([3e38]), act_type="gelu").asscalar() == np.float32(3e38)


REMAINDERS = """
points = {points}
for dtype in ("float16", "float32", "float64"):
    x, z = (nd.array(m.ravel(), dtype=dtype) for m in np.meshgrid(points, points))
    a, b = x.as_np_ndarray(), z.as_np_ndarray()
    for y in (nd.broadcast_mod(x, z), mx.np.mod(a, b), mx.np.remainder(a, b)):
        keep(y)
        keep(1 / y)
    column = nd.array(points, dtype=dtype)
    for number in points:
        for y in (column % number, number % column):
            keep(y)
            keep(1 / y)
"""


def test_remainders_and_the_signs_of_zeros_equal_mxnet(mxnet: Oracle):
    points = "[0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, 6e4, -1e-7, np.inf, -np.inf, np.nan]"
    text = REMAINDERS.format(points=points)
    for ours, theirs in zip(results(text), mxnet.results(text), strict=True):
        np.testing.assert_array_equal(ours, theirs)
