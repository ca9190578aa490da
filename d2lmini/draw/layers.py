"""Layered graph layout: rows from top to bottom, few crossings, straight edges.

>>> place([40, 40, 40, 40], [(0, 1), (0, 2), (1, 3), (2, 3)])       # a diamond
Places(row=[0, 1, 1, 2], x=[52.0, 20.0, 84.0, 52.0], bends={})

Four steps, after K. Sugiyama, S. Tagawa and M. Toda ("Methods for visual understanding of
hierarchical system structures", 1981). A box stands one row below the lowest of its inputs. An edge
over several rows gets a bend in each of them. Within its row a box moves to the average position of
its neighbours, in sweeps up and down the rows. The last step does the same with the real widths:
boxes of a row that would overlap are moved apart by the least total distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

Edge = tuple[int, int]

#: Gap between boxes of a row, width of a bend, number of sweeps.
GAP, BEND, SWEEPS = 24.0, 6.0, 24


class Places(NamedTuple):
    """Row of each box, its centre in the row, and for each long edge the centres of its bends in
    the rows between."""

    row: list[int]
    x: list[float]
    bends: dict[Edge, list[float]]


def place(widths: Sequence[float], edges: Sequence[Edge]) -> Places:
    """Places for boxes of these widths. Edges are (from, to); boxes come in topological order, so
    every edge leads to a higher number."""
    n = len(widths)
    edges = list(dict.fromkeys(edges))
    row = _rows(n, edges)
    wide = list(widths)
    pieces: list[Edge] = []  # edges between neighbouring rows
    bends: dict[Edge, list[int]] = {}
    for edge in edges:
        above = edge[0]
        for between in range(row[edge[0]] + 1, row[edge[1]]):
            bends.setdefault(edge, []).append(len(wide))
            pieces.append((above, len(wide)))
            above = len(wide)
            wide.append(BEND)
            row.append(between)
        pieces.append((above, edge[1]))
    # Bends have larger weights than boxes, which makes long edges straight.
    pull = [1.0 if i < n else 8.0 for i in range(len(wide))]
    up: list[list[int]] = [[] for _ in wide]
    down: list[list[int]] = [[] for _ in wide]
    for a, b in pieces:
        down[a].append(b)
        up[b].append(a)
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for i, r in enumerate(row):
        rows[r].append(i)
    _order(rows, up, down)
    x = _settle(rows, up, down, wide, pull)
    return Places(row[:n], x[:n], {edge: [x[i] for i in found] for edge, found in bends.items()})


def _rows(n: int, edges: Sequence[Edge]) -> list[int]:
    """The row of each box: one below the lowest input, or just above the consumer of a box without
    inputs."""
    row = [0] * n
    fed = {b for _, b in edges}
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        row[b] = max(row[b], row[a] + 1)
    for i in range(n):
        users = [row[b] for a, b in edges if a == i]
        if i not in fed and users:
            row[i] = min(users) - 1
    return row


def _order(rows: list[list[int]], up: list[list[int]], down: list[list[int]]) -> None:
    """Sort each row by the average position of the neighbours; keep the order with the fewest
    crossings."""
    rank = [0.0] * len(up)
    for members in rows:
        for i, box in enumerate(members):
            rank[box] = i
    best, fewest = list(rank), _crossings(rank, rows, down)
    for sweep in range(SWEEPS):
        near, order = (up, rows) if sweep % 2 == 0 else (down, rows[::-1])
        for members in order:
            members.sort(key=lambda box: _mean([rank[b] for b in near[box]], rank[box]))
            for i, box in enumerate(members):
                rank[box] = i
        crossings = _crossings(rank, rows, down)
        if crossings < fewest:
            best, fewest = list(rank), crossings
    for members in rows:
        members.sort(key=best.__getitem__)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(rank: list[float], rows: list[list[int]], down: list[list[int]]) -> int:
    """Number of crossings of edges between neighbouring rows."""
    count = 0
    for members in rows:
        ends = [(rank[a], rank[b]) for a in members for b in down[a]]
        for i, (a, b) in enumerate(ends):
            count += sum((a - c) * (b - d) < 0 for c, d in ends[i + 1 :])
    return count


def _settle(
    rows: list[list[int]], up: list[list[int]], down: list[list[int]], widths: Sequence[float],
    pull: Sequence[float],
) -> list[float]:  # fmt: skip
    """The centres: each box is as near to its neighbours as the other boxes of its row allow."""
    x = [0.0] * len(widths)
    for members in rows:
        start = _apart([0.0] * len(members), [widths[b] for b in members], [1.0] * len(members))
        for box, at in zip(members, start):
            x[box] = at
    for sweep in range(SWEEPS):
        for members in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = []
            for box in members:
                near = [*up[box], *down[box]]
                force = sum(pull[b] for b in near)
                wanted.append(sum(x[b] * pull[b] for b in near) / force if near else x[box])
            settled = _apart(wanted, [widths[b] for b in members], [pull[b] for b in members])
            for box, at in zip(members, settled):
                x[box] = at
    left = min((at - w / 2 for at, w in zip(x, widths)), default=0.0)
    return [round(at - left, 1) for at in x]


def _apart(wanted: Sequence[float], widths: Sequence[float], pull: Sequence[float]) -> list[float]:
    """The centres nearest to the wanted ones (least squares, weighted by `pull`) that keep boxes in
    order and apart: boxes that would be too close are pooled at their average."""
    offsets = [0.0]
    for a, b in pairwise(widths):
        offsets.append(offsets[-1] + (a + b) / 2 + GAP)
    # Of each pool: wanted position without the offsets, total weight, number of boxes.
    pools: list[tuple[float, float, int]] = []
    for want, offset, force in zip(wanted, offsets, pull):
        mean, weight, size = want - offset, force, 1
        while pools and pools[-1][0] > mean:
            other, more, count = pools.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, size = weight + more, size + count
        pools.append((mean, weight, size))
    level = [mean for mean, _, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(level, offsets)]
