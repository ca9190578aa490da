"""The cells and layers of `gluon.rnn`: how each is built, and what it is called with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gluon_rows.runner import Row

T, N, C = 4, 3, 5
NTC, TNC, STEP = (N, T, C), (T, N, C), (N, C)
LENGTHS = np.array([4, 1, 2], dtype="float32")

# MXNet's modifier cells begin with symbols unless they are told a function.
BEGIN = "net.begin_state(batch_size=3, func=nd.zeros, dtype=x[0].dtype)"
ONE = f"net(x[0], {BEGIN})"
TWICE = f"(lambda y, s: net(x[0], s))(*net(x[0], {BEGIN}))"
RANDOM = {"modes": ("predict", "infer"), "why": "the two draw different numbers"}

CELLS = [
    "rnn.RNNCell(6)",
    "rnn.LSTMCell(6)",
    "rnn.GRUCell(6)",
]
VARIANTS = [
    "rnn.RNNCell(6, activation='relu', input_size=5)",
    "rnn.RNNCell(2, 'softsign', prefix='mine_')",
    "rnn.LSTMCell(6, activation='softsign', recurrent_activation='relu')",
    "rnn.LSTMCell(1, mx.init.One(), 'zeros', 'ones', mx.init.Constant(2))",
    "rnn.GRUCell(1, i2h_bias_initializer='ones', input_size=5)",
]
STACK = "joined(rnn.{}(), rnn.LSTMCell(3), rnn.DropoutCell(0), rnn.GRUCell(5))"
BOTH_WAYS = "rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(2))"
WRAPPED = [
    STACK.format("SequentialRNNCell"),
    STACK.format("HybridSequentialRNNCell"),
    "rnn.ResidualCell(rnn.GRUCell(5))",
    "rnn.ZoneoutCell(rnn.LSTMCell(5))",
]
ONLY_UNROLLED = [
    BOTH_WAYS,
    "rnn.ResidualCell(rnn.BidirectionalCell(rnn.RNNCell(3), rnn.RNNCell(2)))",
]


def unroll(*, inputs: str = "x[0]", **options: str) -> str:
    words = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"net.unroll({T}, {inputs}{', ' + words if words else ''})"


STEPS = [Row(build, (STEP,), call) for build in CELLS + WRAPPED for call in (ONE, TWICE)]
STEPS += [Row(build, (STEP,), ONE) for build in VARIANTS]

UNROLLED = []
for build in CELLS + WRAPPED + ONLY_UNROLLED:
    UNROLLED += [
        Row(build, (NTC,), unroll()),
        Row(build, (NTC,), unroll(merge_outputs="True")),
        Row(build, (TNC,), unroll(layout="'TNC'", merge_outputs="True")),
        Row(build, (NTC, LENGTHS), unroll(valid_length="x[1]", merge_outputs="True"),
            constant=(1,)),
        Row(build, (TNC, LENGTHS),
            unroll(layout="'TNC'", valid_length="x[1]", merge_outputs="False"), constant=(1,)),
    ]  # fmt: skip
REFUSED = "MXNet stacks the steps of a BidirectionalCell along the wrong axis"
UNROLLED = [
    replace(row, mxnet=False, why=REFUSED)
    if "Sequential" in row.build and "Bidirectional" in row.build and "x[1], merge" in row.call
    and "TNC" not in row.call else row
    for row in UNROLLED
]  # fmt: skip
UNROLLED += [
    Row("rnn.GRUCell(6)", (STEP,) * T, unroll(inputs="x")),
    Row(BOTH_WAYS, (STEP,) * T, unroll(inputs="x", layout="'TNC'", merge_outputs="True")),
    Row("rnn.GRUCell(6)", (NTC, (N, 6)), unroll(begin_state="[x[1]]", merge_outputs="False")),
    Row("rnn.LSTMCell(6)", (NTC, (N, 6), (N, 6)), unroll(begin_state="x[1:]")),
    Row("rnn.DropoutCell(0.5)", (NTC,), unroll(), **RANDOM),
    Row("rnn.ZoneoutCell(rnn.RNNCell(5), 0.3, 0.2)", (NTC,), unroll(), **RANDOM),
]

LAYERS = []
for name in ("RNN", "LSTM", "GRU"):
    LAYERS += [
        Row(f"rnn.{name}(6)", (TNC,), "net(x[0], net.begin_state(3, dtype=x[0].dtype))"),
        Row(f"rnn.{name}(6, 2, layout='NTC')", (NTC,)),
        Row(f"rnn.{name}(6, 2, bidirectional=True, input_size=5)", (TNC,),
            "net(x[0], net.begin_state(batch_size=3, dtype=x[0].dtype))"),
        Row(f"rnn.{name}(2, 3, layout='NTC', bidirectional=True, prefix='mine_')", (NTC,),
            "net(x[0], net.begin_state(3, dtype=x[0].dtype))"),
        Row(f"rnn.{name}(6, 2, dropout=0.5)", (TNC,), modes=("predict", "infer"),
            why="MXNet takes no notice of dropout on the CPU"),
        Row(f"rnn.{name}(3, i2h_weight_initializer='ones', h2h_bias_initializer='ones')", (TNC,)),
        Row(f"rnn.{name}(3, dtype='float64')", (TNC,), dtype="float64"),
    ]  # fmt: skip
LAYERS += [
    Row("rnn.GRU(6)", (TNC, (1, N, 6)), "net(*x)"),
    Row("rnn.LSTM(6)", (TNC, (1, N, 6), (1, N, 6)), "net(x[0], x[1:])"),
]

ROWS = STEPS + UNROLLED + LAYERS
