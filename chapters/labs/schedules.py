"""Threads whose schedule is chosen: the `threading`, `queue` and `time` of the chapter Case files.

    def program():
        event = threading.Event()
        threading.Thread(target=event.set, name="other").start()
        event.wait()
        return "done"

    explore(program, schedules=50)

The threads are real ones, but only one runs at a time: before each operation on a lock, an event,
a queue or a thread the run draws which thread goes on. So a run can be repeated by its seed, and if
all threads are blocked the run ends. Time is virtual: a sleep or a timeout is over when no other
thread can run, the shortest first. Of the schedules that fail, the result tells the one with the
fewest interruptions.
"""

from __future__ import annotations

import ctypes
import linecache
import queue as real_queue
import random
import re
import sys
import threading as real_threading
import time as real_time
from collections import Counter, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_STEPS, _PATIENCE_S = 5000, 1.5
_here = real_threading.local()


class _Ended(BaseException):
    """Ends the threads of a run that is over."""


class _Task:
    """A thread of a run: what it waits to do, where, and when it may."""

    def __init__(self, run: _Run, name: str):
        self.run, self.name = run, name
        self.baton = real_threading.Semaphore(0)
        self.holds: list[str] = []
        self.what, self.line, self.ready = "begins", "", _always
        self.until: float | None = None
        self.timed_out, self.over = False, False
        self.thread: real_threading.Thread


def _always() -> bool:
    return True


class _Run:
    """One schedule, drawn with `seed`."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        #: How often a thread that could go on is interrupted.
        self.eagerness = self.draw.choice([0.05, 0.2, 0.6])
        self.tasks: list[_Task] = []
        self.names: Counter[str] = Counter()
        self.story: list[str] = []
        self.ended = real_threading.Event()
        self.now, self.interruptions, self.failure, self.why = 0.0, 0, "", ""
        self.outcome: object = None
        self.error: BaseException | None = None

    def start(self, name: str, call: Callable[[], object]) -> _Task:
        task = _Task(self, name)
        self.tasks.append(task)

        def body() -> None:
            _here.task = task
            try:
                task.baton.acquire()
                if not self.ended.is_set():
                    self.note(task)
                    result = call()
                    if task is self.tasks[0]:
                        self.outcome = result
                        self.ended.set()
            except _Ended:
                pass
            except BaseException as error:
                self.error = error
                self.fail("exception", f"{task.name}: {type(error).__name__}: {error}")
            task.over = True
            if not self.ended.is_set():
                self.go_on(task)

        task.thread = real_threading.Thread(target=body, daemon=True)
        task.thread.start()
        return task

    def fail(self, kind: str, why: str) -> None:
        if not self.ended.is_set():
            self.failure, self.why = kind, why
            self.ended.set()

    def go_on(self, last: _Task) -> None:
        """Hand the baton to a thread that can run."""
        free = [task for task in self.tasks if not task.over and task.ready()]
        late = [task for task in self.tasks if not task.over and task.until is not None]
        if not free and late:
            first = min(late, key=lambda task: task.until or 0)
            self.now, first.timed_out = first.until or 0, True
            free = [first]
        if not free:
            blocked = [task for task in self.tasks if not task.over]
            lines = [
                f"  {task.name:<9} {task.what:<26} {task.line}"
                + f"   and holds {', '.join(task.holds)}" * bool(task.holds)
                for task in blocked
            ]
            self.fail(
                "deadlock", "\n".join(["all threads are blocked. The next step of each:", *lines])
            )
        elif len(self.story) > _STEPS:
            self.fail("no end", f"no end after {_STEPS} steps")
        elif last in free and self.draw.random() > self.eagerness:
            last.baton.release()
        else:
            chosen = self.draw.choice(free)
            self.interruptions += last in free and chosen is not last
            chosen.baton.release()

    def note(self, task: _Task) -> None:
        self.story.append(f"  {task.name:<9} {task.what:<26} {task.line}".rstrip())

    def end_threads(self) -> None:
        for task in self.tasks:
            task.baton.release()
        for task in self.tasks:
            task.thread.join(0.2)
            if task.thread.is_alive():  # it computes without end
                ident = ctypes.c_ulong(task.thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_Ended))


def _step(
    what: str,
    ready: Callable[[], object] = _always,
    block: bool = True,
    timeout: float | None = None,
    then: str = "",
) -> bool:
    """Let the run choose who goes on; return when it is this thread's turn and it is `ready`. False
    if a timeout has ended instead, or if it does not `block` and is not ready. `then` is what the
    story says of it, if not `what`."""
    task = _task()
    if task.run.ended.is_set():
        raise _Ended
    task.what, task.line = what, _find_line()
    timed = block and timeout is not None and timeout >= 0
    task.ready, task.timed_out = ready if block else _always, False
    task.until = task.run.now + timeout if timed and timeout is not None else None
    task.run.go_on(task)
    task.baton.acquire()
    if task.run.ended.is_set():
        raise _Ended
    task.until, task.what = None, then or what
    task.run.note(task)
    return not task.timed_out and bool(ready())


def _task() -> _Task:
    task = getattr(_here, "task", None)
    if task is None:
        raise RuntimeError("these threads run within explore(program) only")
    return task


def _find_line() -> str:
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    source = source if len(source) <= 48 else f"{source[:45]}..."
    return f"{frame.f_code.co_name}: {source}"


def _name(kind: str) -> str:
    """`lock` of the line `self.lock = threading.Condition()`, or the kind and a number."""
    task = _task()
    found = re.search(rf"(\w+) = (?:threading|queue)\.{kind}\(", _find_line())
    task.run.names[kind] += 1
    return found[1] if found else f"{kind} {task.run.names[kind]}"


# -- what a program uses ---------------------------------------------------------------------------


class _Lock:
    again = False

    def __init__(self) -> None:
        self.name, self.count = _name(type(self).__name__), 0
        self.owner: Any = None

    def _is_free(self) -> bool:
        return self.owner is None

    def _take(self, count: int) -> None:
        self.owner, self.count = _task(), count
        self.owner.holds.append(self.name)

    def _give(self) -> None:
        self.owner.holds.remove(self.name)
        self.owner = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.again and self.owner is _task():
            self.count += 1
            return True
        got = _step(f"acquires {self.name}", self._is_free, blocking, timeout)
        if got:
            self._take(1)
        return got

    def release(self) -> None:
        if _task().run.ended.is_set():
            return
        if self.owner is None:
            raise RuntimeError("release of a lock that no thread holds")
        self.count -= 1
        if self.count == 0:
            self._give()

    def locked(self) -> bool:
        return self.owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Lock(_Lock):
    """threading.Lock"""


class RLock(_Lock):
    """threading.RLock"""

    again = True


class Condition(_Lock):
    """threading.Condition with a lock of its own."""

    again = True

    def __init__(self, lock: None = None) -> None:
        super().__init__()
        self.sleepers: list[list[bool]] = []

    def wait(self, timeout: float | None = None) -> bool:
        if self.owner is not _task():
            raise RuntimeError("wait on a condition whose lock this thread does not hold")
        woken, count = [False], self.count
        self.sleepers.append(woken)
        self._give()
        got = _step(
            f"sleeps on {self.name}",
            lambda: woken[0] and self._is_free(),
            timeout=timeout,
            then=f"wakes, acquires {self.name}",
        )
        if not got:
            _step(f"acquires {self.name}", self._is_free)
        self._take(count)
        return got

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        result = predicate()
        while not result:
            in_time = self.wait(timeout)
            result = predicate()
            if not in_time:
                break
        return result

    def notify(self, n: int = 1) -> None:
        if self.owner is not _task():
            raise RuntimeError("notify on a condition whose lock this thread does not hold")
        for woken in self.sleepers[:n]:
            woken[0] = True
        del self.sleepers[:n]

    def notify_all(self) -> None:
        self.notify(len(self.sleepers))


class Event:
    """threading.Event"""

    def __init__(self) -> None:
        self.name, self.flag = _name("Event"), False

    def is_set(self) -> bool:
        _step(f"looks at {self.name}")
        return self.flag

    def set(self) -> None:
        _step(f"sets {self.name}")
        self.flag = True

    def clear(self) -> None:
        _step(f"clears {self.name}")
        self.flag = False

    def wait(self, timeout: float | None = None) -> bool:
        return _step(f"waits for {self.name}", lambda: self.flag, timeout=timeout)


class Semaphore:
    """threading.Semaphore"""

    def __init__(self, value: int = 1):
        self.name, self.value = _name("Semaphore"), value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        got = _step(f"acquires {self.name}", lambda: self.value > 0, blocking, timeout)
        self.value -= got
        return got

    def release(self, n: int = 1) -> None:
        if not _task().run.ended.is_set():
            _step(f"releases {self.name}")
            self.value += n

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Queue:
    """queue.Queue"""

    def __init__(self, maxsize: int = 0):
        self.name, self.most = _name(type(self).__name__), maxsize
        self.items: deque[Any] = deque()
        self.unfinished = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        def has_place() -> bool:
            return not 0 < self.most <= len(self.items)

        if not _step(f"puts into {self.name}", has_place, block, timeout):
            raise real_queue.Full
        self.items.append(item)
        self.unfinished += 1

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not _step(f"gets from {self.name}", lambda: self.items, block, timeout):
            raise real_queue.Empty
        return self.items.popleft()

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def task_done(self) -> None:
        _step(f"counts down in {self.name}")
        if self.unfinished <= 0:
            raise ValueError("task_done() called too many times")
        self.unfinished -= 1

    def join(self) -> None:
        _step(f"joins {self.name}", lambda: self.unfinished == 0)

    def qsize(self) -> int:
        _step(f"looks at {self.name}")
        return len(self.items)

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return 0 < self.most <= self.qsize()


class SimpleQueue(Queue):
    """queue.SimpleQueue"""


class Thread:
    """threading.Thread"""

    def __init__(
        self, group: None = None, target: Any = None, name: str | None = None,
        args: tuple = (), kwargs: dict | None = None, *, daemon: bool | None = None,
    ):  # fmt: skip
        run = _task().run
        run.names["thread"] += 1
        self.name, self.daemon = name or f"thread {run.names['thread']}", daemon
        self.call = lambda: target(*args, **(kwargs or {}))
        self.task: _Task | None = None

    def run(self) -> None:
        self.call()

    def start(self) -> None:
        _step(f"starts {self.name}")
        self.task = _task().run.start(self.name, self.run)

    def is_alive(self) -> bool:
        return self.task is not None and not self.task.over

    def join(self, timeout: float | None = None) -> None:
        _step(f"joins {self.name}", lambda: not self.is_alive(), timeout=timeout)


def sleep(seconds: float) -> None:
    """time.sleep: 0 lets other threads run, more lasts until no other thread can."""
    if seconds > 0:
        _step("sleeps", lambda: False, timeout=seconds)
    else:
        _step("yields")


threading = SimpleNamespace(
    Thread=Thread, Lock=Lock, RLock=RLock, Condition=Condition, Event=Event, Semaphore=Semaphore,
    BoundedSemaphore=Semaphore, current_thread=lambda: _task(), get_ident=lambda: id(_task()),
)  # fmt: skip
queue = SimpleNamespace(
    Queue=Queue, SimpleQueue=SimpleQueue, Full=real_queue.Full, Empty=real_queue.Empty
)
time = SimpleNamespace(
    sleep=sleep, monotonic=real_time.monotonic, perf_counter=real_time.perf_counter
)


# -- many schedules --------------------------------------------------------------------------------


class Explored:
    """outcomes   what the program returned, or the kind of its failure -> in how many schedules
    errors     the exceptions of all schedules
    failure    the kind of the failure with the fewest interruptions, "" if no schedule failed;
               `message` says more, `story` has its steps"""

    def __init__(self) -> None:
        self.outcomes: Counter[Any] = Counter()
        self.failure, self.message, self.story = "", "", ""
        self.errors: list[BaseException] = []

    def __repr__(self) -> str:
        if not self.failure:
            return f"no failure in {sum(self.outcomes.values())} schedules"
        return f"{self.failure}: {self.message}\nThe steps before:\n{self.story}"


def load_test(program: Callable[[], object], runs: int = 200) -> None:
    """Print the outcomes of a program under random schedules, as a loaded machine makes them."""
    for outcome, count in explore(program, schedules=runs).outcomes.most_common():
        print(f"{count:3} of {runs}: {outcome}")


def explore(program: Callable[[], object], schedules: int = 200, seed: int = 0) -> Explored:
    """Run the program under so many random schedules; one that does not end is the last."""
    found, fewest = Explored(), (sys.maxsize, 0)
    for number in range(schedules):
        run = _Run(seed * 100_003 + number)
        run.start("main", program).baton.release()
        steps = -1
        while not run.ended.wait(_PATIENCE_S):
            if len(run.story) == steps:
                run.fail("no step", f"no thread took a step for {_PATIENCE_S:g} s")
            steps = len(run.story)
        run.end_threads()
        found.outcomes[run.failure or run.outcome] += 1
        size = (run.interruptions, len(run.story))
        if run.failure and size < fewest:
            fewest = size
            found.failure, found.message = run.failure, run.why
            found.story = "\n".join(run.story)
        found.errors += [run.error] if run.error else []
        if run.failure in ("no step", "no end"):
            break
    return found
