"""A Program: a typed graph as a Python function, whose source can be read.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.relu(sym.negative(x, name="a"), name="y")
>>> variables, outputs = infer_types(y._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> program = Program("net", list(variables.values()), outputs)
>>> import numpy as np
>>> program.run([np.array([-1, 0, 1], np.float32)], [None], [])
[array([1., 0., 0.], dtype=float32)]
>>> print(program)
def net(xp, arena):
    maximum, negative = xp.maximum, xp.negative
    _0 = level(xp, float32, 0, (3,))
<BLANKLINE>
    def run(arrays, places, keys):
        (x,) = arrays
        y = given_or_new(xp, places[0], (3,), float32)
        negative(x, out=y)  # a
        maximum(y, _0, out=y)
        return [y]
<BLANKLINE>
    return run

Composed ops are written out (`inlined`), the graph is brought into pieces (`lower`), these into
statements (`fusion`), every value gets a place (`plan`), and the whole is written down (`codegen`)
and compiled.

**A call of a program** on arrays is computed inline, or is one task of the engine.

Calls of programs are dispatched like calls of ops (`ndarray/dispatch.py`). A queued call makes its
outputs, pushes a task and returns. Queued tasks hold no memory for intermediate results: an arena
is in use only while a program runs, so there are at most as many arenas as workers. The outputs are
pending until the task has run, like the outputs of an op.

**A composed op as a program**: what a call on arrays runs that comes often (`ops/composed.py`). The
program is that of a graph with one node, the call, whose formula is written out (`lower.expand`).

>>> import numpy as np
>>> from d2lmini import cpu
>>> from d2lmini.ops.core import registry
>>> softmin = registry["softmin"]
>>> call = compiled_formula(softmin, (Spec((2, 3), "float32"),), softmin.defaults, cpu())
>>> call.run([np.zeros((2, 3), "float32")])[0].round(3)
array([[0.333, 0.333, 0.333],
       [0.333, 0.333, 0.333]], dtype=float32)
"""

from __future__ import annotations

import linecache
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count, zip_longest
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import SMALL, Chunk, check_there, pool_of
from d2lmini.engine.core import Task, lock
from d2lmini.engine.failure import OutOfMemoryError, OutOfRangeError
from d2lmini.graph.codegen import Writer
from d2lmini.graph.fusion import INTERPRETED
from d2lmini.graph.ir import Entry, Inputs, Node, spec_of, with_order
from d2lmini.graph.lower import expand, inlined
from d2lmini.graph.passes import simplify
from d2lmini.graph.plan import Arenas, Run, cost_of
from d2lmini.ndarray.compute import Operand, array_of
from d2lmini.ndarray.dispatch import kind_of, note_writes, run_inline, wrap
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops import kernels
from d2lmini.ops.composed import COMPILED_SIZE, Composed, rounded_specs
from d2lmini.ops.core import Spec
from d2lmini.ops.kernels import needs_copies

_serial = count()


class Program:
    """A typed graph, compiled.

    name          what it is called in its source and in messages
    inputs        its variables, in the order of the arrays that `run` takes
    outputs       what it computes
    specs         shape and dtype of each output
    mutated       positions of the inputs that it changes besides
    no_outputs    `places` of a call whose outputs all go to new memory
    source        the function as text
    plan          where intermediate results lie in the arena
    arena_nbytes  how large an arena it needs
    cost          of one call
    predicted_us  predicted run time
    xp            the array module of its device
    replays       its recordings as CUDA graphs, where such are wanted; see `cuda.launches`
    arenas        where its calls find memory for intermediate results

    `ctx` is where it will run. Programs that are given the same `arenas` share those; without, it
    has some of its own.
    """

    def __init__(
        self, name: str, inputs: Sequence[Node], outputs: Sequence[Entry],
        ctx: Context | None = None, arenas: Arenas | None = None,
    ):  # fmt: skip
        self.ctx = ctx or cpu()
        self.xp = device_of(self.ctx).xp
        outputs = with_order(inlined(outputs, kernels.kind_of(self.xp)))
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.specs = [spec_of(entry) for entry in outputs]
        self.no_outputs: list[np.ndarray | None] = [None] * len(outputs)
        self.mutated = [i for i, node in enumerate(self.inputs) if node in outputs.changed]
        writer = Writer(name, self.inputs, outputs, self.xp is not np)
        self.source = writer.text
        self.plan = writer.layout.plan
        self.cost, self.predicted_us = cost_of(writer.layout)
        self._nodes = writer.nodes
        # Empty arrays have a place too, though it has no bytes.
        self.arena_nbytes = max(self.plan.nbytes, 1) if self.plan.lives else 0
        self.arenas = arenas or Arenas(self.ctx)
        self.replays: Any = None
        self._file = f"<program {name} {next(_serial)}>"
        lines = [line + "\n" for line in self.source.splitlines()]
        linecache.cache[self._file] = len(self.source), None, lines, self._file  # for tracebacks
        weakref.finalize(self, linecache.cache.pop, self._file, None)
        exec(compile(self.source, self._file, "exec"), writer.namespace)
        self._make: Callable[[Any, Any], Run] = writer.namespace[writer.name]

    def run(
        self, arrays: Sequence[np.ndarray], places: Sequence[np.ndarray | None], keys: Sequence[Any]
    ) -> list[np.ndarray]:
        """Compute the outputs: where there is a place into it, else into new memory. No result
        shares memory with an input or another result; no place may share memory with an input.

        `arrays` are C-contiguous. Several calls may run at once. An error names the node in which
        it happened, and the line that made that.
        """
        arena = self.arenas.take(self.arena_nbytes)
        try:
            return arena.function(self)(arrays, places, keys)
        except Exception as problem:
            raise self._explain(problem) from problem
        finally:
            self.arenas.give_back(arena)

    def bind(self, arena: Callable[[int, Any, Any], Any] | None, xp: Any = None) -> Run:
        """The function for an arena: with names for what will lie there. `xp` stands for the array
        module of the device."""
        return self._make(xp or self.xp, arena)

    def _explain(self, problem: Exception) -> Exception:
        """The error with the name of the node in whose line it came up."""
        lines = [
            line
            for frame, line in traceback.walk_tb(problem.__traceback__)
            if frame.f_code.co_filename == self._file and line in self._nodes
        ]
        if not lines:
            return problem
        kinds = {MemoryError: OutOfMemoryError, IndexError: OutOfRangeError, MXNetError: MXNetError}
        kind = next((k for base, k in kinds.items() if isinstance(problem, base)), None)
        text = str(problem) if kind else f"{type(problem).__name__}: {problem}"
        return (kind or MXNetError)(self._nodes[lines[-1]].locate(text))

    def __str__(self) -> str:
        return self.source


class ProgramTask(Task):
    """One call of a program on the chunks of its inputs and outputs."""

    __slots__ = ("inputs", "keys", "outputs", "program")

    preserves_old = defers = True

    def __init__(
        self, program: Program, inputs: list[Operand], outputs: list[Operand], ctx: Context,
        keys: Sequence[Any],
    ):  # fmt: skip
        reads = [operand[0] for operand in inputs]
        # An output that is a part of a chunk changes the chunk in place, so the chunk is also read.
        reads += [c for c, offset, spec in outputs if offset is not None or spec.nbytes < c.nbytes]
        writes = [operand[0] for operand in outputs] + [inputs[i][0] for i in program.mutated]
        super().__init__(program.name, tuple(reads), tuple(writes), ctx, 0, program.predicted_us)
        self.program = program
        self.inputs = inputs
        self.outputs = outputs
        self.keys = keys

    @property
    def multi_step(self) -> bool:
        return bool(self.program.mutated) or any(c.data is not None for c, _, _ in self.outputs)

    @property
    def callee(self) -> Program:
        return self.program

    def footprint(self) -> Any:
        cost = self.program.cost
        return lambda: cost

    def run(self) -> None:
        run_quietly(self._compute)

    def _compute(self) -> None:
        places = self._places()
        results = self.program.run([array_of(i) for i in self.inputs], places, self.keys)
        for operand, place, result in zip(self.outputs, places, results):
            if operand[0].data is None:
                operand[0].adopt(result)
            elif place is None:
                np.copyto(array_of(operand), result)

    def _places(self) -> list[np.ndarray | None]:
        """The arrays that the program writes outputs to. None for an output that would overwrite an
        input or another output: that output is copied to its chunk at the end."""
        seen = {operand[0] for operand in self.inputs}
        places: list[np.ndarray | None] = []
        for operand in self.outputs:
            chunk, _, spec = operand
            place = None
            if chunk not in seen:
                if chunk.data is not None:
                    place = array_of(operand)
                elif chunk.weight:
                    place = chunk.allocate(spec.shape, spec.dtype)
            seen.add(chunk)
            places.append(place)
        return places


class ProgramCall:
    """The calls of one program, for `dispatch.run_inline`. A call is computed inline if the program
    is small and its inputs are ready; otherwise `launch` pushes it. static: shapes and memory stay
    what they are.

    run  the program's function on its arena; None before the first inline call. `run` is called
         with the engine's lock held, so inline calls of all programs with the same `arenas` use
         the same arena, which `run` keeps alive.
    """

    __slots__ = (
        "cost", "ctx", "launch", "name", "no_outputs", "outputs", "predicted_us", "program", "run",
        "tiny",
    )  # fmt: skip

    run: Any

    def __init__(self, program: Program, static: bool):
        self.program = program
        self.ctx = ctx = program.ctx
        self.launch = device_of(ctx).launcher(program, static) or push
        self.name = program.name
        self.outputs = program.specs
        self.tiny = all([spec.nbytes < SMALL for spec in program.specs])
        # Never inline if the program changes an input in several steps.
        never = not ctx.is_cpu or program.mutated
        self.predicted_us = float("inf") if never else program.predicted_us
        self.no_outputs = program.no_outputs
        cost = program.cost
        self.cost = lambda: cost  # a trace may keep this function longer than the program
        self.run = None

    def __call__(
        self, inputs: Sequence[NDArray], keys: Sequence[Any], outs: Sequence[Any] = ()
    ) -> list[NDArray]:
        """The outputs; new arrays where `outs` has none. MXNetError if an input is in another
        context."""
        ctx = self.ctx
        if self.run is None and self.predicted_us < engine.current.inline_below:
            with lock:
                self.run = self.program.arenas.function(self.program)
        results = run_inline(self, inputs, ctx, outs, keys)
        if results is not None:
            return results
        for x in inputs:
            if x._ctx is not ctx:
                raise MXNetError(f"{self.name}: inputs are on {ctx} and {x._ctx}")
        return self.launch(self.program, inputs, ctx, keys, outs)


def push(
    program: Program, inputs: Sequence[NDArray], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any] = (),
) -> list[NDArray]:  # fmt: skip
    """Push a call of `program`. Returns the outputs; new arrays where `outs` has none."""
    pool = inputs[0]._chunk.pool if inputs else pool_of(ctx)
    kind = kind_of(inputs)
    results = [
        wrap(Chunk(pool, spec.nbytes), spec, ctx, kind=kind) if out is None else out
        for spec, out in zip_longest(program.specs, outs)
    ]
    note_writes([inputs[i] for i in program.mutated] + [x for x in outs if x is not None])
    task = ProgramTask(program, _operands(inputs), _operands(results), ctx, keys)
    if not ctx.is_cpu:
        check_there(task.reads + task.writes)
    engine.current.push(task)
    return results


def _operands(arrays: Sequence[NDArray]) -> list[Operand]:
    return [(x._chunk, x._offset, x._spec) for x in arrays]


#: So many programs of composed ops are kept, the last ones that were asked for.
MOST_FORMULAS = 512


def compiled_formula(
    op: Composed, specs: tuple[Spec | None, ...], attrs: dict[str, Any], ctx: Context
) -> FormulaProgram:
    """The program of a call of a composed op on arrays of these specs, which equal calls share. The
    programs of a device share arenas, and end with it."""
    device = device_of(ctx)
    device.formulas = device.formulas or (OrderedDict(), Arenas(ctx))
    programs, arenas = device.formulas
    key = op, specs, *attrs.items(), str(attrs)  # the text tells -0.0 from 0.0, 1 from True
    if key not in programs:
        programs[key] = FormulaProgram(op, specs, attrs, ctx, arenas)
        if len(programs) > MOST_FORMULAS:
            programs.popitem(last=False)
    return programs[key]  # type: ignore[no-any-return]


class FormulaProgram:
    """A composed op as a program for arrays of certain specs."""

    def __init__(
        self, op: Composed, specs: Sequence[Spec | None], attrs: dict[str, Any], ctx: Context,
        arenas: Arenas,
    ):  # fmt: skip
        variables = [
            None if spec is None else Node(None, name, specs=(spec,))
            for name, spec in zip(op.input_names, specs)
        ]
        is_rounded = needs_copies(op, filter(None, specs))
        outputs = tuple(rounded_specs(op, specs, attrs)) if is_rounded else None
        inputs: Inputs = tuple([None if node is None else (node, 0) for node in variables])
        size = max([spec.size for spec in specs if spec is not None])
        labels = {INTERPRETED: "True"} if size < COMPILED_SIZE else {}
        results = expand(Node(op, "y", inputs, attrs, outputs, labels), inputs, "")
        self.arenas = arenas
        given = [node for node in variables if node is not None]
        self.program = Program(op.name, given, simplify(results), ctx, arenas)

    def run(self, arrays: Sequence[Any], out: Any = None, xp: Any = None) -> list[Any]:
        """The results for these arrays, computed in the places `out` where these are free. xp: what
        computes, if that is not the module of the device (see `cuda.recorder`)."""
        program = self.program
        given = [a for a in arrays if a is not None]
        places = program.no_outputs
        if out is not None:
            outs = out if isinstance(out, tuple) else (out,)
            overlap = (xp or program.xp).may_share_memory
            shared = [any([overlap(y, a) for a in given]) for y in outs]
            places = [None if is_shared else y for y, is_shared in zip(outs, shared)]
            places += program.no_outputs[len(places) :]
        if xp is not None and xp is not program.xp:
            return xp.run_program(program, given, places)  # type: ignore[no-any-return]
        return program.run(given, places, ())

    def kernel(self) -> Callable[..., Any]:
        """The program of an op with one output as a kernel, for calls under the engine's lock."""
        run, no_outputs = self.arenas.function(self.program), self.program.no_outputs
        return lambda xp, *arrays: run(arrays, no_outputs, ())[0]
