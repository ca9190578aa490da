"""What a lazy scope records: steps that have not been taken, and what they are to read.

A `RecordedCall` is one call of an op. It holds on to what it reads, steps or contents of memory,
and to nothing that it makes: the recorder knows weakly which memory a step's outputs belong to. So
a result that nobody can read any more takes its step with it, and dead code is gone before anybody
looks for it.

`Subgraph` is a number of steps that are to be taken together, written down so that two of the same
form are equal: `key` says the ops, their attributes and who reads what, and no arrays. For a key
one program is compiled; a loop that records the same thing again compiles nothing.

`LazyTask` is a subgraph as one task of the engine. It runs as a program. Where that fails, or where
some of what it reads is missing, the steps are taken one by one instead: each value that can be
computed is, and the others have the error of the one step that failed, as if each had been a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import Chunk
from d2lmini.engine.core import Var
from d2lmini.engine.failure import Failure
from d2lmini.graph.call import ProgramTask
from d2lmini.graph.ir import Draw, Entry, Node, compute, interpret, spec_of
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, array_of
from d2lmini.ops.core import Op, Spec, registry
from d2lmini.symbol.naming import NameManager, operator_hint

_numbers = count()


class Source:
    """The contents of a chunk, as they will be once all that was pushed has run. One that is
    overwritten has other contents, and another Source."""

    __slots__ = ("chunk", "__weakref__")

    def __init__(self, chunk: Chunk):
        self.chunk = chunk


class RecordedCall(Node):
    """One call of an op that was recorded: a node without a name, which is part of no graph yet.

    inputs   what each input reads, as a `Reading`: `Subgraph.graph` makes entries of them
    attrs    attributes, with the random key that was drawn and the mode at the call
    number   counts up as steps are recorded
    scope    the lazy scope that counts it
    results  once it was pushed: where its outputs lie, as far as they are needed; it reads nothing
             then
    """

    __slots__ = ("ctx", "number", "results", "scope")

    op: Op
    specs: tuple[Spec, ...]
    inputs: tuple[Reading | None, ...]  # type: ignore[assignment]

    def __init__(
        self,
        op: Op,
        inputs: tuple[Reading | None, ...],
        attrs: dict[str, Any],
        specs: tuple[Spec, ...],
        ctx: Context,
        site: Any,
        scope: Any,
    ):
        for name, value in attrs.items():
            if isinstance(value, np.generic):  # in graphs numbers are plain ones
                attrs = {**attrs, name: value.item()}
        super().__init__(op, "", inputs, attrs, specs, site=site)  # type: ignore[arg-type]
        self.ctx = ctx
        self.scope = scope
        self.number = next(_numbers)
        self.results: list[Source | None] | None = None


class Reading(NamedTuple):
    """What is read: a source, or an output of a step; of it `spec`, from element `offset` on, or
    the whole."""

    origin: Source | RecordedCall
    output: int
    offset: int | None
    spec: Spec

    @property
    def now(self) -> Reading:
        """The same; from memory, if the step was pushed meanwhile."""
        origin = self.origin
        if isinstance(origin, RecordedCall) and origin.results is not None:
            source = origin.results[self.output]
            assert source is not None, "a value that is needed was not kept"
            return Reading(source, 0, self.offset, self.spec)
        return self


def readings(step: RecordedCall) -> list[Reading]:
    """What a step reads."""
    return [reading.now for reading in step.inputs if reading is not None]


def ancestors(roots: Iterable[RecordedCall]) -> set[RecordedCall]:
    """The steps that are to be taken for these: those that were not pushed, without end."""
    found = {step for step in roots if step.results is None}
    path = list(found)
    while path:
        for reading in path.pop().inputs:
            if reading is not None:
                step = reading.origin
                if isinstance(step, RecordedCall) and step.results is None and step not in found:
                    found.add(step)
                    path.append(step)
    return found


# -- steps written down ----------------------------------------------------------------------------

#: What a row reads: (row, which output) or (-1, number of an operand); offset; spec.
Ref = tuple[int, int, "int | None", Spec]


class Subgraph:
    """Steps to be taken together, inputs before those who use them, and what shall come out.

    rows      (step, what it reads)
    operands  memory that they read
    outputs   (row, which output)
    key       equal for what one program can do
    keys      the random keys in the order in which they were drawn
    """

    __slots__ = ("key", "keys", "operands", "outputs", "rows")

    def __init__(self, steps: Iterable[RecordedCall], outputs: Sequence[tuple[RecordedCall, int]]):
        ordered = sorted(steps, key=lambda step: step.number)
        places = {step: n for n, step in enumerate(ordered)}
        found: dict[tuple[Chunk, int | None, Spec], int] = {}
        self.rows: list[tuple[RecordedCall, list[Ref | None]]] = []
        key: list[Any] = []
        for step in ordered:
            refs: list[Ref | None] = []
            for reading in step.inputs:
                if reading is None:
                    refs.append(None)
                    key.append(None)
                    continue
                origin, i, offset, spec = reading.now
                if isinstance(origin, Source):
                    i = found.setdefault((origin.chunk, offset, spec), len(found))
                    refs.append((-1, i, None, spec))
                else:
                    refs.append((places[origin], i, offset, spec))
                key.append((*refs[-1][:3], id(spec)))  # type: ignore[index]
            self.rows.append((step, refs))
            key.append(step.op)
            key += words_of(step.attrs)
        self.operands: list[Operand] = list(found)
        self.outputs = [(places[step], i) for step, i in outputs]
        self.key = (*key, *self.outputs)
        self.keys = [step.attrs["rng"] for step in ordered if step.attrs.get("rng")]

    @property
    def form(self) -> tuple:
        """The key without its numbers."""
        return tuple([None if type(word) in (int, float) else word for word in self.key])

    def graph(self, names: NameManager | None) -> tuple[list[Node], list[Entry]]:
        """The same as a typed graph: variables for the operands, and the outputs. Without `names`
        its calls have no names, which only the text of a program shows."""
        variables = [
            Node(None, f"x{i}", specs=(spec,)) for i, (_, _, spec) in enumerate(self.operands)
        ]
        nodes: list[Node] = []
        drawn = 0
        for step, refs in self.rows:
            inputs: list[Entry | None] = []
            for ref in refs:
                if ref is None:
                    inputs.append(None)
                elif ref[0] < 0:
                    inputs.append((variables[ref[1]], 0))
                else:
                    n, i, offset, spec = ref
                    entry = nodes[n], i
                    whole = spec is self.rows[n][0].specs[i]
                    inputs.append(entry if whole else _part(entry, offset, spec, names))
            attrs = step.attrs
            if attrs.get("rng"):
                attrs = {**attrs, "rng": Draw(drawn)}
                drawn += 1
            name = names.get(None, operator_hint(step.op.name)) if names else ""
            nodes.append(Node(step.op, name, tuple(inputs), attrs, step.specs, site=step.site))
        return variables, [(nodes[n], i) for n, i in self.outputs]


def words_of(attrs: dict[str, Any]) -> list[Any]:
    """The attributes of a step as part of a key. With their types: 1, 1.0 and True are equal, and
    do not mean the same."""
    words: list[Any] = []
    for name, value in attrs.items():
        if name != "rng":
            words.append(type(value))
            if type(value) is float and value == 0:
                value = repr(value)  # 0.0 and -0.0 are equal, too
            try:
                hash(value)
            except TypeError:
                # Numbers in an array do not all show; slices cannot be hashed before Python 3.12.
                value = object() if isinstance(value, np.ndarray) else repr(value)
            words.append(value)
    return words


def _part(entry: Entry, offset: int | None, spec: Spec, names: NameManager | None) -> Entry:
    """A view of a value, as nodes."""
    whole = spec_of(entry)
    if whole.size != spec.size:
        flat = Spec((whole.size,), spec.dtype)
        entry = _call(names, "reshape", entry, flat, shape=flat.shape)
        begin = offset or 0
        whole = Spec((spec.size,), spec.dtype)
        entry = _call(names, "slice_axis", entry, whole, axis=0, begin=begin, end=begin + spec.size)
    if whole.shape != spec.shape:
        entry = _call(names, "reshape", entry, spec, shape=spec.shape)
    return entry


def _call(names: NameManager | None, op: str, entry: Entry, spec: Spec, **attrs: Any) -> Entry:
    attrs = {**registry[op].defaults, **attrs}
    name = names.get(None, op) if names else ""
    return Node(registry[op], name, (entry,), attrs, (spec,)), 0


# -- the task --------------------------------------------------------------------------------------


class LazyTask(ProgramTask):
    """A subgraph as a task.

    interpreted  the steps are taken one by one, for the program is for other numbers
    began        it has run, or is running
    """

    __slots__ = ("began", "subgraph", "failures", "interpreted")

    in_steps = True  # the program has the outputs already, whose values Ctrl-C must not take away
    counts = 0  # the versions were counted as its steps were recorded

    def __init__(
        self,
        program: Program,
        interpreted: bool,
        subgraph: Subgraph,
        outputs: list[Operand],
        ctx: Context,
    ):
        super().__init__(program, subgraph.operands, outputs, ctx, subgraph.keys)
        self.site = subgraph.rows[-1][0].site
        self.subgraph = subgraph
        self.interpreted = interpreted
        self.began = False
        self.failures: dict[Var, Failure] | None = None

    def prepare(self) -> None:
        """As for any task; but it is not skipped where a value is missing, for it does not need
        every one for everything."""
        super().prepare()
        self.reads = ()

    def run(self) -> None:
        self.began = True
        if not self.interpreted and not any(map(self._missing, self.inputs)):
            try:
                super().run()
                return
            except Exception:
                self.failures = None  # whose it is, the steps will say
        self.failures = run_quietly(self._one_by_one)

    def keeps(self, var: Var) -> bool:
        return any(chunk is var for chunk, _, _ in self.inputs)

    def _missing(self, operand: Operand) -> Failure | None:
        """Why an input's value is missing, if it is."""
        error = operand[0].error
        return (
            error.origin if error is not None and error.blocks(engine.current, self.seq) else None
        )

    def _one_by_one(self) -> dict[Var, Failure]:
        """Take the steps one by one: which outputs are missing, and why."""
        xp = device_of(self.ctx).xp
        variables, entries = self.subgraph.graph(None)
        operands = dict(zip(variables, self.inputs))

        def call(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
            """The outputs of a node, or for each of them why it is missing."""
            if node.op is None:
                operand = operands[node]
                return [self._missing(operand) or array_of(operand)]
            specs = node.specs or ()
            failure = next((x for x in inputs if isinstance(x, Failure)), None)
            if failure is None:
                try:
                    results = compute(xp, node, inputs, self.keys)
                    pairs = zip(results, specs)
                    return [xp.ascontiguousarray(y).reshape(spec.shape) for y, spec in pairs]
                except Exception as problem:
                    failure = Failure(node.op.name, node.site, problem)
            return [failure] * len(specs)

        failures: dict[Var, Failure] = {}
        results = interpret(entries, call)
        for result, (node, _), operand in zip(results, entries, self.outputs):
            chunk, _, spec = operand
            if isinstance(result, Failure):
                failures[chunk] = result
                continue
            try:
                fresh = chunk.data is None
                place = chunk.allocate(spec.shape, spec.dtype) if fresh else array_of(operand)
                xp.copyto(place, result, casting="same_kind")
            except Exception as problem:
                assert node.op is not None
                failures[chunk] = Failure(node.op.name, node.site, problem)
        return failures
