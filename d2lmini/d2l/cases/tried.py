"""What the checks of all cases need: programs under many schedules, tasks that count, hints."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from d2lmini.d2l.check import Wrong
from d2lmini.interleavings import explore

HINTS = {
    "stuck": "under some schedule all threads are blocked, and the wait never ends:\n{message}",
    "lock": "under some schedule all threads are blocked. A push that waits for a free place must "
    "not hold a lock that a worker needs:\n{message}",
    "serial": "two tasks that could run at the same time do not: is a lock held while a task runs, "
    "or does each task wait for the task before?",
    "lost": "{n} of {all} tasks ran: each task that was pushed has to run",
    "twice": "{n} tasks ran more than once",
    "early": "a wait was over while its task had not ended",
    "unbounded": "{n} {what} while no work could go on; the bound is {most}",
    "timid": "only {n} {what} while no work could go on; {most} are possible without a wait",
    "forgets": "after stop(), waitall() never ends: a task was counted and did not run. Run it, or "
    "subtract it from the count:\n{message}",
    "late": "a task began after stop() and waitall() had returned",
    "open": "after stop(), push() has to raise RuntimeError",
    "overwritten": "the device has {got} for upload {name}, expected {expected}: the buffer was "
    "filled again before its copy had ended",
    "reused": "a wait for a task that has ended never ends: another push has cleared its event, or "
    "taken it over:\n{message}",
    "leak": "when handles are not waited for, a later push never ends: their events do not come "
    "back:\n{message}",
    "once": "a second wait for the same handle never ends:\n{message}",
    "order": "{got}, expected {expected}: two tasks that use the same memory changed places",
    "fifo": "tasks of one priority ran in the order {order}, not in the order of their pushes",
    "ignored": "an urgent task waited behind {n} ordinary tasks: its priority changed nothing",
    "starves": "{n} urgent tasks that were pushed later ran before an ordinary task; at most "
    "{most} may",
}


def wrong(hint: str, **words: object) -> Wrong:
    return Wrong(hint, HINTS[hint].format(**words))


class Tried:
    """An engine's class, programs that use it, and what they have seen."""

    def __init__(self, make: Callable[..., Any], schedules: int):
        self.make = make
        self.schedules = schedules
        self.draw = random.Random()
        module = sys.modules.get(getattr(make, "__module__", None) or "")
        self.modules = [module] if module is not None else []

    def run(self, program: Callable[..., object], hint: str, **options: Any) -> None:
        """Explore `program(**options)`; a deadlock is Wrong with this hint."""
        found = explore(
            lambda: program(**options),
            schedules=self.schedules,
            seconds=20,
            steps=3000,
            seed=self.draw.randrange(1 << 30),
            modules=self.modules,
        )
        if found.failure is None:
            return
        if found.failure.error is not None:
            raise found.failure.error
        raise wrong(hint, message=found.failure.message)

    def pair(self, hint: str, **options: Any) -> None:
        """Two independent tasks run at the same time; a wait that never ends is Wrong with this
        hint."""

        def program() -> None:
            engine, tasks = self.make(**options), TasksThatMeet()
            for task in tasks:
                engine.push(task)
            engine.waitall()
            tasks.check()

        self.run(program, hint)


class TasksThatMeet:
    """Two tasks that each wait until the other has begun, as long as any thread can run."""

    def __init__(self) -> None:
        self.begun = threading.Event(), threading.Event()
        self.met: list[bool] = []

    def __iter__(self) -> Iterator[Callable[..., None]]:
        for mine, other in (self.begun, self.begun[::-1]):
            yield lambda *arrays, mine=mine, other=other: self._meet(mine, other)

    def _meet(self, mine: threading.Event, other: threading.Event) -> None:
        mine.set()
        self.met.append(other.wait(1))

    def check(self) -> None:
        """Wrong if they did not run, or not at the same time."""
        if len(self.met) < 2:
            raise wrong("lost", n=len(self.met), all=2)
        if not all(self.met):
            raise wrong("serial")


class Count:
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
        if self.begun != self.ended:
            raise wrong("early")
        self.check_once()
        if 0 in self.ended:
            raise wrong("lost", n=sum(map(bool, self.ended)), all=len(self.ended))

    def check_once(self) -> None:
        if max(self.begun, default=0) > 1:
            raise wrong("twice", n=sum(count > 1 for count in self.begun))


def start(*functions: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def check_bound(n: int, most: int, spare: int, what: str) -> None:
    """Wrong if more or fewer calls returned than a bound allows, while no work could go on."""
    if n > most + spare:
        raise wrong("unbounded", n=n, what=what, most=most)
    if n < most:
        raise wrong("timid", n=n, what=what, most=most)
