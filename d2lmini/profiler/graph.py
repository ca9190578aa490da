"""A picture of the dependency graph that the engine derives from a program.

    with d2lmini.profile() as trace:
        c = a * b + 2
    trace.graph()

A box is an operation, with its number and the line that issued it. A solid arrow is a read of a
result. A dashed arrow carries no value: the later operation writes where the earlier one reads or
wrote. Boxes without a path of arrows between them are unordered.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((1, 2))
...     b = a * 2
...     a += 1
...     c = a + b
>>> print(text_of(trace))
1 _ones
2 _mul_scalar, after 1
3 _plus_scalar, after 1, 2*
4 broadcast_add, after 2, 3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import Box, Look, diagram, page, shorten
from d2lmini.draw.timeline import STYLES
from d2lmini.engine.order import drop_implied, edges_of
from d2lmini.ops.shown import shown_name
from d2lmini.profiler.records import Operation

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: Pictures with more boxes are refused: they would be unreadable.
MOST = 60


class Graph(Drawing):
    """The picture; prints as one line per operation."""

    def __str__(self) -> str:
        return self.text.partition(": ")[2].replace("; ", "\n")


def describe(operation: Operation, needs: set[int], room: set[int]) -> str:
    """ "3 _plus_scalar, after 1, 2*": a star marks a dependency without a value."""
    after = sorted([(n, "") for n in needs] + [(n, "*") for n in room])
    words = ", ".join(f"{n}{star}" for n, star in after)
    return f"{operation.number} {operation.name}" + (f", after {words}" if words else "")


def text_of(trace: Trace, first: int = 1, last: int | None = None) -> str:
    """A line for each operation of a trace with its dependencies, without the implied ones."""
    last = last or len(trace.operations)
    after = drop_implied(trace.order[:last])
    return "\n".join(
        describe(operation, *after[operation.number - 1])
        for operation in trace.operations[first - 1 : last]
    )


def graph_of(trace: Trace, first: int = 1, last: int | None = None, lines: bool = True) -> Graph:
    """Draw operations `first` to `last` of a trace, earlier ones on top, with arrows to dependent
    operations.

    lines: write the line of the program into each box. ValueError for none, and for more than MOST.
    """
    last = last or len(trace.operations)
    operations = trace.operations[first - 1 : last]
    n = len(operations)
    if not 0 < n <= MOST:
        raise ValueError(
            f"graph: it draws 1 to {MOST} operations, there are {n}"
            + (f"; name some, as in graph(first=1, last={MOST})" if n else "")
        )
    several = len({operation.place for operation in operations}) > 1
    boxes = [_box_of(operation, several, lines) for operation in operations]
    edges = edges_of(drop_implied(trace.order[:last])[first - 1 :], first)
    dashed = {edge for edge, value in edges.items() if not value}
    parts, width, height = diagram(boxes, list(edges), dashed)
    text = text_of(trace, first, last).replace("\n", "; ")
    return Graph(page(width, height, parts), f"dependencies of {n} operations: {text}")


def _box_of(operation: Operation, several: bool, lines: bool) -> Box:
    where = f"  {operation.place}" if several else ""
    words = [f"{operation.number}  {shown_name(operation.name)}{where}"]
    if lines and operation.line:
        words.append(shorten(operation.line, 44))
    face, _, _ = STYLES["copy" if operation.is_copy else "compute"]
    return Box(words, Look("", face))
