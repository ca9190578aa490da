"""The Symbols of nets: the same arguments, states, names inside and labels as in the real MXNet."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from gluon_rows import nn
from gluon_rows.runner import MXNET
from graph_names import lists

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
OTHERWISE = ("Swish", "BatchNormReLU", "PixelShuffle", "nn.Lambda", "contrib.nn.Concurrent")


@pytest.fixture(scope="module")
def answers():
    """What MXNet lists for all of them."""
    if not MXNET:
        pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter")
    script = Path(__file__).parent / "tools" / "graph_names.py"
    done = subprocess.run(
        [str(MXNET), str(script)], input=json.dumps(NETS), capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    return json.loads(done.stdout[done.stdout.index("[{") :])


@pytest.mark.parametrize("i", range(len(NETS)), ids=[build for build, _ in NETS])
def test_lists_are_those_of_mxnet(i, answers):
    build, call = NETS[i]
    if any(name in build for name in OTHERWISE):
        pytest.skip("written otherwise here")
    assert lists(mx, build, call) == answers[i]
