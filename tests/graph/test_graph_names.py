"""The Symbols of nets: the same arguments, states, names inside and labels as in the real MXNet."""

from __future__ import annotations

import pytest
from gluon_rows import nn
from graph_names import lists
from oracle import Oracle

import d2lmini as mx

LAYERS = [row.build for row in nn.ROWS if row.call == "net(*x)" and len(row.inputs) == 1]
NETS = [(build, "net(x)") for build in dict.fromkeys(LAYERS)]
NETS += [
    ("joined(nn.HybridSequential(prefix='net_'), nn.Dense(4, activation='relu'))", "net(x)"),
    ("joined(nn.HybridSequential(), nn.Dense(4, prefix='mine_'), nn.Dense(2))", "net(x)"),
    ("rnn.LSTM(3, 2, bidirectional=True)", "net(x)"),
    ("rnn.RNN(3, layout='NTC')", "net(x)"),
    ("rnn.GRU(3)", "net(x)"),
]
CELLS = [
    "rnn.RNNCell(3)", "rnn.LSTMCell(3)", "rnn.GRUCell(3, prefix='g_')",
    "joined(rnn.HybridSequentialRNNCell(), rnn.LSTMCell(3), rnn.DropoutCell(0.5), rnn.GRUCell(5))",
    "rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(2))", "rnn.ResidualCell(rnn.GRUCell(5))",
    "rnn.ZoneoutCell(rnn.LSTMCell(5), 0.5, 0.5)",
]  # fmt: skip
NETS += [(build, "net.unroll(2, x)") for build in CELLS]
LOSSES = """
    L1Loss SigmoidBinaryCrossEntropyLoss KLDivLoss HuberLoss HingeLoss SquaredHingeLoss
    LogisticLoss PoissonNLLLoss CTCLoss
""".split()
NETS += [(f"loss.{name}()", "net(x, label)") for name in LOSSES]

#: What is written otherwise here: fewer ops, or ours alone take Symbols.
OTHERWISE = ("Swish", "BatchNormReLU", "nn.Lambda")


@pytest.mark.parametrize(("build", "call"), NETS, ids=[build for build, _ in NETS])
def test_lists_are_those_of_mxnet(build: str, call: str, mxnet: Oracle):
    if any(name in build for name in OTHERWISE):
        pytest.skip("written otherwise here")
    assert lists(mx, build, call) == mxnet.ask(lists, build, call)
