"""Every layer, cell and loss of the tables, compiled: the same numbers as eager, both ways.

A row's net is run as it is written and hybridized, from the same parameters and seed, in each of
the row's modes; so dropout drops the same elements. A cell's `unroll` is wrapped into a Block with
a plain `forward`, for only calls of Blocks are compiled.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gluon_rows import loss, nn, peer, rnn
from gluon_rows.runner import Row
from hybrid_nets import NETS, numbers, run

import d2lmini as mx
from d2lmini import random
from d2lmini.gluon import HybridBlock

ROWS = [*nn.ROWS, *loss.ROWS, *rnn.ROWS]
ROWS += [replace(row, is_np=True) for row in ROWS]


class Call(HybridBlock):
    """Any expression of `net` and `x` as a Block."""

    def __init__(self, net: HybridBlock, call: str):
        super().__init__()
        self.net = net
        self.call = call

    def forward(self, *x):
        return eval(self.call, {**peer.names(mx), "net": self.net, "x": list(x)})


def answers(row: Row) -> list[dict[str, np.ndarray]]:
    """What a row gives in each mode: eager, compiled, and compiled for the second time."""
    scope = peer.names(mx)
    mx.random.seed(0)
    net = eval(row.build, scope)
    net.initialize()
    if row.dtype != "float32":
        net.cast(row.dtype)
    inputs, plain = row.arrays(), row.plain()
    peer.forward(scope, plain, net, [peer.array(mx, plain, a) for a in inputs])
    parameters = list(net.collect_params().values())
    found = []

    def run() -> None:
        for mode in row.modes:
            found.append(peer.run(mx, scope, plain, net, parameters, inputs, mode))

    run()
    if row.call != "net(*x)":
        net = Call(net, row.call)
        plain["call"] = "net(*x)"
    net.hybridize()
    run()
    run()
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_compiled_equals_eager(row):
    if not isinstance(eval(row.build, peer.names(mx)), HybridBlock):
        pytest.skip("cannot be hybridized")
    with mx.util.np_array(row.is_np), mx.util.np_shape(row.is_np):
        found = answers(row)
    n = len(row.modes)
    for mode, eager, *compiled in zip(row.modes, found[:n], found[n : 2 * n], found[2 * n :]):
        for each in compiled:
            assert eager.keys() == each.keys()
            for key, expected in eager.items():
                assert each[key].shape == expected.shape and each[key].dtype == expected.dtype
                np.testing.assert_allclose(
                    each[key], expected, rtol=row.rtol, atol=row.atol, err_msg=f"{mode}/{key}"
                )


# -- the networks of the book ---------------------------------------------------------------------


@pytest.mark.parametrize("train", [True, False], ids=["train", "predict"])
@pytest.mark.parametrize("name", NETS)
def test_nets_compiled_equal_eager(name, train):
    """Over its shapes in turn and again, so that what was compiled is used, too."""
    build, shapes, words = NETS[name]
    random.seed(1)
    net = build()
    net.initialize()
    first = numbers(shapes[0], words)
    net(*first)
    before = {n: p.data().asnumpy() for n, p in net.collect_params().items()}

    def runs() -> list[dict[str, np.ndarray]]:
        for n, p in net.collect_params().items():
            p.set_data(before[n])
        alike = [shape for shape in shapes if len(shape) == len(shapes[0])]
        return [run(net, numbers(each, words), train) for each in (*alike, *alike)]

    eager = runs()
    net.hybridize()
    for expected, got in zip(eager, runs(), strict=True):
        assert expected.keys() == got.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, rtol=2e-4, atol=2e-5, err_msg=key)
