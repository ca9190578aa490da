"""The dependency engine: runs every operation asynchronously, in an order the program allows.

>>> from d2lmini import engine
>>> a, log = engine.new_var(), []
>>> engine.push(lambda: log.append("write"), writes=[a])
>>> engine.push(lambda: log.append("read"), reads=[a])
>>> engine.waitall()
>>> log
['write', 'read']

Choose the engine with `D2LMINI_ENGINE=threaded|naive|stepped` (or MXNet's
`MXNET_ENGINE_TYPE=NaiveEngine`) for the process, `with engine.use("naive"):` or
`with engine.stepped() as s:` for a scope. Reading order: `core` (the rules), `budget`, `failure`,
`scheduler` (the life of a task), `engine` (waits, counts, the serial engine), `threaded` (the
threads), `thread_clock` (CPU time), `simulation` (a virtual clock), `stepped_engine` (real tasks on
it), `simulation` (recorded operations on it), `order` (dependencies of recorded operations),
`pending` (what is queued, and how it is cancelled).

`engine.inline_below` (microseconds) controls inline execution: operations predicted to be shorter
run on the thread that issues them, because handing them to a worker would cost more; 0 turns
inline execution off.
"""

from __future__ import annotations

import atexit
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from d2lmini.base import MXNetError, environment, forks, instrument
from d2lmini.base.scopes import Undo, contextmanager, scope, swap
from d2lmini.context import Context
from d2lmini.engine import core, handlers, pending, signals
from d2lmini.engine.core import FunctionTask, Task, Var
from d2lmini.engine.engine import Engine, NaiveEngine, Stats
from d2lmini.engine.failure import OutOfMemoryError
from d2lmini.engine.scheduler import thread_state
from d2lmini.engine.stepped_engine import SteppedEngine
from d2lmini.engine.threaded import ThreadedEngine

__all__ = [
    "Engine", "NaiveEngine", "OutOfMemoryError", "Stats", "SteppedEngine", "Task",
    "ThreadedEngine", "Var", "bulk", "cancel_pending", "current", "explain",
    "limit_pending", "new_var", "prioritized", "push", "set_bulk_size", "stats", "stepped", "use",
    "wait_for_var", "waitall",
]  # fmt: skip


_KINDS = {"threaded": ThreadedEngine, "naive": NaiveEngine, "stepped": SteppedEngine}


def _make(kind: str, **options: Any) -> Engine:
    if kind not in _KINDS:
        raise ValueError(f"engine {kind!r} is unknown; choose 'threaded', 'naive' or 'stepped'")
    return _KINDS[kind](**options)


def _from_environment() -> Engine:
    naive = environment.read("MXNET_ENGINE_TYPE") == "NaiveEngine"
    return _make(environment.read("D2LMINI_ENGINE") or ("naive" if naive else "threaded"))


#: The engine in use. Prefer the functions below.
current: Engine = _from_environment()


def push(
    fn: Callable[[], object], reads: Iterable[Any] = (), writes: Iterable[Any] = (),
    ctx: Context | None = None, priority: int = 0, name: str | None = None,
) -> None:  # fmt: skip
    """Run `fn()` on a worker once no task it depends on is pending; returns at once.

    reads, writes: Vars (or NDArrays) that `fn` uses. A Var in both is changed in place: if it has
    an error, `fn` is skipped. `fn` may push; it must not wait. `priority`: among ready tasks,
    higher runs first. A wait on a written Var raises the exception of `fn`.
    """
    read = tuple(_var_of(v) for v in reads)
    written = tuple(_var_of(v, written=True) for v in writes)
    name = name or getattr(fn, "__name__", "function")
    current.push(FunctionTask(fn, name, read, written, ctx, priority))


def _var_of(value: Any, written: bool = False) -> Var:
    var = value if isinstance(value, Var) else getattr(value, "_chunk", None)
    if not isinstance(var, Var):
        raise TypeError(
            f"engine.push: reads and writes take Vars (engine.new_var()) or NDArrays, "
            f"got {type(value).__name__}"
        )
    if written and var is not value:
        value._note_write()
    return var


def new_var() -> Var:
    """A fresh tag for ordering tasks."""
    return Var()


def wait_for_var(var: Any) -> None:
    """Block until every write of `var` pushed so far is done; raises its error."""
    current.wait("wait_for_var", _var_of(var))


def waitall() -> None:
    """Block until every pushed task is done; raises the errors that no wait has raised yet."""
    current.wait_all()


def stats() -> Stats:
    """Counts of pushed, executed and pending operations: see `Stats`. A line that asks again and
    again until nothing is pending waits; traces record that as a wait of kind "stats"."""
    counts = current.stats()
    if instrument.listeners or current.virtual:
        current.note_poll("stats", None, counts.pushed, counts.pending > 0)
    return counts


def limit_pending(nbytes: int | None) -> None:
    """Bound the bytes that may be pending before a push pauses; None: half the free memory."""
    current.limit_pending(nbytes)


def cancel_pending() -> int:
    """Drop every task that has not begun; returns how many. Waits on the results raise
    "cancelled" at once.

    A running task cannot be stopped. If it is a function given to `engine.push`, which may never
    end, one line on stderr names the function, and another worker takes the place of its worker.
    """
    count = current.cancel_pending()
    for task in pending.find_unstoppable(current):
        print(
            f"d2lmini: {pending.describe(task)} is running and cannot be stopped; waitall() waits "
            "for it",
            file=sys.stderr,
        )
    return count


def set_bulk_size(size: int) -> int:
    """MXNet's hint to hand up to `size` operations to a worker at once; returns the old size. Here
    it changes nothing: small operations run where they are issued, so none is handed over."""
    old, thread_state.bulk_size = thread_state.bulk_size, int(size)
    return old


@scope
def prioritized(undo: Undo, priority: int) -> None:
    """Add `priority` to every task that this thread pushes in the scope; ready tasks of higher
    priority begin first."""
    swap(undo, thread_state, "priority", thread_state.priority + priority)


@scope
def bulk(undo: Undo, size: int) -> None:
    """A scope with bulk size `size`; see `set_bulk_size`."""
    undo.append(partial(set_bulk_size, thread_state.bulk_size))
    set_bulk_size(size)


def explain(value: Any) -> str:
    """The tasks that hold or wait for a Var (or NDArray), each with the line that issued it."""
    var = _var_of(value)
    if instrument.listeners or current.virtual:
        current.note_poll("explain", var, current.stats().pushed, not var.idle)
    return pending.explain(var)


@contextmanager
def use(kind: str, **options: Any) -> Iterator[Engine]:
    """Use another engine in the scope, for the whole process: `use("naive")`, `use("threaded",
    workers=4, inline_below=0)`. Waits until both engines are idle at each change. If Ctrl-C ends
    the scope, its engine drops the tasks that have not begun."""
    fresh, outer = _make(kind, **options), current
    outer.wait_idle("engine.use")
    with _replacing(outer, fresh):
        try:
            yield fresh
        except KeyboardInterrupt:
            fresh.cancel_pending()
            raise
        finally:
            fresh.wait_idle("engine.use")


@scope
def _replacing(undo: Undo, outer: Engine, fresh: Engine) -> None:
    def take_over() -> None:
        with core.lock:
            fresh.reports.move_to(outer.reports)

    undo += [fresh.stop, take_over]
    swap(undo, sys.modules[__name__], "current", fresh)


def stepped(**options: Any) -> AbstractContextManager[SteppedEngine]:
    """A scope with a stepped engine: `use("stepped", ...)`; see `SteppedEngine` for the options."""
    return use("stepped", **options)  # type: ignore[return-value]


# -- computed attributes of this module ------------------------------------------------------------


class _Module(types.ModuleType):
    @property
    def inline_below(self) -> float:
        """Operations predicted to take fewer microseconds run on the caller's thread."""
        return current.inline_below

    @inline_below.setter
    def inline_below(self, microseconds: float) -> None:
        current.inline_below = float(microseconds)


sys.modules[__name__].__class__ = _Module


# -- the end of the process, and forks -------------------------------------------------------------


_EXIT_DEADLINE_S = environment.read("D2LMINI_EXIT_DEADLINE_S")


def _drain_at_exit() -> None:
    """Finish the pushed tasks, within a deadline; print the tasks that did not end and the errors
    that no wait raised. After Ctrl-C ended the program, do not wait. Then end the workers, which
    could not end later; from then on a finalizer that pushes or waits runs its tasks itself."""
    try:
        if _was_interrupted() and current.stats().pending:
            _tell_leftovers("when Ctrl-C ended the program")
        elif not current.wait_all("exit", _EXIT_DEADLINE_S):
            _tell_leftovers(f"{_EXIT_DEADLINE_S:g} s after the program ended")
    except MXNetError as error:
        print(f"d2lmini: an error that no wait has raised:\n{error}", file=sys.stderr)
    except KeyboardInterrupt:
        _tell_leftovers("when Ctrl-C ended the wait for them")
    for engine in list(Engine.alive):
        engine.end()


def _was_interrupted() -> bool:
    """True if an uncaught KeyboardInterrupt ended the program."""
    kind = getattr(sys, "last_type", None)  # at a prompt this is only the last error
    return kind is not None and issubclass(kind, KeyboardInterrupt) and not hasattr(sys, "ps1")


def _tell_leftovers(when: str) -> None:
    left = current.stats().pending
    current.cancel_pending()
    print(
        f"d2lmini: {left} operations were still pending {when}; they are dropped", file=sys.stderr
    )
    current.unwind()


_held: dict[int, signals.Held | None] = {}  # by the thread that forks


def _before_fork() -> None:
    _held[threading.get_ident()] = signals.hold()  # Python ignores an exception in these functions
    forks.hold(core.lock)


def _after_fork_in_parent() -> None:
    forks.release()
    signals.release(_held.pop(threading.get_ident(), None))


def _after_fork_in_child() -> None:
    _held.clear()
    forks.begin_anew()
    core.lock._at_fork_reinit()  # type: ignore[attr-defined]
    thread_state.task = thread_state.pool = None
    for engine in list(Engine.alive):
        engine.after_fork()


atexit.register(_drain_at_exit)
forks.at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
