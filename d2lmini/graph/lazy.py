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
of this thread become steps of a graph (`lazy_graph`). The first wait for a value brings what that
needs through the compiler's passes, and it runs as one task (`LazyTask`); `print(scope.program())`
shows the generated code. At the end of the scope all that somebody can still read is pushed.

All else keeps its meaning. Shapes are checked at the call, and random numbers drawn there. A task
that is no pure op is pushed as always, after all that it reads, and all that must read before it
writes. Other threads may wait for what is recorded. An error names the operation that failed.

The `Recorder` is told of every push and wait while a scope is open. Tasks are recorded on their way
to the engine, and their writes are counted. What a chunk holds now is either its value here
(`values`, weakly: it goes with the last handle), or what the engine has put there (`Source`).

An operation reads what lies on its own device. So the steps of a device need those of another only
through a copy, which is a task of its own. Each task takes the steps of one device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from d2lmini import engine
from d2lmini.base import MXNetError, callsite, instrument
from d2lmini.base.forks import living
from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.device.storage import Chunk, Pool, pool_of
from d2lmini.engine.budget import default_limit
from d2lmini.engine.core import Task, Var
from d2lmini.engine.core import lock as engine_lock
from d2lmini.engine.scheduler import Scheduler
from d2lmini.engine.scheduler import thread_state as engine_state
from d2lmini.graph.ir import Entry
from d2lmini.graph.lazy_graph import LazyTask, Source, Step, Subgraph, ancestors, now, view
from d2lmini.graph.passes import simplify
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, OpTask
from d2lmini.symbol.naming import NameManager

#: So many steps may wait; then all of them are pushed.
MOST_STEPS = 1000

#: Programs kept; at more all are forgotten.
MOST_PROGRAMS = 256

#: So many programs are compiled that differ in numbers alone, such as a rate that is another in
#: each step; after that the steps are taken one by one, for compiling takes longer.
MOST_NUMBERS = 8


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

    values   chunk -> (step, which output): what it will hold, newer than what the engine knows
    sources  memory that steps read, by its operand with the identity of the chunk
    live     steps that have not been pushed
    scopes   that are open, of all threads
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.values: WeakKeyDictionary[Chunk, tuple[Step, int]] = WeakKeyDictionary()
        self.sources: WeakValueDictionary[tuple, Source] = WeakValueDictionary()
        self.live: WeakSet[Step] = WeakSet()
        self.scopes: set[Any] = set()
        self._programs: dict[tuple, Program] = {}
        self._forms: dict[tuple, list[Program]] = {}
        # By device: bytes of sources since they were last added up.
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

    def finish(self, scope: Any) -> None:
        """Push what can still be read of what `scope` recorded."""
        self._push([chunk for chunk, (step, _) in self._make_task() if step.scope is scope])

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

    def _make_task(self) -> list[tuple[Chunk, tuple[Step, int]]]:
        with self.lock:
            return [(chunk, self.values[chunk]) for chunk in living(self.values)]

    # -- what the engine tells ---------------------------------------------------------------------

    def takes(self, task: Task) -> bool:
        """A task is pushed: record it; or say False after pushing what must run before it."""
        if self._busy:  # a finalizer pushes in the midst of our work
            engine.current._defer(task)
            return True
        scope = thread_state.scope
        if scope is not None and engine_state.task is None and type(task) is OpTask and _pure(task):
            self._record(task, scope)
            return True
        self._settle(task)
        return False

    def settles(self, tasks: list[Task]) -> bool:
        """True if tasks of finalizers may be pushed now."""
        if self._busy:
            return False
        for task in tasks:
            self._settle(task)
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
            self._push([chunk for chunk, _ in self._make_task()])
        elif isinstance(var, Chunk):
            self._push((var,), (var,) if write else ())

    @property
    def _busy(self) -> bool:
        return self.lock._is_owned()  # type: ignore[attr-defined]

    # -- recording ---------------------------------------------------------------------------------

    def _record(self, task: OpTask, scope: Any) -> None:
        with self.lock:
            self._note_step(task, scope)
            pool = task.outputs[0][0].pool
            full = len(self.live) > MOST_STEPS or self._holds_too_much(pool)
        if full:
            self._push([chunk for chunk, _ in self._make_task()])

    def _note_step(self, task: OpTask, scope: Any) -> None:
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
        return (self._source(operand), 0) if value is None else view(value, offset, spec, *how)

    def _source(self, operand: Operand) -> Source:
        """The variable that stands for an array in memory."""
        chunk = operand[0]
        key = (id(chunk), *operand[1:])
        source = self.sources.get(key)
        if source is None:
            source = self.sources[key] = Source(operand)
            pool = chunk.pool
            self._fresh_nbytes[pool] = self._fresh_nbytes.get(pool, 0) + chunk.weight
        return source

    def _holds_too_much(self, pool: Pool) -> bool:
        """True if steps alone keep more memory of a device alive than half of the pending bound."""
        limit = pool.most_pending or engine.current.budget.limit
        if limit is None:
            limit = engine.current.budget.limit = default_limit()
        if self._fresh_nbytes.get(pool, 0) <= limit // 2:
            return False
        self._fresh_nbytes[pool] = 0
        chunks = {source.operand[0] for source in living(self.sources)}
        return sum(c.weight for c in chunks if c.weight and not c.held and c.pool is pool) > (
            limit // 4
        )

    # -- pushing -----------------------------------------------------------------------------------

    def _settle(self, task: Task) -> None:
        """Push what must run before `task`: what it reads, and who reads what it writes."""
        if not self.values and not self.sources:
            return
        chunks = (*task.reads, *task.writes)
        self._push(chunks, task.writes)

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
            engine.current._work_off()
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
        steps = [step for step, _ in task.subgraph.rows]
        for step in steps:
            if step.results is None:
                chunks = [found.get((step, i)) for i in range(len(step.specs))]
                step.results = [
                    None if chunk is None else self._source((chunk, None, spec))
                    for chunk, spec in zip(chunks, step.specs)
                ]
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
        read = {source.operand[0] for source in living(self.sources)}
        if not roots and read.isdisjoint(overwritten):
            return None, {}, False
        live = ancestors(step for _, (step, _) in values)
        while True:
            due = ancestors(roots)
            targets = {entry: chunk for chunk, entry in values if entry[0] in due}
            old = {*overwritten, *targets.values()}
            new = {entry for entry, chunk in targets.items() if chunk in overwritten}
            rest = live - due
            more = {step for step in rest if step.reads(old, new)}
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
            for entry in step.sources:
                origin, i = now(entry)
                if origin in due and (origin, i) not in targets:
                    assert isinstance(origin, Step)
                    targets[origin, i] = Chunk(pool_of(origin.ctx), origin.specs[i].nbytes)
        entries = sorted(targets, key=lambda entry: (entry[0].number, entry[1]))
        subgraph = Subgraph(entries)
        last = max(due, key=lambda step: step.number)
        program, interpreted = self._program(subgraph, last)
        outputs: list[Operand] = [(targets[step, i], None, step.specs[i]) for step, i in entries]
        task = LazyTask(program, interpreted, subgraph, outputs, last)
        return task, targets, len(places) > 1

    def _program(self, subgraph: Subgraph, last: Step) -> tuple[Program, bool]:
        """The program for a subgraph, which is found by its key if it was compiled before. Or one
        for other numbers, and True: the steps are to be taken one by one."""
        scope, place = last.scope, last.place
        pool = pool_of(place)  # a later device of that name has another
        key, form = (*subgraph.key, pool), (*subgraph.form, pool)
        known = self._programs.get(key)
        if known is None:
            alike = self._forms.setdefault(form, [])
            if len(alike) >= MOST_NUMBERS:
                return alike[0], True
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()
                self._forms = {form: alike}
            variables, outputs = subgraph.graph(NameManager())
            program = Program("lazy", variables, simplify(outputs), place)
            alike.append(program)
            known = self._programs[key] = program
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
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
        undo.append(partial(recorder.finish, self))
        swap(undo, thread_state, "scope", self)
        return self

    def __repr__(self) -> str:
        programs = "1 program" if self.compiled == 1 else f"{self.compiled} programs"
        return (
            f"<lazy scope: {self.recorded} recorded, {self.computed} computed, "
            f"{self.dropped} dropped, {programs} compiled>"
        )
