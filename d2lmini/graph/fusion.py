"""Fusion groups: elementwise ops on large arrays that run together, one block after the other.

Each op alone would read its inputs from memory and write its result there: on 4 million numbers,
16 MB each way, memory is what takes the time. In a group every op works on a block that fits the
cache, then the next op on the same block; what lies between them never leaves the cache.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini import addons
from d2lmini.graph.ir import Entry, Node, mutated_by, spec_of, topological
from d2lmini.graph.mirror import compute_late
from d2lmini.graph.steps import steps_of
from d2lmini.ops.core import Shape
from d2lmini.ops.reduce import reduced_axes

#: Bytes of one array in a block, at most, and of all of them. The cache that cores share has room
#: for these; and a call on so much of one lasts long beside the time to get the interpreter back
#: from another worker: at an eighth of it two threads were no quicker than one.
BLOCK_BYTES = 1 << 20
BLOCKS_BYTES = 1 << 21
#: From so many elements on ops are done in blocks; below, all there is fits the cache anyway.
SMALLEST = 1 << 16
#: A single pass over memory gains nothing from the cache, and from other cores only if it is long.
SMALLEST_PASS = 1 << 19
#: More ops than this in one group would need more scratch memory than the cache has.
MOST = 64


class Statement:
    """One op, or a group of them with results of one shape.

    nodes     in an order in which they can run
    shape     of the results of a group; None for an op that runs alone
    position  statements run in the order of these
    users     the other statements that read what this one computes
    """

    __slots__ = ("nodes", "position", "shape", "users")

    def __init__(self, nodes: list[Node], position: int, shape: Shape | None):
        self.nodes = nodes
        self.position = position
        self.shape = shape
        self.users: set[Statement] = set()

    @property
    def inputs(self) -> list[Entry]:
        """What it reads that it does not compute itself."""
        own = set(self.nodes)
        return list(
            dict.fromkeys(e for node in self.nodes for e in node.sources if e[0] not in own)
        )


def statements(outputs: Sequence[Entry], on_gpu: bool = False) -> list[Statement]:
    """The ops behind `outputs`, in groups where that is worth it.

    On a GPU a group is one kernel: it is worth while whatever the size, reductions are left out.
    """
    order = compute_late(topological(outputs), {node for node, _ in outputs})
    changed = mutated_by(order)
    number = {node: i for i, node in enumerate(order)}
    home: dict[Node, Statement] = {}
    for node in order:
        if node.op is None:
            continue
        new = Statement([node], number[node], _shape_in_blocks(node, changed, on_gpu))
        if new.shape is not None:
            new = _join_groups(new, home)
            new.nodes.sort(key=number.__getitem__)
        if new.nodes == [node] and is_reduction(node):
            new.shape = None  # there is nothing to join
        for member in new.nodes:
            home[member] = new
        for source in _sources(new.nodes, home) - {new}:
            source.users.add(new)
    found = sorted(set(home.values()), key=lambda statement: statement.position)
    for statement in found:
        if statement.shape is not None and not _gains(statement):
            statement.shape = None
    return found


def _gains(statement: Statement) -> bool:
    """True if blocks make this faster. A single pass gains from several cores alone."""
    passes = sum(len(steps_of(node) or (1, 2)) for node in statement.nodes)
    return passes > 1 or prod(statement.shape or ()) >= SMALLEST_PASS


def _sources(nodes: Sequence[Node], home: dict[Node, Statement]) -> set[Statement]:
    """The statements that compute the inputs of these nodes."""
    return {home[e[0]] for node in nodes for e in node.sources if e[0] in home}


def _predecessors(nodes: Sequence[Node], home: dict[Node, Statement]) -> set[Statement]:
    """The statements that must be done before these nodes: they read what those reduce."""
    entries = [e for node in nodes for e in node.sources]
    return {home[node] for node, _ in entries if node in home and is_reduction(node)}


def _join_groups(new: Statement, home: dict[Node, Statement]) -> Statement:
    """The statement that `new` becomes together with the groups of its inputs."""
    alone = new
    near = {s for s in _sources(new.nodes, home) if s.shape == new.shape}
    near -= _predecessors(new.nodes, home)
    movable = near
    while True:
        inside = [node for s in movable for node in s.nodes]
        finished = _predecessors(inside, home)
        stay = {s for s in movable if s.users <= movable and s not in finished}
        if stay == movable:
            break
        movable = stay
    members = [node for s in movable for node in s.nodes] + new.nodes
    needed = _sources(members, home) - movable
    hosts = [
        host
        for host in near - movable - _predecessors(members, home)
        if all(s is host or s.position < host.position for s in needed)
    ]
    if hosts:
        new = max(hosts, key=lambda host: host.position)
        members = new.nodes + members
    if len(members) > MOST:
        return alone
    for source in needed:
        source.users -= movable
    new.nodes = members
    return new


def _shape_in_blocks(node: Node, changed: set[Node], on_gpu: bool) -> Shape | None:
    """The shape of the result if the node can be computed block by block, and that is worth it."""
    op = node.op
    assert op is not None and node.specs is not None
    entries = node.sources
    if len(node.specs) != 1 or not entries or any(e[0] in changed for e in entries):
        return None
    shapes = [spec_of(e).shape for e in entries]
    shape = shapes[0] if is_reduction(node) else node.specs[0].shape
    if prod(shape) < (1 if on_gpu else SMALLEST) or (
        on_gpu and not addons.find("emit_cuda").is_in_c(node)
    ):
        return None
    if is_reduction(node):
        return shape if _is_reduced_in_blocks(node) else None
    if steps_of(node) is not None:
        return shape
    if op.name == "where":
        return shape if all(s == shape for s in shapes) else None
    by_itself = op.elementwise and not (op.mutates or op.injects or op.variadic)
    if not by_itself or "shape" in op.attr_names:
        return None
    return shape if all(s == shape or prod(s) == 1 for s in shapes) else None


# -- reductions at the end of a group --------------------------------------------------------------

#: Reductions that can end a group -> the ufunc that adds up.
REDUCTIONS = {"sum": "add", "mean": "add", "_sum_to": "add", "max": "maximum", "min": "minimum"}


def is_reduction(node: Node) -> bool:
    """True if the node is one of these: all that it reads must be complete before its result."""
    return node.op is not None and node.op.name in REDUCTIONS


def axes_of_reduction(node: Node) -> tuple[int, ...]:
    """The axes that a reduction reduces."""
    shape = spec_of(node.sources[0]).shape
    assert node.op is not None
    if node.op.name != "_sum_to":
        return reduced_axes(node.attrs["axis"], len(shape), node.attrs["exclude"])
    target = node.attrs["shape"]
    kept = (1,) * (len(shape) - len(target)) + tuple(target)
    return tuple(a for a, n in enumerate(kept) if n == 1)


def _is_reduced_in_blocks(node: Node) -> bool:
    """On floats, and with results of blocks that are small beside the blocks."""
    axes, data = axes_of_reduction(node), node.inputs[0]
    assert data is not None
    shape, dtype = spec_of(data)
    if not axes or dtype.char not in "fd":
        return False
    kept = prod(n for a, n in enumerate(shape) if a not in axes)
    return 0 not in axes or 8 * kept * dtype.itemsize <= BLOCK_BYTES


# -- how the arrays of a group are cut -------------------------------------------------------------


def leading(shapes: Sequence[Shape], domain: Shape) -> int:
    """How many axes of `domain` in front can be taken as one and cut: along them every array has
    either the same sizes or only 1.

    >>> leading([(8, 3, 5), (8, 3, 5)], (8, 3, 5)), leading([(8, 3, 5), (3, 1)], (8, 3, 5))
    (3, 1)
    """
    axes = len(domain)
    for shape in shapes:
        if prod(shape) != 1:
            sizes = (1,) * (len(domain) - len(shape)) + shape
            same = _run([a == b for a, b in zip(sizes, domain)])
            axes = min(axes, max(same, _run([a == 1 for a in sizes])))
    return axes


def _run(flags: list[bool]) -> int:
    return flags.index(False) if False in flags else len(flags)


def cut_shape(shape: Shape, domain: Shape, axes: int) -> tuple[Shape, bool]:
    """The shape in which an array enters the blocks, and whether it is cut there: with the first
    `axes` of the domain as one, or, if it has only 1 along them, without these."""
    if prod(shape) == 1:
        return (1,), False
    sizes = (1,) * (len(domain) - len(shape)) + shape
    if sizes[:axes] == domain[:axes]:
        return (prod(sizes[:axes]), *sizes[axes:]), True
    return sizes[axes:], False


def rows_per_block(domain: Shape, axes: int, itemsize: int, arrays: int) -> int:
    """How many rows (places along the axis that is cut) of so many arrays make a block.

    >>> rows_per_block((4096, 1024), 1, 4, 2), rows_per_block((4096, 1024), 1, 4, 16)
    (256, 32)
    """
    row = max(prod(domain[axes:]), 1) * itemsize
    return max(min(BLOCK_BYTES, BLOCKS_BYTES // arrays) // row, 1)
