"""Rows of `ops/sequence.py`."""

from __future__ import annotations

import numpy as np

from op_rows.case import Case, draw

BEYOND = "MXNet reads memory that is not the array's"


def mask(x, lengths=None, use_sequence_length=False, value=0.0, axis=0):
    y = x.copy()
    for i, n in enumerate(() if lengths is None else lengths.astype(int)):
        if axis == 0:
            y[max(n, 0) :, i] = value
        else:
            y[i, max(n, 0) :] = value
    return y


def last(x, lengths=None, use_sequence_length=False, axis=0):
    x = x.swapaxes(0, axis)
    T, N = x.shape[:2]
    steps = np.full(N, T) if lengths is None else lengths.astype(int)
    return np.stack([x[min(max(n, 1), T) - 1, i] for i, n in enumerate(steps)])


def reverse(x, lengths=None, use_sequence_length=False, axis=0):
    y = x.copy()
    for i in range(x.shape[1]):
        n = len(x) if lengths is None else int(lengths[i])
        y[:n, i] = x[:n, i][::-1]
    return y


ROWS = []
for shape in ((4, 3), (4, 3, 2), (4, 3, 2, 5), (1, 2), (3, 1, 2)):
    T, N = shape[:2]
    lengths = np.arange(N) % T + 1
    for name, expect in (
        ("SequenceMask", mask), ("SequenceLast", last), ("SequenceReverse", reverse)
    ):  # fmt: skip
        ROWS += [
            Case(name, (draw(shape),), expect),
            Case(name, (draw(shape), lengths.astype("int32")), expect,
                 {"use_sequence_length": True}),
        ]  # fmt: skip
        if name != "SequenceReverse":
            across = np.arange(T) % N + 1
            ROWS += [
                Case(name, (draw(shape),), expect, {"axis": 1}),
                Case(name, (draw(shape), across.astype("int64")), expect,
                     {"use_sequence_length": True, "axis": 1}),
            ]  # fmt: skip

used = {"use_sequence_length": True}
ROWS += [
    Case("SequenceMask", (draw((4, 3)), np.float32([0, 2.9, 9])), mask, {**used, "value": -1.5},
         grad=False),
    Case("SequenceMask", (draw((0, 2)), np.float32([1, 0])), mask, used, mxnet=False,
         why="MXNet takes size 0 for unknown"),
    Case("SequenceLast", (draw((4, 3, 2)), np.float32([0, 2.9, 9])), last, used,
         grad=False, mxnet=False, why=BEYOND),
    Case("SequenceReverse", (draw((4, 3, 2)), np.float32([0, 2.9, 9])), reverse, used,
         grad=False, mxnet=False, why=BEYOND),
]  # fmt: skip
for axis in (0, 1):
    y = draw((3, 2)) if axis == 0 else draw((4, 2))
    lengths = np.array([1, 4, 2]) if axis == 0 else np.array([1, 3, 3, 2])

    def expect(g, lengths, shape, use_sequence_length, axis):
        full = np.zeros(shape, g.dtype).swapaxes(0, axis)
        full[lengths.astype(int) - 1, np.arange(len(lengths))] = g
        return full.swapaxes(0, axis)

    ROWS += [
        Case("_sequence_last_grad", (y, lengths), expect,
             {"shape": (4, 3, 2), "axis": axis, **used}, mxnet=False, why="our own"),
    ]  # fmt: skip
