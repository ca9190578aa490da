"""The dependency rules: which task may run when, decided from the Vars it reads and writes.

Purpose. A program pushes tasks in order; each task names the Vars it reads and the Vars it writes.
The engine may run the tasks on any number of threads, in any order that gives every Var the
history the program wrote. The engine orders tags and knows nothing of arrays: a Var may stand for
memory, a file, a random stream.

    B = A + 1          # reads A, writes B
    C = A + 2          # reads A, writes C:      may run in parallel with the first
    A = C * 2          # reads C, writes A:      after both, because they read A
    D = A + 3          # reads A, writes D:      after the third

After these four pushes, while the first two run, A has two readers; its queue holds the writer
`A = C * 2` and then the reader `D = A + 3`.

Fields
    Var.readers    set of tasks that hold the Var for reading; a writer waits until it is empty
    Var.writer     the task that holds the Var for writing, or None
    Var.queue      tasks not yet granted, in program order: (task, writes?) from oldest to newest
    Var.version    number of writes pushed so far (a number may be skipped, none comes twice)
    Var.error      why the value is missing (a Failure; a WriteSkipped lifts), or None
    Var.order      on a device that runs asynchronously to the host: the device work that a wait
                   must also wait for, or None
    Task.waits     number of its Vars not yet granted, 0 ... number of Vars
    Task.seq       push order; breaks ties of priority

Invariants (asserted where they change, tested by `check_invariants` of
tests/tools/invariants.py)
    I1  a writer holds alone:            writer is not None  implies  readers is empty
    I2  grants follow push order:        a queue is non-empty only while a task holds the Var
    I3  the head of a queue cannot be granted now (else it would have been)
    I4  a task becomes ready exactly once, when its `waits` reaches 0
    I5  the lock is not held while a task runs on a worker
    I6  idle (no task pending) means every queue and every holder set is empty

Transitions, all under the one lock of this module
    push      claim: each Var is granted at once or queued; nothing queued -> ready
    ready     handed to the workers of the task's context
    run       outside the lock
    complete  release: each Var passes to one writer, or to all readers up to the next writer;
              tasks that have now been granted all their Vars become ready
    fail      complete, with a Failure kept on the Vars the task writes; tasks that read these Vars
              are skipped and pass the same Failure on; a task that only writes (a full overwrite)
              clears the Failure
    mend      after Ctrl-C interrupted a transition: the transition is finished or undone

Writes in place that did not happen. A skipped task changes nothing: the arrays it would have
changed in place (`x += failed`, `x[:] = failed`, the weights of an update) keep their values. If
the task also has results of its own (BatchNorm has results and running statistics), only the
results carry the failure. Otherwise the Var gets a `WriteSkipped`: the value counts as
missing until a wait, on any Var, has raised that failure; tasks pushed after that wait see the old
value. So no result is computed from an update that did not happen before the user knows of the
failure, and one failed batch costs the batches up to the next wait, as in MXNet. A result that was
never computed stays missing: every wait on it raises. The same holds for memory that a task of
several steps was changing when it failed, because the engine cannot know how far the task came.

Promises. Per Var, tasks take effect in program order: readers together, a writer alone. Every task
that was pushed runs, or is skipped because a value it needs failed or was cancelled. The engine
promises nothing about the order of tasks that share no written Var; priority breaks ties only.

Holders are kept as objects in sets, not counted: when Ctrl-C interrupts a transition between any
two lines, the Vars themselves say how to undo or finish it, and "who waits for whom" can be read
from them. MXNet's threaded engine, the source of the queues, keeps counts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from d2lmini.context import Context, cpu

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.engine.failure import Failure

#: `readers` and `queue` of a Var that no task has used: set and deque are made when needed.
_NOBODY: Any = frozenset()
_NO_QUEUE: Any = ()

#: The one lock of the library: guards the queues of all Vars, the engines' lists and the
#: storage's accounts. One lock, because a finalizer may need any of them while its thread holds
#: another; re-entrant, because the garbage collector may run a finalizer while its thread holds
#: this lock. Under `with lock:` there is no loop, only calls of functions that loop: at a loop's
#: backward jump Python 3.12 and 3.13 deliver Ctrl-C as if outside the `with`, and the lock would
#: stay locked.
lock = threading.RLock()


class Var:
    """A tag that tasks read and write; see the module's first page for the fields."""

    __slots__ = (
        "error", "order", "queue", "readers", "serial", "version", "writer", "__weakref__",
    )  # fmt: skip

    #: The number by which traces know the Var; set when a trace first meets the Var.
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
        """True if no pending task reads or writes the Var."""
        return self.writer is None and not self.readers and not self.queue


class Task:
    """One thing to run. Subclasses define the work; the engine sees only the Vars.

    name          the name in messages and traces
    reads         Vars whose values the task needs; if one failed, the task is skipped
    writes        Vars the task changes; a Var also in `reads` is changed in place, a Var only here
                  is overwritten whole
    ctx           the context whose workers run the task
    lane          which of these workers: "compute", or "in" and "out" for copies (see
                  `worker_pools`)
    priority      among ready tasks, higher runs first
    predicted_us  predicted run time; below `engine.inline_below` the task may run on the caller's
                  thread
    site          the user's line that issued the task (taken when the task is queued or fails)
    shared        the Vars the task only reads, each once (set by `prepare`)
    cancelled     the Failure of a task that `cancel_pending` dropped, or None
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
    #: Ctrl-C waits until the task has run on the caller's thread. False if it may never end.
    defers = False
    #: If the task fails while it runs, do the arrays it changes in place keep their values?
    preserves_old = False
    #: True if one call, the last, writes all that the task changes in place and cannot half-fail.
    atomic = False
    #: Versions that the task adds to each Var it writes; 0 if they were counted when recorded.
    version_step = 1
    #: For a task whose parts fail separately: the failure of each Var that it did not write.
    failures: Mapping[Var, Failure] | None = None

    def run(self) -> None:
        """Do the work; runs once, with every Var granted."""
        raise NotImplementedError

    @property
    def multi_step(self) -> bool:
        """For a task that `defers`: True if it changes existing memory by several calls."""
        return True

    def keeps(self, var: Var) -> bool:
        """True if `var`, one of the writes, keeps its old value when the task is skipped. Not if
        `var` is a result, which has no value before it is computed."""
        return var in self.reads

    @property
    def callee(self) -> Any:
        """What is called, where that is known before and many tasks call it: the plan of an op, a
        program."""
        return None

    def footprint(self) -> Callable[[], Any] | None:
        """A function that gives the cost later, when the task and its arrays are gone (for
        traces); None if the cost is unknown."""
        return None

    def prepare(self) -> None:
        """Set `shared` and remove duplicates from the Vars; called when the task is queued."""
        self.seq = 0
        reads, writes = self.reads, self.writes
        n = len(reads)
        if len(writes) == 1 and n < 3:  # nearly every operation: avoid the dictionaries
            if n == 2 and reads[0] is reads[1]:
                reads = reads[:1]
            if writes[0] in reads:
                reads = reads[1:] if reads[0] is writes[0] else reads[:1]
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
        """Block until the devices have computed the arrays that `fn` uses."""
        for var in self.reads:
            if var.order is not None:
                var.order.wait()
        for var in self.writes:
            if var.order is not None:
                var.order.wait(True)


class WaitRequest(Task):
    """A user thread's wait, queued like a task: granted when all earlier tasks on its Var are done.

    The thread claims one Var, as reader or writer, and blocks on the lock `opened`.
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
        """Claim the Var; True if granted at once. A wait writes nothing and counts no version."""
        if claim_var(self, self.var, bool(self.writes)):
            self.waits = 0
        return self.waits == 0


# -- the transitions (the lock is held) ------------------------------------------------------------


def claim(task: Task) -> bool:
    """Claim the Vars of `task`; True when all are granted at once."""
    waits = 0
    for var in task.shared:
        waits += not claim_var(task, var, False)
    for var in task.writes:
        var.version += task.version_step
        waits += not claim_var(task, var, True)
    task.waits = waits
    return waits == 0


def claim_var(task: Task, var: Var, writes: bool) -> bool:
    """Claim one Var for `task`; True when it is granted at once."""
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


def passes_through(task: Task) -> bool:
    """True if `task` can run at once, without queueing: no task holds its Vars, and no value is
    missing. Its writes are then counted."""
    for var in task.reads:
        if var.writer is not None or var.queue or var.error is not None:
            return False
    for var in task.writes:
        if var.writer is not None or var.readers or var.queue or var.error is not None:
            return False
    for var in task.writes:
        var.version += task.version_step
        if var.weight:
            var.filled = True  # type: ignore[attr-defined]
    return True


def is_missing(var: Var, engine: object, order: int | None = None) -> bool:
    """True if `var` has no value for task `order` of `engine`; None: for a task pushed now."""
    return var.error is not None and var.error.blocks(engine, order)


def holds(task: Task, var: Var) -> bool:
    """True if `task` has been granted `var`."""
    return var.writer is task or task in var.readers


def count_missing(task: Task) -> int:
    """The number of Vars of `task` that it has not been granted."""
    return sum(not holds(task, var) for var in (*task.shared, *task.writes))


def release(task: Task) -> list[Task]:
    """Take a finished task from its Vars; returns the tasks that become ready."""
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
    """Take `task` from its Vars, even if it is half claimed or half released; returns the tasks
    that become ready. Idempotent."""
    ready: list[Task] = []
    for var in (*task.shared, *task.writes):
        if task in var.readers:
            var.readers.discard(task)
        if var.writer is task:
            var.writer = None
        if any(waiting is task for waiting, _ in var.queue):
            var.queue = deque(entry for entry in var.queue if entry[0] is not task)
        if var.queue and var.writer is None:
            _pass_on(var, ready)
    return ready


def mend(variables: Iterable[Var]) -> list[Task]:
    """Finish what an interrupted transition left half done on `variables`; returns the tasks there
    that hold all they need. The Vars say who holds and who waits; the counts are made anew."""
    tasks: set[Task] = set()
    for var in variables:
        if var.queue:
            var.queue = deque(entry for entry in var.queue if not holds(entry[0], var))
        tasks.update(
            var.readers, (task for task, _ in var.queue), (var.writer,) if var.writer else ()
        )
    for task in tasks:
        task.waits = count_missing(task)
    for var in variables:
        if var.queue and var.writer is None:
            _pass_on(var, [])
    return [task for task in tasks if task.waits == 0]


def forget(var: Var) -> None:
    """Remove all holders and waiters: a forked child drops the parent's pending work."""
    var.readers, var.writer, var.queue = _NOBODY, None, _NO_QUEUE


def _pass_on(var: Var, ready: list[Task]) -> None:
    """Grant a Var without writer to the next in its queue: one writer, or readers up to one."""
    queue = var.queue
    while queue:
        task, writes = queue[0]
        if writes and var.readers:
            return
        # Granted before the task leaves the queue: `mend` may find it in both, never in neither.
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
    assert var.writer is None, "a reader while a writer holds the Var"
    if var.readers is _NOBODY:
        var.readers = {task}
    else:
        var.readers.add(task)
