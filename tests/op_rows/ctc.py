"""Rows of `ops/sequence.py`; what is expected comes from adding up all paths one by one."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np

from op_rows.case import Case, draw

MORE = "MXNet's has float32 alone"


def ctc(
    data, label, first=None, second=None, use_data_lengths=False, use_label_lengths=False,
    blank_label="first",
):  # fmt: skip
    T, N, C = data.shape
    blank = 0 if blank_label == "first" else C - 1
    padding = 0 if blank_label == "first" else -1
    data_lengths = first if use_data_lengths else [T] * N
    label_lengths = second if use_data_lengths else first
    p = np.exp(data.astype("float64"))
    p /= p.sum(-1, keepdims=True)
    losses = []
    for n in range(N):
        target = list(label[n])
        if use_label_lengths:
            target = target[: int(label_lengths[n])]
        elif padding in target:
            target = target[: target.index(padding)]
        steps = int(data_lengths[n])
        total = 0.0
        for path in product(range(C), repeat=steps):
            if [c for c, _ in groupby(path) if c != blank] == target:
                total += np.prod([p[t, n, c] for t, c in enumerate(path)])
        losses.append(-np.log(total) if total else 0.0)
    return np.array(losses).astype(data.dtype)


def ints(*values):
    return np.array(values, dtype="int32")


def floats(*values):
    return np.array(values, dtype="float32")


def row(name, *inputs, attrs=None, **options):
    # The rule wants an output that is not shown; the gradient is tested in test_gluon_loss.py.
    return Case(name, inputs, ctc, attrs or {}, grad=False, **options)


x = draw((4, 2, 3))
last, by_label = {"blank_label": "last"}, {"use_label_lengths": True}
by_data = {"use_data_lengths": True}
both = {**by_data, **by_label}
ROWS = [
    row("CTCLoss", x, ints([1, 2], [1, 0])),
    row("CTCLoss", x, ints([0, 0], [1, -1]), attrs=last),
    row("CTCLoss", x, ints([0, 1], [1, -1]), floats(3, 4), attrs={**last, **by_data}),
    row("CTCLoss", x, ints([1, 2], [2, 1]), ints(1, 2), attrs=by_label),
    row("CTCLoss", x, ints([1, 2], [2, 1]), floats(3, 2), ints(1, 2), attrs=both),
    row("CTCLoss", x, ints([1, 2], [2, 1]), floats(4, 1), ints(0, 1), attrs=both),
    row("CTCLoss", x, ints([1, 1, 1], [2, 2, 1])),  # too long for their sequences
    row("CTCLoss", draw((2, 1, 2)), ints([0]), mxnet=False, why="MXNet takes no label for sure"),
    row("ctc_loss", draw((3, 2, 3), dtype="float64"), ints([1], [2]), mxnet=False, why=MORE),
]  # fmt: skip
