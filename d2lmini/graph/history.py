"""A call of a compiled graph on autograd's tape: one node, whose gradients are one program too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from d2lmini.autograd import tape
from d2lmini.autograd.tape import check_version
from d2lmini.context import Context
from d2lmini.graph.call import push
from d2lmini.graph.program import Program
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.symbol.node import topological

if TYPE_CHECKING:
    from d2lmini.graph.cached_op import Compiled


class Backward:
    """The program for some gradients, and which arrays it takes: inputs of the forward program,
    what that kept, head gradients."""

    def __init__(self, of: Compiled, needs: tuple[bool, ...]):
        self.positions = [i for i in of.reached if needs[i]]
        grads = [g for i, g in zip(of.reached, of.grads) if needs[i]]
        used = {node for node in topological(grads) if node.op is None}
        self.inputs = [i for i, v in enumerate(of.variables) if v in used]
        self.kept = [i for i, v in enumerate(of.kept_variables) if v in used]
        self.heads = [i for i, v in enumerate(of.heads) if v in used]
        variables = [of.variables[i] for i in self.inputs]
        variables += [of.kept_variables[i] for i in self.kept]
        variables += [of.heads[i] for i in self.heads]
        self.program = Program(f"{of.name}_backward", variables, grads, of.ctx, of.static_alloc)


class ProgramNode(tape.Node):
    """A call of a compiled graph on the tape.

    inputs, kept  what backward may need; None after a backward that does not retain the graph
    versions      of the memory of each input when it was recorded
    keys          what the forward program drew with: backward drops the same elements
    """

    __slots__ = ("compiled", "inputs", "kept", "keys", "versions")

    placing = True

    def __init__(
        self, compiled: Compiled, inputs: Sequence[NDArray], results: list[NDArray],
        keys: Sequence[Any], ctx: Context,
    ):  # fmt: skip
        shown = len(compiled.outputs)
        super().__init__(tuple([x._node for x in inputs]), compiled.forward.specs[:shown], ctx)
        self.compiled = compiled
        self.inputs: Any = list(inputs)
        self.versions = [x._chunk.version for x in inputs]
        self.kept: Any = results[shown:]
        self.keys = keys

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.compiled.name

    @property
    def released(self) -> bool:
        return self.inputs is None

    def gradients(
        self, gs: list[Any], graph: bool, needs: Sequence[bool], places: Any
    ) -> Sequence[Any]:
        backward = self.compiled.backward(tuple(needs))
        inputs = []
        for i in backward.inputs:
            check_version(self, self.inputs[i], self.versions[i])
            inputs.append(self.inputs[i])
        inputs += [self.kept[i] for i in backward.kept]
        inputs += [tape.zeros(self.outputs[i], self.ctx) if gs[i] is None else gs[i]
                   for i in backward.heads]  # fmt: skip
        outs = [places[i] for i in backward.positions]
        results = push(backward.program, inputs, self.ctx, self.keys, outs)
        grads: list[Any] = [None] * len(self.parents)
        for i, g in zip(backward.positions, results):
            grads[i] = g
        return grads

    def release(self) -> None:
        self.inputs = None
        self.kept = ()
        self.parents = ()
