"""Does an engine keep its promises? For the library's engines and for a reader's own.

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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from labs.grading import CheckFailed, CheckPassed

#: The variables that a task reads, and those that it writes.
Touches = tuple[list[Any], list[Any]]

#: The text of the error that a task raises for the test.
_ON_PURPOSE = "on purpose"

#: How long a task that must not begin gets to begin all the same.
_A_MOMENT_S = 0.05

_HINTS = {
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
}


def _failed(hint: str, **words: object) -> CheckFailed:
    return CheckFailed(hint, _HINTS[hint].format(**words))


def check_engine(
    engine: Any,
    *,
    errors: bool = False,
    programs: int = 5,
    patience_s: float = 4.0,
    seed: int | None = None,
) -> CheckPassed:
    """A sentence if `engine` keeps its promises; else `CheckFailed`, with a hint for the mistake.

    errors      a task's error is kept on the Vars it writes, passed on, and raised at a wait
    programs    number of random programs of 60 tasks over 8 Vars
    patience_s  anything that takes longer counts as a hang
    seed        of the first random program; None: drawn

    The engine is idle afterwards if it passes. An error in the engine itself, such as a NameError,
    is raised as it is, also if a worker thread ended with it.
    """
    first = random.randrange(10**6) if seed is None else seed
    tested = _TestedEngine(engine, patience_s)
    print_error, threading.excepthook = threading.excepthook, tested.keep_error
    try:
        _check_every_task_once(tested)
        _check_waitall_waits(tested)
        var = engine.new_var()
        read, write = ([var], []), ([], [var])
        _check_side_by_side(tested, "lock", [], nullcontext())
        _check_side_by_side(tested, "readers", [var], nullcontext())
        _check_side_by_side(tested, "one by one", [var], _blocked_task(tested, *write))
        _check_queue(tested, "room", read, write)
        _check_queue(tested, "needs", write, read)
        _check_queue(tested, "jumps", read, write, read)
        _check_queue(tested, "overtakes", write, read, write)
        tested.push(lambda: None, [var], [var])
        tested.push(lambda: None, [var, var], [])
        tested.waitall("itself")
        for number in range(programs):
            _check_random_program(tested, first + number)
        if errors:
            _check_errors(tested)
    finally:
        threading.excepthook = print_error
    said = "every task runs once, a writer alone, readers together"
    said += f"; {programs} random programs as in program order"
    return CheckPassed(said + "; errors travel" * errors)


class _TestedEngine:
    """The engine under test, with waits that time out."""

    def __init__(self, engine: Any, patience_s: float):
        self.engine = engine
        self.patience_s = patience_s
        self.thread_errors: list[BaseException] = []

    def keep_error(self, args: threading.ExceptHookArgs) -> None:
        """Keep the error with which a thread ended, unless a test made the task raise it."""
        if args.exc_value is not None and _ON_PURPOSE not in str(args.exc_value):
            self.thread_errors.append(args.exc_value)

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
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.patience_s)
        if thread.is_alive():
            failed = _failed(hint, patience_s=self.patience_s, **words)
            raise self.thread_errors[0] if self.thread_errors else failed
        if raised:
            raise raised[0]


@contextmanager
def _blocked_task(tested: _TestedEngine, reads: Any, writes: Any) -> Iterator[None]:
    """A scope in which a task of the engine has begun and does not end."""
    begun, let_go = threading.Event(), threading.Event()
    try:
        tested.push(lambda: (begun.set(), let_go.wait(60)), reads, writes)
        begun.wait(tested.patience_s)
        yield
    finally:
        let_go.set()


# -- situations ------------------------------------------------------------------------------------


def _check_every_task_once(tested: _TestedEngine) -> None:
    ran: list[int] = []
    var = tested.engine.new_var()
    for number in range(20):
        tested.push(lambda number=number: (time.sleep(0.001), ran.append(number)), [], [var])
    tested.waitall()
    if len(ran) < 20:
        raise _failed("early", n=len(ran), all=20)
    if len(ran) > len(set(ran)):
        raise _failed("twice", n=len(ran))


def _check_waitall_waits(tested: _TestedEngine) -> None:
    waiter = threading.Thread(target=tested.engine.waitall, daemon=True)
    with _blocked_task(tested, [], []):
        waiter.start()
        waiter.join(_A_MOMENT_S)
        too_soon = not waiter.is_alive()
    tested.waitall()
    if too_soon:
        raise _failed("early", n=0, all=1)


def _check_side_by_side(
    tested: _TestedEngine, hint: str, reads: Any, behind: AbstractContextManager[None]
) -> None:
    """Two tasks each wait until the other has begun."""
    begun, met = (threading.Event(), threading.Event()), list[bool]()

    def meet(mine: threading.Event, other: threading.Event) -> None:
        mine.set()
        met.append(other.wait(tested.patience_s / 4))

    with behind:
        tested.push(lambda: meet(*begun), reads)
        tested.push(lambda: meet(*begun[::-1]), reads)
    tested.waitall()
    if not all(met):
        raise _failed(hint)


def _check_queue(tested: _TestedEngine, hint: str, first: Touches, *others: Touches) -> None:
    """While a task holds a Var, the last of some others must not begin; afterwards all of them run
    in the order in which they were pushed."""
    ran: list[int] = []
    with _blocked_task(tested, *first):
        for number, touches in enumerate(others):
            tested.push(lambda number=number: ran.append(number), *touches)
        time.sleep(_A_MOMENT_S)
        too_soon = len(others) - 1 in ran
    tested.waitall()
    if too_soon or ran[-1] != len(others) - 1:
        raise _failed(hint)


# -- random programs -------------------------------------------------------------------------------

_N_VARS, _N_TASKS = 8, 60


def _check_random_program(tested: _TestedEngine, seed: int) -> None:
    """Each task mixes the cells it reads into those it writes, so that any wrong order shows."""
    draw, cells_of = random.Random(seed), range(_N_VARS)
    tasks = [
        (draw.sample(cells_of, draw.randint(0, 3)), draw.sample(cells_of, draw.randint(0, 2)))
        for _ in range(_N_TASKS)
    ]

    def step(cells: list[int], number: int) -> None:
        reads, writes = tasks[number]
        mixed = sum(cells[i] * (j + 3) for j, i in enumerate(reads)) + number
        for i in writes:
            before = cells[i]
            time.sleep(0)  # another thread may run in between
            cells[i] = (before * 1_000_003 + mixed) % (1 << 61)

    expected, cells = list(cells_of), list(cells_of)
    for number in range(_N_TASKS):
        step(expected, number)
    tags = [tested.engine.new_var() for _ in cells]
    for number, touched in enumerate(tasks):
        reads, writes = ([tags[i] for i in numbers] for numbers in touched)
        tested.push(lambda number=number: step(cells, number), reads, writes)
    tested.waitall()
    n = sum(a != b for a, b in zip(cells, expected))
    if n:
        raise _failed("order", seed=seed, n=n)


# -- errors ----------------------------------------------------------------------------------------


def _check_errors(tested: _TestedEngine) -> None:
    a, b, c = (tested.engine.new_var() for _ in "abc")
    ran: list[str] = []

    def fail() -> None:
        raise ValueError(_ON_PURPOSE)

    tested.push(fail, [], [a])
    tested.push(lambda: ran.append("reader"), [a], [b])
    tested.push(lambda: ran.append("other"), [], [c])
    if not _raises(lambda: tested.wait_for_var(a)):
        raise _failed("lost", what="the result of the task")
    passed_on = _raises(lambda: tested.wait_for_var(b))
    if "reader" in ran:
        raise _failed("skips")
    if not passed_on:
        raise _failed("lost", what="a value computed from its result")
    tested.push(lambda: ran.append("again"), [], [a])
    tested.wait_for_var(a)  # a full overwrite has cleared the failure
    _raises(tested.waitall)
    if sorted(ran) != ["again", "other"]:
        raise _failed("worker")


def _raises(call: Callable[[], object]) -> bool:
    """True if a wait raises the error that was raised on purpose."""
    try:
        call()
    except Exception as error:
        if _ON_PURPOSE not in str(error):
            raise
        return True
    return False
