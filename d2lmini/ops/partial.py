"""Partially known shapes: the values of shape inference in a graph.

None is a completely unknown shape, 0 an unknown size.

>>> merged((0, 10), (32, 0)), is_known((32, 0))
((32, 10), False)
"""

from __future__ import annotations

Partial = tuple[int, ...] | None


class Conflict(Exception):
    """Two known facts about a shape contradict each other."""


def merged(a: Partial, b: Partial) -> Partial:
    """Combine two partial shapes; Conflict if they contradict each other."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if len(a) != len(b) or any(m != n and m and n for m, n in zip(a, b)):
        raise Conflict(f"expected {b}, got {a}")
    return tuple([m or n for m, n in zip(a, b)])


def is_known(shape: Partial) -> bool:
    """True if all sizes are known."""
    return shape is not None and 0 not in shape
