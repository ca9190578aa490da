"""What a lazy scope records: steps that have not been taken, and what they are to read.

A `Step` is one call of an op, a node of a graph whose variables are `Source`s: contents of memory.
It holds on to what it reads, and to nothing that it makes: the recorder knows weakly which memory a
step's outputs belong to. So a result that no array can read any more takes its step with it.

`Subgraph` is a number of steps that are to be taken together. Its `key` says the ops, their
attributes and which values they read, and no arrays. For a key one program is compiled; a loop that
records the same thing again compiles nothing.

`LazyTask` is a subgraph as one task of the engine. It runs as a program. Where that fails, or where
some of what it reads is missing, the steps are taken one by one instead: each value that can be
computed is, and the others have the error of the one step that failed, as if each had been a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.context import Context, cpu
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import Chunk
from d2lmini.engine.core import Var
from d2lmini.engine.failure import Failure
from d2lmini.graph.call import ProgramTask
from d2lmini.graph.ir import (
    Draw,
    Entry,
    Inputs,
    Node,
    compute,
    interpret,
    spec_of,
    topological,
)
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, array_of
from d2lmini.ops.core import Op, Spec, registry
from d2lmini.symbol.naming import NameManager, operator_hint

_numbers = count()


class Source(Node):
    """A variable: an array in memory, as it will be once all that was pushed has run. When its
    chunk is overwritten there are other contents, and another Source."""

    __slots__ = ("operand",)

    def __init__(self, operand: Operand):
        super().__init__(None, "", specs=(operand[2],))
        self.operand = operand


class Step(Node):
    """A call of an op that was recorded.

    attrs    attributes, with the random key that was drawn and the mode at the call
    number   counts up as steps are recorded
    scope    the lazy scope that recorded it
    results  once it was pushed: where its outputs lie, as far as they are needed; it reads nothing
             then
    """

    __slots__ = ("ctx", "number", "results", "scope")

    op: Op
    specs: tuple[Spec, ...]

    def __init__(
        self, op: Op, inputs: Inputs, attrs: dict[str, Any], specs: tuple[Spec, ...], ctx: Context,
        site: Any, scope: Any,
    ):  # fmt: skip
        for name, value in attrs.items():
            if isinstance(value, np.generic):  # in graphs numbers are plain ones
                attrs = {**attrs, name: value.item()}
        super().__init__(op, "", inputs, attrs, specs, site=site)
        self.ctx = ctx
        self.scope = scope
        self.number = next(_numbers)
        self.results: list[Source | None] | None = None

    @property
    def place(self) -> Context:
        """The device; all contexts of the CPU are one."""
        return cpu() if self.ctx.is_cpu else self.ctx

    def reads(self, old: set[Chunk], new: set[tuple[Step, int]]) -> bool:
        """True if it reads what is in one of `old` now, or an output in `new`."""
        return any(
            entry[0].operand[0] in old if isinstance(entry[0], Source) else entry in new
            for entry in map(now, self.sources)
        )


def view(entry: Entry, offset: int | None, spec: Spec, *how: Any) -> Entry:
    """A value from element `offset` on, in this shape: as steps, which no scope counts."""

    def call(op: str, spec: Spec, **attrs: Any) -> Entry:
        attrs = {**registry[op].defaults, **attrs}
        return Step(registry[op], (entry,), attrs, (spec,), *how), 0

    size, begin = spec_of(entry).size, offset or 0
    if size != spec.size:
        entry = call("reshape", Spec((size,), spec.dtype), shape=(size,))
        part = Spec((spec.size,), spec.dtype)
        entry = call("slice_axis", part, axis=0, begin=begin, end=begin + spec.size)
    if spec_of(entry).shape != spec.shape:
        entry = call("reshape", spec, shape=spec.shape)
    return entry


def now(entry: Entry) -> Entry:
    """The same value; from memory, if its step was pushed meanwhile."""
    step, i = entry
    if isinstance(step, Step) and step.results is not None:
        source = step.results[i]
        assert source is not None, "a value that is needed was not kept"
        return source, 0
    return entry


def ancestors(roots: Iterable[Node]) -> set[Step]:
    """The steps that are to be taken for these: those that were not pushed."""
    order = topological([(node, 0) for node in roots])
    return {node for node in order if isinstance(node, Step) and node.results is None}


class Subgraph:
    """The steps behind some outputs, which are to be taken together.

    rows      each step with what it reads now, inputs before those who use them
    operands  the memory that they read
    key       equal for what one program can do
    keys      the random keys, as `Draw` counts them
    """

    __slots__ = ("key", "keys", "operands", "outputs", "rows")

    def __init__(self, outputs: Sequence[tuple[Step, int]]):
        self.outputs = outputs
        self.rows: list[tuple[Step, Inputs]] = []
        places: dict[Node, int] = {}
        found: dict[Operand, int] = {}
        key: list[Any] = []
        for step in topological(outputs):
            if not isinstance(step, Step) or step.results is not None:
                continue
            inputs = tuple([None if entry is None else now(entry) for entry in step.inputs])
            for entry in inputs:
                if entry is None:
                    key.append(None)
                elif isinstance(entry[0], Source):
                    operand = entry[0].operand
                    key.append((found.setdefault(operand, len(found)), operand[2]))
                else:
                    key.append((places[entry[0]], entry[1]))
            places[step] = len(self.rows)
            self.rows.append((step, inputs))
            key.append(step.op)
            key += words_of(step.attrs)
        self.operands = list(found)
        self.key = (*key, *[(places[step], i) for step, i in outputs])
        self.keys = [step.attrs["rng"] for step, _ in self.rows if step.attrs.get("rng")]

    @property
    def form(self) -> tuple:
        """The key without its numbers."""
        return tuple([None if type(word) in (int, float) else word for word in self.key])

    def graph(self, names: NameManager | None) -> tuple[list[Node], list[Entry]]:
        """The same as a typed graph: variables for the operands, and the outputs. Without `names`
        its calls have no names, which only the text of a program shows."""
        variables = {
            operand: Node(None, f"x{i}", specs=(operand[2],))
            for i, operand in enumerate(self.operands)
        }
        nodes: dict[Node, Node] = {}
        draws = map(Draw, count())

        def renew(entry: Entry | None) -> Entry | None:
            if entry is None:
                return None
            node, i = entry
            return variables[node.operand] if isinstance(node, Source) else nodes[node], i

        for step, inputs in self.rows:
            attrs = step.attrs
            if attrs.get("rng"):
                attrs = {**attrs, "rng": next(draws)}
            name = names.get(None, operator_hint(step.op.name)) if names else ""
            given = tuple(map(renew, inputs))
            nodes[step] = Node(step.op, name, given, attrs, step.specs, site=step.site)
        return list(variables.values()), [(nodes[step], i) for step, i in self.outputs]


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


# -- the task --------------------------------------------------------------------------------------


class LazyTask(ProgramTask):
    """A subgraph as a task.

    interpreted  the steps are taken one by one, for the program is for other numbers
    began        it has run, or is running
    """

    __slots__ = ("began", "subgraph", "failures", "interpreted")

    multi_step = True  # the program has the outputs already, whose values Ctrl-C must not take away
    counts = 0  # the versions were counted as its steps were recorded

    def __init__(
        self, program: Program, interpreted: bool, subgraph: Subgraph, outputs: list[Operand],
        last: Step,
    ):  # fmt: skip
        super().__init__(program, subgraph.operands, outputs, last.ctx, subgraph.keys)
        self.site = last.site
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
