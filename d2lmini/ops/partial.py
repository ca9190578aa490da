"""Partially known shapes: the values of shape inference in a graph.

None is a completely unknown shape, 0 an unknown size.

>>> merged((0, 10), (32, 0)), is_known((32, 0))
((32, 10), False)
>>> alike({"a": (2, 3), "b": None, "c": (0, 5)}, axis=1)
{'a': (2, 0), 'b': (2, 0), 'c': (2, 0)}
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


def broadcast_partial(a: Partial, b: Partial, *, by_name: bool = False) -> Partial:
    """What follows about the result when two partial shapes broadcast: a size above 1 stays. Of a
    call by name (`broadcast_add`) MXNet says less: a size is unknown where one of the two is.

    >>> broadcast_partial((0, 3), (2, 1)), broadcast_partial((0, 0, 1), (1, 4))
    ((2, 3), (0, 0, 4))
    >>> broadcast_partial((0, 3), (2, 1), by_name=True)
    (0, 3)
    """
    if a is None or b is None:
        return None
    ndim = max(len(a), len(b))
    a, b = (1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b
    most = 0 if by_name else 1
    return tuple([max(m, n) if m * n or most * max(m, n) > 1 else 0 for m, n in zip(a, b)])


def is_known(shape: Partial) -> bool:
    """True if all sizes are known."""
    return shape is not None and 0 not in shape


def alike(given: dict[str, Partial], axis: int | None = None) -> dict[str, Partial]:
    """Shapes of inputs that agree in all axes, or in all but one."""
    together: Partial = None
    for shape in given.values():
        if shape is not None:
            open_at = None if axis is None else axis % len(shape)
            sizes = tuple([0 if i == open_at else n for i, n in enumerate(shape)])
            together = merged(together, sizes)
    return dict.fromkeys(given, together)
