"""What the chapter Inside the engine imports: an engine with a given order, and checks."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from labs.engine_check import check_engine
from labs.grading import CheckFailed, CheckPassed


class InOrder:
    """An engine without threads: runs the pushed functions in a given order at `waitall`."""

    new_var = object

    def __init__(self, order: Sequence[int]):
        self.order, self.jobs = order, list[Callable[[], object]]()

    def push(self, fn: Callable[[], object], reads: Any = (), writes: Any = ()) -> None:
        self.jobs.append(fn)

    def waitall(self) -> None:
        for number in self.order:
            self.jobs[number]()


def note_order(program: Callable[[Any], Any], engine: Any) -> tuple[tuple[int, ...], Any]:
    """The order in which the tasks of `program(engine)` ran, and what the program returned."""
    order: list[int] = []
    push, pushed = engine.push, 0

    def note(fn: Callable[[], object], reads: Any = (), writes: Any = ()) -> None:
        nonlocal pushed
        number, pushed = pushed, pushed + 1
        push(lambda: (order.append(number), fn()), reads, writes)

    engine.push = note
    values = program(engine)
    return tuple(order), values


def show(var: Any, moment: str) -> None:
    """Print the holders and the queue of a Var whose tasks are words."""
    queue = [f"{task} to {'write' if writes else 'read'}" for task, writes in var.queue]
    held, queued = (", ".join(tasks) or "none" for tasks in (var.holders, queue))
    print(f"{moment:8} held by {held}; in the queue: {queued}")


def mixed(first: list[str], second: list[str]) -> Iterator[list[str]]:
    """Each way to mix two lists, both in their own order."""
    if not (first and second):
        yield first + second
        return
    yield from ([first[0], *rest] for rest in mixed(first[1:], second))
    yield from ([second[0], *rest] for rest in mixed(first, second[1:]))


def ask(engine: Any, **options: Any) -> str:
    """What `check_engine` says of an engine: "yes: ..." or "NO (hint): ..."."""
    try:
        return f"yes: {check_engine(engine, **options)}"
    except CheckFailed as failed:
        return f"NO ({failed.hint}): {failed}"


# -- exercise 7 ------------------------------------------------------------------------------------

_LINE_HINTS = {
    "class": "give the class itself; it needs the methods claim(task, writes) and leave(task)",
    "nothing": "{call} returned {got}. claim returns True or False, leave returns a list of tasks",
    "room": "{call} granted a writer the Var, which readers hold: a writer holds it alone",
    "alone": "{call} granted the Var while a writer holds it: a writer holds it alone",
    "jumps": "{call} granted a reader the Var while a writer is before it in the queue: the "
    "reader reads an old value",
    "readers": "{call} made a reader wait. The holders only read, and no task is before it",
    "free": "{call} made a task wait, and no task holds the Var",
    "asleep": "{call} granted {got}; the Var is free for {expected}: look at the queue",
    "one by one": "{call} granted {got}; {expected} are readers at the head of the queue: grant "
    "the Var to all readers up to the next writer",
    "beside": "{call} granted {got}: now a writer does not hold the Var alone",
    "overtakes": "{call} granted {got}; it should be {expected}: the queue is first in, first out",
    "endless": "{call} never returns: does its loop take the tasks out of the queue?",
    "error": "{call} raised {got}",
    "twice": "{call} granted {got}: this task does not wait any more. Take it out of the queue",
}


class _Model:
    """The rule, in other words than the chapter's: one list of all tasks that have not left."""

    def __init__(self) -> None:
        self.tasks: list[tuple[int, bool]] = []
        self.holders: set[int] = set()

    def update(self) -> set[int]:
        """The tasks that hold the Var now and did not before."""
        writers = [at for at, (_, writes) in enumerate(self.tasks) if writes]
        until = max(1, writers[0]) if writers else len(self.tasks)
        before, self.holders = self.holders, {task for task, _ in self.tasks[:until]}
        return self.holders - before

    def writes(self, task: int) -> bool:
        return dict(self.tasks)[task]


def check_line(answer: Any) -> CheckPassed:
    """Exercise 7: a Var as a class with `claim` and `leave`, in random sequences of calls."""
    if not (isinstance(answer, type) and hasattr(answer, "claim") and hasattr(answer, "leave")):
        raise CheckFailed("class", _LINE_HINTS["class"])
    found: list[tuple[int, int, CheckFailed]] = []
    for number in range(300):
        calls: list[str] = []
        try:
            _try_line(answer(), calls)
        except CheckFailed as wrong:
            found.append((len(calls), number, wrong))
    if found:
        raise min(found)[-1]  # the shortest sequence
    line, other = answer(), answer()
    line.claim(1, False)
    line.claim(2, True)
    if not other.claim(3, True):
        text = "two objects share their tasks: a list of the class belongs to all of its objects"
        raise CheckFailed("shared", f"{text}. Make the lists in __init__")
    return CheckPassed(
        "readers together, a writer alone, first in, first out: in 300 random sequences"
    )


def _try_line(line: Any, calls: list[str]) -> None:
    model = _Model()

    def wrong(hint: str, got: object = None, expected: object = None) -> CheckFailed:
        text = _LINE_HINTS[hint].format(call=calls[-1], got=got, expected=expected)
        stop = "" if text.endswith("?") else "."
        return CheckFailed(hint, f"{text}{stop} The calls: {', '.join(calls)}")

    for task in range(1, 8):
        while model.holders and random.random() < 0.4:
            _leave(line, random.choice(sorted(model.holders)), model, calls, wrong)
        writes = random.random() < 0.4
        calls.append(f"claim({task}, writes={writes})")
        model.tasks.append((task, writes))
        held = set(model.holders)
        expected = bool(model.update())
        got = _within_steps(lambda: line.claim(task, writes), wrong)  # noqa: B023
        if got is None:
            raise wrong("nothing", got)
        if got and not expected:
            writer = any(map(model.writes, held))
            raise wrong("alone" if writer else "room" if writes else "jumps")
        if expected and not got:
            raise wrong("readers" if held else "free")
    while model.holders:
        _leave(line, min(model.holders), model, calls, wrong)


def _leave(
    line: Any, task: int, model: _Model, calls: list[str], wrong: Callable[..., CheckFailed]
) -> None:
    calls.append(f"leave({task})")
    model.tasks = [(other, writes) for other, writes in model.tasks if other != task]
    expected = model.update()
    got = _within_steps(lambda: line.leave(task), wrong)
    if not isinstance(got, Iterable):
        raise wrong("nothing", got)
    got = _within_steps(lambda: list(islice(got, 100)), wrong)
    if not all(isinstance(other, int) for other in got):
        raise wrong("nothing", got)
    if set(got) == expected and len(got) == len(expected):
        return
    held = model.holders - expected
    waiting = {other for other, _ in model.tasks} - held
    if not set(got) <= waiting or len(set(got)) < len(got):
        raise wrong("twice", got)
    if not got:
        raise wrong("asleep", got, sorted(expected))
    if set(got) < expected:
        raise wrong("one by one", got, sorted(expected))
    beside = held | set(got)
    hint = "beside" if len(beside) > 1 and any(map(model.writes, beside)) else "overtakes"
    raise wrong(hint, got, sorted(expected))


def _within_steps(call: Callable[[], Any], wrong: Callable[..., CheckFailed]) -> Any:
    """Call an answer; CheckFailed if it goes through too many lines."""
    left = 5_000

    def count_lines(frame: object, event: str, arg: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise wrong("endless")
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        return call()
    except CheckFailed:
        raise
    except Exception as error:
        raise wrong("error", repr(error)) from error
    finally:
        sys.settrace(before)


# -- exercise 8 ------------------------------------------------------------------------------------

#: What takes longer does not come.
_PATIENCE_S = 1.5

_BOUND_HINTS = {
    "engine": "bounded(engine, most) returns an engine: {got} has no push",
    "unbounded": "{n} tasks were pending; the bound is {most}: a push has to wait",
    "off by one": "{n} tasks were pending; the bound is {most}: at which count does a push wait?",
    "once": "a push woke up while {most} tasks were pending, and pushed: test the condition again "
    "after each wake-up, in a loop",
    "raises": "at {n} pending tasks a push raised {got}: it has to wait, and then to push",
    "timid": "a push waited while {n} tasks were pending; {most} are allowed",
    "returns": "{n} pushes returned, and the engine has {got} tasks: at the bound a push has to "
    "wait until it can push its task; it must not return without",
    "drains": "at the bound, a push waited until all tasks were done. One place is enough: wait "
    "until fewer than {most} tasks are pending",
    "stuck": "a task has ended, and the push that waits never returns: does it hold the lock while "
    "it sleeps, or does nothing wake it?",
    "lost": "{n} of {all} tasks ran: a push at the bound waits, and then pushes its task",
    "forgets": "a task arrived without its reads and writes: pass them on",
}


class ByHand:
    """An engine that runs its oldest task when it is told to; otherwise like the chapter's."""

    new_var = object

    def __init__(self) -> None:
        self.lock, self.pending = threading.Condition(), 0
        self.ready: deque[Callable[[], object]] = deque()
        self.touched: list[list[Any]] = []

    def push(self, fn: Callable[[], object], reads: Any = (), writes: Any = ()) -> None:
        with self.lock:
            self.pending += 1
            self.ready.append(fn)
            self.touched.append([*reads, *writes])
            self.lock.notify_all()

    def run_one(self) -> None:
        self.ready.popleft()()
        with self.lock:
            self.pending -= 1
            self.lock.notify_all()

    def waitall(self) -> None:
        with self.lock:
            self.lock.wait_for(lambda: self.pending == 0)


def check_bounded(answer: Callable[..., Any]) -> CheckPassed:
    """Exercise 8: a push waits while a number of tasks, drawn at random, are pending."""
    most = random.randint(4, 12)
    engine = ByHand()
    made = answer(engine, most)
    if not callable(getattr(made, "push", None)):
        raise CheckFailed("engine", _BOUND_HINTS["engine"].format(got=repr(made)))
    try:
        _try_bound(engine, made, most)
    finally:
        engine.pending = 0  # a thread that waits for it in a loop ends
    return CheckPassed(f"at most {most} tasks are pending, and one that ends makes a place")


def _try_bound(engine: ByHand, made: Any, most: int) -> None:
    total, var = 2 * most, engine.new_var()
    pushed, ran, errors = list[int](), list[int](), list[Exception]()

    def run_ahead() -> None:
        try:
            for number in range(total):
                made.push(lambda number=number: ran.append(number), reads=[var], writes=[])
                pushed.append(number)
        except Exception as problem:
            errors.append(problem)

    def wrong(hint: str, **words: object) -> CheckFailed:
        words = {"n": engine.pending, "most": most, "all": total, **words}
        return CheckFailed(hint, _BOUND_HINTS[hint].format(**words))

    _start(run_ahead)
    for ended in range(total - most + 1):
        if ended and not _ends(_start(engine.run_one)):
            raise wrong("stuck")
        came = _comes(lambda n=most + ended: len(pushed) >= n or errors)
        if errors:
            raise wrong("raises", got=repr(errors[0])) from errors[0]
        if not came and not ended:
            raise wrong("timid", n=len(pushed))
        if not came:
            raise wrong("drains" if _goes_on_when_idle(engine, pushed) else "stuck")
        if ended < 2:
            time.sleep(0.1)  # another push would come now
        if engine.pending > most:
            raise wrong("off by one" if engine.pending == most + 1 else "unbounded")
        if not ended and engine.lock.acquire(timeout=_PATIENCE_S):
            engine.lock.notify_all()  # as another push or wait does
            engine.lock.release()
            time.sleep(0.05)
            if engine.pending > most:
                raise wrong("once")
        if len(pushed) > engine.pending + len(ran):
            raise wrong("returns", n=len(pushed), got=engine.pending + len(ran))
    _run_all(engine)
    if len(ran) < total:
        raise wrong("lost", n=len(ran))
    if [var] * total != [touched[0] if touched else None for touched in engine.touched]:
        raise wrong("forgets")


def _goes_on_when_idle(engine: ByHand, pushed: list[int]) -> bool:
    before = len(pushed)
    _run_all(engine)
    return _comes(lambda: len(pushed) > before)


def _run_all(engine: ByHand) -> None:
    while engine.ready and _ends(_start(engine.run_one)):
        """Run the next one."""


def _start(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def _ends(thread: threading.Thread) -> bool:
    thread.join(_PATIENCE_S)
    return not thread.is_alive()


def _comes(happened: Callable[[], object]) -> bool:
    end = time.monotonic() + _PATIENCE_S
    while not happened() and time.monotonic() < end:
        time.sleep(0.001)
    return bool(happened())
