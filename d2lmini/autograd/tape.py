"""The tape: what is kept of a recorded operation, and how its gradient is asked for.

A `Node` refers to its parents, never to its outputs; an output refers to its node (`_node`, which
is None for an array without history). So the tape is freed as the arrays are.

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

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.ops.core import Op, Spec, registry

#: Where a value stands on the tape: (node, which of its outputs).
Entry = tuple["Node", int]

#: (spec, context) -> an array of zeros. `ndarray` fills it in, for it stands on this module.
zeros: Callable[[Spec, Any], Any] = NotImplemented

_order = count()


class Node:
    """One step on the tape.

    parents  for each input, where it stands on the tape; None if it has no history
    outputs  specs of the values it made
    order    counts up as nodes are made, so parents come before children
    site     the user's line that made it
    """

    __slots__ = ("ctx", "order", "outputs", "parents", "site")

    name = "?"

    def __init__(self, parents: tuple[Entry | None, ...], outputs: Sequence[Spec], ctx: Any):
        self.parents = parents
        self.outputs = outputs
        self.ctx = ctx
        self.order = next(_order)
        self.site = callsite.find()

    @property
    def released(self) -> bool:
        """Has a backward without `retain_graph` been here?"""
        return False

    def gradients(self, gs: list[Any], graph: bool) -> Sequence[Any]:
        """Gradients of the inputs from those of the outputs; `graph`: they will be recorded."""
        raise NotImplementedError

    def release(self) -> None:
        """Let go of what only backward needs."""


class Leaf(Node):
    """An array whose gradient is wanted: `grad` is where it goes, `req` how (write or add)."""

    __slots__ = ("fresh", "grad", "req")

    name = "leaf"

    def __init__(self, grad: Any, req: str):
        super().__init__((), (grad._spec,), grad._ctx)
        self.grad = grad
        self.req = req
        self.fresh = False  # has backward written it since somebody last said that it is stale?

    def gradients(self, gs: list[Any], graph: bool) -> Sequence[Any]:
        return ()

    def store(self, parts: list[Any]) -> None:
        """Write the sum of the parts into `grad`, or add it."""
        if self.req == "add":
            parts = [self.grad, *parts]
        total(parts, out=self.grad)
        self.fresh = True


class Saved:
    """A value kept for backward: the array, and which version of its memory is meant."""

    __slots__ = ("array", "entry", "version")

    def __init__(self, array: Any, entry: Entry | None):
        self.array = array
        self.entry = entry
        self.version = array._chunk.version

    def value(self, node: Node, graph: bool) -> Any:
        """The array, with its history if the rule is to be recorded. MXNetError if its memory was
        overwritten since."""
        array = self.array
        chunk = array._chunk
        if chunk.version != self.version:
            begin = array._offset or 0
            wrote = chunk.overwritten(self.version, begin, begin + array._spec.size)
            if wrote is not None:
                raise MXNetError(
                    f"{node.name}: a value of shape {array.shape} that its gradient needs was "
                    "overwritten in place after it was recorded; write to a copy, or call "
                    "backward before\n"
                    f"  recorded at     {callsite.describe(node.site)}\n"
                    f"  overwritten at  {callsite.describe(wrote[0])}"
                )
        return array._alias(self.entry) if graph else array


class OpNode(Node):
    """An op that was applied: its rule, its attributes, what the rule needs."""

    __slots__ = ("attrs", "op", "saved")

    def __init__(self, op: Op, inputs: tuple, attrs: dict[str, Any], outs: list[Any]):
        first = outs[0]
        Node.__init__(
            self,
            tuple([None if x is None else x._node for x in inputs]),
            (first._spec,) if len(outs) == 1 else [y._spec for y in outs],
            first._ctx,
        )
        self.op = op
        self.attrs = attrs
        self.saved: list[Any] | None = [self._keep(name, inputs, outs) for name in op.saves]

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.op.name

    @property
    def released(self) -> bool:
        return self.saved is None

    def _keep(self, name: str, inputs: tuple, outs: list[Any]) -> Any:
        """What to keep under a name of `op.saves`."""
        op = self.op
        if name == "y":
            kept = [Saved(y._alias(None), (self, i)) for i, y in enumerate(outs)]
            return kept[0] if len(kept) == 1 else kept
        base, _, part = name.partition(".")
        if op.variadic:
            if part:
                return [getattr(x, part) for x in inputs]
            return [Saved(x, x._node) for x in inputs]
        position = op.input_names.index(base)
        x = inputs[position] if position < len(inputs) else None
        if x is None:
            return None
        return getattr(x, part) if part else Saved(x, x._node)

    def gradients(self, gs: list[Any], graph: bool) -> Sequence[Any]:
        op = self.op
        if op.rule is None:
            return ()
        saved = [
            _value(kept, self, graph) if type(kept) in (Saved, list) else kept
            for kept in self.saved or ()
        ]
        attrs = {name: self._attribute(name) for name in op.rule_attrs}
        if len(gs) > 1:
            gs = [
                zeros(spec, self.ctx) if g is None else g
                for g, spec in zip(gs, self.outputs, strict=True)
            ]
            grads = op.rule(gs, *saved, **attrs)
        else:
            grads = op.rule(gs[0], *saved, **attrs)
        return grads if isinstance(grads, (tuple, list)) else (grads,)

    def _attribute(self, name: str) -> Any:
        if name == "needs":  # which inputs anybody wants the gradient of
            return tuple([parent is not None for parent in self.parents])
        return self.attrs[name]

    def release(self) -> None:
        self.saved = None
        self.parents = ()


def _value(kept: Any, node: Node, graph: bool) -> Any:
    if type(kept) is list:
        return [_value(each, node, graph) for each in kept]
    return kept.value(node, graph) if type(kept) is Saved else kept


def recorded(op: Op, inputs: tuple, attrs: dict[str, Any], outs: list[Any]) -> None:
    """Put an op that was just applied on the tape; called while recording, when an input has a
    history. `outs` are all its outputs, also those that backward alone sees."""
    node = OpNode(op, inputs, attrs, outs)
    for i, y in enumerate(outs):
        y._node = (node, i)


def check_in_place(op: Op, inputs: tuple, outs: list[Any], whole: bool) -> None:
    """While recording, `op` is about to write into existing arrays `outs`: MXNetError if one of
    them is on the tape, or if a value with a history would enter a part of an array."""
    if any(y._node is not None for y in outs) or (
        any(x is not None and x._node is not None for x in inputs)
        and not (whole and not any(x is y for x in inputs for y in outs))
    ):
        what = "x[...] = value" if op.name == "_assign" else op.name
        raise MXNetError(
            f"{what}: Inplace operations (+=, -=, x[:]=, etc) are not supported when recording "
            "with autograd. Write y = x + 1 instead of x += 1, or leave the record scope"
        )


def total(parts: list[Any] | None, out: Any = None) -> Any:
    """The sum of the parts, in their order; None if there are none."""
    if not parts:
        return None
    if len(parts) > 1:
        return registry["add_n"](*parts, out=out)
    return parts[0] if out is None else registry["_copy"](parts[0], out=out)
