"""What NumPy does for a program, as text: the calls of ufuncs for an op, and a function with those
of a fusion group, which works on one block of all its arrays.

Arrays of the group's own shape are cut into blocks; a row or a number that broadcasts is whole in
each of them. What the group reduces leaves one part for every block, and the parts are put together
in their order at the end.

Between the ops lies scratch memory: few block-sized arrays, used over and over. The ops run one
after the other, so a result that is needed no more gives its place to the next one. A value that
others than the group will read is written where it is to stay.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> a = sym.exp(x, name="a")
>>> y = sym.elemwise_add(sym.square(a, name="b"), a, name="y")
>>> v, outputs = infer_types(y._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> x, a, b, y = nodes = topological(outputs)
>>> places = {(x, 0): "x", (y, 0): "y"}
>>> find_scratch(nodes[1:], places, str)            # b goes where y will be
{'a': dtype('float32')}
>>> places[a, 0], places[b, 0]
('a', 'y')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini.device.blas import SERIAL_PRODUCT
from d2lmini.graph.fusion import (
    REDUCTIONS,
    Statement,
    axes_of_reduction,
    cut_shape,
    is_reduction,
    leading,
    rows_per_block,
)
from d2lmini.graph.ir import Entry, Node, spec_of, topological  # noqa: F401  (for the doctest)
from d2lmini.graph.layout import Placement
from d2lmini.graph.steps import Number, Step, may_overwrite, steps_of
from d2lmini.graph.text import broken, list_text, plain
from d2lmini.ops.core import Shape
from d2lmini.ops.scalar_cache import ROW

if TYPE_CHECKING:
    from d2lmini.graph.codegen import Writer

# -- one op ----------------------------------------------------------------------------------------


def lines_of(
    writer: Writer, node: Node, inputs: Sequence[str | None], outs: Sequence[str],
    shape: Shape | None = None,
) -> list[str]:  # fmt: skip
    """The lines that compute a node into its places; `shape`: that of all its arrays, None
    where they are blocks of them."""
    steps = steps_of(node)
    if steps is None:
        out = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
        return [writer.call(node, inputs, out) + _comment(node, outs)]
    lines = []
    at_hand: dict[Any, str | None] = {**dict(enumerate(inputs)), "y": outs[0]}
    few = shape is not None and prod(shape) <= ROW
    for step in steps:
        numbers = [a for a in step.args if type(a) is Number]
        if not few and any(number.table == "limit" for number in numbers):
            lines.append(_limited(writer, step, at_hand))
            continue
        args = [
            writer.argument(a, shape) if type(a) is Number else str(at_hand[a]) for a in step.args
        ]
        lines.append(f"{writer.ufunc(step.ufunc)}({', '.join(args)}, out={outs[0]})")
    lines[0] += _comment(node, outs)
    return lines


def _limited(writer: Writer, step: Step, at_hand: dict[Any, str | None]) -> str:
    """`maximum` or `minimum` of many elements and a number."""
    data, number = sorted(step.args, key=lambda a: type(a) is Number)
    function = {"maximum": "at_least", "minimum": "at_most"}[step.ufunc]
    value = writer.attribute(number.value)
    return f"{function}(xp, {at_hand[data]}, {value}, out={at_hand['y']})"


def _comment(node: Node, outs: Sequence[str]) -> str:
    """The name of the node, where the place has that of another."""
    ours = outs[0] in (node.name, f"{node.name}_row") or len(outs) > 1
    return "" if ours else f"  # {plain(node.name)}"


def is_product(node: Node) -> bool:
    """Is it a product of two matrices, which gets a line of its own kind?"""
    assert node.op is not None
    if node.op.name == "dot":
        return all(e is not None and len(spec_of(e).shape) == 2 for e in node.inputs)
    return node.op.name == "FullyConnected"


def product(writer: Writer, node: Node) -> str:
    """The line of a product of two matrices: of a row with a matrix as BLAS likes it best; a
    large one by the function that shares it out among the cores."""
    left, right = node.inputs[:2]
    assert left is not None and right is not None
    spec = spec_of((node, 0))
    dense = node.op is not None and node.op.name == "FullyConnected"
    a_is_transposed = not dense and node.attrs["transpose_a"]
    b_is_transposed = dense or node.attrs["transpose_b"]
    columns = spec.shape[-1]
    rows = prod(spec.shape[:-1])
    inner = spec_of(right).shape[1 if b_is_transposed else 0]
    b = writer.name_of(right)
    small = rows * inner * columns <= SERIAL_PRODUCT and spec.dtype.char in "fd" and inner > 1
    small = small and not writer.on_gpu
    if small and rows == 1:
        b += "" if b_is_transposed else ".T"
        a = writer.name_in_shape(left, (inner,))
        text = f"{b}.dot({a}, out={writer.name_in_shape((node, 0), (columns,))})"
    else:
        shape = spec_of(left).shape if a_is_transposed else (rows, inner)
        a = writer.name_in_shape(left, shape) + (".T" if a_is_transposed else "")
        b += ".T" if b_is_transposed else ""
        out = writer.name_in_shape((node, 0), (rows, columns))
        if small:
            text = f"{writer.ufunc('matmul')}({a}, {b}, out={out})"
        else:
            text = f"shared_matmul(xp, {a}, {b}, {out})"
    return text + _comment(node, [writer.name_of((node, 0))])


# -- a group ---------------------------------------------------------------------------------------


def write_group(writer: Writer, statement: Statement) -> None:
    """Write down one group."""
    domain = statement.shape
    assert domain is not None
    nodes = statement.nodes
    results = [(n, 0) for n in nodes if writer.layout.kinds[n, 0] is Placement.BUFFER]
    totals = [entry for entry in results if is_reduction(entry[0])]
    entries = [e for e in dict.fromkeys([*statement.inputs, *results]) if e not in totals]
    axes = leading([spec_of(e).shape for e in entries], domain)
    axes = min([axes, *(_most_axes(axes_of_reduction(node)) for node, _ in totals)])

    # The name in the blocks -> the array.
    cut: dict[str, str] = {}
    parts: dict[str, str] = {}
    whole: dict[str, str] = {}
    names = _names(writer, entries, results)
    for entry in entries:
        shape, is_cut = cut_shape(spec_of(entry).shape, domain, axes)
        (cut if is_cut else whole)[names[entry]] = writer.name_in_shape(entry, shape)
    lines: dict[Node, list[str]] = {}
    for entry in totals:
        node = entry[0]
        shape, over = _total(node, domain, axes)
        name = names[entry] = writer.name_of(entry)
        ufunc = writer.ufunc(REDUCTIONS[node.op.name])  # type: ignore[union-attr]
        if 0 in axes_of_reduction(node):
            parts[name] = f"({ufunc}, {writer.name_in_shape(entry, shape)})"
        else:
            cut[name] = writer.name_in_shape(entry, shape)
        lines[node] = [f"{ufunc}.reduce({{}}, axis={over}, out={name})"]
    scratch = find_scratch(nodes, names, writer.identifier)
    for node in nodes:
        given = [None if e is None else names[e] for e in node.inputs]
        if node in lines:
            lines[node] = [lines[node][0].format(given[0])]
        else:
            lines[node] = lines_of(writer, node, given, [names[node, 0]])

    function = writer.identifier(nodes[-1].name + "_block")
    title = f'"""{list_text([n.name for n in nodes])}: {prod(domain)} elements."""'
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
    over = axes_of_reduction(node)
    kept = tuple(n for a, n in enumerate(domain) if a >= axes and a not in over)
    block_axes = tuple(a - axes + 1 for a in over if a >= axes)
    if 0 in over:
        return kept, (0, *block_axes) if kept else None
    return (prod(domain[:axes]), *kept), block_axes


# -- scratch memory --------------------------------------------------------------------------------


def find_scratch(
    nodes: Sequence[Node], places: dict[Entry, str], new_name: Callable[[str], str]
) -> dict[str, np.dtype]:
    """Give every value of the group that has none a place; the scratch arrays for that by name."""
    last = {entry: node for node in nodes for entry in node.sources}
    _go_where_it_ends(nodes, places, last)
    found: dict[str, np.dtype] = {}
    free: list[str] = []
    for node in nodes:
        entry = node, 0
        read = dict.fromkeys(node.sources)
        dying = [e for e in read if last[e] is node and places[e] in found]
        if entry not in places:
            dtype = spec_of(entry).dtype
            fit = [places[e] for e in dying if _may_lie_over(node, e)]
            fit += [name for name in free if found[name] == dtype]
            if not fit:
                fit = [new_name(node.name)]
                found[fit[0]] = dtype
            places[entry] = fit[0]
        free = [name for name in free if name != places[entry]]
        free += [places[e] for e in dying if places[e] != places[entry]]
    return found


def _go_where_it_ends(
    nodes: Sequence[Node], places: dict[Entry, str], last: dict[Entry, Node]
) -> None:
    """Let a value be computed where the one made of it is to stay, and so on backwards, as long as
    nobody needs what lies there before."""
    for result in [node for node in nodes if (node, 0) in places]:
        place = places[result, 0]
        node = result
        while True:
            found = [
                e
                for e in dict.fromkeys(node.inputs)
                if e is not None and e not in places and last[e] is node and _may_lie_over(node, e)
            ]
            source = next((e for e in found if _is_free(place, e[0], node, nodes, places)), None)
            if source is None:
                break
            places[source] = place
            node = source[0]


def _is_free(
    place: str, first: Node, after: Node, nodes: Sequence[Node], places: dict[Entry, str]
) -> bool:
    """Can `first` write into this place, with nobody reading or writing there until `after`?"""
    for node in nodes[nodes.index(first) : nodes.index(after) + 1]:
        if node not in (first, after) and places.get((node, 0)) == place:
            return False
        there = [e for e in node.sources if places.get(e) == place]
        if node is first:
            if not all(_may_lie_over(node, e) for e in there):
                return False
        elif there:
            return False
    return True


def _may_lie_over(node: Node, entry: Entry) -> bool:
    """May the result of `node` overwrite this input, which is needed no more?"""
    if spec_of(entry) != spec_of((node, 0)):
        return False
    steps = steps_of(node)
    if steps is None:  # an elementwise op may write over its inputs, others are not asked
        return node.op is not None and node.op.elementwise
    return all(may_overwrite(steps, i) for i, e in enumerate(node.inputs) if e == entry)
