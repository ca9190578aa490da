"""The tape: the record of each operation, and how its gradient is computed.

A `Node` refers to its parents, never to its outputs; an output refers to its node (`_node`, which
is None for an array without history). So the tape is freed together with the arrays.

A backward without `retain_graph` releases the nodes that it has walked: they drop their parents
and the values they saved. An array whose node was released is a constant for everything that is
recorded afterwards (`history`), as in MXNet.

>>> from d2lmini import autograd, nd
>>> x = nd.ones(2)
>>> x.attach_grad()
>>> with autograd.record():
...     y = (x * 3).tanh()
>>> node, which = y._node
>>> node.name, which, node.parents[0][0].name, node.parents[0][0].parents[0][0].name
('tanh', 0, '_mul_scalar', 'leaf')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from d2lmini import engine
from d2lmini.base import MXNetError, alias, callsite
from d2lmini.engine.core import lock
from d2lmini.ops import composed
from d2lmini.ops.core import Op, Spec, Value, Y, invoke, modes, registry

#: The place of a value on the tape: (node, index among the node's outputs).
Entry = tuple["Node", int]

#: The gradient of each input, None where there is none.
Grads = Sequence[Any]

#: (spec, context) -> an array of zeros. Set by `ndarray`, which imports this module.
zeros: Callable[[Spec, Any], Any] = NotImplemented

_order = count()

#: Lines that were warned that a gradient ends there.
_told: set[Any] = set()

new = object.__new__


class Node:
    """One step on the tape.

    parents  the place on the tape of each input, None for an input without history; None instead
             of the tuple when the node was released
    outputs  specs of the values it made
    order    increases as nodes are made, so parents come before children
    site     the user's line that made it
    """

    __slots__ = ("ctx", "order", "outputs", "parents", "site")

    name = "?"
    placing = False  # can the rule write gradients into given arrays?
    #: In place of `gradients`: (parts, gs, graph, needs, places) -> None, adds to the parts of the
    #: gradients of the parents.
    walk: Any = None
    grad: Any = None  # of a leaf: the array that has the gradient
    fresh = False  # of a leaf: has backward written `grad` since it was last marked stale?

    parents: Any

    def __init__(self, parents: tuple[Entry | None, ...], outputs: Sequence[Spec], ctx: Any):
        self.parents = parents
        self.outputs = outputs
        self.ctx = ctx
        self.order = next(_order)
        self.site = callsite.find()

    def enter(self, outs: Sequence[Any]) -> None:
        """Make the arrays `outs` the outputs of this node."""
        for i, y in enumerate(outs):
            y._node = (self, i)

    def gradients(self, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any) -> Grads:
        """Gradients of the inputs from those of the outputs (some may be None, but not all);
        `graph`: record the computation; `needs`: which inputs need a gradient; `places`: arrays,
        if any, to compute the gradients into."""
        return ()

    def release(self) -> None:
        """Drop the parents and what only backward needs: no gradient goes further from here."""
        self.parents = None


class Leaf(Node):
    """An array with a gradient attached: stored in `grad`, according to `req` (write or add)."""

    __slots__ = ("fresh", "grad", "req")

    name = "leaf"

    def __init__(self, grad: Any, req: str):
        super().__init__((), (grad._spec,), grad._ctx)
        self.grad = grad
        self.req = req
        self.fresh = False

    def release(self) -> None:
        """A leaf is never used up: the tape begins there."""

    def store(self, parts: list[Any]) -> None:
        """Write the sum of the parts into `grad`, or add it."""
        if self.req == "write" and len(parts) == 1 and parts[0] is self.grad:
            self.fresh = True  # the rule has written it there
            return
        if self.req == "add":
            # Before the rest of backward on that device: other devices may wait for the sum.
            with engine.prioritized(1):
                total([self.grad, *parts], out=self.grad)
        else:
            total(parts, out=self.grad)
        self.fresh = True


class NullLeaf(Leaf):
    """An array with `attach_grad('null')`: backward leaves `grad` unchanged.

    The first backward that walks it, and does not retain the graph, makes the array a constant
    without `grad`, as in MXNet."""

    __slots__ = ()

    def release(self) -> None:
        Node.release(self)
        self.grad = None


class OpNode(Node):
    """An op that was applied: its rule, its attributes, the values the rule needs.

    saved  what `op.keeps` names: arrays (lists of them for several outputs or any number of
           inputs), shapes, dtypes; None after a backward that does not retain the graph
    cells  of each array the cell (`Chunk`) that has its value should the program overwrite it, of
           a list of arrays a tuple of cells; else None
    """

    __slots__ = ("attrs", "cells", "op", "placing", "saved")

    op: Op
    attrs: dict[str, Any]
    saved: list[Any] | None
    cells: list[Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.op.name

    def gradients(self, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any) -> Grads:
        op = self.op
        if op.rule is None:
            return ()
        assert self.saved is not None
        saved = []
        for kept, cell, (place, _) in zip(self.saved, self.cells, op.keeps):
            if cell is not None and (
                graph or type(cell) is tuple or kept._chunk.version != cell[0]
            ):
                kept = self._value(kept, cell, place, graph)
            saved.append(kept)
        if len(gs) == 1:
            return op.gradients(gs[0], saved, self.attrs, needs, places)
        shown = op.outputs(**self.attrs) if callable(op.outputs) else op.outputs
        for i in range(shown):
            if gs[i] is None:
                gs[i] = zeros(self.outputs[i], self.ctx)
        return op.gradients(gs, saved, self.attrs, needs, places)

    def _value(self, kept: Any, cell: Any, place: int, graph: bool) -> Any:
        """A saved array, or list of arrays, as it was recorded; with its history if `graph`."""
        if type(cell) is not tuple:
            kept = value_of(self, kept, cell)
            return kept._alias((self, 0) if place == Y else self.parents[place]) if graph else kept
        kept = [value_of(self, x, c) for x, c in zip(kept, cell)]
        entries = [(self, i) for i in range(len(kept))] if place == Y else self.parents
        return [x._alias(entry) for x, entry in zip(kept, entries)] if graph else kept

    def release(self) -> None:
        self.parents = None
        self.saved = None
        self.cells = []


def history(x: Any) -> Entry | None:
    """The place of `x` on the tape; None for a constant: `x` never had a history, or a backward
    has used it up."""
    entry = x._node
    return None if entry is None or entry[0].parents is None else entry


def cell_of(x: Any) -> list[Any]:
    """The cell (`Chunk`) that will have the value which `x` has now."""
    chunk = x._chunk
    if x._offset is not None:
        with lock:
            return chunk.cell_of(x._offset, x._offset + x._spec.size)
    cell: list[Any] | None = chunk.saved
    # No call or jump between these lines, hence no other thread. A cell of another version is left
    # over from before a write that named only the Var.
    if cell is None or cell[0] != chunk.version:
        cell = chunk.saved = [chunk.version]
    return cell


def value_of(node: Node, x: Any, cell: list[Any]) -> Any:
    """The array `x` that `node` has saved, as it was when `cell` was taken: `x` itself, or the
    copy."""
    if cell[0] is not None:
        if x._offset is None and cell[0] != x._chunk.version:  # by another thread, meanwhile
            raise overwritten(node, x._spec, cell)
        return x
    old = x._alias(x._node)
    old._chunk, old._handle, old._offset = cell[1]._chunk, cell[1]._handle, None
    return old


def overwritten(node: Node, spec: Spec, cell: list[Any]) -> MXNetError:
    """The error that there is no copy of a value."""
    return MXNetError(
        f"{node.name}: a value of shape {spec.shape} that its gradient needs was overwritten in "
        "place after it was recorded; write to a copy, or call backward before\n"
        f"  recorded at     {callsite.describe(node.site)}\n"
        f"  overwritten at  {callsite.describe(cell[-1] if cell[0] is None else None)}"
    )


def record_op(op: Op, inputs: tuple, attrs: dict[str, Any], outs: list[Any]) -> None:
    """Put an op that was just applied on the tape, unless all its inputs are constants; called
    while recording. `outs` are all its outputs, including those that only backward sees."""
    parents: list[Entry | None] = []
    for x in inputs:  # (a comprehension would cost a call)
        entry = None if x is None else x._node
        if entry is not None and entry[0].parents is None:
            tell_of_constants(op.name, inputs)
            entry = None
        parents.append(entry)
    if not any(parents):
        return
    if modes.noting is not None:
        modes.noting.note(inputs, op.mutated(len(inputs), attrs))
    node = new(OpNode)
    node.op = op
    node.placing = op.placing
    node.attrs = attrs
    node.parents = tuple(parents)
    node.order = next(_order)
    node.site = callsite.find()
    first = outs[0]
    node.ctx = first._ctx
    if len(outs) == 1:
        node.outputs = (first._spec,)
        first._node = (node, 0)
    else:
        node.outputs = tuple([y._spec for y in outs])
        for i, y in enumerate(outs):
            y._node = (node, i)
    node.saved = saved = op.saved_of(inputs, outs)
    cells: list[Any] = []
    node.cells = cells
    for i, (place, part) in enumerate(op.keeps):
        kept: Any = saved[i]
        if part is not None or kept is None:
            cells.append(None)
        elif type(kept) is list:
            # An alias without node, because a node must not hold itself.
            saved[i] = kept = [y._alias(None) for y in kept] if place == Y else kept
            cells.append(tuple([cell_of(x) for x in kept]))
        else:
            cells.append(cell_of(kept))
            if place == Y:
                saved[i] = kept._alias(None)
    if first.is_np:
        node.saved = [_as_nd(kept) for kept in saved]


def _as_nd(kept: Any) -> Any:
    """A saved value for gradient rules, which use the operators and methods of NDArray."""
    if isinstance(kept, list):
        return [_as_nd(x) for x in kept]
    return kept.as_nd_ndarray() if isinstance(kept, Value) else kept  # type: ignore[attr-defined]


def tell_of_constants(name: str, inputs: Sequence[Any]) -> None:
    """Warn of the first input whose history was used up, if there is one."""
    for i, x in enumerate(inputs):
        if x is not None and x._node and not history(x):
            tell_of_end(x._node[0], f"{name}: input {i} is a constant here: ")
            return


def tell_of_end(node: Node, where: str = "") -> None:
    """Warn, once a line, that no gradient goes through a released node. Programs written for
    MXNet rely on this, and are not warned."""
    quiet = alias.installed or type(node) is NullLeaf
    line = None if quiet else callsite.same_line(callsite.find())
    if line is None or line in _told:
        return
    _told.add(line)
    callsite.warn(
        f"{where}no gradient goes through {node.name}, because an earlier backward has used up "
        "this part of the graph. If you intend this, write x = x.detach(); otherwise pass "
        f"retain_graph=True to that backward\n  recorded at  {callsite.describe(node.site)}"
    )


def check_in_place(op: Op, inputs: Sequence[Any], outs: list[Any], whole: bool) -> None:
    """Called when `op` is about to write into existing arrays `outs` while recording: MXNetError
    if one of them is on the tape, or if a value with a history would enter a part of an array."""
    entry = next(filter(None, map(history, outs)), None)
    why, do = "the array that is written has a history", "Write y = x + 1 instead of x += 1"
    if entry is None and not (whole and not any(x is y for x in inputs for y in outs)):
        entry = next(filter(None, [history(x) for x in inputs if x is not None]), None)
        why = "a value with a history is written into a part of an array, or added to one"
        do = "Make a new array with concat, stack or where, write all of it by x[:] = value"
    if entry is not None:
        what = "x[...] = value" if op.name == "_assign" else op.name
        raise MXNetError(
            f"{what}: Inplace operations (+=, -=, x[:]=, etc) are not supported when recording "
            f"with autograd: {why}. {do}, or leave the record scope\n"
            f"  recorded at  {callsite.describe(entry[0].site)}\n"
            f"  written at   {callsite.describe(callsite.find())}"
        )


def total(parts: list[Any] | None, out: Any = None) -> Any:
    """The sum of the parts, in order; None if there are none."""
    if not parts or out is None:
        return composed.total(parts)
    op = registry["add_n" if len(parts) > 1 else "_copy"]
    return invoke(op, tuple(parts), op.defaults, out)
