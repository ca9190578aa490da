"""The engines of Case files, each with its bug, and how to look at them.

The engines are of the kind that one writes with `threading` and `queue`; here these names are those
of `labs.schedules`, so that `explore` chooses which thread runs.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from labs import streams
from labs.schedules import queue, threading

# -- the engines -----------------------------------------------------------------------------------


class Bounded:
    """Tasks in a queue of `most` places; a push waits while the queue is full."""

    def __init__(self, workers=2, most=4):
        self.lock = threading.Condition()
        self.jobs = queue.Queue(most)
        self.pending = 0
        for n in range(workers):
            threading.Thread(target=self.work, name=f"worker {n}", daemon=True).start()

    def push(self, task):
        with self.lock:
            self.pending += 1
            self.jobs.put(task)

    def work(self):
        while True:
            task = self.jobs.get()
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()

    def waitall(self):
        with self.lock:
            self.lock.wait_for(lambda: self.pending == 0)


class Stoppable(Bounded):
    """After `stop` the workers end, and a push is an error."""

    def __init__(self, workers=2):
        self.stopped, self.waiting = False, deque()
        super().__init__(workers)

    def push(self, task):
        with self.lock:
            if self.stopped:
                raise RuntimeError("the engine is stopped")
            self.waiting.append(task)
            self.pending += 1
            self.lock.notify_all()

    def work(self):
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.waiting or self.stopped)
                if self.stopped:
                    return
                task = self.waiting.popleft()
            task()
            with self.lock:
                self.pending -= 1
                self.lock.notify_all()

    def stop(self):
        with self.lock:
            self.stopped = True
            self.lock.notify_all()


class Uploader:
    """Copies values to a device on a thread of its own, through a few buffers."""

    def __init__(self, copy, buffers=2, size=2):
        self.copy, self.device = copy, {}
        self.jobs = queue.Queue()
        self.free = queue.Queue()
        for _ in range(buffers):
            self.free.put([0] * size)
        threading.Thread(target=self.work, name="copier", daemon=True).start()

    def upload(self, name, values):
        buffer = self.free.get()
        buffer[:] = values
        self.jobs.put((name, buffer))
        self.free.put(buffer)

    def work(self):
        while True:
            name, buffer = self.jobs.get()
            self.device[name] = self.copy(buffer)
            self.jobs.task_done()

    def waitall(self):
        self.jobs.join()


class Ordered:
    """A task waits for the task before it that uses one of its arrays."""

    def __init__(self, workers=2):
        self.lock = threading.Lock()
        self.jobs = queue.Queue()
        self.last = {}
        for n in range(workers):
            threading.Thread(target=self.work, name=f"worker {n}", daemon=True).start()

    def key(self, array):
        return id(array)

    def push(self, fn, *arrays):
        done, keys = threading.Event(), {self.key(array) for array in arrays}
        with self.lock:
            before = [self.last[key] for key in keys if key in self.last]
            self.last.update(dict.fromkeys(keys, done))
            self.jobs.put((fn, arrays, before, done))

    def work(self):
        while True:
            fn, arrays, before, done = self.jobs.get()
            for event in before:
                event.wait()
            fn(*arrays)
            done.set()

    def waitall(self):
        for event in list(self.last.values()):
            event.wait()


def show(thing: Any) -> None:
    """Print the source of a class."""
    print(inspect.getsource(thing).rstrip())


# -- programs on streams ---------------------------------------------------------------------------


def count_results(program: Callable[[], object], orders: int = 40) -> None:
    """Print how often each result of a stream program occurs, in orders that CUDA allows."""
    results: dict[str, int] = {}
    for seed in range(orders):
        with streams.simulate(seed, checks=False):
            result = str(program())
        results[result] = results.get(result, 0) + 1
    for result, count in sorted(results.items(), key=lambda item: -item[1]):
        print(f"{count:3} of {orders}: {result}")


def show_race(program: Callable[[], object]) -> None:
    """Print the data race of a stream program, or that there is none."""
    try:
        print(streams.check(program))
    except streams.OrderError as error:
        print(error)
