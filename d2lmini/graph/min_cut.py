"""The minimum cut of a flow network: the cheapest edges without which nothing gets to the sink.

>>> edges = {("source", "a"): 3, ("source", "b"): 2, ("a", "b"): 9, ("a", "sink"): 1,
...          ("b", "sink"): 4}
>>> sorted(min_cut(edges, "source", "sink"))
[('a', 'sink'), ('b', 'sink')]

The largest flow is as large as the smallest cut (L. Ford and D. Fulkerson, "Maximal Flow through a
Network", 1956). The flow is raised along a shortest path with room left until there is none
(J. Edmonds and R. Karp, 1972).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


def min_cut(edges: Mapping[tuple[V, V], float], source: V, sink: V) -> set[tuple[V, V]]:
    """The edges of a minimum cut; of several, the one nearest to the sink.

    edges: the capacity of each edge, inf for one that must not be cut. Some path must have only
    finite edges left to cut: every path from source to sink needs one.
    """
    room: dict[V, dict[V, float]] = {source: {}, sink: {}}
    for (a, b), capacity in edges.items():
        room.setdefault(a, {})[b] = room.get(a, {}).get(b, 0) + capacity
        room.setdefault(b, {}).setdefault(a, 0)
    while (path := _path(room, source, sink)) is not None:
        more = min(room[a][b] for a, b in path)
        assert more < float("inf"), "a path without an edge that may be cut"
        for a, b in path:
            room[a][b] -= more
            room[b][a] += more
    behind = {sink}  # what can still get to the sink
    todo = [sink]
    while todo:
        b = todo.pop()
        for a in room[b]:
            if a not in behind and room[a][b] > 0:
                behind.add(a)
                todo.append(a)
    return {(a, b) for a, b in edges if a not in behind and b in behind}


def _path(room: dict[V, dict[V, float]], source: V, sink: V) -> list[tuple[V, V]] | None:
    """The edges of a shortest path with room; None if there is none."""
    before: dict[V, V] = {}
    todo = deque([source])
    while todo and sink not in before:
        a = todo.popleft()
        for b, left in room[a].items():
            if left > 0 and b not in before and b != source:
                before[b] = a
                todo.append(b)
    if sink not in before:
        return None
    path = []
    b = sink
    while b != source:
        path.append((before[b], b))
        b = before[b]
    return path
