"""The rows of a fusion group: how its arrays are cut into blocks, and what a block can reduce.

A group works on arrays that broadcast to one shape, its *domain*. The domain is cut along an axis,
or several that follow each other; the places along them are the *rows*. A block has some rows of
each array, each as a whole, so it has all that a reduction of rows needs.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of
>>> x = sym.var("x")
>>> y = sym.broadcast_sub(x, sym.mean(x, axis=(0, 2), keepdims=True))
>>> [(y, _)] = graph_of(y, x=(8, 64, 49))
>>> mean, _ = y.inputs[1]
>>> is_reduction(mean), axes_of_reduction(mean)
(True, (0, 2))
>>> both = [Needs.of(node, (8, 64, 49)) for node in (mean, y)]
>>> find_cut(Needs.of_all(both), (8, 64, 49))   # a row is a channel of all images
Cut(begin=1, end=2)
>>> find_cut(both[0], (8, 64, 49))              # no op reads the mean: blocks give parts of it
Cut(begin=0, end=1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.ops.chunking import ONE_BLOCK, ROW_BYTES
from d2lmini.ops.core import Shape
from d2lmini.ops.reduce import REDUCTIONS, kept_shape, reduced_axes

#: Bytes of one array in a block, at most, and of all of them. The cache that cores share has room
#: for these; and a call on so much of one lasts long beside the time to get the interpreter back
#: from another worker: at an eighth of it two threads were no quicker than one.
BLOCK_BYTES = 1 << 20
BLOCKS_BYTES = 1 << 22
#: If the axes that are cut are not the first, a block is made of runs of memory: of this many bytes
#: at least, or else reading them takes longer than what the group saves.
RUN_BYTES = 1 << 12

# -- reductions ------------------------------------------------------------------------------------


def is_reduction(node: Node) -> bool:
    """True if the node is one of these: all that it reads must be complete before its result."""
    return node.op is not None and node.op.name in REDUCTIONS


def axes_of_reduction(node: Node) -> tuple[int, ...]:
    """The axes that a reduction reduces."""
    shape = spec_of(node.sources[0]).shape
    assert node.op is not None
    if node.op.name != "_sum_to":
        return reduced_axes(node.attrs["axis"], len(shape), node.attrs["exclude"])
    kept = aligned(node.attrs["shape"], shape)
    return tuple(a for a, n in enumerate(kept) if n == 1)


def is_placing(node: Node) -> bool:
    """True if the node puts numbers at one place of each row, and 0 elsewhere: it must know which
    place of its row an element has. A generated kernel does; blocks of NumPy do not."""
    return node.op is not None and node.op.name == "_pick_grad" and node.attrs["mode"] == "clip"


def axes_of_rows(node: Node) -> tuple[int, ...] | None:
    """The axes along which the rows lie that a node reduces, or of which it must know the places;
    None for an elementwise op."""
    if is_reduction(node):
        return axes_of_reduction(node)
    return (node.attrs["axis"] % len(spec_of((node, 0)).shape),) if is_placing(node) else None


def aligned(shape: Shape, domain: Shape) -> Shape:
    """The shape of an array that broadcasts to a domain, with as many axes."""
    return (1,) * (len(domain) - len(shape)) + shape


def _is_small(node: Node) -> bool:
    """True if the result of a reduction is small beside a block."""
    return 8 * spec_of((node, 0)).nbytes <= BLOCK_BYTES


# -- the cut ---------------------------------------------------------------------------------------


class Cut(NamedTuple):
    """The axes of a domain that are taken as one and cut, from `begin` to before `end`. The places
    along them are the *rows* of the group; a block has some rows, as a whole."""

    begin: int
    end: int

    def rows(self, domain: Shape) -> int:
        """How many rows there are."""
        return prod(domain[self.begin : self.end])

    def merged(self, shape: Shape, domain: Shape) -> Shape:
        """The shape of an array with these axes as one, which is 1 where the array broadcasts."""
        sizes = aligned(shape, domain)
        return (*sizes[: self.begin], prod(sizes[self.begin : self.end]), *sizes[self.end :])

    def row(self, shape: Shape, domain: Shape) -> Shape:
        """The shape of one row of an array, without the axis that is cut."""
        sizes = aligned(shape, domain)
        return sizes[: self.begin] + sizes[self.end :]

    def reduced(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The number of each of these axes of the domain when the axes of the cut are one."""
        fewer = self.end - self.begin - 1
        new = [a if a < self.begin else max(self.begin, a - fewer) for a in axes]
        return tuple(dict.fromkeys(new))


class Needs(NamedTuple):
    """What a cut of a domain depends on, of one node or of several.

    read        what they read
    shapes      of that, with as many axes as the domain
    itemsizes   of what they compute
    reductions  the nodes that reduce, their axes, and if their results fit the domain
    """

    read: frozenset[Entry]
    shapes: frozenset[Shape]
    itemsizes: frozenset[int]
    reductions: frozenset[tuple[Node, tuple[int, ...], bool]]

    @classmethod
    def of(cls, node: Node, domain: Shape) -> Needs:
        """Those of one node."""
        result, read = spec_of((node, 0)), node.sources
        reductions: frozenset[Any] = frozenset()
        if is_reduction(node):
            axes = axes_of_reduction(node)
            fits = aligned(result.shape, domain) == kept_shape(domain, axes)
            reductions = frozenset([(node, axes, fits)])
        shapes = frozenset([aligned(spec_of(e).shape, domain) for e in read])
        return cls(frozenset(read), shapes, frozenset([result.dtype.itemsize]), reductions)

    @classmethod
    def of_all(cls, parts: Iterable[Needs]) -> Needs:
        """Those of several, which are computed in one group."""
        return cls(*[frozenset().union(*sets) for sets in zip(*parts)])


def find_cut(needs: Needs, domain: Shape) -> Cut | None:
    """Where a group can be cut: along the first axes that no reduction reduces whose result is read
    in the group. All arrays must have the same sizes along them, or only 1.

    None if there are no such axes, or rows are too long, or reductions along the axes that are cut
    would leave large results of each block.
    """
    inner: set[int] = set()
    at_end: list[tuple[Node, tuple[int, ...]]] = []
    for node, over, fits in needs.reductions:
        if (node, 0) not in needs.read:
            at_end.append((node, over))
        elif fits:
            inner.update(over)
        else:
            return None
    shapes = needs.shapes - {domain}

    def is_one(axes: range) -> bool:
        """True if these axes of all arrays can be taken as one."""
        if len(axes) == 1:
            return True
        for s in shapes:
            if any([s[a] != domain[a] for a in axes]) and any([s[a] != 1 for a in axes]):
                return False
        return all([len({a in over for a in axes}) == 1 for _, over in at_end])

    itemsize = max(needs.itemsizes)
    for begin in range(len(domain)) if inner else (0,):
        end = begin
        while end < len(domain) and end not in inner and is_one(range(begin, end + 1)):
            end += 1
        cut = Cut(begin, end)
        rows = cut.rows(domain)
        if inner and (rows == 1 or prod(domain) // rows * itemsize > ROW_BYTES):
            continue
        if begin and prod(domain[:begin]) > 1:
            run = min(rows, rows_per_block(domain, rows, itemsize, 4)) * prod(domain[end:])
            if run * itemsize < RUN_BYTES:
                continue
        if all([_is_small(node) for node, over in at_end if begin in over]):
            return cut
    return None


def rows_per_block(domain: Shape, rows: int, itemsize: int, arrays: int) -> int:
    """How many of so many rows of so many arrays make a block.

    >>> rows_per_block((4096, 1024), 4096, 4, 2), rows_per_block((4096, 1024), 4096, 4, 16)
    (256, 64)
    """
    if prod(domain) <= ONE_BLOCK:
        return rows
    row = max(prod(domain) // rows, 1) * itemsize
    return max(min(BLOCK_BYTES, BLOCKS_BYTES // arrays) // row, 1)
