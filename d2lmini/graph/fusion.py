"""Fusion groups: elementwise ops on large arrays that run together, one block after the other.

Each op alone would read its inputs from memory and write its result there: on 4 million numbers,
16 MB each way, memory is what takes the time. In a group every op works on a block that fits the
cache, then the next op on the same block; what lies between them never leaves the cache.

Softmax, the normalizations and their gradients reduce along rows, then map. A block of whole rows
has all that the reduction of a row needs, so ops that read the result can be in the group: those on
the whole *domain*, the shape that is cut into blocks, and those on *row values*, one number a row.
A reduction along the axes that are cut ends the group: no block has all of its result.

The graph becomes a list of statements, each one op or a group, in an order in which they can run.
Ops are looked at one by one, as they were written, and each joins the groups of its inputs if that
keeps the order possible: a group that nobody outside has read yet may run later, with this op; into
any other one the op can move only if all else it needs is there before.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> c = sym.elemwise_mul(sym.exp(x, name="a"), sym.dot(x, x, name="p"), name="c")
>>> y = sym.tanh(c, name="b")
>>> _, outputs = infer_types(y._entries, {x._entry[0]: Spec((512, 512), "float32")}, False)
>>> [[node.name for node in group.nodes] for group in statements(outputs)]
[['p'], ['a', 'c', 'b']]
>>> total = sym.sum(sym.exp(x, name="a"), axis=1, keepdims=True, name="total")
>>> y = sym.broadcast_sub(x, sym.log(total, name="b"), name="y")
>>> _, outputs = infer_types(y._entries, {x._entry[0]: Spec((512, 512), "float32")}, False)
>>> [[node.name for node in group.nodes] for group in statements(outputs)]
[['a', 'total', 'b', 'y']]

**Rows**: how the arrays of a group are cut into blocks, and what a block can reduce. A group works
on arrays that broadcast to one shape, its *domain*. The domain is cut along an axis, or several
that follow each other; the places along them are the *rows*. A block has some rows of each array,
each as a whole, so it has all that a reduction of rows needs.

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

from d2lmini import addons
from d2lmini.graph.ir import Entry, Node, mutated_by, spec_of, topological
from d2lmini.graph.lower import steps_of
from d2lmini.ops.chunking import BLOCKED, ONE_BLOCK, ROW_BYTES
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
        # Results of blocks must be small beside a block.
        parts = [node for node, over in at_end if begin in over]
        few = rows_per_block(domain, rows, itemsize, 16) < 2
        if prod(domain) > ONE_BLOCK and any(
            INTERPRETED in node.labels and (begin in over or (few and over[0] < begin))
            for node, over, _ in needs.reductions
        ):
            continue  # it would add up in another order than its op does
        if 8 * max([spec_of((node, 0)).nbytes for node in parts], default=0) <= BLOCK_BYTES:
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


#: From so many elements on ops are done in blocks; below, all there is fits the cache anyway.
SMALLEST = BLOCKED
#: A single pass over memory gains nothing from the cache, and from other cores only if it is long.
SMALLEST_PASS = 1 << 19
#: More ops than this in one group would need more scratch memory than the cache has.
MOST = 64
#: The label of nodes that backward computes again (`backward.mirror`).
MIRRORED = "mirrored"
#: The label of nodes of a formula: the first calls are interpreted, and later ones give their bits.
#: So reductions add up as the ops do.
INTERPRETED = "interpreted"


class Statement:
    """One op, or a group of them with results of one shape.

    nodes     in an order in which they can run
    shape     the domain of a group, whose results have this shape, or are made of reductions; None
              for an op that runs alone
    needs     of a group, what a cut of its domain depends on; not on a GPU
    position  statements run in the order of these
    sources   the other statements that compute what this one reads
    users     the other statements that read what this one computes
    """

    __slots__ = ("needs", "nodes", "position", "shape", "sources", "users")

    def __init__(
        self, node: Node, position: int, shape: Shape | None, sources: set[Statement],
        on_gpu: bool,
    ):  # fmt: skip
        self.needs = None if shape is None or on_gpu else Needs.of(node, shape)
        self.nodes = [node]
        self.position = position
        self.shape: Any = shape
        self.sources = sources
        self.users: set[Statement] = set()

    @property
    def cut(self) -> Any:
        """The `Cut` of a group into blocks."""
        needs = self.needs or Needs.of_all([Needs.of(node, self.shape) for node in self.nodes])
        return find_cut(needs, self.shape)

    @property
    def inputs(self) -> list[Entry]:
        """What it reads that it does not compute itself."""
        own = set(self.nodes)
        return list(
            dict.fromkeys(e for node in self.nodes for e in node.sources if e[0] not in own)
        )


def statements(outputs: Sequence[Entry], on_gpu: bool = False) -> list[Statement]:
    """The ops behind `outputs`, in groups where that is worth it.

    On a GPU a group is computed by generated kernels: it is worth it whatever the size.
    """
    order = compute_late(topological(outputs), {node for node, _ in outputs})
    changed = mutated_by(order)
    if on_gpu:  # inputs in another shape are there before all groups
        order.sort(key=lambda node: not _is_input_reshaped(node, changed))
    number = {node: i for i, node in enumerate(order)}
    home: dict[Node, Statement] = {}
    readers: dict[Entry, list[Node]] = {}
    for node in order:
        if node.op is None:
            continue
        domains = _domains(node, changed, home, on_gpu)
        new = _place(node, number[node], domains, home, readers, on_gpu)
        new.nodes.sort(key=number.__getitem__)
        for member in new.nodes:
            home[member] = new
        for source in new.sources:
            source.users.add(new)
        for entry in node.sources:
            readers.setdefault(entry, []).append(node)
    found = sorted(set(home.values()), key=lambda statement: statement.position)
    for statement in found:
        if statement.shape is not None and not (on_gpu or _gains(statement)):
            statement.shape = None
        statement.sources = statement.users = set()  # no circles: they die at once
    return found


def compute_late(order: Sequence[Node], outputs: set[Node]) -> list[Node]:
    """A topological order with mirrored nodes, and what is computed from them alone, right before
    the first other node or output that reads them: their results take memory no earlier."""
    if not any([MIRRORED in node.labels for node in order]):
        return list(order)
    waiting: set[Node] = set()
    for node in order:
        computed = [entry[0] for entry in node.sources if entry[0].inputs]
        if MIRRORED in node.labels or (computed and waiting.issuperset(computed)):
            waiting.add(node)
    found: dict[Node, None] = {}
    for node in order:
        if node in waiting and node not in outputs:
            continue
        path = [node]
        while path:
            missing = [e[0] for e in path[-1].sources if e[0] in waiting and e[0] not in found]
            if missing:
                path.append(missing[0])
            else:
                found[path.pop()] = None
    return list(found)


def _is_input_reshaped(node: Node, changed: set[Node]) -> bool:
    """True for an input and for what is an input in another shape."""
    if node.op is None:
        return True
    source = node.sources[0][0] if node.op.name == "reshape" else node
    return source.op is None and source not in changed


def _gains(statement: Statement) -> bool:
    """True if blocks make this faster. A single pass gains from several cores alone; a reduction
    alone is cut by its op."""
    if len(statement.nodes) == 1 and is_reduction(statement.nodes[0]):
        return False
    passes = sum(len(steps_of(node) or (1, 2)) for node in statement.nodes)
    return passes > 1 or prod(statement.shape or ()) >= SMALLEST_PASS


def _finished(nodes: Sequence[Node], home: dict[Node, Statement]) -> set[Statement]:
    """The statements that must be done before other statements or new nodes, of which these nodes
    are: they reduce what the nodes read."""
    read = [(home.get(node), e[0]) for node in nodes for e in node.sources if is_reduction(e[0])]
    return {home[e] for own, e in read if home[e] is not own}


def _join(
    new: Statement, near: set[Statement], home: dict[Node, Statement], inside: bool
) -> Statement | None:
    """`new` and those of the groups `near` that can run with it, as one; None if there are none, or
    they are no group together. inside: the ops of the group may read its reductions."""

    def finished(nodes: Sequence[Node]) -> set[Statement]:
        return set() if inside else _finished(nodes, home)

    near = near - finished(new.nodes)
    if not near:
        return None
    movable = near
    while True:
        before = finished([node for s in movable for node in s.nodes])
        stay = {s for s in movable if s.users <= movable and s not in before}
        if stay == movable:
            break
        movable = stay
    parts = [*movable, new]
    members = [node for s in parts for node in s.nodes]
    needed = new.sources.union(*[s.sources for s in movable]) - movable
    hosts = [
        host
        for host in near - movable - finished(members)
        if host.shape == new.shape and all(s is host or s.position < host.position for s in needed)
    ]
    joined = max(hosts, key=lambda host: host.position, default=new)
    if joined is not new:
        parts = [joined, *parts]
        members = joined.nodes + members
    if not 1 < len(members) <= MOST:
        return None
    needs = None
    if new.needs is None:
        if not reduces_alike(members, new.shape):
            return None
    elif not find_cut(needs := Needs.of_all([s.needs for s in parts if s.needs]), new.shape):
        return None
    for source in needed:
        source.users -= movable
    joined.nodes = members
    joined.needs = needs
    joined.sources = (joined.sources | needed) - movable - {joined}
    return joined


def _place(
    node: Node, position: int, domains: Sequence[Shape | None], home: dict[Node, Statement],
    readers: dict[Entry, list[Node]], on_gpu: bool,
) -> Statement:  # fmt: skip
    """The statement that computes a node: with the groups of one of these domains that are near it,
    or else by itself; then the last domain is its own. On a GPU a group also takes in what computes
    its row values of others: a launch takes longer than that."""
    sources = {home[e[0]] for e in node.inputs if e is not None and e[0] in home}
    near = sources
    if is_reduction(node):  # what a group reads anyway need not be read once more
        near = near.union([home[reader] for reader in readers.get(node.sources[0], ())])
    for domain in filter(None, domains):
        new = Statement(node, position, domain, sources, on_gpu)
        groups = {s for s in near if s.shape == domain}
        ahead = {s for s in near - groups if on_gpu and s.shape and _fits(s.shape, domain)}
        for found in (groups | ahead, groups) if ahead else (groups,):
            joined = _join(new, found, home, True)
            if joined is not None:
                return joined
        joined = _join(new, groups, home, False) if groups else None
        if joined is not None:
            return joined
    return Statement(node, position, domains[-1], sources, on_gpu)


def _domains(
    node: Node, changed: set[Node], home: dict[Node, Statement], on_gpu: bool
) -> list[Shape | None]:
    """The domains of groups in which the node can be computed: those of row values that it reads,
    and at last the shape of its result, or of what it reduces; None if that is not worth it."""
    entries = node.sources
    if len(node.specs) != 1 or not entries or (changed and any([e[0] in changed for e in entries])):
        return [None]
    reduces = is_reduction(node)
    shape = spec_of(entries[0] if reduces else (node, 0)).shape
    size = prod(shape)
    near = () if reduces else {home[e[0]].shape for e in entries if e[0] in home}
    larger = [d for d in near if d and prod(d) > size and _fits(shape, d)]
    own = shape if on_gpu or size >= SMALLEST else None
    if not larger and own is None:
        return [None]
    if reduces:  # by a ufunc in the dtype of what it reads, along some axis
        joins = spec_of(entries[0]).dtype.char in "fd" and axes_of_reduction(node) != ()
    else:
        joins = _is_map(node) or (on_gpu and is_placing(node))
    if not joins:
        return [None]
    if on_gpu and not (size and addons.find("emit_cuda").is_in_c(node)):
        return [None]
    return [*sorted(larger, key=lambda d: (prod(d), d)), own]


def _fits(shape: Shape, domain: Shape) -> bool:
    """True if an array of this shape broadcasts to the domain."""
    sizes = aligned(shape, domain)
    return len(sizes) == len(domain) and all(n in (1, size) for n, size in zip(sizes, domain))


def _is_map(node: Node) -> bool:
    """True if a block of the result is computed from blocks of the inputs, which may broadcast."""
    op = node.op
    if steps_of(node) is not None:
        return True
    shape = spec_of((node, 0)).shape
    shapes = [spec_of(e).shape for e in node.sources]
    if op.name == "where":
        return all(s == shape for s in shapes)
    by_itself = op.elementwise and not (op.mutates or op.injects or op.variadic)
    if not by_itself or "shape" in op.attr_names:
        return False
    return all(s == shape or prod(s) == 1 for s in shapes)


def reduces_alike(nodes: Sequence[Node], domain: Shape) -> bool:
    """True if all rows of a group lie along the same axes, as a kernel for a GPU needs, and what
    the group computes is of the whole domain or one number a row."""
    found = {axes for axes in map(axes_of_rows, nodes) if axes is not None}
    read = {e for node in nodes for e in node.sources}
    inner = [node for node in nodes if not is_reduction(node) or (node, 0) in read]
    shapes = {spec_of((node, 0)).shape for node in inner} - {domain}
    return len(found) <= 1 and all(
        any(_fits(shape, kept_shape(domain, axes)) for axes in found) for shape in shapes
    )
