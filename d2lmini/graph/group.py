"""A fusion group as text: a function for one block of all its arrays, and the line that calls it.

Arrays of the group's own shape are cut into blocks; a row or a number that broadcasts is whole in
each of them. What the group reduces leaves one part for every block, and the parts are put together
in their order at the end.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from d2lmini.graph.fusion import (
    REDUCTIONS,
    Statement,
    cut_shape,
    is_reduction,
    leading,
    reduced,
    rows_per_block,
)
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.layout import Kind
from d2lmini.graph.rooms import rooms
from d2lmini.graph.steps import Number
from d2lmini.graph.text import broken, listed
from d2lmini.ops.core import Shape

if TYPE_CHECKING:
    from d2lmini.graph.codegen import Writer


def write_group(writer: Writer, statement: Statement) -> None:
    """Write down one group."""
    domain = statement.shape
    assert domain is not None
    nodes = statement.nodes
    results = [(n, 0) for n in nodes if writer.layout.kinds[n, 0] is Kind.BUFFER]
    totals = [entry for entry in results if is_reduction(entry[0])]
    entries = [e for e in dict.fromkeys([*statement.inputs, *results]) if e not in totals]
    axes = leading([spec_of(e).shape for e in entries], domain)
    axes = min([axes, *(_most_axes(reduced(node)) for node, _ in totals)])

    # The name in the blocks -> the array.
    cut: dict[str, str] = {}
    parts: dict[str, str] = {}
    whole: dict[str, str] = {}
    names = _names(writer, entries, results)
    for entry in entries:
        shape, is_cut = cut_shape(spec_of(entry).shape, domain, axes)
        (cut if is_cut else whole)[names[entry]] = writer.shaped(entry, shape)
    lines: dict[Node, list[str]] = {}
    for entry in totals:
        node = entry[0]
        shape, over = _total(node, domain, axes)
        name = names[entry] = writer.name_of(entry)
        ufunc = writer.ufunc(REDUCTIONS[node.op.name])  # type: ignore[union-attr]
        if 0 in reduced(node):
            parts[name] = f"({ufunc}, {writer.shaped(entry, shape)})"
        else:
            cut[name] = writer.shaped(entry, shape)
        lines[node] = [f"{ufunc}.reduce({{}}, axis={over}, out={name})"]
    scratch = rooms(nodes, names, writer.identifier)
    for node in nodes:
        given = [None if e is None else names[e] for e in node.inputs]
        if node in lines:
            lines[node] = [lines[node][0].format(given[0])]
        else:
            lines[node] = writer.lines_of(node, given, [names[node, 0]])

    function = writer.identifier(nodes[-1].name + "_block")
    title = f'"""{listed([n.name for n in nodes])}: {prod(domain)} elements."""'
    writer.define(
        [*broken(f"def {function}(", [*cut, *parts, *whole, *scratch], "):"), "    " + title],
        [(line, node) for node in nodes for line in lines[node]],
    )
    rows = prod(domain[:axes])
    itemsize = max(spec_of((n, 0)).dtype.itemsize for n in nodes)
    in_block = min(rows_per_block(domain, axes, itemsize, len(cut) + len(scratch)), rows)
    arguments = ["xp", function, str(rows), str(in_block)]
    room = [f"({domain[axes:]}, {writer.dtype(dtype)})" for dtype in scratch.values()]
    lists = {
        "cut": cut.values(),
        "totals": parts.values(),
        "whole": whole.values(),
        "scratch": room,
    }
    arguments += [f"{word}=[{', '.join(found)}]" for word, found in lists.items() if found]
    writer.write(f"in_blocks({', '.join(arguments)})", nodes[-1])
    for node, _ in totals:
        if node.op is not None and node.op.name == "mean":
            spec = spec_of((node, 0))
            count = prod(domain) // max(spec.size, 1)
            name = names[node, 0]
            number = writer.argument(Number("fit", spec.dtype, count))
            writer.write(f"{writer.ufunc('divide')}({name}, {number}, out={name})", node)


def _names(writer: Writer, entries: list[Entry], results: list[Entry]) -> dict[Entry, str]:
    """What each array is called in the blocks; one that is overwritten there has the name of what
    overwrites it."""
    layout = writer.layout
    home = {layout.buffers[entry]: writer.name_of(entry) for entry in results}
    names = {}
    for entry in entries:
        buffers = [layout.buffers.get(owner) for owner in layout.owners[entry]]
        over = [home[buffer] for buffer in buffers if buffer in home]
        names[entry] = over[0] if over else writer.name_of(entry)
    return names


def _most_axes(over: tuple[int, ...]) -> int:
    """How many axes can at most be taken as one if those in `over` are reduced."""
    if 0 not in over:
        return min(over)
    return next(n for n in range(len(over) + 1) if n not in over)


def _total(node: Node, domain: Shape, axes: int) -> tuple[Shape, tuple[int, ...] | None]:
    """The shape of what a reduction gives for one block (for all, if the cut axis is reduced), and
    the axes of a block that it reduces."""
    over = reduced(node)
    kept = tuple(n for a, n in enumerate(domain) if a >= axes and a not in over)
    block_axes = tuple(a - axes + 1 for a in over if a >= axes)
    if 0 in over:
        return kept, (0, *block_axes) if kept else None
    return (prod(domain[:axes]), *kept), block_axes
