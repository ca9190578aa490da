"""The text of a program for NumPy: the ufunc calls of an op, and for a fusion group a function with
the calls of all its ops, which works on one block of all arrays.

Arrays are cut into blocks of rows; every block uses the whole of an array that broadcasts along the
rows. A reduction of each row is complete in its block. One along the axes that are cut gives a
partial result for every block, and these are combined in their order at the end.

Intermediate results lie in scratch memory: a few arrays of the size of a block, which every block
uses again. The ops run one after the other, so a result that is no longer needed is overwritten by
a later result. A value that is read outside the group is written to its own array.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> a = sym.exp(x, name="a")
>>> y = sym.elemwise_add(sym.square(a, name="b"), a, name="y")
>>> v, outputs = infer_types(y._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> x, a, b, y = nodes = topological(outputs)
>>> places = {(x, 0): "x", (y, 0): "y"}
>>> find_scratch(nodes[1:], places, str)            # b is computed in the array of y
{'a': Spec((3,), float32)}
>>> places[a, 0], places[b, 0]
('a', 'y')

**What generated programs call**: groups run piece by piece over the cores, block by block in each.

>>> import numpy as np
>>> def square_plus_x(x, y, t):
...     np.multiply(x, x, out=t)
...     np.add(t, x, out=y)
>>> x, y = np.arange(5.0), np.empty(5)
>>> in_blocks(np, square_plus_x, 5, 2, cut=[x, y], scratch=[((), "float64")])
>>> y
array([ 0.,  2.,  6., 12., 20.])

Blocks are for the cache, and long enough for several threads to gain; pieces, of one block or more,
are for the workers of the engine. Both cuts depend on sizes only: results are the same with any
number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from d2lmini.device.blas import SERIAL_PRODUCT
from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch as memory
from d2lmini.graph.fusion import (
    INTERPRETED,
    Cut,
    Statement,
    axes_of_reduction,
    is_reduction,
    rows_per_block,
)
from d2lmini.graph.ir import Entry, Node, spec_of, topological  # noqa: F401  (for the doctest)
from d2lmini.graph.lower import Number, Step, may_overwrite, steps_of
from d2lmini.graph.plan import Placement
from d2lmini.graph.text import WIDTH, fit_line, list_text, plain
from d2lmini.ops.chunking import LARGE, along
from d2lmini.ops.chunking import split_evenly as cut_evenly
from d2lmini.ops.core import Shape
from d2lmini.ops.reduce import REDUCTIONS, ends_short, kept_shape
from d2lmini.ops.scalar_cache import ROW
from d2lmini.ops.spec import Spec

if TYPE_CHECKING:
    from d2lmini.graph.codegen import Writer

# -- one op ----------------------------------------------------------------------------------------


def lines_of(
    writer: Writer, node: Node, inputs: Sequence[str | None], outs: Sequence[str],
    shape: Shape | None = None,
) -> list[str]:  # fmt: skip
    """The lines that compute a node into the arrays `outs`. `shape`: the common shape of all its
    arrays; None if they are blocks."""
    steps = steps_of(node)
    if _is_one_reduction(node) and not writer.on_gpu:
        axis, kept = axes_of_reduction(node)[0], node.attrs["keepdims"]
        how = f"axis={axis}, {'keepdims=True, ' if kept else ''}out={outs[0]}"
        line = f"{writer.ufunc(REDUCTIONS[node.op.name])}.reduce({inputs[0]}, {how})"
        return [line + _comment(node, outs), *_division(writer, node, outs[0])]
    if steps is None:
        out = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
        return [writer.call(node, inputs, out) + _comment(node, outs)]
    lines = []
    names: dict[Any, str | None] = {**dict(enumerate(inputs)), "y": outs[0]}
    few = shape is not None and prod(shape) <= ROW
    for step in steps:
        numbers = [a for a in step.args if type(a) is Number]
        if not few and any(number.table == "clamped_scalars" for number in numbers):
            lines.append(_limited(writer, step, names))
            continue
        args = [
            writer.argument(a, shape) if type(a) is Number else str(names[a]) for a in step.args
        ]
        lines.append(f"{writer.ufunc(step.ufunc)}({', '.join(args)}, out={outs[0]})")
    lines[0] += _comment(node, outs)
    return lines


def _is_one_reduction(node: Node) -> bool:
    """True for a reduction that its op does by one call of a ufunc: along one axis, of floats, and
    of few enough."""
    if not is_reduction(node) or "keepdims" not in node.attrs or len(axes_of_reduction(node)) != 1:
        return False
    data, result = spec_of(node.sources[0]), spec_of((node, 0))
    shrinks = node.attrs["keepdims"] or len(data.shape) > 1  # MXNet keeps an axis of a vector
    return shrinks and data.dtype.char in "fd" and 0 < data.size < LARGE and result.size > 0


def _limited(writer: Writer, step: Step, names: dict[Any, str | None]) -> str:
    """The call for `maximum` or `minimum` of many elements and a number."""
    data, number = sorted(step.args, key=lambda a: type(a) is Number)
    value = writer.attribute(number.value)
    return f"{step.ufunc}_scalar(xp, {names[data]}, {value}, out={names['y']})"


def _comment(node: Node, outs: Sequence[str]) -> str:
    """A comment with the name of the node, if the array has the name of another node."""
    ours = outs[0] in (node.name, f"{node.name}_row") or len(outs) > 1
    return "" if ours else f"  # {plain(node.name)}"


def is_product(node: Node) -> bool:
    """True if the node is a product of two matrices; `product` writes its line."""
    if node.op.name == "dot":
        return all(e is not None and len(spec_of(e).shape) == 2 for e in node.inputs)
    return node.op.name == "FullyConnected" and len(node.sources) == 2


def product(writer: Writer, node: Node) -> str:
    """The line of a product of two matrices: `dot` for a row times a matrix, `matmul` for another
    small product, `shared_matmul`, which uses all cores, for a large one."""
    left, right = node.inputs[:2]
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
    """Write the function of one group and the call of the function."""
    domain, nodes = statement.shape, statement.nodes
    cut = statement.cut
    rows = cut.rows(domain)
    results = [(n, 0) for n in nodes if writer.layout.kinds[n, 0] is Placement.BUFFER]
    names = _names(writer, [*statement.inputs, *results], results)
    totals = [e for e in results if is_reduction(e[0]) and cut.begin in axes_of_reduction(e[0])]

    # Parameter of the block function -> the array passed for it.
    passed: dict[str, dict[str, str]] = {"cut": {}, "totals": {}, "whole": {}}
    for entry, name in names.items():
        shape = spec_of(entry).shape
        if entry[0] in nodes and is_reduction(entry[0]):
            shape = kept_shape(domain, axes_of_reduction(entry[0]))
        shape = cut.merged(shape, domain)
        array = writer.name_in_shape(entry, shape)
        if entry in totals:
            passed["totals"][name] = f"({writer.ufunc(REDUCTIONS[entry[0].op.name])}, {array})"
        else:
            passed["cut" if shape[cut.begin] == rows else "whole"][name] = array
    scratch = find_scratch(nodes, names, writer.identifier)
    lines = []
    for node in nodes:
        given = [None if e is None else names[e] for e in node.inputs]
        out = names[node, 0]
        if is_reduction(node):
            texts = [_reduction(writer, node, str(given[0]), cut, out)]
            texts += [] if (node, 0) in totals else _division(writer, node, out)
        else:
            texts = lines_of(writer, node, given, [out])
        lines += [(text, node) for text in texts]

    function = writer.identifier(nodes[-1].name + "_block")
    title = f'"""{list_text([n.name for n in nodes])}: {prod(domain)} elements."""'
    parameters = [name for arrays in passed.values() for name in arrays] + list(scratch)
    head = fit_line(f"def {function}({', '.join(parameters)}):", WIDTH - 4)
    writer.define([*head, "    " + title], lines)
    large = {name for entry, name in names.items() if spec_of(entry).shape == domain}
    itemsize = max(spec_of((n, 0)).dtype.itemsize for n in nodes)
    in_block = min(rows_per_block(domain, rows, itemsize, len(large)), rows)
    lists = {word: list(arrays.values()) for word, arrays in passed.items()}
    lists["scratch"] = [
        f"({cut.row(spec.shape, domain)}, {writer.dtype(spec.dtype)})" for spec in scratch.values()
    ]
    arguments = ["xp", function, str(rows), str(in_block)]
    arguments += [f"axis={cut.begin}"] if cut.begin else []
    arguments += [f"{word}=[{', '.join(found)}]" for word, found in lists.items() if found]
    writer.write(f"in_blocks({', '.join(arguments)})", nodes[-1])
    for node, _ in totals:
        for line in _division(writer, node, names[node, 0]):
            writer.write(line, node)


def _reduction(writer: Writer, node: Node, data: str, cut: Cut, out: str) -> str:
    """The line that reduces a block. Over the first axes and the last ones it takes two steps: the
    first adds whole images, for instance, which NumPy does faster than to add up each."""
    ufunc, over = writer.ufunc(REDUCTIONS[node.op.name]), axes_of_reduction(node)
    axes = cut.reduced(over)
    first = [a for i, a in enumerate(axes) if a == axes[0] + i]
    as_op = INTERPRETED in node.labels and not ends_short(spec_of(node.sources[0]).shape, over)
    if len(first) < len(axes) and not as_op:
        data = f"{ufunc}.reduce({data}, {_over(first)})"
        axes = axes[len(first) :]
    return f"{ufunc}.reduce({data}, {_over(axes)}, out={out})"


def _over(axes: Sequence[int]) -> str:
    return f"axis={axes[0] if len(axes) == 1 else tuple(axes)}, keepdims=True"


def _division(writer: Writer, node: Node, name: str) -> list[str]:
    """The line that makes a mean of a sum; none for other reductions."""
    if node.op.name != "mean":
        return []
    spec = spec_of((node, 0))
    count = spec_of(node.sources[0]).size // max(spec.size, 1)
    number = writer.argument(Number("scalars", spec.dtype, count))
    return [f"{writer.ufunc('divide')}({name}, {number}, out={name})"]


def _names(writer: Writer, entries: list[Entry], results: list[Entry]) -> dict[Entry, str]:
    """The name of each array in the block function. An array that the group overwrites has the name
    of the result that overwrites it."""
    layout = writer.layout
    home = {layout.buffers[entry]: writer.name_of(entry) for entry in results}
    names = {}
    for entry in entries:
        buffers = [layout.buffers.get(owner) for owner in layout.owners[entry]]
        over = [home[buffer] for buffer in buffers if buffer in home]
        names[entry] = over[0] if over else writer.name_of(entry)
    return names


# -- scratch memory --------------------------------------------------------------------------------


def find_scratch(
    nodes: Sequence[Node], places: dict[Entry, str], new_name: Callable[[str], str]
) -> dict[str, Spec]:
    """Add a place for every value of the group without one to `places`. Returns the scratch arrays:
    name -> shape and dtype of the values, of which a block holds some rows."""
    last = {entry: node for node in nodes for entry in node.sources}
    _share_result_arrays(nodes, places, last)
    found: dict[str, Spec] = {}
    free: list[str] = []
    for node in nodes:
        entry = node, 0
        read = dict.fromkeys(node.sources)
        dying = [e for e in read if last[e] is node and places[e] in found]
        if entry not in places:
            spec = spec_of(entry)
            fit = [places[e] for e in dying if _may_overwrite(node, e)]
            fit += [name for name in free if found[name] == spec]
            if not fit:
                fit = [new_name(node.name)]
                found[fit[0]] = spec
            places[entry] = fit[0]
        free = [name for name in free if name != places[entry]]
        free += [places[e] for e in dying if places[e] != places[entry]]
    return found


def _share_result_arrays(
    nodes: Sequence[Node], places: dict[Entry, str], last: dict[Entry, Node]
) -> None:
    """For each result of the group, compute the value that it is made of in the result's array, and
    so on backwards, as long as no other node uses that array in between."""
    for result in [node for node in nodes if (node, 0) in places]:
        place = places[result, 0]
        node = result
        while True:
            found = [
                e
                for e in dict.fromkeys(node.inputs)
                if e is not None and e not in places and last[e] is node and _may_overwrite(node, e)
            ]
            source = next((e for e in found if _is_free(place, e[0], node, nodes, places)), None)
            if source is None:
                break
            places[source] = place
            node = source[0]


def _is_free(
    place: str, first: Node, after: Node, nodes: Sequence[Node], places: dict[Entry, str]
) -> bool:
    """True if `first` can write to this place: no other node uses the place until `after`."""
    for node in nodes[nodes.index(first) : nodes.index(after) + 1]:
        if node not in (first, after) and places.get((node, 0)) == place:
            return False
        there = [e for e in node.sources if places.get(e) == place]
        if node is first:
            if not all(_may_overwrite(node, e) for e in there):
                return False
        elif there:
            return False
    return True


def _may_overwrite(node: Node, entry: Entry) -> bool:
    """True if the result of `node` may overwrite this input, which no later node reads."""
    if spec_of(entry) != spec_of((node, 0)):
        return False
    steps = steps_of(node)
    if steps is None:  # every elementwise op may overwrite its inputs; for others it is unknown
        return node.op is not None and node.op.elementwise
    return all(may_overwrite(steps, i) for i, e in enumerate(node.inputs) if e == entry)


# -- what a generated program calls ----------------------------------------------------------------


#: There are so many pieces at most, each of as many blocks as any other, or one less.
PIECES = 16

#: Where blocks are of more rows, they begin at a multiple of so many: of a line of the cache.
ALIGNED = 64

#: A block-sized array for intermediate results: shape of a row, dtype.
Room = tuple[Shape, Any]


def in_blocks(
    xp: Any, body: Callable[..., Any], rows: int, rows_in_block: int, cut: Sequence[Any],
    totals: Sequence[tuple[Any, Any]] = (), whole: Sequence[Any] = (),
    scratch: Sequence[Room] = (), axis: int = 0,
) -> None:  # fmt: skip
    """Call `body(*arrays)` for every block of rows of the arrays in `cut`: of `rows_in_block` at
    most, and all of about as many. Rows are the places along `axis`.

    Its arguments: the blocks of `cut`, places for its part of each total, the arrays that are
    `whole` in every block, scratch memory. A total (ufunc, out) is put together at the end.
    """
    rows_in_block = _even(rows, rows_in_block)
    blocks = -(-rows // rows_in_block)
    n = max(min(PIECES, blocks), 1)
    pieces = cut_evenly(blocks, n)
    parts = [xp.empty((blocks, *out.shape), out.dtype) for _, out in totals]

    def piece(i: int) -> None:
        for block in range(pieces[i].start, pieces[i].stop):
            begin = block * rows_in_block
            end = min(begin + rows_in_block, rows)
            here = along(axis, slice(begin, end))
            arrays = [x[here] for x in cut]
            arrays += [part[block, ...] for part in parts]
            rooms = [
                memory.array(f"block{k}", (*shape[:axis], end - begin, *shape[axis:]), dtype)
                for k, (shape, dtype) in enumerate(scratch)
            ]
            body(*arrays, *whole, *rooms)
            del rooms  # a thread lends its memory for the next block when no array uses it

    if n == 1:
        piece(0)
    else:
        parallel_for(n, piece)
    for (ufunc, out), part in zip(totals, parts):
        ufunc.reduce(part, axis=0, out=out)


def _even(rows: int, most: int) -> int:
    """How many rows to take at a time, so that the last block is no rest of a few.

    >>> _even(256, 202), _even(1000, 1000), _even(1_000_000, 131_072)
    (128, 1000, 125056)
    """
    if rows <= most:
        return max(rows, 1)
    even = -(-rows // -(-rows // most))
    return min(even + -even % ALIGNED, most) if even > ALIGNED else even


def place_or_new(xp: Any, place: Any, shape: Shape, dtype: Any) -> Any:
    """Where an output goes: the place that was given for it, else new memory."""
    return xp.empty(shape, dtype) if place is None else place
