"""Tests of an engine's promises: one function for the library's engines and for a reader's own.

>>> from d2lmini import d2l, engine
>>> with engine.use("threaded", workers=2):
...     d2l.check_engine(engine, programs=3)
every task runs once, a writer alone, readers together; 3 random programs as in program order

The engine needs three functions, which the module `d2lmini.engine` has:

    new_var()                 a tag to order tasks by
    push(fn, reads, writes)   run `fn()` on some thread when its turn has come
    waitall()                 block until everything pushed is done

and `wait_for_var(var)` if the engine keeps errors. First come small situations, each of which shows
one kind of mistake; then random programs, compared with their results in program order. No test
measures seconds: events hold tasks back until the test has looked.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from d2lmini.d2l.check import Sentence, Wrong
from d2lmini.scopes import contextmanager

#: The variables that a task reads and writes.
Touches = tuple[list[Any], list[Any]]

#: The text of the error that a task raises for the test.
_ON_PURPOSE = "on purpose"

#: How long a task that must not begin gets to begin all the same.
_A_MOMENT_S = 0.05

_HINTS = {
    "engine": "an engine has new_var, push and waitall; this {kind} has no {name}",
    "hangs": "{what} is not over after {patience_s:g} s. Was a task not put among the ready ones "
    "when its last Var was granted, was one not counted off, or was the waiting thread not woken?",
    "waits": "push(...) does not return: it has to queue the task and must not wait for it",
    "early": "waitall() returned before all tasks were done: {n} of {all} had run",
    "twice": "20 tasks were pushed and {n} ran: some of them ran twice",
    "lock": "two independent tasks do not run at the same time: is a lock held while a task runs, "
    "or is there one worker only?",
    "readers": "two readers of one Var do not run at the same time; only a writer has to be alone",
    "one by one": "two readers in the queue behind a writer do not run at the same time: when the "
    "writer leaves, grant the Var to all readers up to the next writer",
    "room": "a writer began while a reader was running: it has to wait until all readers are done",
    "needs": "a reader began while a writer was running: the value was not there yet",
    "jumps": "a reader went past a writer that was before it in the queue: it reads an old value",
    "overtakes": "a writer went past a reader that was before it in the queue: the reader finds a "
    "value that the program writes later",
    "itself": "a task that reads what it writes, as x += 1 does, waits for itself: let it claim "
    "each Var once, as a writer",
    "order": "random program {seed}: {n} of 8 values are not those of program order: a task began "
    "before a task that it depends on had ended",
    "worker": "a task raised an error, and the tasks after it never ran: did the worker end? Catch "
    "the error, keep it, and release the Vars all the same",
    "lost": "a task raised an error, and a wait for {what} does not raise it",
    "skips": "a task ran although its input is missing: skip the task, and pass the error on",
    "unbounded": "{n} tasks were pending; the bound is {most}: no push waited",
    "off by one": "{n} tasks were pending; the bound is {most}: at which count does a push wait?",
    "timid": "a push waited while {n} tasks were pending; {most} are allowed",
    "stuck": "a push never returns although tasks are done: does it hold the lock while it waits, "
    "or is the waiting thread not woken?",
    "dropped": "{n} of {all} tasks ran: a push at the bound has to wait; it must not drop the task",
}


def _wrong(hint: str, **words: object) -> Wrong:
    return Wrong(hint, _HINTS[hint].format(**words))


def check_engine(
    engine: Any,
    *,
    programs: int = 20,
    parallel: bool = True,
    errors: bool = False,
    most: int | None = None,
    patience_s: float = 10.0,
    seed: int = 0,
) -> Sentence:
    """A sentence if `engine` keeps its promises; else `Wrong`, with a hint for the mistake.

    programs    number of random programs of 60 tasks over 8 Vars
    parallel    the engine has two workers or more (a serial twin has none)
    errors      a task's error is kept on the Vars it writes, passed on, and raised at a wait
    most        a push waits while this many tasks, 4 or more, are pending; None: no limit is needed
    patience_s  anything that takes longer counts as a hang

    The engine is idle afterwards if it passes. An error in the engine itself, such as a NameError,
    is raised as it is, also if a worker thread ended with it. Hints, in the order of the checks:
    "engine", "unbounded", "off by one", "timid", "stuck", "dropped" (the last five if `most` is
    given), "hangs", "early", "twice", "waits", "lock", "readers", "one by one", "room", "needs",
    "jumps", "overtakes", "itself", "order", "worker", "lost", "skips" (these if `errors`).
    """
    for name in ("new_var", "push", "waitall"):
        if not hasattr(engine, name):
            raise _wrong("engine", kind=type(engine).__name__, name=name)
    asked = _EngineUnderTest(engine, patience_s)
    with asked.listen_to_threads():
        if most is not None:
            _check_bound(asked, most)
        _every_task_once(asked)
        if parallel:
            _push_returns(asked)
            _waitall_waits(asked)
            _side_by_side(asked)
            _in_line(asked)
        _itself(asked)
        for number in range(programs):
            _random_program(asked, seed + number)
        if errors:
            _errors(asked)
    said = [f"at most {most} tasks pending"] * (most is not None)
    said += ["every task runs once, a writer alone, readers together"]
    said += [f"{programs} random programs as in program order", *["errors travel"] * errors]
    return Sentence("; ".join(said))


class _EngineUnderTest:
    """The engine under test, with waits that time out."""

    def __init__(self, engine: Any, patience_s: float):
        self.engine = engine
        self.patience_s = patience_s
        self.thread_errors: list[BaseException] = []

    @contextmanager
    def listen_to_threads(self) -> Iterator[None]:
        """Keep the errors with which threads end in the meantime; they are printed as usual."""
        print_error = threading.excepthook

        def keep(args: threading.ExceptHookArgs) -> None:
            if args.exc_value is not None and _ON_PURPOSE not in str(args.exc_value):
                self.thread_errors.append(args.exc_value)
            print_error(args)

        threading.excepthook = keep
        try:
            yield
        finally:
            threading.excepthook = print_error

    def vars(self, n: int) -> list[Any]:
        return [self.engine.new_var() for _ in range(n)]

    def push(self, fn: Callable[[], object], reads: Any = (), writes: Any = ()) -> None:
        self.within(lambda: self.engine.push(fn, reads=reads, writes=writes), "waits")

    def waitall(self, hint: str = "hangs") -> None:
        self.within(self.engine.waitall, hint, what="waitall()")

    def wait_for_var(self, var: Any) -> None:
        self.within(lambda: self.engine.wait_for_var(var), "worker")

    def within(self, call: Callable[[], object], hint: str, **words: object) -> None:
        """Run a call that may never end on another thread; raises the call's error."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as problem:
                raised.append(problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.patience_s)
        if thread.is_alive() and self.thread_errors:
            raise self.thread_errors[0]
        if thread.is_alive():
            raise _wrong(hint, patience_s=self.patience_s, **words)
        if raised:
            raise raised[0]


class _BlockedTask:
    """A task that has begun and does not end until it is released."""

    def __init__(self, asked: _EngineUnderTest, reads: Any = (), writes: Any = ()):
        self.begun, self.let_go = threading.Event(), threading.Event()
        asked.push(self._hold, reads, writes)

    def _hold(self) -> None:
        self.begun.set()
        self.let_go.wait(60)

    def __enter__(self) -> _BlockedTask:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()


# -- situations ------------------------------------------------------------------------------------


def _every_task_once(asked: _EngineUnderTest) -> None:
    ran: list[int] = []
    (var,) = asked.vars(1)

    def task(number: int) -> None:
        time.sleep(0.001)
        ran.append(number)

    for number in range(20):
        asked.push(lambda number=number: task(number), [], [var])  # type: ignore[misc]
    asked.waitall()
    n = len(ran)
    if n < 20:
        raise _wrong("early", n=n, all=20)
    if n > len(set(ran)):
        raise _wrong("twice", n=n)


def _push_returns(asked: _EngineUnderTest) -> None:
    let_go = threading.Event()
    try:
        asked.push(lambda: let_go.wait(60))
    finally:
        let_go.set()
    asked.waitall()


def _waitall_waits(asked: _EngineUnderTest) -> None:
    over = threading.Event()

    def wait() -> None:
        asked.engine.waitall()
        over.set()

    with _BlockedTask(asked) as held:
        held.begun.wait(asked.patience_s)
        threading.Thread(target=wait, daemon=True).start()
        too_soon = over.wait(_A_MOMENT_S)
    asked.waitall()
    if too_soon:
        raise _wrong("early", n=0, all=1)


def _side_by_side(asked: _EngineUnderTest) -> None:
    """Two tasks each wait until the other has begun: tasks of no Var, two readers, and two readers
    that a writer made wait."""
    (var,) = asked.vars(1)
    for reads, behind_writer, hint in (
        ([], False, "lock"), ([var], False, "readers"), ([var], True, "one by one")
    ):  # fmt: skip
        meeting = threading.Barrier(2)
        met: list[int] = []

        def meet(meeting: threading.Barrier = meeting, met: list[int] = met) -> None:
            try:
                met.append(meeting.wait(asked.patience_s / 4))
            except threading.BrokenBarrierError:
                pass

        with ExitStack() as writer:
            if behind_writer:
                writer.enter_context(_BlockedTask(asked, [], [var]))
            asked.push(meet, reads)
            asked.push(meet, reads)
        asked.waitall()
        if len(met) < 2:
            raise _wrong(hint)


def _in_line(asked: _EngineUnderTest) -> None:
    """While a task holds a Var, the last of some others must not begin; afterwards all of them run
    in the order in which they were pushed."""
    (var,) = asked.vars(1)
    read: Touches = ([var], [])
    write: Touches = ([], [var])
    situations: list[tuple[str, list[Touches]]] = [
        ("room", [read, write]),
        ("needs", [write, read]),
        ("jumps", [read, write, read]),
        ("overtakes", [write, read, write]),
    ]
    for hint, (first, *others) in situations:
        begun, ran = threading.Event(), list[int]()
        with _BlockedTask(asked, *first) as held:
            for number, touches in enumerate(others[:-1]):
                asked.push(lambda number=number, ran=ran: ran.append(number), *touches)  # type: ignore[misc]

            def last(ran: list[int] = ran, begun: threading.Event = begun) -> None:
                ran.append(-1)
                begun.set()

            asked.push(last, *others[-1])
            held.begun.wait(asked.patience_s)
            too_soon = begun.wait(_A_MOMENT_S)
        asked.waitall()
        if too_soon or ran[-1] != -1:
            raise _wrong(hint)


def _itself(asked: _EngineUnderTest) -> None:
    (var,) = asked.vars(1)
    asked.push(_nothing, [var], [var])
    asked.push(_nothing, [var, var], [])
    asked.waitall("itself")


def _nothing() -> None:
    """Do nothing."""


def _check_bound(asked: _EngineUnderTest, most: int) -> None:
    """While a task is held, another thread pushes as far as it can."""
    (var,) = asked.vars(1)
    pushed, ran = [1], [1]
    ended = threading.Event()

    def run_ahead() -> None:
        for _ in range(4 * most - 1):
            asked.engine.push(lambda: ran.append(1), reads=[var], writes=[])
            pushed.append(1)
        ended.set()

    with _BlockedTask(asked, [], [var]):
        threading.Thread(target=run_ahead, daemon=True).start()
        deadline = time.monotonic() + asked.patience_s
        while len(pushed) < most and time.monotonic() < deadline:
            time.sleep(0.001)
        ended.wait(2 * _A_MOMENT_S)
        n = len(pushed)
    if not ended.wait(asked.patience_s):
        raise _wrong("stuck")
    asked.waitall()
    if len(ran) < 4 * most:
        raise _wrong("dropped", n=len(ran), all=4 * most)
    if n != most:
        hint = "timid" if n < most else "off by one" if n == most + 1 else "unbounded"
        raise _wrong(hint, n=n, most=most)


# -- random programs -------------------------------------------------------------------------------

_N_VARS, _N_TASKS = 8, 60


def _random_program(asked: _EngineUnderTest, seed: int) -> None:
    """Each task mixes the cells it reads into those it writes, so that any wrong order shows."""
    draw = random.Random(seed)
    tasks = [
        (
            draw.sample(range(_N_VARS), draw.randint(0, 3)),
            draw.sample(range(_N_VARS), draw.randint(0, 2)),
        )
        for _ in range(_N_TASKS)
    ]

    def step(cells: list[int], number: int) -> None:
        reads, writes = tasks[number]
        mixed = sum(cells[i] * (j + 3) for j, i in enumerate(reads)) + number
        for i in writes:
            before = cells[i]
            time.sleep(0)  # another thread may run in between
            cells[i] = (before * 1_000_003 + mixed) % (1 << 61)

    def push_all(cells: list[int], tags: Sequence[Any]) -> None:
        for number, (reads, writes) in enumerate(tasks):
            asked.engine.push(
                lambda number=number: step(cells, number),
                reads=[tags[i] for i in reads],
                writes=[tags[i] for i in writes],
            )

    expected, cells = list(range(_N_VARS)), list(range(_N_VARS))
    for number in range(_N_TASKS):
        step(expected, number)
    asked.within(lambda: push_all(cells, asked.vars(_N_VARS)), "waits")
    asked.waitall()
    n = sum(a != b for a, b in zip(cells, expected))
    if n:
        raise _wrong("order", seed=seed, n=n)


# -- errors ----------------------------------------------------------------------------------------


def _errors(asked: _EngineUnderTest) -> None:
    a, b, c = asked.vars(3)
    ran: list[str] = []

    def fails() -> None:
        raise ValueError(_ON_PURPOSE)

    asked.push(fails, [], [a])
    asked.push(lambda: ran.append("reader"), [a], [b])
    asked.push(lambda: ran.append("other"), [], [c])
    if not _raises(lambda: asked.wait_for_var(a)):
        raise _wrong("lost", what="the result of the task")
    passed_on = _raises(lambda: asked.wait_for_var(b))
    if "reader" in ran:
        raise _wrong("skips")
    if not passed_on:
        raise _wrong("lost", what="a value computed from its result")
    asked.push(lambda: ran.append("again"), [], [a])
    asked.wait_for_var(a)  # a full overwrite has cleared the failure
    _raises(asked.waitall)
    if sorted(ran) != ["again", "other"]:
        raise _wrong("worker")


def _raises(call: Callable[[], object]) -> bool:
    """True if a wait raises the error that was raised on purpose."""
    try:
        call()
    except Wrong:
        raise
    except Exception as problem:
        if _ON_PURPOSE not in str(problem):
            raise
        return True
    return False
