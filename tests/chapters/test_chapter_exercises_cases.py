"""The exercises of Case files, part one: the engines have the bugs that the chapter says, repairs
pass their check, and each plausible wrong repair is refused with a hint of its own.

The engines are the chapter's cells, run here as they stand.
"""

from __future__ import annotations

import itertools
import queue
import re
import threading
from collections import deque
from typing import Any

import numpy as np
import pytest
from chapter_cells import answers_of, code_of, definitions_in, words_of

from d2lmini import d2l
from d2lmini.d2l.cases.orders import MOST_OVERTAKEN
from d2lmini.d2l.check import Wrong
from d2lmini.interleavings import explore

PLACE = definitions_in("case-files")
Bounded, Stoppable, Uploader = (PLACE[name] for name in ("Bounded", "Stoppable", "Uploader"))
Slots, Ordered, Ranked = (PLACE[name] for name in ("Slots", "Ordered", "Ranked"))
for _answer in answers_of("case-files"):
    exec(_answer, PLACE)
#: Enough to find each mistake here; the chapter tries more.
SCHEDULES = 50


def hint_of(case: str, engine: Any) -> str:
    """The hint by which a repair is refused; "" if it passes."""
    try:
        sentence = d2l.check_case(case, engine, schedules=SCHEDULES)
    except Wrong as wrong:
        assert len(str(wrong)) > 30
        return wrong.hint
    assert sentence.endswith("schedules of each program")
    return ""


# -- the engines as they are -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "engine", "hint"),
    [
        ("lock", Bounded, "lock"),
        ("shutdown", Stoppable, "forgets"),
        ("pool", Uploader, "overwritten"),
        ("slot", Slots, "reused"),
        ("view", Ordered, "order"),
        ("priority", Ranked, "starves"),
    ],
)
def test_each_engine_has_its_bug(case, engine, hint):
    assert hint_of(case, engine) == hint


def test_engines_are_of_about_thirty_lines():
    for source in code_of("case-files"):
        if re.search(r"^class (Bounded|Stoppable|Uploader|Slots|Ordered|Ranked)\b", source, re.M):
            assert 20 <= len(source.splitlines()) <= 30


def test_a_burst_hangs_in_about_one_run_of_eight():
    found = explore(PLACE["burst"], search="random", schedules=400, stop=False)
    assert 0.08 < found.outcomes["deadlock"] / 400 < 0.18
    assert set(found.outcomes) == {"deadlock", "8 tasks are done"}


def test_answers_to_the_exercises_without_a_check():
    burst = PLACE["burst"]
    assert explore(lambda: burst(most=8), search="random", schedules=100).failure is None

    class CountsLate(Bounded):
        def push(self, task):
            self.jobs.put(task)
            with self.lock:
                self.pending += 1

    def one_thread():
        engine, done = CountsLate(), []
        for _ in range(3):
            engine.push(lambda: done.append(1))
        engine.waitall()
        assert len(done) == 3

    def two_threads():
        engine = CountsLate()

        def push():
            done = []
            engine.push(lambda: done.append(1))
            engine.waitall()
            assert done

        threads = [threading.Thread(target=push) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert explore(one_thread, schedules=200).failure is None
    assert explore(two_threads).failure is not None


def test_the_bound_on_overtaking_is_the_check_s():
    assert f"at most {MOST_OVERTAKEN} later tasks overtake a task" in words_of("case-files")


# -- right repairs ---------------------------------------------------------------------------------


def repaired(name: str, engine: Any) -> Any:
    """The chapter's own answer."""
    return PLACE[name](engine)


class BoundBySemaphore(Bounded):
    def __init__(self, workers=2, most=4):
        super().__init__(workers, most=0)
        self.places = threading.Semaphore(most)

    def push(self, task):
        self.places.acquire()

        def run():
            self.places.release()
            task()

        with self.lock:
            self.pending += 1
            self.jobs.put(run)


class BoundByCondition(Bounded):
    """One lock, one condition, a deque."""

    def __init__(self, workers=2, most=4):
        self.most, self.waiting = most, deque()
        super().__init__(workers, most)

    def push(self, task):
        with self.lock:
            self.lock.wait_for(lambda: len(self.waiting) < self.most)
            self.pending += 1
            self.waiting.append(task)
            self.lock.notify_all()

    def work(self):
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.waiting)
                task = self.waiting.popleft()
                self.lock.notify_all()
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


class CountedByTheQueue(Bounded):
    def push(self, task):
        self.jobs.put(task)

    def work(self):
        while True:
            self.jobs.get()()
            self.jobs.task_done()

    def waitall(self):
        self.jobs.join()


class TriesAgain(Bounded):
    """Puts under the lock, but never blocks there."""

    def push(self, task):
        with self.lock:
            while True:
                try:
                    self.jobs.put_nowait(task)
                    break
                except queue.Full:
                    self.lock.wait()
            self.pending += 1

    def work(self):
        while True:
            task = self.jobs.get()
            with self.lock:
                self.lock.notify_all()  # there is a free place
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


class RunsTheRest(Stoppable):
    def work(self):
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.waiting or self.stopped)
                if not self.waiting:
                    return
                task = self.waiting.popleft()
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


class WorkersDrop(Stoppable):
    """Each worker that ends subtracts what it drops."""

    def work(self):
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.waiting or self.stopped)
                if self.stopped:
                    self.pending -= len(self.waiting)
                    self.waiting.clear()
                    self.lock.notify_all()
                    return
                task = self.waiting.popleft()
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


class StopWaits(RunsTheRest):
    def stop(self):
        super().stop()
        self.waitall()


class StopRuns(Stoppable):
    """The thread that stops the engine runs the rest itself."""

    def stop(self):
        with self.lock:
            self.stopped = True
            rest = list(self.waiting)
            self.waiting.clear()
            self.lock.notify_all()
        for task in rest:
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


class WaitsForRunning(Stoppable):
    """Counts the running tasks, not the pending ones."""

    running = 0

    def work(self):
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.waiting or self.stopped)
                if self.stopped:
                    self.waiting.clear()
                    self.lock.notify_all()
                    return
                task = self.waiting.popleft()
                self.running += 1
            task()
            with self.lock:
                self.running -= 1
                self.lock.notify_all()

    def waitall(self):
        with self.lock:
            self.lock.wait_for(lambda: not self.waiting and not self.running)


class PoolInCopy(Uploader):
    """The buffer travels with a function that returns it."""

    def upload(self, name, values):
        buffer = self.free.get()
        buffer[:] = values
        self.jobs.put((name, buffer, lambda: self.free.put(buffer)))

    def work(self):
        while True:
            name, buffer, give_back = self.jobs.get()
            try:
                self.device[name] = self.copy(buffer)
            finally:
                give_back()
                self.jobs.task_done()


class PoolByCondition(Uploader):
    def __init__(self, copy, buffers=2, size=2):
        self.lock, self.unused = threading.Condition(), [[0] * size for _ in range(buffers)]
        super().__init__(copy, buffers, size)

    def upload(self, name, values):
        with self.lock:
            self.lock.wait_for(lambda: self.unused)
            buffer = self.unused.pop()
        buffer[:] = values
        self.jobs.put((name, buffer))

    def work(self):
        while True:
            name, buffer = self.jobs.get()
            self.device[name] = self.copy(buffer)
            with self.lock:
                self.unused.append(buffer)
                self.lock.notify()
            self.jobs.task_done()


class PoolByEvents(Uploader):
    """Each buffer has an event: its copy has ended."""

    def __init__(self, copy, buffers=2, size=2):
        self.rest = itertools.cycle([([0] * size, threading.Event()) for _ in range(buffers)])
        self.ready = [pair for pair, _ in zip(self.rest, range(buffers))]
        for _, event in self.ready:
            event.set()
        self.rest = itertools.cycle(self.ready)
        super().__init__(copy, buffers, size)

    def upload(self, name, values):
        buffer, event = next(self.rest)
        event.wait()
        event.clear()
        buffer[:] = values
        self.jobs.put((name, (buffer, event)))

    def work(self):
        while True:
            name, (buffer, event) = self.jobs.get()
            self.device[name] = self.copy(buffer)
            event.set()
            self.jobs.task_done()


class PoolTwoCopiers(Uploader):
    def __init__(self, copy, buffers=2, size=2):
        super().__init__(copy, buffers, size)
        threading.Thread(target=self.work, daemon=True).start()

    upload = repaired("repair_pool", Uploader).upload
    work = repaired("repair_pool", Uploader).work


class PoolBySemaphore(Uploader):
    """A semaphore bounds the buffers, a stack holds them."""

    def __init__(self, copy, buffers=2, size=2):
        self.places, self.stack = threading.Semaphore(buffers), deque([[0] * size] * 0)
        self.stack.extend([0] * size for _ in range(buffers))
        super().__init__(copy, buffers, size)

    def upload(self, name, values):
        self.places.acquire()
        buffer = self.stack.popleft()
        buffer[:] = values
        self.jobs.put((name, buffer))

    def work(self):
        while True:
            name, buffer = self.jobs.get()
            self.device[name] = self.copy(buffer)
            self.stack.append(buffer)
            self.places.release()
            self.jobs.task_done()


class SlotsReturnedByCount(Slots):
    """Generations: a handle is an event and the number of its use."""

    def __init__(self, workers=2, slots=2):
        self.lock, self.done, self.number = threading.Condition(), set(), itertools.count()
        super().__init__(workers, slots)

    def push(self, task):
        number = next(self.number)
        self.jobs.put((task, number))
        return number

    def work(self):
        while True:
            task, number = self.jobs.get()
            task()
            with self.lock:
                self.done.add(number)
                self.lock.notify_all()

    def wait(self, handle):
        with self.lock:
            self.lock.wait_for(lambda: handle in self.done)


class SlotsNeverReturned(repaired("repair_slots", Slots)):
    """A handle of its own class."""

    class Handle:
        def __init__(self):
            self.lock = threading.Lock()
            self.lock.acquire()

        def set(self):
            self.lock.release()

    def push(self, task):
        handle = self.Handle()
        self.jobs.put((task, handle))
        return handle

    def wait(self, handle):
        with handle.lock:
            pass


class SlotsOfConditions(Slots):
    def push(self, task):
        handle = [threading.Condition(), False]
        self.jobs.put((task, handle))
        return handle

    def work(self):
        while True:
            task, handle = self.jobs.get()
            task()
            with handle[0]:
                handle[1] = True
                handle[0].notify_all()

    def wait(self, handle):
        with handle[0]:
            handle[0].wait_for(lambda: handle[1])


class SlotsOfFutures(Slots):
    """A one-place queue for each push: whoever looks puts the mark back."""

    def push(self, task):
        mark = queue.Queue(1)
        self.jobs.put((task, mark))
        return mark

    def work(self):
        while True:
            task, mark = self.jobs.get()
            task()
            mark.put(True)

    def wait(self, handle):
        handle.put(handle.get())


class ByBottom(Ordered):
    def key(self, array):
        while array.base is not None:
            array = array.base
        return id(array)


class ByAddress(Ordered):
    """The address of the memory that owns the bytes."""

    def key(self, array):
        owner = array if array.base is None else array.base
        return owner.__array_interface__["data"][0]


class ByOverlap(Ordered):
    """All earlier tasks whose bytes overlap."""

    def __init__(self, workers=2):
        self.earlier = []
        super().__init__(workers)

    def push(self, fn, *arrays):
        done = threading.Event()
        with self.lock:
            before = [
                event
                for others, event in self.earlier
                if any(np.may_share_memory(x, y) for x in arrays for y in others)
            ]
            self.earlier.append((arrays, done))
            self.jobs.put((fn, arrays, before, done))

    def waitall(self):
        for _, event in list(self.earlier):
            event.wait()


class ByOverlapExactly(ByOverlap):
    def push(self, fn, *arrays):
        done = threading.Event()
        with self.lock:
            before = [
                event
                for others, event in self.earlier
                if any(np.shares_memory(x, y) for x in arrays for y in others)
            ]
            self.earlier.append((arrays, done))
            self.jobs.put((fn, arrays, before, done))


class AgesByRun(Ranked):
    """Counts how often the oldest ordinary task was overtaken."""

    def __init__(self):
        self.urgent, self.ordinary, self.overtaken = deque(), deque(), 0
        super().__init__()

    def push(self, task, priority=0):
        with self.lock:
            self.pending += 1
            (self.urgent if priority else self.ordinary).append(task)
            self.lock.notify_all()

    def work(self):
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.urgent or self.ordinary)
                if self.urgent and (self.overtaken < 4 or not self.ordinary):
                    self.overtaken += bool(self.ordinary)
                    task = self.urgent.popleft()
                else:
                    self.overtaken, task = 0, self.ordinary.popleft()
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


class EverySecond(AgesByRun):
    """An ordinary task after each urgent task."""

    def work(self):
        after_urgent = False
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.urgent or self.ordinary)
                take_urgent = self.urgent and not (after_urgent and self.ordinary)
                task = (self.urgent if take_urgent else self.ordinary).popleft()
                after_urgent = bool(take_urgent)
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()


def with_key(key: Any) -> Any:
    """`Ranked`, with another key for its queue."""

    class Keyed(Ranked):
        def push(self, task, priority=0):
            with self.lock:
                self.pending += 1
                number = next(self.numbers)
            self.jobs.put((key(number, priority), number, task))

    return Keyed


RIGHT = {
    "lock": [
        repaired("repair_lock", Bounded),
        BoundBySemaphore,
        BoundByCondition,
        CountedByTheQueue,
        TriesAgain,
    ],
    "shutdown": [
        repaired("repair_stop", Stoppable),
        RunsTheRest,
        WorkersDrop,
        StopWaits,
        StopRuns,
        WaitsForRunning,
    ],
    "pool": [
        repaired("repair_pool", Uploader),
        PoolInCopy,
        PoolByCondition,
        PoolByEvents,
        PoolTwoCopiers,
        PoolBySemaphore,
    ],
    "slot": [
        repaired("repair_slots", Slots),
        SlotsReturnedByCount,
        SlotsNeverReturned,
        SlotsOfConditions,
        SlotsOfFutures,
    ],
    "view": [
        repaired("repair_views", Ordered),
        ByBottom,
        ByAddress,
        ByOverlap,
        ByOverlapExactly,
    ],
    "priority": [
        repaired("repair_rank", Ranked),
        AgesByRun,
        EverySecond,
        with_key(lambda number, priority: number - 5 * priority),
        with_key(lambda number, priority: (number - 6 * priority, -priority)),
    ],
}


@pytest.mark.parametrize(
    ("case", "engine"), [(case, engine) for case, engines in RIGHT.items() for engine in engines]
)
def test_right_repairs_pass(case, engine):
    assert hint_of(case, engine) == ""
