"""What a program's statements take, predicted from the costs of their ops.

A group reads what comes from outside and writes what others read; what stays inside is neither read
nor written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from d2lmini.graph.fusion import Statement
from d2lmini.graph.ir import Entry, spec_of
from d2lmini.graph.layout import Layout, Placement
from d2lmini.ndarray.plan import BYTES_PER_US, FLOPS_PER_US, PRODUCT_FLOPS_PER_US

#: A statement without its work, in microseconds; what a product of a matrix with a vector reads.
STATEMENT_US = 0.4
READ_PER_US = 6e4


class Cost(NamedTuple):
    """Arithmetic, bytes read and written, and the predicted run time in microseconds."""

    flops: float
    nbytes: float
    us: float


class ProgramCost(NamedTuple):
    """What a call takes: arithmetic, bytes read and written by its statements, memory for
    intermediate results, and how many of the statements are fused groups."""

    flops: float
    nbytes: float
    arena_nbytes: int
    groups: int


def cost_of(layout: Layout, statement: Statement) -> Cost:
    """Of one statement."""
    flops = compute_us = 0.0
    bytes_per_us = BYTES_PER_US
    moved: dict[Entry, int] = {}
    for node in statement.nodes:
        if layout.kinds[node, 0] in (Placement.VIEW, Placement.CONSTANT):
            continue
        op = node.op
        assert op is not None
        count = node.cost.flops
        flops += count
        if callable(op.flops):
            compute_us += count / PRODUCT_FLOPS_PER_US
            bytes_per_us = READ_PER_US
        else:
            compute_us += count / FLOPS_PER_US
        for entry in node.sources + node.outputs:
            if layout.kinds[entry] is not Placement.BLOCK:
                moved[entry] = spec_of(entry).nbytes
    nbytes = sum(moved.values())
    us = STATEMENT_US + max(compute_us, nbytes / bytes_per_us) if moved else 0.0
    return Cost(flops, nbytes, us)


def together(costs: Sequence[Cost]) -> Cost:
    """Their sum."""
    return Cost(*[sum(figures) for figures in zip(*costs)]) if costs else Cost(0.0, 0.0, 0.0)
