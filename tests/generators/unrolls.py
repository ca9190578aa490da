"""Recurrent cells of all kinds in each other, unrolled: arrays and lists, layouts, valid lengths.

What is kept: the form of the outputs (-1: one array, otherwise the number of steps), outputs, last
states, and the gradients of the inputs. Nothing is dropped, because two libraries drop differently.
"""

from __future__ import annotations

import random

from generators.check import NOT_IN_MXNET
from generators.layers import DRAWS

#: rtol, atol.
MXNET = 2e-4, 2e-5

#: Cells in cells.
DEPTH = 3

PROGRAM = """\
{draws}
rnn = gluon.rnn
def made(kind, *cells):
    stack = kind()
    for cell in cells:
        stack.add(cell)
    return stack
cell = {cell}
cell.initialize(init=init.Constant(0.3))
T, N, C = {sizes}
for hybrid in ({hybrid}):
    if hybrid:
        cell.hybridize()
    if {as_list}:
        xs = [nd.array(numbers(N, C)) for _ in range(T)]
    else:
        xs = [nd.array(numbers(*((N, T, C) if {layout!r} == "NTC" else (T, N, C))))]
    for x in xs:
        x.attach_grad()
    begin = {begin}
    with autograd.record(train_mode=False):
        outputs, states = cell.unroll(
            T, xs if {as_list} else xs[0], begin, layout={layout!r}, merge_outputs={merge},
            valid_length={valid},
        )
        listed = isinstance(outputs, (list, tuple))
        flat = list(outputs) if listed else [outputs]
        total = sum((y * y).sum() for y in [*flat, *states, *xs])
    total.backward()
    keep(len(outputs) if listed else -1)
    keep(len(states))
    for y in [*flat, *states, *(x.grad for x in xs)]:
        keep(y)
"""


def draw(seed: int) -> str:
    rng = random.Random(seed)
    T, N, C = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 3)
    cell = _cell(rng, C, DEPTH)
    valid = rng.random() < 0.35
    lengths = [rng.randint(1, T) for _ in range(N)]
    begin = "[nd.array(numbers(*info['shape'])) for info in cell.state_info(N)]"
    layout, hybrid, why_not = rng.choice(["NTC", "TNC"]), "False, True", ""
    # A zoneout remembers its output, which a graph cannot; MXNet's graphs that compute nothing
    # have no gradient.
    if "Zoneout" in cell or "DropoutCell(0.0)" in cell:
        hybrid = "False,"
    if "Bidirectional" in cell and valid and layout == "NTC":
        why_not = "it takes the time for the batch in the backward outputs"
    return (f"{NOT_IN_MXNET}{why_not}\n" if why_not else "") + PROGRAM.format(
        draws=DRAWS.format(seed=seed % 2**32, scale=1).strip(), cell=cell, sizes=(T, N, C),
        layout=layout, as_list=rng.random() < 0.4,
        hybrid=hybrid,
        merge=rng.choice([None, None, True, False]), begin=begin if rng.random() < 0.3 else "None",
        valid=f"nd.array({lengths})" if valid else "None",
    )  # fmt: skip


def _cell(rng: random.Random, size: int, depth: int, steps: bool = False) -> str:
    """A cell whose outputs have the size of its inputs. steps: it has to take single steps."""
    plain = ["RNNCell", "LSTMCell", "GRUCell", "DropoutCell"]
    outer = ["stack", "stack", "ResidualCell", "ZoneoutCell"] + ["BidirectionalCell"] * (not steps)
    kind = rng.choice(plain + 2 * outer if depth else plain)
    if kind == "DropoutCell":
        return f"rnn.DropoutCell({rng.choice([0.0, 0.3])})"
    if kind in plain:
        return f"rnn.{kind}({size}, input_size={size})"
    if kind in ("stack", "BidirectionalCell"):
        plainly = depth == DEPTH and rng.random() < 0.5  # a cell that takes hybrid cells alone
        stack = "made(rnn." + ("SequentialRNNCell" if plainly else "HybridSequentialRNNCell")
        if kind == "stack":
            inner = [_cell(rng, size, depth - 1, steps) for _ in range(rng.randint(1, 3))]
            return f"{stack}, {', '.join(inner)})"
        both = ", ".join(_cell(rng, size, depth - 1) for _ in range(2))
        narrow = f"rnn.RNNCell({size}, input_size={2 * size})"
        return f"{stack}, rnn.BidirectionalCell({both}), {narrow})"
    inside = _cell(rng, size, depth - 1, steps or kind == "ZoneoutCell")
    rates = ", 0.2, 0.3" if kind == "ZoneoutCell" else ""
    return f"rnn.{kind}({inside}{rates})"
