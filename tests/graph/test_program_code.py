"""The code of programs: texts that differ in their numbers alone are compiled once."""

from __future__ import annotations

from unittest import mock

import pytest

from d2lmini import autograd, gluon, nd
from d2lmini.graph import text as code
from d2lmini.graph.text import code_of

nn = gluon.nn

TEXT = '''
def f(x, kernel="float y = 2.5f * x + 1e-5f; // 10, _10"):
    """f, 10 elements of _10."""
    _10, _2_5, _number = 10, 2.5, "10"  # 10, _10
    g = lambda: (x[0:10], x[-2], {"n": (10, (2, -1), -0.0), 'a 10': 1e-05})
    return _10, _2_5, _number, g(), kernel, 0.5, 5, 1e300, x1e5, 3.141592653589793
x1e5 = 2
'''


def result_of(compiled) -> tuple:
    space: dict = {}
    exec(compiled, space)
    return repr(space["f"](list(range(20)))), space["f"].__doc__


def test_numbers_are_put_where_they_were():
    before = code._compile.cache_info().misses
    for old, new in (("10", "10"), ("10", "12"), ("2", "7"), ("2.5", "1e-07"), ("5", "17")):
        text = TEXT.replace(old, new)
        names = {"_10", "_2_5", "_12", "_7_5"}
        assert result_of(code_of(text, "a file", names)) == result_of(compile(text, "", "exec"))
    assert code._compile.cache_info().misses - before < 5
    assert code_of(TEXT, "a file").co_filename == "a file"


def layers() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.LayerNorm(), nn.Dense(10))
    return net


def images() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(2, 2), nn.Dense(10))
    return net


def train(net, x) -> None:
    with autograd.record():
        y = net(x)
    y.backward()
    nd.waitall()


@pytest.mark.parametrize("make, shape", [(layers, (200,)), (images, (1, 12, 12))])
@pytest.mark.parametrize("sizes", [(3, 4), (601, 602)])
def test_a_net_of_another_batch_size_compiles_no_new_code(make, shape, sizes):
    net = make()
    net.initialize()
    net.hybridize()
    for n in (1000, *sizes[:1]):
        train(net, nd.ones((n, *shape)))
    with mock.patch.object(code, "compile", create=True) as compiling:
        train(net, nd.ones((sizes[1], *shape)))
    assert not compiling.called
