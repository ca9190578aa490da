"""The dependency rules: which task may run when, decided from what each reads and writes.

Purpose. A program issues tasks in order; each names the Vars it reads and the Vars it writes. The
engine may run them on any number of threads, in any order that gives every Var the history the
program wrote. It orders tags and knows nothing of arrays: a Var may stand for memory, a file, a
random stream.

    B = A + 1          # reads A, writes B
    C = A + 2          # reads A, writes C:      may run beside the first
    A = C * 2          # reads C, writes A:      after both, for they read A
    D = A + 3          # reads A, writes D:      after the third

After these four pushes, with the first two running, A's line is: two readers at work, in the queue
the writer `A = C * 2`, behind it the reader `D = A + 3`.

Fields
    Var.readers    set of tasks that hold it for reading now; a writer waits until it is empty
    Var.writer     the task that holds it for writing now, or None
    Var.queue      tasks not yet granted, in program order: (task, writes?) from oldest to newest
    Var.version    how many writes were pushed so far (a number may be skipped, none comes twice)
    Var.error      why its value is missing (a Failure; an Unchanged one lifts), or None
    Var.order      on a device that runs behind the host: what to wait for beside the line, or None
    Task.waits     how many of its Vars are not yet granted, 0 ... number of Vars
    Task.seq       push order; breaks ties of priority

Invariants (asserted where they change, tested by `Engine.check`)
    I1  a writer holds alone:            writer is not None  implies  readers is empty
    I2  grants follow push order:        a queue is only non-empty behind somebody who holds
    I3  the head of a queue cannot be granted now (else it would have been)
    I4  a task is ready, once, when its `waits` reaches 0
    I5  the lock is not held while a task runs on a worker
    I6  idle (no task pending) means every queue and every holder set is empty

Transitions, all under the one lock of this module
    push      claim: each Var is granted at once or queued; nothing queued -> ready
    ready     handed to the workers of its context
    run       outside the lock
    complete  release: each Var passes on, to one writer or to all readers up to the next writer;
              those whose last Var this was become ready
    fail      complete, with a Failure kept on the Vars it writes; whoever reads them is skipped
              and passes the same Failure on; a task that only writes (a full overwrite) clears it
    mend      after Ctrl-C in the midst of one of these: what was begun is finished or taken back

Writes in place that did not happen. A skipped task changes nothing: what it would have changed in
place (`x += failed`, `x[:] = failed`, the weights of an update) is as it was. If the task has
results of its own beside, as BatchNorm beside its running statistics, these tell of the failure,
and nothing else does. Else the Var gets the failure as `Unchanged`: it counts as missing until a
wait has raised that failure, whichever Var the wait was for; for what is pushed after the wait it
has its old value. So no result is computed from an update that did not happen before the user
knows, and one failed batch costs the batches up to the next wait, as in MXNet. A result that
was never computed stays missing: a wait on it raises each time. So does what a task of many
steps was changing when it failed, for nobody knows how far the task came.

Promises. Per Var, tasks take effect in program order: readers together, a writer alone. Every task
that was pushed runs, or is skipped because what it needs failed or was cancelled. Nothing is
promised between tasks that share no written Var; priority breaks ties only.

Holders are kept as objects in sets, not counted: so a move that Ctrl-C interrupts between any two
lines can be taken back or finished from what the Vars themselves say, and "who waits for whom" can
be read off. MXNet's threaded engine, from which the idea of the queues comes, keeps counts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from d2lmini.context import Context, cpu

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.engine.failure import Failure

_NOBODY: Any = frozenset()
_NO_QUEUE: Any = ()

#: The one lock of the house: over the lines of all Vars, the engines' lists, and the storage's
#: books. One, because a finalizer may come upon any of them while the thread holds another; and
#: re-entrant, because the collector may run a finalizer while its thread holds this one.
#: Under `with lock:` there is no loop, only calls of functions that loop: where a loop jumps back,
#: Python 3.12 and 3.13 deliver Ctrl-C as if outside the `with`, and the lock would stay locked.
lock = threading.RLock()


class Var:
    """A tag that tasks read and write; see the module's first page for the fields."""

    __slots__ = (
        "error", "order", "queue", "readers", "serial", "version", "writer", "__weakref__",
    )  # fmt: skip

    #: The number by which traces know it; not set before the first of them meets it.
    serial: int

    #: Bytes that count against the bound on pending memory; a bare tag has none.
    weight = 0

    def __init__(self) -> None:
        self.readers: set[Task] = _NOBODY
        self.writer: Task | None = None
        self.queue: deque[tuple[Task, bool]] = _NO_QUEUE
        self.version = 0
        self.error: Failure | None = None
        self.order: Any = None

    @property
    def idle(self) -> bool:
        """No task that was pushed still has to read or write it."""
        return self.writer is None and not self.readers and not self.queue


class Task:
    """One thing to run. Subclasses say what; the engine sees what it touches.

    name          what messages and traces call it
    reads         Vars whose values it needs; a failed one means the task is skipped
    writes        Vars it changes; one also in `reads` is changed in place, one only here is
                  overwritten whole
    ctx           the context whose workers run it
    lane          which of them: "compute", or "in" and "out", those that copy (see `lanes`)
    priority      higher runs first among the ready ones
    predicted_us  predicted run time; below the engine's dial it may run on the caller's thread
    site          the user's line that issued it (taken when the task is queued or fails)
    shared        the Vars it holds as a mere reader, each once (set by `prepare`)
    """

    __slots__ = (
        "cancelled", "ctx", "name", "predicted_us", "priority", "reads", "seq", "shared", "site",
        "waits", "writes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        reads: tuple[Var, ...],
        writes: tuple[Var, ...],
        ctx: Context | None = None,
        priority: int = 0,
        predicted_us: float = 1e9,
    ):
        self.name = name
        self.reads = reads
        self.writes = writes
        self.ctx = ctx or cpu()
        self.priority = priority
        self.predicted_us = predicted_us
        self.site: Site | None = None
        self.cancelled: Failure | None = None
        self.waits = 0

    lane = "compute"
    #: Bulk segments and meetings can be: in line already, while more may join (see `bulk`).
    open = False
    #: On the caller's thread, does Ctrl-C wait until it has run? Not if it may never end.
    defers = False
    #: If it fails as it runs, is what it changes in place, beside results, as good as before?
    spares = False
    #: Is everything it changes in place written by one call, its last, which cannot fail half-way?
    atomic = False
    #: How many versions of what it writes it makes; 0 if they were counted when it was recorded.
    counts = 1
    #: Of a task whose parts fail apart: why some of what it writes is missing though it ran.
    failures: Mapping[Var, Failure] | None = None

    def run(self) -> None:
        """Do the work; runs once, with every Var granted."""
        raise NotImplementedError

    @property
    def in_steps(self) -> bool:
        """Of one that `defers`: does it change memory that was there before, by several calls?"""
        return True

    def keeps(self, var: Var) -> bool:
        """Does `var`, one of its writes, keep its old value where the task is skipped? Not if it is
        a result, which nothing stands for until it is computed."""
        return var in self.reads

    @property
    def parts(self) -> Sequence[Task]:
        """The operations in it that have not run: itself, or those of a bulk segment."""
        return (self,)

    def footprint(self) -> Callable[[], Any] | None:
        """What tells its cost later, when it is gone with its arrays (traces ask); None: nobody
        knows."""
        return None

    def prepare(self) -> None:
        """Called when the task is queued: sort out which Vars it only reads, name each once."""
        self.seq = 0
        reads, writes = self.reads, self.writes
        n = len(reads)
        if len(writes) == 1 and n < 3:  # nearly every operation: spare the dictionaries
            if n == 2 and reads[0] is reads[1]:
                reads = reads[:1]
            if writes[0] in reads:
                reads = tuple(v for v in reads if v is not writes[0])
            self.shared: tuple[Var, ...] = reads
        else:
            written = dict.fromkeys(writes)
            self.writes = tuple(written)
            self.shared = tuple([v for v in dict.fromkeys(reads) if v not in written])

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class FunctionTask(Task):
    """A task that calls a function without arguments: what `engine.push` makes."""

    __slots__ = ("fn",)

    def __init__(self, fn: Any, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fn = fn

    def run(self) -> None:
        if self.ctx.is_cpu:
            self._wait_for_devices()
        self.fn()

    def _wait_for_devices(self) -> None:
        """Where a GPU has been told to make what `fn` needs, it must have done so."""
        for var in self.reads:
            if var.order is not None:
                var.order.wait()
        for var in self.writes:
            if var.order is not None:
                var.order.wait(True)


class Gate(Task):
    """A wait, standing in line like any task: granted when all that came before is done.

    A user thread waits by claiming one Var, as reader or writer, and blocking on the gate's lock.
    """

    __slots__ = ("opened", "var")

    def __init__(self, by: str, var: Var, write: bool):
        super().__init__(by, () if write else (var,), (var,) if write else ())
        self.shared = self.reads
        self.var = var
        self.opened = threading.Lock()
        self.opened.acquire()
        self.waits = 1

    def claim(self) -> bool:
        """Get in line; True when granted at once. A wait changes nothing: no version is counted."""
        if claim_var(self, self.var, bool(self.writes)):
            self.waits = 0
        return self.waits == 0


# -- the moves (the lock is held) ------------------------------------------------------------------


def claim(task: Task) -> bool:
    """Put `task` in line for its Vars; True when all are granted at once."""
    waits = 0
    for var in task.shared:
        waits += not claim_var(task, var, False)
    for var in task.writes:
        var.version += task.counts
        waits += not claim_var(task, var, True)
    task.waits = waits
    return waits == 0


def claim_var(task: Task, var: Var, writes: bool) -> bool:
    """Put `task` in line for one Var; True when it is granted at once."""
    if var.writer is None and not var.queue and not (writes and var.readers):
        if writes:
            var.writer = task
        else:
            _add_reader(var, task)
        return True
    if var.queue is _NO_QUEUE:
        var.queue = deque(((task, writes),))
    else:
        var.queue.append((task, writes))
    return False


def become_writer(task: Task, var: Var) -> None:
    """Let a reader of `var`, after whom nobody is in line, stand there as a writer instead."""
    if task in var.readers:
        # In line as a writer before it ceases to be a reader: `mend` finds it as one of them.
        var.queue = deque(((task, True),))
        var.readers.discard(task)
        if not var.readers:
            _pass_on(var, [])
    else:
        var.queue[-1] = (task, True)


def passes_through(task: Task) -> bool:
    """Can `task` run at once, without standing in line? If nobody is before it and no value is
    missing, what it writes is counted as written."""
    for var in task.reads:
        if var.writer is not None or var.queue or var.error is not None:
            return False
    for var in task.writes:
        if var.writer is not None or var.readers or var.queue or var.error is not None:
            return False
    for var in task.writes:
        var.version += task.counts
        if var.weight:
            var.filled = True  # type: ignore[attr-defined]
    return True


def is_missing(var: Var, engine: object, order: int | None = None) -> bool:
    """Has `var` no value for the task that `engine` was given as number `order`? None: now."""
    return var.error is not None and var.error.blocks(engine, order)


def holds(task: Task, var: Var) -> bool:
    """Has `task` been granted `var`?"""
    return var.writer is task or task in var.readers


def in_line(task: Task, var: Var) -> bool:
    """Does `task` hold `var` or wait for it?"""
    return holds(task, var) or any(each is task for each, _ in var.queue)


def release(task: Task) -> list[Task]:
    """Take a finished task from its Vars; those that become ready by it."""
    ready: list[Task] = []
    for var in task.shared:
        assert task in var.readers, "released twice"
        var.readers.discard(task)
        if not var.readers and var.queue:
            _pass_on(var, ready)
    for var in task.writes:
        assert var.writer is task, "released twice"
        var.writer = None
        if var.queue:
            _pass_on(var, ready)
    return ready


def withdraw(task: Task) -> list[Task]:
    """Take `task` from its Vars wherever it stands, be it half claimed or half released; those
    that become ready by it. Harmless when repeated."""
    ready: list[Task] = []
    for var in (*task.shared, *task.writes):
        if task in var.readers:
            var.readers.discard(task)
        if var.writer is task:
            var.writer = None
        if any(each is task for each, _ in var.queue):
            var.queue = deque(entry for entry in var.queue if entry[0] is not task)
        if var.queue and var.writer is None:
            _pass_on(var, ready)
    return ready


def is_last(task: Task, var: Var) -> bool:
    """Is nobody in line behind `task`, which holds `var` or waits for it?"""
    return var.queue[-1][0] is task if var.queue else True


def leave(task: Task, var: Var) -> None:
    """Take a task that was not granted `var` out of its queue."""
    if not holds(task, var):
        var.queue = deque(entry for entry in var.queue if entry[0] is not task)


def mend(variables: Iterable[Var]) -> list[Task]:
    """Finish what an interrupted move left half done on `variables`; those in line there that hold
    all they need. The Vars say who holds and who waits; the counts are made anew."""
    tasks: set[Task] = set()
    for var in variables:
        if var.queue:
            var.queue = deque(entry for entry in var.queue if not holds(entry[0], var))
        tasks.update(
            var.readers, (task for task, _ in var.queue), (var.writer,) if var.writer else ()
        )
    for task in tasks:
        if not task.open:
            task.waits = sum(not holds(task, var) for var in (*task.shared, *task.writes))
    for var in variables:
        if var.queue and var.writer is None:
            _pass_on(var, [])
    return [task for task in tasks if task.waits == 0]


def forget(var: Var) -> None:
    """Nobody holds or waits any more: what a forked child makes of the parent's pending work."""
    var.readers, var.writer, var.queue = _NOBODY, None, _NO_QUEUE


def _pass_on(var: Var, ready: list[Task]) -> None:
    """Grant a Var without writer to the next in line: one writer, or readers up to the next one."""
    queue = var.queue
    while queue:
        task, writes = queue[0]
        if writes and var.readers:
            return
        # Granted before it leaves the queue: `mend` may find it in both, never in neither.
        if writes:
            var.writer = task
        else:
            _add_reader(var, task)
        queue.popleft()
        assert task.waits > 0, "granted more often than it waited"
        task.waits -= 1
        if task.waits == 0:
            ready.append(task)
        if writes:
            return


def _add_reader(var: Var, task: Task) -> None:
    assert var.writer is None, "a reader beside a writer"
    if var.readers is _NOBODY:
        var.readers = {task}
    else:
        var.readers.add(task)
