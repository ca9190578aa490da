"""A call of a compiled graph on autograd's tape: one node, whose gradients are one program too.

Where gradients go on a journey as soon as they are there, this program runs in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from d2lmini.autograd import tape
from d2lmini.autograd.backward_pass import grad_or_none
from d2lmini.autograd.scopes import scope
from d2lmini.autograd.tape import cell_of, value_of
from d2lmini.graph.call import ProgramCall, launcher_of
from d2lmini.graph.ir import Node, interpret, variables_of
from d2lmini.graph.partitions import MOST_PARTS
from d2lmini.graph.program import Program
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.symbol.evaluate import call_node

if TYPE_CHECKING:
    from d2lmini.graph.cached_op import Compiled


class Backward:
    """The program for some gradients, and which arrays it takes: inputs of the forward program,
    what that kept, head gradients."""

    def __init__(self, of: Compiled, needs: tuple[bool, ...]):
        self.positions = [i for i in of.reached if needs[i]]
        grads = [g for i, g in zip(of.reached, of.grads) if needs[i]]
        used = set(variables_of(grads))
        self.inputs = [i for i, v in enumerate(of.variables) if v in used]
        self.kept = [i for i, v in enumerate(of.kept_variables) if v in used]
        self.heads = [i for i, v in enumerate(of.heads) if v in used]
        variables = [of.variables[i] for i in self.inputs]
        variables += [of.kept_variables[i] for i in self.kept]
        variables += [of.heads[i] for i in self.heads]
        self.program = Program(
            f"{of.name}_backward", variables, grads, of.ctx, of.arenas,
            MOST_PARTS if of.overlaps else 1,
        )  # fmt: skip
        self.calls = ProgramCall(self.program, of.ctx, launcher_of(self.program, of.ctx, of.static))


class ProgramNode(tape.Node):
    """A call of a compiled graph on the tape.

    kept      inputs of the call, and what the forward program keeps for backward: results of its
              own, or outputs; empty after a backward that does not retain the graph
    cells     of each of these its cell (`Chunk`), None if backward does not read it
    keys      what the forward program drew with: backward drops the same elements
    """

    __slots__ = ("cells", "compiled", "kept", "keys")

    placing = True

    def __init__(
        self, compiled: Compiled, inputs: Sequence[NDArray], results: list[NDArray],
        keys: Sequence[Any],
    ):  # fmt: skip
        shown = compiled.forward.specs[: len(compiled.outputs)]
        parents: list[Any] = [None] * len(inputs)
        for i in compiled.wanted:  # the others are constants
            parents[i] = inputs[i]._node
        super().__init__(tuple(parents), shown, compiled.ctx)
        self.compiled = compiled
        # Results without their place on the tape, for a node must not hold itself.
        self.kept: Any = [*inputs, *[results[i]._alias(None) for i in compiled.kept_at]]
        self.cells: Any = list(map(cell_of, self.kept))
        for i in compiled.unread:
            self.cells[i] = None
        self.keys = keys

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.compiled.name

    def gradients(
        self, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any
    ) -> Sequence[Any]:
        backward = self.compiled.backward(tuple(needs))
        if graph:
            return self._record_gradients(gs, backward.positions)
        n = len(self.parents)
        inputs = [
            value_of(self, self.kept[i], self.cells[i])
            for i in (*backward.inputs, *[n + i for i in backward.kept])
        ]
        inputs += [tape.zeros(self.outputs[i], self.ctx) if gs[i] is None else gs[i]
                   for i in backward.heads]  # fmt: skip
        outs = [places[i] for i in backward.positions]
        results = backward.calls(inputs, self.keys, outs)
        grads: list[Any] = [None] * n
        for i, g in zip(backward.positions, results):
            grads[i] = g
        return grads

    def _record_gradients(self, gs: list[Any], positions: Sequence[int]) -> Sequence[Any]:
        """The gradients with a history of their own: the call is done again op by op, from the
        inputs with their history, and the tape of that is walked back."""
        of = self.compiled
        copies = []
        for i, (x, cell, parent) in enumerate(zip(self.kept, self.cells, self.parents)):
            x = (value_of(self, x, cell) if cell else x)._alias(parent)
            # Its own place on the tape, though two inputs may be one array; and what the call
            # has changed already is not changed again.
            if i in positions or i in of.forward.mutated:
                x = x.copy()
            copies.append(x)
        values = dict(zip(of.variables, copies))

        def call(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
            if node.op is None:
                return [values[node]]
            return call_node(node, inputs, self.ctx, self.keys)

        with scope(True, of.training):
            outputs = interpret(of.typed, call)
        heads = [(y, g) for y, g in zip(outputs, gs) if g is not None and y._node is not None]
        wanted = [copies[i] for i in positions]
        grads_of_heads = [g for _, g in heads]
        found = grad_or_none([y for y, _ in heads], wanted, grads_of_heads, True, True, True)
        grads: list[Any] = [None] * len(copies)
        for i, g in zip(positions, found):
            grads[i] = g
        return grads

    def release(self) -> None:
        self.parents = None
        self.kept = self.cells = []
