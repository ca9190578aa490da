"""The checks of Case files: is an engine repaired, is a program on streams mended?

Programs with a repaired engine are drawn at random, and each runs under many schedules. The checks
also ask for what a careless repair gives up: that tasks still run at the same time, that a bound
still holds, that the host does not wait too early.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from labs import streams
from labs.case_files import Bounded, Ordered, Stoppable, Uploader
from labs.grading import CheckFailed, CheckPassed
from labs.schedules import explore, threading, time

#: Schedules of each program of a check.
_SCHEDULES = 60

#: Of the virtual clock, which moves only when every other thread is blocked or sleeps.
_UNTIL_BLOCKED_S = 0.05

_HINTS = {
    "nothing": "the function returned {got}: return the repaired class",
    "stuck": "under some schedule all threads are blocked, and the wait never ends:\n{message}",
    "lock": "under some schedule all threads are blocked. A push that waits for a free place must "
    "not hold a lock that a worker needs, and a thread that sleeps must be woken:\n{message}",
    "serial": "two tasks that could run at the same time do not: is a lock held while a task runs, "
    "or does each task wait for the task before?",
    "lost": "{n} of {all} tasks ran: each task that was pushed has to run",
    "twice": "{n} tasks ran more than once",
    "early": "a wait was over while its task had not ended",
    "unbounded": "{n} {what} while no work could go on; the bound is {most}",
    "timid": "only {n} {what} while no work could go on; {most} are possible without a wait",
    "forgets": "after stop() a wait never ends: a task was counted and did not run, or was "
    "subtracted twice, or the waiting thread was not woken:\n{message}",
    "late": "a task began after stop() and waitall() had returned",
    "open": "after stop(), push() has to raise RuntimeError",
    "overwritten": "the device has {got} for upload {name}, expected {expected}: the buffer was "
    "filled again before its copy had ended, or the wait was over before",
    "order": "{got}, expected {expected}: two tasks that use the same memory changed places",
    "no end": "a thread goes on without end: let it sleep on a condition, an event or a queue:\n"
    "{message}",
    "race": "{message}",
    "value": "the program returned {got}, expected {expected}",
    "waits": "the host waits before all work is issued ({why}): order the streams by an event, and "
    "let the host wait for the result only",
    "beside": "no copy runs beside a kernel. A copy only has to wait for the kernels that read the "
    "buffer that it fills, and there have to be two buffers",
}


def _wrong(hint: str, **words: object) -> CheckFailed:
    return CheckFailed(hint, _HINTS[hint].format(**words))


def _repaired(repair: Any, engine: Any) -> Any:
    try:
        made = repair(engine)
    except RuntimeError as error:
        raise _wrong("nothing", got=f"no class, but raised: {error}") from error
    if not isinstance(made, type):
        raise _wrong("nothing", got=repr(made))
    return made


def _run(program: Callable[..., object], hint: str, *given: Any, schedules: int = 0) -> None:
    """Explore `program(*given)`; threads that block are CheckFailed with this hint."""
    found = explore(lambda: program(*given), schedules or _SCHEDULES, random.randrange(10**6))
    if found.errors:
        raise min(found.errors, key=lambda error: not isinstance(error, CheckFailed))
    if found.failure in ("no end", "no step"):
        raise _wrong("no end", message=f"{found.message}\n{found.story[-500:]}")
    if found.failure:
        raise _wrong(hint, message=f"{found.message}\n{found.story}")


class _TasksThatMeet:
    """Two tasks that each wait until the other has begun, as long as any thread can run."""

    def __init__(self) -> None:
        self.begun = threading.Event(), threading.Event()
        self.met: list[bool] = []

    def __iter__(self) -> Iterator[Callable[..., None]]:
        for mine, other in (self.begun, self.begun[::-1]):
            yield lambda *arrays, mine=mine, other=other: self._meet(mine, other)

    def _meet(self, mine: Any, other: Any) -> None:
        mine.set()
        self.met.append(other.wait(_UNTIL_BLOCKED_S))

    def check(self) -> None:
        if len(self.met) < 2:
            time.sleep(_UNTIL_BLOCKED_S)
            raise _wrong("early") if len(self.met) == 2 else _wrong("lost", n=len(self.met), all=2)
        if not all(self.met):
            raise _wrong("serial")


def _pair(make: Callable[[], Any]) -> None:
    """Two independent tasks have to run at the same time."""
    engine, tasks = make(), _TasksThatMeet()
    for task in tasks:
        engine.push(task)
    engine.waitall()
    tasks.check()


class _Count:
    """Tasks that count how often each has begun and ended."""

    def __init__(self, n: int):
        self.begun, self.ended = [0] * n, [0] * n

    def task(self, number: int) -> Callable[[], None]:
        def run() -> None:
            self.begun[number] += 1
            time.sleep(0)  # another thread may run in between
            self.ended[number] += 1

        return run

    def check_all(self) -> None:
        """Every task has run, once."""
        self.check_once()
        n, all_tasks = sum(map(bool, self.ended)), len(self.ended)
        if n < all_tasks:
            time.sleep(_UNTIL_BLOCKED_S)
            raise _wrong("early") if all(self.ended) else _wrong("lost", n=n, all=all_tasks)

    def check_once(self) -> None:
        if self.begun != self.ended:
            raise _wrong("early")
        if max(self.begun, default=0) > 1:
            raise _wrong("twice", n=sum(count > 1 for count in self.begun))


def _start(*calls: Callable[[], object]) -> list[Any]:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def _join(threads: list[Any]) -> None:
    for thread in threads:
        thread.join()


def _check_bound(n: int, most: int, spare: int, what: str) -> None:
    if n > most + spare:
        raise _wrong("unbounded", n=n, what=what, most=most)
    if n < most:
        raise _wrong("timid", n=n, what=what, most=most)


def check_lock(repair: Any) -> CheckPassed:
    """A bounded queue, every task runs, two at a time, and every wait ends."""
    make, workers, most = _repaired(repair, Bounded), 2, random.randint(1, 3)

    def busy() -> None:
        engine, half, count = make(workers, most), most + 2, _Count(2 * most + 4)

        def push(first: int) -> None:
            for number in range(first, first + half):
                engine.push(count.task(number))

        _join(_start(lambda: push(0), lambda: push(half)))
        engine.waitall()
        count.check_all()

    def bounded() -> None:
        engine, gate, pushed = make(workers, most), threading.Event(), [0]

        def push() -> None:
            for _ in range(most + workers + 4):
                engine.push(gate.wait)
                pushed[0] += 1

        threads = _start(push)
        time.sleep(_UNTIL_BLOCKED_S)
        n = pushed[0]
        gate.set()
        _join(threads)
        engine.waitall()
        _check_bound(n, most, workers + 1, "pushes returned")

    def each_waits() -> None:
        engine, count = make(workers, most), _Count(2)

        def push(number: int) -> None:
            engine.push(count.task(number))
            engine.waitall()
            if not count.ended[number]:
                raise _wrong("early")

        _join(_start(lambda: push(0), lambda: push(1)))

    _run(_pair, "lock", lambda: make(workers, most))
    for program in (busy, bounded, each_waits):
        _run(program, "lock")
    return _sentence("every task runs, and a push waits while the queue is full")


def check_stop(repair: Any) -> CheckPassed:
    """After stop() every wait ends, no task is half done, and a push is an error."""
    make, n = _repaired(repair, Stoppable), random.randint(2, 4)

    def push_all() -> tuple[Any, _Count]:
        engine, count = make(random.choice([1, 2])), _Count(n)
        for number in range(n):
            engine.push(count.task(number))
        return engine, count

    def ordinary() -> None:
        engine, count = push_all()
        engine.waitall()
        count.check_all()

    def stopped() -> None:
        engine, count = push_all()
        threads = _start(engine.stop)
        engine.waitall()
        if count.begun != count.ended:
            raise _wrong("early")
        _join(threads)
        engine.waitall()
        before = list(count.begun)
        time.sleep(_UNTIL_BLOCKED_S)
        if before != count.begun:
            raise _wrong("late")
        count.check_once()
        try:
            engine.push(count.task(0))
        except RuntimeError:
            return
        raise _wrong("open")

    _run(ordinary, "stuck")
    _run(_pair, "stuck", lambda: make(2))
    _run(stopped, "forgets", schedules=3 * _SCHEDULES)
    return _sentence("after stop() every wait ends")


def check_pool(repair: Any) -> CheckPassed:
    """Every upload arrives, through a bounded number of buffers, without waiting for its copy."""
    make = _repaired(repair, Uploader)
    values = {name: [random.randrange(100) + 100 * name] * 2 for name in range(4)}

    def upload_all(engine: Any, done: list[int]) -> None:
        for name, numbers in values.items():
            engine.upload(name, numbers)
            done.append(name)

    def uploads(buffers: int) -> None:
        def copy(buffer: list) -> list:
            time.sleep(0)  # another thread may run in between
            return list(buffer)

        engine = make(copy, buffers=buffers)
        upload_all(engine, [])
        engine.waitall()
        for name, expected in values.items():
            got = engine.device.get(name)
            if got != expected:
                raise _wrong("overwritten", name=name, got=got, expected=expected)

    def bounded() -> None:
        gate, seen, done = threading.Event(), list[Any](), list[int]()

        def copy(buffer: list) -> list:
            seen.append(buffer)  # kept, so that no two have one id
            gate.wait()
            return list(buffer)

        engine = make(copy, buffers=2)
        threads = _start(lambda: upload_all(engine, done))
        time.sleep(_UNTIL_BLOCKED_S)
        n = len(done)
        gate.set()
        _join(threads)
        engine.waitall()
        _check_bound(n, 2, 0, "uploads returned")
        _check_bound(max(2, len(set(map(id, seen)))), 2, 0, "buffers were in use")

    for buffers in (1, 2):
        _run(uploads, "stuck", buffers)
    _run(bounded, "stuck")
    return _sentence("every upload arrives, with a bounded number of buffers")


def _draw_view(draw: random.Random, bases: list[np.ndarray]) -> np.ndarray:
    """A view of one of the arrays, or the array."""
    x, begin = draw.choice(bases), draw.randrange(4)
    return draw.choice([
        x, x[begin : begin + 2], x[::2], x.reshape(2, 3), x.reshape(2, 3).T, x[1:][: begin + 1],
    ])  # fmt: skip


def check_views(repair: Any) -> CheckPassed:
    """Random programs of arrays and views give the values of program order; others run at once."""
    make = _repaired(repair, Ordered)

    def change(view: np.ndarray, factor: int) -> None:
        time.sleep(0)
        view *= factor
        time.sleep(0)
        view += 1

    def values(push: Callable[..., object], wait: Callable[[], object], seed: int) -> list:
        draw, bases = random.Random(seed), [np.ones(6), np.ones(6)]
        for number in range(4):
            push(lambda view, n=number + 2: change(view, n), _draw_view(draw, bases))
            if number % 2:
                views = _draw_view(draw, bases), _draw_view(draw, bases)
                push(lambda x, y: change(x, 1 + int(y.sum())), *views)
        wait()
        return [base.tolist() for base in bases]

    def in_order(fn: Callable[..., object], *arrays: np.ndarray) -> None:
        fn(*arrays)

    def program(seed: int, expected: list) -> None:
        engine = make(workers=2)
        got = values(engine.push, engine.waitall, seed)
        if got != expected:
            raise _wrong("order", got=got, expected=expected)

    def parallel(sliced: bool) -> None:
        engine, tasks = make(workers=2), _TasksThatMeet()
        for task, array in zip(tasks, (np.zeros(4), np.zeros(4))):
            engine.push(task, array[1:] if sliced else array)
        engine.waitall()
        tasks.check()

    for sliced in (False, True):
        _run(parallel, "stuck", sliced, schedules=20)
    expected: list[Any] = []

    def without_threads() -> None:
        expected.append(values(in_order, lambda: None, seed))

    for _ in range(12):
        seed = random.randrange(1 << 30)
        _run(without_threads, "stuck", schedules=1)
        _run(program, "stuck", seed, expected[-1], schedules=20)
    return _sentence("tasks that share memory run in program order, others at the same time")


def _sentence(promise: str) -> CheckPassed:
    return CheckPassed(f"{promise}, in {_SCHEDULES} schedules and more of each program")


# -- a program on streams --------------------------------------------------------------------------

_ORDERS = 20


def check_double_buffer(program: Callable[[list[np.ndarray]], Any]) -> CheckPassed:
    """No data race, the right sums, the host waits at the end only, copies run beside kernels."""
    n, seed = random.randint(5, 9), random.randrange(1 << 30)
    batches = [np.random.randint(1, 100, size=4).astype(float) for _ in range(n)]
    expected = [float((batch * batch).sum()) for batch in batches]
    for order in range(_ORDERS):
        works: list[tuple[Any, int]] = []
        try:
            with streams.simulate(seed=seed + order) as machine:
                _record(machine, works)
                got = program(batches)
        except streams.OrderError as error:
            raise _wrong("race", message=error) from None
        if not _agree(got, expected):
            raise _wrong("value", got=got, expected=expected)
        if max((waits for _, waits in works), default=0):
            raise _wrong("waits", why=machine.waits[0][1])
        _check_overlap([work for work, _ in works])
    return CheckPassed(f"no data race, and the right result, in {_ORDERS} orders")


def _agree(got: Any, expected: list[float]) -> bool:
    try:
        return np.shape(got) == np.shape(expected) and bool(np.allclose(got, expected))
    except (TypeError, ValueError):
        return False


def _record(machine: Any, works: list[tuple[Any, int]]) -> None:
    """Note all work that computes or copies, and how often the host had waited before."""
    enqueue = machine.enqueue

    def note(work: Any) -> None:
        if work.run is not None and work.name != "copy to host":
            works.append((work, len(machine.waits)))
        enqueue(work)

    machine.enqueue = note


def _check_overlap(works: list[Any]) -> None:
    """CheckFailed if no copy may run beside a kernel."""
    copies = [work for work in works if work.name == "copy from host"]
    kernels = [work for work in works if work.name != "copy from host"]
    for copy in copies:
        for kernel in kernels:
            if not (copy.is_after(kernel, {}) or kernel.is_after(copy, {})):
                return
    raise _wrong("beside")
