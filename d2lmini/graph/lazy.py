"""The lazy scope: what is never read is never computed.

>>> import d2lmini
>>> from d2lmini import engine, nd
>>> x = nd.ones((2, 3))
>>> nd.waitall()
>>> before = engine.stats().executed
>>> with d2lmini.lazy() as scope:
...     for _ in range(1000):
...         y = x + 1                # recorded; the one before, which nobody can read, is dropped
...     y.asnumpy()                  # a wait: what it needs is compiled and run
array([[2., 2., 2.],
       [2., 2., 2.]], dtype=float32)
>>> engine.stats().executed - before
1
>>> scope
<lazy scope: 1000 recorded, 1 computed, 999 dropped, 1 program compiled>

Outside a scope the engine runs every operation that is pushed, as MXNet's does. Inside, operations
of this thread become steps of a graph. The first wait for a value brings what that
needs through the compiler's passes, and it runs as one task (`LazyTask`); `print(scope.program())`
shows the generated code. At the end of the scope all that somebody can still read is pushed.

All else keeps its meaning. Shapes are checked at the call, and random numbers drawn there. A task
that is no pure op is pushed as always, after all that it reads, and all that must read before it
writes. Other threads may wait for what is recorded. An error names the operation that failed.

The `Recorder` is told of every push and wait while a scope is open. Tasks are recorded on their way
to the engine, and their writes are counted. What a chunk holds now is either its value here
(`values`, weakly: it goes with the last handle), or what the engine has put there.

**Steps.** A `Step` is one call of an op, a node of a graph. The variables of the graph are steps
without an op: contents of memory. So is each step that was pushed. A step holds on to what it
reads, and to nothing that it makes. So a result that no array can read takes its step with it.

`Subgraph` is a number of steps that are pushed together. Its `form` says the ops and which values
they read, its `numbers` the attributes; neither says any arrays. For both one program is compiled;
a loop that records the same thing again compiles nothing.

`LazyTask` is a subgraph as one task of the engine. It runs as a program. Where that fails, or where
some of what it reads is missing, the steps are taken one by one instead: each value that can be
computed is, and the others have the error of the one step that failed, as if each had been a task.

An operation reads what lies on its own device. So the steps of a device need those of another only
through a copy, which is a task of its own. Each task takes the steps of one device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError, callsite, forks, instrument
from d2lmini.base.forks import living
from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.context import Context, cpu
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import Chunk, Pool, pool_of
from d2lmini.engine.budget import default_limit
from d2lmini.engine.core import Task, Var
from d2lmini.engine.core import lock as engine_lock
from d2lmini.engine.failure import Failure
from d2lmini.engine.scheduler import Scheduler
from d2lmini.engine.scheduler import thread_state as engine_state
from d2lmini.graph.ir import Draw, Entry, Inputs, Node, compute, spec_of, topological
from d2lmini.graph.passes import simplify
from d2lmini.graph.program import Program, ProgramTask
from d2lmini.ndarray.compute import Operand, OpTask, array_of
from d2lmini.ops.core import Op, Spec, registry
from d2lmini.symbol.naming import NameManager, operator_hint

#: So many steps may wait; then all of them are pushed.
MOST_STEPS = 1000

#: Programs are kept for so many forms of subgraphs; at more all are forgotten.
MOST_FORMS = 256

#: So many programs are compiled that differ in attributes alone, such as a rate that is another in
#: each step; after that the steps are taken one by one, for compiling takes longer.
MOST_NUMBERS = 8

# -- steps -----------------------------------------------------------------------------------------

_numbers = count()


class Step(Node):
    """A call of an op that was recorded; without an op an array in memory.

    attrs     attributes, with the random key that was drawn and the mode at the call
    number    counts up as steps are recorded
    scope     the lazy scope that recorded it
    operands  where its outputs lie, as far as they are needed, as soon as it was pushed: then it
              reads nothing
    """

    __slots__ = ("ctx", "number", "operands", "scope")

    op: Op
    specs: tuple[Spec, ...]

    def __init__(
        self, op: Op | None, inputs: Inputs, attrs: dict[str, Any], specs: tuple[Spec, ...],
        ctx: Context, site: Any = None, scope: Any = None,
    ):  # fmt: skip
        for name, value in attrs.items():
            if isinstance(value, np.generic):  # in graphs numbers are plain ones
                attrs = {**attrs, name: value.item()}
        super().__init__(op, "", inputs, attrs, specs, site=site)
        self.ctx = ctx
        self.scope = scope
        self.number = next(_numbers)
        self.operands: Any = None  # then a list of Operand or None

    @property
    def place(self) -> Context:
        """The device; all contexts of the CPU are one."""
        return cpu() if self.ctx.is_cpu else self.ctx


def locate(entry: Any) -> Any:
    """Where a value lies in memory, or the value itself if its step was not pushed."""
    step, i = entry
    return entry if step.operands is None else step.operands[i]


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


def ancestors(roots: Iterable[Node]) -> list[Any]:
    """The steps that are to be taken for these: those that were not pushed, in order."""
    order: list[Any] = topological([(node, 0) for node in roots])
    return [step for step in order if step.operands is None]


class Subgraph:
    """The steps behind some outputs, which are to be taken together.

    steps     each step with what it reads, inputs before those who use them
    operands  the memory that they read
    form      the ops, and which values each of them reads
    numbers   the attributes: what has the same form and the same numbers, one program can do
    keys      the random keys, as `Draw` counts them
    """

    __slots__ = ("form", "keys", "numbers", "operands", "outputs", "steps")

    def __init__(self, outputs: Sequence[tuple[Step, int]]):
        self.outputs = outputs
        self.steps: list[tuple[Step, tuple[Any, ...]]] = []
        places: dict[Any, int] = {}  # of each operand and each step
        n_operands = count()
        form: list[Any] = []
        texts: list[str] = []
        for step in ancestors(node for node, _ in outputs):
            inputs = tuple([entry and locate(entry) for entry in step.inputs])
            for value in inputs:
                if value is None:
                    form.append(None)
                elif isinstance(value[0], Step):
                    form.append((places[value[0]], value[1]))
                else:
                    if value not in places:
                        places[value] = next(n_operands)
                    form.append((places[value], value[2]))
            places[step] = len(self.steps)
            self.steps.append((step, inputs))
            form.append(step.op)
            texts.append(text_of(step.attrs))
        self.operands: list[Operand] = [place for place in places if not isinstance(place, Step)]
        self.form = (*form, *[(places[step], i) for step, i in outputs])
        self.numbers = tuple(texts)
        self.keys = [step.attrs["rng"] for step, _ in self.steps if step.attrs.get("rng")]

    def graph(self) -> tuple[list[Node], list[Entry]]:
        """The same as a typed graph: variables for the operands, and the outputs."""
        variables: list[Node] = []
        values: dict[Any, Entry] = {}  # of each operand, and each output of a step
        for i, operand in enumerate(self.operands):
            variables.append(Node(None, f"x{i}", specs=(operand[2],)))
            values[operand] = variables[i], 0
        names, draws = NameManager(), map(Draw, count())
        for step, inputs in self.steps:
            attrs = {**step.attrs, "rng": next(draws)} if step.attrs.get("rng") else step.attrs
            given = tuple([value and values[value] for value in inputs])
            name = names.get(None, operator_hint(step.op.name))
            node = Node(step.op, name, given, attrs, step.specs, site=step.site)
            values.update({(step, i): (node, i) for i in range(len(step.specs))})
        return variables, [values[entry] for entry in self.outputs]


def text_of(attrs: dict[str, Any]) -> str:
    """The attributes of a step as part of a key. A text tells apart 1, 1.0 and True."""
    values = [(x.dtype, x.tolist()) if isinstance(x, np.ndarray) else x for x in attrs.values()]
    return repr([pair for pair in zip(attrs, values) if pair[0] != "rng"])


class LazyTask(ProgramTask):
    """A subgraph as a task.

    interpreted  the steps are taken one by one, for the program is for other numbers
    began        it has run, or is running
    """

    __slots__ = ("began", "subgraph", "failures", "interpreted")

    multi_step = True  # the program has the outputs already, whose values Ctrl-C must not take away
    version_step = 0  # the versions were counted as its steps were recorded

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
        is_missing = error is not None and error.blocks(engine.current, self.seq)
        return error.origin if is_missing else None  # type: ignore[union-attr]

    def _one_by_one(self) -> dict[Var, Failure]:
        """Take the steps one by one: which outputs are missing, and why."""
        xp = device_of(self.ctx).xp
        # The value of each operand and each output of a step, or why it is missing.
        values: dict[Any, Any] = {x: self._missing(x) or array_of(x) for x in self.inputs}
        for step, inputs in self.subgraph.steps:
            given = [value and values[value] for value in inputs]
            results: Any = [x for x in given if isinstance(x, Failure)][:1] * len(step.specs)
            try:
                results = results or [
                    xp.ascontiguousarray(y).reshape(spec.shape)
                    for y, spec in zip(compute(xp, step, given), step.specs)
                ]
            except Exception as problem:
                results = [Failure(step.op.name, step.site, problem)] * len(step.specs)
            values.update({(step, i): result for i, result in enumerate(results)})
        failures: dict[Var, Failure] = {}
        for entry, operand in zip(self.subgraph.outputs, self.outputs):
            result, (chunk, _, spec) = values[entry], operand
            if isinstance(result, Failure):
                failures[chunk] = result
                continue
            try:
                fresh = chunk.data is None
                place = chunk.allocate(spec.shape, spec.dtype) if fresh else array_of(operand)
                xp.copyto(place, result, casting="same_kind")
            except Exception as problem:
                failures[chunk] = Failure(entry[0].op.name, entry[0].site, problem)
        return failures


# -- the recorder ----------------------------------------------------------------------------------


class _ThreadState(threading.local):
    """Per thread: the innermost lazy scope, or None."""

    scope: Any = None


thread_state = _ThreadState()


class _AllEventsListener(instrument.Instrument):
    """Listens so that every operation is pushed: none is computed inline, past the engine."""

    def push(self, task: Task) -> None:
        """Hear of it."""


class Recorder:
    """What is recorded, of all threads. Nothing blocks under its lock; the engine's may be taken
    under it, never the other way round.

    values  chunk -> (step, which output): what it will hold, newer than what the engine knows
    memory  operand, with the identity of the chunk -> the step whose output is there
    live    steps that have not been pushed
    scopes  that are open, of all threads
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.values: WeakKeyDictionary[Chunk, tuple[Step, int]] = WeakKeyDictionary()
        self.memory: WeakValueDictionary[tuple, Step] = WeakValueDictionary()
        self.live: WeakSet[Step] = WeakSet()
        self.scopes: set[Any] = set()
        self._programs: dict[tuple, dict[tuple, Program]] = {}  # by form, then by numbers
        # By device: bytes of memory that steps read, since they were last added up.
        self._fresh_nbytes: dict[Pool, int] = {}
        self._listener = _AllEventsListener()

    # -- scopes ------------------------------------------------------------------------------------

    def begin(self, scope: Any) -> None:
        """Be told of pushes and waits from now on."""
        with self.lock:
            self.scopes.add(scope)
            if Scheduler.recorder is None:
                instrument.add(self._listener)
                Scheduler.recorder = self

    def end(self, scope: Any) -> None:
        """A scope is over; after the last one nobody need tell us anything. Harmless when
        repeated."""
        with self.lock:
            self.scopes.discard(scope)
            self._leave()

    def _leave(self) -> None:
        if not self.scopes and not self.values:
            Scheduler.recorder = None
            self._fresh_nbytes.clear()
            instrument.remove(self._listener)

    def waiting(self, scope: Any) -> int:
        """How many steps of `scope` may yet be pushed."""
        with self.lock:
            steps = living(self.live)
        return sum(step.scope is scope for step in steps)

    # -- what the engine tells ---------------------------------------------------------------------

    def takes(self, task: Task) -> bool:
        """A task is pushed: record it; or say False after pushing what must run before it."""
        if self._busy:  # a finalizer pushes in the midst of our work
            engine.current._defer(task)
            return True
        scope = thread_state.scope
        if scope is not None and engine_state.task is None and type(task) is OpTask and _pure(task):
            with self.lock:
                self._record(task, scope)
                full = len(self.live) > MOST_STEPS or self._holds_too_much(task.outputs[0][0].pool)
            if full:
                self.push_all()
            return True
        return not self.settles([task])

    def settles(self, tasks: list[Task]) -> bool:
        """True if tasks may be pushed now: after what must run before each of them, that is what it
        reads, and who reads what it writes."""
        if self._busy:
            return False
        for task in tasks:
            if self.values or self.memory:
                self._push((*task.reads, *task.writes), task.writes)
        return True

    def run_for_wait(self, by: str, var: Var | None, write: bool = False) -> None:
        """A wait for `var`, for everything if it is None; `write`: for its readers, too."""
        if engine_state.task is not None or engine_lock._is_owned():  # type: ignore[attr-defined]
            return  # such a wait is refused
        if self._busy:
            raise MXNetError(
                f"{by} inside a finalizer (__del__): it runs in the midst of recording and must "
                "not wait. Push what is to be done instead."
            )
        if var is None:
            self.push_all()
        elif isinstance(var, Chunk):
            self._push((var,), (var,) if write else ())

    @property
    def _busy(self) -> bool:
        return self.lock._is_owned()  # type: ignore[attr-defined]

    # -- recording ---------------------------------------------------------------------------------

    def _record(self, task: OpTask, scope: Any) -> None:
        how = task.ctx, task.site or callsite.find(), scope
        inputs = tuple([None if x is None else self._read(x, how) for x in task.inputs])
        specs = tuple([spec for _, _, spec in task.outputs])
        step = Step(task.op, inputs, task.attrs, specs, *how)
        with engine_lock:
            for var in task.writes:
                var.version += 1
        self.live.add(step)
        scope.recorded += 1
        # From here on it has happened, also if Ctrl-C comes now.
        for i, (chunk, _, _) in enumerate(task.outputs):
            self.values[chunk] = step, i

    def _read(self, operand: Operand, how: tuple) -> Entry:
        """What an operation reads, as a value of the graph. how: context, line and scope."""
        chunk, offset, spec = operand
        value = self.values.get(chunk)
        if value is not None:
            return view(value, offset, spec, *how)
        step = self.memory.get((id(chunk), offset, spec))
        if step is None:
            step = Step(None, (), {}, (spec,), how[0])
            self._enter(step, [operand])
        return step, step.operands.index(operand)

    def _enter(self, step: Step, operands: list[Operand | None]) -> None:
        """The outputs of a step lie there."""
        for operand in filter(None, operands):
            chunk, offset, spec = operand
            self.memory[id(chunk), offset, spec] = step
            pool = chunk.pool
            self._fresh_nbytes[pool] = self._fresh_nbytes.get(pool, 0) + chunk.weight
        step.operands = operands

    def _chunks_read(self) -> set[Chunk]:
        """The memory that steps read, or may read."""
        found: set[Chunk] = set()
        for step in living(self.memory):
            found.update([operand[0] for operand in step.operands or () if operand])
        return found

    def _holds_too_much(self, pool: Pool) -> bool:
        """True if steps alone keep more memory of a device alive than half of the pending bound."""
        limit = pool.most_pending or engine.current.budget.limit
        if limit is None:
            limit = engine.current.budget.limit = default_limit()
        if self._fresh_nbytes.get(pool, 0) <= limit // 2:
            return False
        self._fresh_nbytes[pool] = 0
        chunks = [c for c in self._chunks_read() if c.weight and not c.held and c.pool is pool]
        return sum(chunk.weight for chunk in chunks) > limit // 4

    # -- pushing -----------------------------------------------------------------------------------

    def push_all(self, scope: Any = None) -> None:
        """Push all that can still be read, of what `scope` recorded if one is given."""
        with self.lock:
            found = [(chunk, self.values[chunk][0]) for chunk in living(self.values)]
        self._push([chunk for chunk, step in found if scope is None or step.scope is scope])

    def _push(self, chunks: Iterable[Any], overwritten: Iterable[Any] = ()) -> None:
        """Push the values of `chunks`, and those that are computed from what is in the chunks
        `overwritten` and in no others."""
        chunks, overwritten = tuple(chunks), tuple(overwritten)
        pushed, rest = False, True
        while rest:
            with self.lock:
                task, found, rest = self._task(chunks, overwritten)
                if task is None:
                    break
                entered = self._offer(task, found)
            pushed = pushed or entered
            if not entered:
                rest = True
                engine.current.pause(task)
        if pushed:
            engine.current._run_ready()
            if not self.scopes:  # left over, when Ctrl-C ended the end of a scope
                with self.lock:
                    self._leave()

    def _offer(self, task: LazyTask, found: dict[tuple[Step, int], Chunk]) -> bool:
        """Push `task`, if the engine takes it now, and note where its outputs lie."""
        entered = False
        try:
            entered = engine.current.offer(task)
        finally:
            try:
                self._note(task, entered, found)
            except BaseException:  # Ctrl-C in its midst
                self._note(task, entered, found)
                raise
        return entered

    def _note(self, task: LazyTask, entered: bool, found: dict[tuple[Step, int], Chunk]) -> None:
        """If it was pushed, so were its steps. Harmless when repeated."""
        if not (entered or task.began or task in engine.current.pending):
            return
        steps = [step for step, _ in task.subgraph.steps]
        for step in steps:
            if step.operands is None:
                operands: list[Operand | None] = []
                for i, spec in enumerate(step.specs):
                    chunk = found.get((step, i))
                    operands.append(None if chunk is None else (chunk, None, spec))
                self._enter(step, operands)
        for entry, chunk in found.items():
            if self.values.get(chunk) == entry:
                del self.values[chunk]
        for step in steps:
            step.inputs = ()
            if step in self.live:
                self.live.discard(step)
                step.scope.computed += 1

    def _task(
        self, chunks: tuple, overwritten: tuple
    ) -> tuple[LazyTask | None, dict[tuple[Step, int], Chunk], bool]:
        """What is to be pushed for `chunks`, and before `overwritten` are, on one device; None if
        nothing is. Where its outputs go, and whether there is something to do on others.

        Among its outputs is each value that somebody can read, or that a step left behind reads:
        nothing is computed twice. A step comes along that reads what an output overwrites, or an
        output that is itself to be overwritten.
        """
        values = [(chunk, self.values[chunk]) for chunk in living(self.values)]
        roots = {self.values[chunk][0] for chunk in chunks if chunk in self.values}
        if not roots and self._chunks_read().isdisjoint(overwritten):
            return None, {}, False
        live = set(ancestors(step for _, (step, _) in values))
        while True:
            due = set(ancestors(roots))
            targets = {entry: chunk for chunk, entry in values if entry[0] in due}
            # Memory and values that will be overwritten.
            old: set[Any] = {*overwritten, *targets.values()}
            old.update([entry for entry, chunk in targets.items() if chunk in overwritten])
            rest = live - due
            more = {
                step
                for step in rest
                if any(x in old or x[0] in old for x in map(locate, step.sources))
            }
            if not more:
                break
            roots |= more
        if not due:
            return None, {}, False
        places = {step.place for step in due}
        if len(places) > 1:
            first = min(due, key=lambda step: step.number).place
            due = {step for step in due if step.place == first}
            targets = {entry: chunk for entry, chunk in targets.items() if entry[0] in due}
        for step in rest:
            for origin, i, *_ in map(locate, step.sources):
                if origin in due and (origin, i) not in targets:
                    targets[origin, i] = Chunk(pool_of(origin.ctx), origin.specs[i].nbytes)
        entries = sorted(targets, key=lambda entry: (entry[0].number, entry[1]))
        subgraph = Subgraph(entries)
        last = max(due, key=lambda step: step.number)
        program, interpreted = self._program(subgraph, last)
        outputs: list[Operand] = [(targets[step, i], None, step.specs[i]) for step, i in entries]
        task = LazyTask(program, interpreted, subgraph, outputs, last)
        return task, targets, len(places) > 1

    def _program(self, subgraph: Subgraph, last: Step) -> tuple[Program, bool]:
        """The program for a subgraph, which is found if it was compiled before. Or one for other
        numbers, and True: the steps are to be taken one by one."""
        scope, place = last.scope, last.place
        form = (*subgraph.form, pool_of(place))  # a later device of that name has another
        alike = self._programs.setdefault(form, {})
        known = alike.get(subgraph.numbers)
        if known is None:
            if len(alike) >= MOST_NUMBERS:
                return next(iter(alike.values())), True
            if len(self._programs) > MOST_FORMS:
                self._programs = {form: alike}
            variables, outputs = subgraph.graph()
            known = Program("lazy", variables, simplify(outputs), place)
            alike[subgraph.numbers] = known
            scope.compiled += 1
        scope._programs[known] = None
        return known, False


def _pure(task: OpTask) -> bool:
    """True if the op only makes new values. Then it can be recorded: it changes no input, and each
    output is the whole of a chunk."""
    return (
        not task.op.mutates
        and all(offset is None and spec.nbytes == c.nbytes for c, offset, spec in task.outputs)
        and len({chunk for chunk, _, _ in task.outputs}) == len(task.outputs)
    )


recorder = Recorder()


def _after_fork_in_child() -> None:
    """The scopes of other threads did not come along; what they recorded can be computed here."""
    recorder.lock._at_fork_reinit()  # type: ignore[attr-defined]
    recorder.scopes, scope = set(), thread_state.scope
    while scope is not None:
        recorder.scopes.add(scope)
        scope = scope.outer


forks.at_fork(
    before=recorder.lock.acquire,
    after_in_parent=recorder.lock.release,
    after_in_child=_after_fork_in_child,
)


# -- the scope -------------------------------------------------------------------------------------


class lazy(Scope):
    """A scope in which operations of this thread are recorded and computed when they are needed.

    recorded  operations so far
    computed  those that a task was pushed for
    dropped   those whose results can't be read any more
    compiled  how many programs had to be compiled for them
    """

    def __init__(self) -> None:
        self.recorded = self.computed = self.compiled = 0
        self._programs: dict[Program, None] = {}
        self.outer: lazy | None = None

    @property
    def dropped(self) -> int:
        """How many operations were recorded whose results can't be read any more."""
        return self.recorded - self.computed - recorder.waiting(self)

    def program(self) -> str:
        """The source of the programs that ran, each once."""
        return "\n".join(map(str, self._programs))

    def _begin(self, undo: Undo) -> lazy:
        if self in recorder.scopes:
            raise MXNetError("this lazy scope is open already; make another: with d2lmini.lazy():")
        self.outer = thread_state.scope
        undo.append(partial(recorder.end, self))
        recorder.begin(self)
        undo.append(partial(recorder.push_all, self))
        swap(undo, thread_state, "scope", self)
        return self

    def __repr__(self) -> str:
        programs = "1 program" if self.compiled == 1 else f"{self.compiled} programs"
        return (
            f"<lazy scope: {self.recorded} recorded, {self.computed} computed, "
            f"{self.dropped} dropped, {programs} compiled>"
        )
