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
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini import addons
from d2lmini.graph.backward import compute_late
from d2lmini.graph.ir import Entry, Node, mutated_by, spec_of, topological
from d2lmini.graph.rows import (
    Cut,
    Needs,
    aligned,
    axes_of_reduction,
    axes_of_rows,
    find_cut,
    is_placing,
    is_reduction,
)
from d2lmini.graph.steps import steps_of
from d2lmini.ops.chunking import BLOCKED
from d2lmini.ops.core import Shape
from d2lmini.ops.reduce import kept_shape

#: From so many elements on ops are done in blocks; below, all there is fits the cache anyway.
SMALLEST = BLOCKED
#: A single pass over memory gains nothing from the cache, and from other cores only if it is long.
SMALLEST_PASS = 1 << 19
#: More ops than this in one group would need more scratch memory than the cache has.
MOST = 64


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
        self.shape = shape
        self.sources = sources
        self.users: set[Statement] = set()

    @property
    def cut(self) -> Cut | None:
        """Where a group is cut into blocks."""
        assert self.shape is not None
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
    assert new.shape is not None

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
    assert node.op is not None and node.specs is not None
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
    if not (_is_of_floats(node) if reduces else _is_map(node) or (on_gpu and is_placing(node))):
        return [None]
    if on_gpu and not (size and addons.find("emit_cuda").is_in_c(node)):
        return [None]
    return [*sorted(larger, key=lambda d: (prod(d), d)), own]


def _fits(shape: Shape, domain: Shape) -> bool:
    """True if an array of this shape broadcasts to the domain."""
    sizes = aligned(shape, domain)
    return len(sizes) == len(domain) and all(n in (1, size) for n, size in zip(sizes, domain))


def _is_of_floats(node: Node) -> bool:
    """True if a reduction is one of a ufunc in the dtype of what it reads, along some axis."""
    return spec_of(node.sources[0]).dtype.char in "fd" and axes_of_reduction(node) != ()


def _is_map(node: Node) -> bool:
    """True if a block of the result is computed from blocks of the inputs, which may broadcast."""
    op = node.op
    assert op is not None
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
