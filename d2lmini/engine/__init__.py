"""The dependency engine: runs every operation asynchronously, in an order the program allows.

>>> from d2lmini import engine
>>> a, log = engine.new_var(), []
>>> engine.push(lambda: log.append("write"), writes=[a])
>>> engine.push(lambda: log.append("read"), reads=[a])
>>> engine.waitall()
>>> log
['write', 'read']

Which engine: `D2LMINI_ENGINE=threaded|naive|stepped` (or MXNet's `MXNET_ENGINE_TYPE=NaiveEngine`)
for the process, `with engine.use("naive"):` or `with engine.stepped() as s:` for a scope. To be
read in this order: `core` (the rules), `budget`, `bulk`, `meeting`, `failure`, `road`, `waits`,
`engine`, `threaded` (the threads), `naive`, `stepped_engine` (a virtual clock; then
`stepped_choices`, `stepped_records`, `stepped_view`, `stepped_orders`, `stepped_explore`).

`engine.inline_below` (microseconds) is the dial of inline execution: operations predicted to be
shorter run on the thread that issues them, because handing them to a worker would cost more; 0
turns that off.
"""

from __future__ import annotations

import atexit
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from d2lmini import callsite, forks
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.engine import core
from d2lmini.engine.core import FunctionTask, Task, Var
from d2lmini.engine.engine import Engine, Stats
from d2lmini.engine.failure import OutOfMemoryError
from d2lmini.engine.naive import NaiveEngine
from d2lmini.engine.road import here
from d2lmini.engine.threaded import ThreadedEngine

if TYPE_CHECKING:  # the stepped engine is imported when somebody asks for it
    from d2lmini.engine.stepped_engine import SteppedEngine
    from d2lmini.engine.stepped_explore import Exploration

__all__ = [
    "Engine", "NaiveEngine", "OutOfMemoryError", "Stats", "SteppedEngine", "Task",
    "ThreadedEngine", "Var", "bulk", "cancel_pending", "current", "explain", "explore",
    "limit_pending", "new_var", "prioritized", "push", "set_bulk_size", "stats", "stepped", "use",
    "wait_for_var", "waitall",
]  # fmt: skip


def _make(kind: str, **options: Any) -> Engine:
    if kind == "threaded":
        return ThreadedEngine(**options)
    if kind == "naive":
        return NaiveEngine(**options)
    if kind == "stepped":
        return _stepped_engine()(**options)
    raise ValueError(f"engine {kind!r} is unknown; choose 'threaded', 'naive' or 'stepped'")


def _stepped_engine() -> type[SteppedEngine]:
    from d2lmini.engine.stepped_engine import SteppedEngine

    return SteppedEngine


def _from_environment() -> Engine:
    kind = os.environ.get("D2LMINI_ENGINE")
    if kind is None:
        kind = "naive" if os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine" else "threaded"
    return _make(kind)


#: The engine in use. Ask the functions below rather than this.
current: Engine = _from_environment()


def push(
    fn: Callable[[], object],
    reads: Iterable[Any] = (),
    writes: Iterable[Any] = (),
    ctx: Context | None = None,
    priority: int = 0,
    name: str | None = None,
) -> None:
    """Run `fn()` on a worker once nothing it depends on is pending; returns at once.

    reads, writes: Vars (or NDArrays) that `fn` uses. One in both is changed in place: an error
    kept on it means `fn` is skipped. `fn` may push; it must not wait. `priority`: higher first
    among those that could run. What `fn` raises is raised by waits on what it writes.
    """
    task = FunctionTask(
        fn,
        name or getattr(fn, "__name__", "function"),
        tuple(_var_of(v) for v in reads),
        tuple(_var_of(v) for v in writes),
        ctx,
        priority,
    )
    current.push(task)


def _var_of(value: Any) -> Var:
    var = value if isinstance(value, Var) else getattr(value, "_chunk", None)
    if not isinstance(var, Var):
        raise TypeError(
            f"engine.push: reads and writes take Vars (engine.new_var()) or NDArrays, "
            f"got {type(value).__name__}"
        )
    return var


def new_var() -> Var:
    """A fresh tag to order tasks by."""
    return Var()


def wait_for_var(var: Any) -> None:
    """Block until every write of `var` that was pushed before is done; raises its error."""
    current.wait("wait_for_var", _var_of(var))


def waitall() -> None:
    """Block until everything pushed is done; raises the errors that no wait has raised yet."""
    current.wait_all()


def stats() -> Stats:
    """What was pushed, executed, is pending: see `Stats`."""
    return current.stats()


def limit_pending(nbytes: int | None) -> None:
    """Bound the bytes that may be pending before a push pauses; None: half the free memory."""
    current.limit_pending(nbytes)


def cancel_pending() -> int:
    """Drop every task that has not begun; how many. Waits on their results raise "cancelled"."""
    return current.cancel_pending()


def set_bulk_size(size: int) -> int:
    """Collect up to `size` tasks of this thread into one hand-over; 0 or 1: none. The old size."""
    old, here.bulk_size = here.bulk_size, int(size)
    with current.lock:
        current._flush(())
    return old


@contextmanager
def prioritized(priority: int) -> Iterator[None]:
    """What this thread pushes in the scope has `priority` more: of the tasks that are ready, those
    of higher priority begin first."""
    before, here.priority = here.priority, here.priority + priority
    try:
        yield
    finally:
        here.priority = before


@contextmanager
def bulk(size: int) -> Iterator[None]:
    """A scope with that bulk size."""
    old = set_bulk_size(size)
    try:
        yield
    finally:
        here.bulk_size = old
        set_bulk_size(old)


def explain(value: Any) -> str:
    """Who holds a Var (or NDArray) now and who is in line for it, with the lines they come from."""
    var = _var_of(value)
    with current.lock:
        writer, readers, queue = var.writer, list(var.readers), list(var.queue)
    lines = [f"writing: {_describe(writer)}"] if writer else []
    lines += [f"reading: {_describe(task)}" for task in readers]
    lines += [f"waits to {'write' if w else 'read'}: {_describe(t)}" for t, w in queue]
    return "\n".join(lines) or "idle: nothing pending"


def _describe(task: Task) -> str:
    waits = f", waiting for {task.waits} more" if task.waits else ""
    waits = ", more may join it" if task.open else waits
    return f"{task.name} (issued at {callsite.describe(task.site)}{waits})"


@contextmanager
def use(kind: str, **options: Any) -> Iterator[Engine]:
    """Another engine for this process within the scope: `use("naive")`, `use("threaded",
    workers=4, inline_below=0)`. Both are idle when the change is made."""
    global current
    fresh, outer = _make(kind, **options), current
    outer.wait_idle("engine.use")
    current = fresh
    try:
        yield fresh
    finally:
        try:
            fresh.wait_idle("engine.use")
        finally:
            current = outer
            with core.lock:
                fresh.reports.move_to(outer.reports)
            fresh.stop()


def stepped(**options: Any) -> AbstractContextManager[SteppedEngine]:
    """A scope with an engine that waits to be stepped: `use("stepped", ...)`, where 1000 steps can
    be taken back; see `SteppedEngine` for the options."""
    return use("stepped", **{"remember": 1000, **options})  # type: ignore[return-value]


def explore(
    program: Callable[[], object], most: int = 1000, reduced: bool = True, seeds: int = 10
) -> Exploration:
    """Run `program` in many legal orders: do they all give the values that it gives line by line?

    program   takes nothing, pushes, returns arrays or other values; it is run once for each order,
              so it has to begin anew each time (and to seed what it draws)
    reduced   False: in every legal order (ValueError if there are more than `most`); else in few,
              in which every two operations that nothing orders come in both orders
    seeds     and in so many drawn schedules, in which operations begin and end between the pushes

    The `Exploration` says in how many, and if one gives other values, which two operations are to
    blame, and which Var. See `stepped_explore`.
    """
    from d2lmini.engine.stepped_explore import explore

    return explore(use, program, most, reduced, seeds)


# -- attributes of this module that are more than values -------------------------------------------


class _Module(types.ModuleType):
    @property
    def inline_below(self) -> float:
        """Operations predicted to take fewer microseconds run on the caller's thread."""
        return current.inline_below

    @inline_below.setter
    def inline_below(self, microseconds: float) -> None:
        current.inline_below = float(microseconds)

    @property
    def SteppedEngine(self) -> type[SteppedEngine]:
        return _stepped_engine()


sys.modules[__name__].__class__ = _Module


# -- the end of the process, and forks -------------------------------------------------------------


def _drain_at_exit() -> None:
    """Finish what was pushed, within a deadline; tell what did not end or failed unseen. Where
    Ctrl-C ended the program, its user does not want to wait. Then let the workers end: later they
    could not, and whoever pushes or waits in a finalizer does the work."""
    deadline_s = float(os.environ.get("D2LMINI_EXIT_DEADLINE_S", "10"))
    try:
        if _ended_by_interrupt() and current.stats().pending:
            _tell_leftovers("when Ctrl-C ended the program")
        elif not current.wait_all("exit", deadline_s):
            _tell_leftovers(f"{deadline_s:g} s after the program ended")
    except MXNetError as error:
        print(f"d2lmini: an error that no wait has raised:\n{error}", file=sys.stderr)
    except KeyboardInterrupt:
        _tell_leftovers("when Ctrl-C ended the wait for them")
    for engine in list(Engine.alive):
        engine.end()


def _ended_by_interrupt() -> bool:
    """Did the program end because nobody caught a KeyboardInterrupt?"""
    kind = getattr(sys, "last_type", None)  # at a prompt that was only the last error
    return kind is not None and issubclass(kind, KeyboardInterrupt) and not hasattr(sys, "ps1")


def _tell_leftovers(when: str) -> None:
    left = current.stats().pending
    current.cancel_pending()
    print(
        f"d2lmini: {left} operations were still pending {when}; they are dropped", file=sys.stderr
    )
    current.unwind()


def _before_fork() -> None:
    forks.hold()
    core.lock.acquire()


def _after_fork_in_parent() -> None:
    core.lock.release()
    forks.let_go()


def _after_fork_in_child() -> None:
    forks.begin_anew()
    core.lock._at_fork_reinit()  # type: ignore[attr-defined]
    here.task = here.pool = None
    for engine in list(Engine.alive):
        engine.after_fork()


atexit.register(_drain_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
