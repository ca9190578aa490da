"""CachedOp: a Symbol as one operation on arrays, compiled for each kind of input it meets.

A call is one task of the engine. What was compiled is kept by the shapes and dtypes of the inputs,
the mode (training or not) and, while recording, by which inputs have a history: for these the
forward program also returns what backward needs, and the tape gets one node.

>>> from d2lmini import nd, sym
>>> a, b = sym.var("a"), sym.var("b")
>>> f = CachedOp((a * b + 2).relu())
>>> f(nd.array([1, -3]), nd.array([2, 3]))
<BLANKLINE>
[4. 0.]
<NDArray 2 @cpu(0)>

After `mxnet.nd.CachedOp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini import callsite, engine, random_state
from d2lmini.autograd import tape
from d2lmini.autograd.tape import check_version
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.device.quiet import run_quietly
from d2lmini.device.storage import Chunk, pool_of
from d2lmini.engine.core import Task
from d2lmini.graph.gradient import gradients
from d2lmini.graph.passes import simplify
from d2lmini.graph.program import Program
from d2lmini.graph.recompute import recomputed
from d2lmini.graph.split import cut, residuals
from d2lmini.graph.typed import typed
from d2lmini.ndarray.apply import Operand, array_of, wrap
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import modes
from d2lmini.symbol import Symbol
from d2lmini.symbol.node import Entry, Node, topological


class ProgramTask(Task):
    """One call of a program: where its inputs lie, where its outputs go."""

    __slots__ = ("inputs", "keys", "outputs", "program")

    def __init__(
        self, program: Program, inputs: list[Operand], outputs: list[Operand], ctx: Context,
        keys: list[Any],
    ):  # fmt: skip
        self.program = program
        self.inputs = inputs
        self.outputs = outputs
        self.keys = keys
        reads = [operand[0] for operand in inputs]
        # Only a whole chunk is overwritten; a part of one is changed in place.
        reads += [chunk for chunk, offset, _ in outputs if offset is not None]
        writes = [operand[0] for operand in outputs] + [inputs[i][0] for i in program.mutated]
        super().__init__(
            program.name, tuple(reads), tuple(writes), ctx, predicted_us=program.predicted_us
        )

    def run(self) -> None:
        run_quietly(self._compute)

    def _compute(self) -> None:
        places: list[Any] = []
        for operand in self.outputs:
            chunk, _, spec = operand
            if chunk.data is not None:
                places.append(array_of(operand))
            elif chunk.weight:
                places.append(chunk.allocate(spec.shape, spec.dtype))
            else:
                places.append(None)
        results = self.program.run([array_of(i) for i in self.inputs], places, self.keys)
        for operand, result in zip(self.outputs, results):
            if operand[0].data is None:
                operand[0].adopt(result)


def push(
    program: Program, inputs: Sequence[NDArray], ctx: Context, keys: list[Any],
    outs: Sequence[Any] = (),
) -> list[NDArray]:  # fmt: skip
    """Push a call of `program`; its outputs, new arrays unless `outs` has one for the place."""
    pool = inputs[0]._chunk.pool if inputs else pool_of(ctx)
    results = []
    for i, spec in enumerate(program.specs):
        given = outs[i] if i < len(outs) else None
        results.append(wrap(Chunk(pool, spec.nbytes), spec, ctx) if given is None else given)
    changed = [inputs[i] for i in program.mutated] + [x for x in outs if x is not None]
    if changed:
        site = callsite.find()
        for x in changed:
            begin = x._offset or 0
            x._chunk.note_write(begin, begin + x._spec.size, site)
    operands = [(x._chunk, x._offset, x._spec) for x in inputs]
    places = [(y._chunk, y._offset, y._spec) for y in results]
    engine.current.push(ProgramTask(program, operands, places, ctx, keys))
    return results


class CachedOp:
    """A Symbol as a function of arrays, in the order of its variables (arguments and auxiliary
    states as they are met, `list_inputs`). `flags` are those of `hybridize`."""

    def __init__(self, symbol: Symbol, flags: Any = (), name: str = "cached_op"):
        self.symbol = symbol
        self.name = name
        self.flags = dict(flags)
        self.variables = [node for node in topological(symbol._entries) if node.op is None]
        self._compiled: dict[tuple, Compiled] = {}

    def __call__(self, *inputs: NDArray, out: Any = None) -> Any:
        """The outputs for these arrays: one NDArray or a list. MXNetError at the call for a wrong
        number of inputs, and for shapes, dtypes or contexts that do not fit."""
        needs = tuple([x._node is not None for x in inputs]) if modes.recording else ()
        key = (modes.training, needs, *[x._spec for x in inputs])
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(inputs, needs)
        results = compiled(inputs, out)
        return results[0] if len(results) == 1 else results

    def _compile(self, inputs: Sequence[NDArray], needs: tuple[bool, ...]) -> Compiled:
        if len(inputs) != len(self.variables):
            names = ", ".join(node.name for node in self.variables)
            raise MXNetError(
                f"{self.name}: {len(inputs)} arrays for {len(self.variables)} inputs: {names}"
            )
        specs = {node: x._spec for node, x in zip(self.variables, inputs)}
        variables, outputs = typed(self.symbol._entries, specs, modes.training)
        return Compiled(self.name, list(variables.values()), outputs, needs)


class Compiled:
    """The programs for one kind of input: forward, and once it is asked for, backward."""

    def __init__(
        self, name: str, variables: list[Node], outputs: list[Entry], needs: tuple[bool, ...]
    ):
        self.name = name
        self.variables = variables
        self.outputs = outputs
        self.wanted = [i for i, needed in enumerate(needs) if needed]
        self.heads: list[Node] = []
        kept: list[Entry] = []
        self._backward: dict[tuple, Backward] = {}
        if self.wanted:
            self.heads = [
                Node(None, f"head_grad{i}", specs=(node.specs[j],))  # type: ignore[index]
                for i, (node, j) in enumerate(outputs)
            ]
            wrt: list[Entry] = [(variables[i], 0) for i in self.wanted]
            grads = gradients(outputs, [(g, 0) for g in self.heads], wrt)
            self.reached = [i for i, g in zip(self.wanted, grads) if g is not None]
            # One graph for both, so that neither computes what the other has.
            joint = simplify(outputs + [g for g in grads if g is not None])
            self.outputs = outputs = joint[: len(outputs)]
            found = recomputed(outputs, joint[len(outputs) :])
            kept = residuals(outputs, found)
            self.kept_variables, self.grads = cut(found, kept)
        else:
            self.outputs = outputs = simplify(outputs)
        self.forward = Program(name, variables, outputs + kept)

    def __call__(self, inputs: Sequence[NDArray], out: Any) -> list[NDArray]:
        ctx = inputs[0]._ctx
        for x in inputs:
            if x._ctx != ctx:
                raise MXNetError(f"{self.name}: inputs are on {ctx} and {x._ctx}")
        outs = () if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
        keys = [random_state.next_key(ctx) for _ in range(self.forward.draws)]
        results = push(self.forward, inputs, ctx, keys, outs)
        shown = len(self.outputs)
        if self.wanted:
            node = ProgramNode(self, inputs, results, keys, ctx)
            for i, y in enumerate(results[:shown]):
                y._node = (node, i)
        return results[:shown]

    def backward(self, needs: tuple[bool, ...]) -> Backward:
        """The program for the gradients of some of the inputs."""
        program = self._backward.get(needs)
        if program is None:
            program = self._backward[needs] = Backward(self, needs)
        return program


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
        self.program = Program(f"{of.name}_backward", variables, grads)


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
        keys: list[Any], ctx: Context,
    ):  # fmt: skip
        shown = len(compiled.outputs)
        super().__init__(tuple([x._node for x in inputs]), [y._spec for y in results[:shown]], ctx)
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
