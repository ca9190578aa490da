"""The locks, conditions, events and semaphores that a controlled program gets from `threading`.

Each operation is one step. Made on a thread that no exploration controls, they are the real ones;
one that outlives its run is used by such threads as a real one too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from d2lmini.interleavings.controlled import ControlledThread, allocate_lock, current
from d2lmini.interleavings.records import Uses
from d2lmini.interleavings.scheduler import Run
from d2lmini.interleavings.sites import find_site, name_at

#: The real classes and factories, before any exploration replaces them.
REAL: dict[str, Any] = {
    name: getattr(threading, name)
    for name in ("BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore")
}


def controlled(method: Any) -> Any:
    """Make a method call the real object's method on threads that no exploration controls, and get
    the calling thread as its second argument on the others."""
    name = method.__name__

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        thread = current()
        if thread is None:
            return getattr(self.real, name)(*args, **kwargs)
        if thread.run is not self.run:
            self.join_run(thread)
        return method(self, thread, *args, **kwargs)

    return call


class Primitive:
    """An object that threads share: its key and name in the run that uses it."""

    run: Run | None = None
    key: Any = None
    owner: ControlledThread | None = None
    label = ""
    _real: Any = None

    #: Its name among the names that are replaced.
    kind: ClassVar[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return REAL[cls.kind](*args, **kwargs)
        return object.__new__(cls)

    def __init__(self, *args: Any) -> None:
        self.args = args
        thread = current()
        if thread is not None:
            self.join_run(thread)

    def __str__(self) -> str:
        return f"{self.kind} {self.label}".rstrip()

    def join_run(self, thread: ControlledThread) -> None:
        """Begin anew in the run of `thread`."""
        self.run = thread.run
        number = next(thread.made)
        self.key = thread.number, number
        self.owner = None
        if not self.label:
            site = find_site()
            made = thread.run.made
            self.label = name_at(site, self.kind, made[site, self.kind])
            made[site, self.kind] += 1
            self.label = self.label or f"{thread.number}.{number}"
        self.reset()

    def reset(self) -> None:
        """Set the state that a new object has."""
        raise NotImplementedError

    @property
    def real(self) -> Any:
        """The real object that other threads use."""
        if self._real is None:
            self._real = REAL[self.kind](*self.args)
        return self._real

    @property
    def read(self) -> Uses:
        """What an operation uses that only looks at the object."""
        return ((self.key, False),)

    def set_owner(self, thread: ControlledThread) -> None:
        """Make `thread` the owner."""
        self.owner = thread
        thread.holds.append(self)

    def clear_owner(self) -> None:
        """Take the object from its owner."""
        if self.owner is not None:
            self.owner.holds.remove(self)
        self.owner = None


def _check(blocking: bool, timeout: float) -> float | None:
    """The timeout of an `acquire`; None to wait for ever."""
    if timeout == -1:
        return None
    allocate_lock().acquire(blocking, timeout)  # raises what a real lock raises
    return timeout


class Lock(Primitive):
    """A lock; see `threading.Lock`."""

    kind = "Lock"

    def reset(self) -> None:
        self.is_taken = False

    @controlled
    def acquire(self, thread: ControlledThread, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if `timeout` seconds have passed."""
        limit = _check(blocking, timeout)
        if blocking:
            step = thread.step("acquires", self, lambda late: late or not self.is_taken, limit)
        else:
            step = thread.step("tries to acquire", self)
        if self.is_taken:
            step.result = "in vain"
            return False
        self.is_taken = True
        self.set_owner(thread)
        return True

    @controlled
    def release(self, thread: ControlledThread) -> None:
        """Free the lock."""
        thread.step("releases", self)
        if not self.is_taken:
            raise RuntimeError("release unlocked lock")
        self.is_taken = False
        self.clear_owner()

    @controlled
    def locked(self, thread: ControlledThread) -> bool:
        """True if a thread has the lock."""
        thread.step("looks at", self, uses=self.read)
        return self.is_taken

    def release_all(self, thread: ControlledThread) -> int:
        """Free the lock for a `Condition.wait`; the number of times that it was acquired."""
        if not self.is_taken:
            raise RuntimeError("cannot wait on un-acquired lock")
        self.is_taken = False
        self.clear_owner()
        return 1

    def acquire_again(self, thread: ControlledThread, times: int) -> None:
        """Take the lock after a `Condition.wait`."""
        self.is_taken = True
        self.set_owner(thread)

    def __enter__(self) -> bool:
        return bool(self.acquire())

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its owner may acquire again, which is no step; see `threading.RLock`."""

    kind = "RLock"

    def reset(self) -> None:
        super().reset()
        self.times = 0

    @controlled
    def acquire(self, thread: ControlledThread, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if `timeout` seconds have passed."""
        if self.owner is not thread and not super().acquire(blocking, timeout):
            return False
        self.times += 1
        return True

    @controlled
    def release(self, thread: ControlledThread) -> None:
        """Undo one `acquire`."""
        if self.owner is not thread:
            raise RuntimeError("cannot release un-acquired lock")
        if self.times == 1:
            super().release()
        self.times -= 1

    @controlled
    def _is_owned(self, thread: ControlledThread) -> bool:
        return self.owner is thread

    def release_all(self, thread: ControlledThread) -> int:
        if self.owner is not thread:
            raise RuntimeError("cannot wait on un-acquired lock")
        times, self.times = self.times, 0
        super().release_all(thread)
        return times

    def acquire_again(self, thread: ControlledThread, times: int) -> None:
        super().acquire_again(thread, times)
        self.times = times


class Condition(Primitive):
    """A condition; see `threading.Condition`."""

    kind = "Condition"

    def __init__(self, lock: Any = None) -> None:
        own = lock is None
        if own:
            lock = RLock()
        if not isinstance(lock, Lock):
            raise TypeError(
                f"Condition: the lock is {lock!r}, made before the exploration; make the lock in "
                "the program, or name its module in `modules`"
            )
        self.lock = lock
        super().__init__()
        if own:
            lock.label = f"of {self}"

    def reset(self) -> None:
        self.waiters: deque[list[bool]] = deque()
        self.acquire, self.release = self.lock.acquire, self.lock.release

    @property
    def real(self) -> Any:
        if self._real is None:
            self._real = REAL["Condition"](self.lock.real)
        return self._real

    @property
    def both(self) -> Uses:
        """What a wait uses."""
        return (self.key, True), (self.lock.key, True)

    @controlled
    def wait(self, thread: ControlledThread, timeout: float | None = None) -> bool:
        """Free the lock, wait for a `notify`, take the lock; False if the time was up."""
        self._check_owned(thread, "wait on")
        thread.step("begins to wait for", self, uses=self.both)
        times = self.lock.release_all(thread)
        notified = [False]
        self.waiters.append(notified)
        step = thread.step(
            "waits for",
            self,
            lambda late: (late or notified[0]) and not self.lock.is_taken,
            None if timeout is None else max(timeout, 0),
            uses=self.both,
        )
        self.lock.acquire_again(thread, times)
        if not notified[0]:
            step.result = "in vain"
            self.waiters = deque(waiter for waiter in self.waiters if waiter is not notified)
        return notified[0]

    @controlled
    def wait_for(
        self,
        thread: ControlledThread,
        predicate: Callable[[], Any],
        timeout: float | None = None,
    ) -> Any:
        """Wait until `predicate()` is true; its last value."""
        deadline = None if timeout is None else thread.run.now + timeout
        value = predicate()
        while not value:
            left = None if deadline is None else deadline - thread.run.now
            if left is not None and left <= 0:
                break
            self.wait(left)
            value = predicate()
        return value

    @controlled
    def notify(self, thread: ControlledThread, n: int = 1) -> None:
        """Wake up to `n` of the threads that wait."""
        self._check_owned(thread, "notify on")
        step = thread.step("notifies", self)
        woken = min(n, len(self.waiters))
        step.result = "" if woken else "nothing waits"
        for _ in range(woken):
            self.waiters.popleft()[0] = True

    @controlled
    def notify_all(self, thread: ControlledThread) -> None:
        """Wake all threads that wait."""
        self.notify(len(self.waiters))

    notifyAll = notify_all

    def _check_owned(self, thread: ControlledThread, what: str) -> None:
        owned = self.lock.owner is thread if isinstance(self.lock, RLock) else self.lock.is_taken
        if not owned:
            raise RuntimeError(f"cannot {what} un-acquired lock")

    def __enter__(self) -> bool:
        return bool(self.lock.acquire())

    def __exit__(self, *error: object) -> None:
        self.lock.release()


class Event(Primitive):
    """An event; see `threading.Event`."""

    kind = "Event"

    def reset(self) -> None:
        self.flag = False

    @controlled
    def is_set(self, thread: ControlledThread) -> bool:
        """True after `set`."""
        thread.step("looks at", self, uses=self.read)
        return self.flag

    isSet = is_set

    @controlled
    def set(self, thread: ControlledThread) -> None:
        """Wake all threads that wait, and let later waits pass."""
        thread.step("sets", self)
        self.flag = True

    @controlled
    def clear(self, thread: ControlledThread) -> None:
        """Let waits block again."""
        thread.step("clears", self)
        self.flag = False

    @controlled
    def wait(self, thread: ControlledThread, timeout: float | None = None) -> bool:
        """Wait for `set`; False if the time was up."""
        limit = None if timeout is None else max(timeout, 0)
        step = thread.step("waits for", self, lambda late: late or self.flag, limit, uses=self.read)
        step.result = "" if self.flag else "in vain"
        return self.flag


class Semaphore(Primitive):
    """A semaphore; see `threading.Semaphore`."""

    kind = "Semaphore"

    def __init__(self, value: int = 1):
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self.first = value
        super().__init__(value)

    def reset(self) -> None:
        self.value = self.first

    @property
    def most(self) -> float:
        """The largest count."""
        return float("inf")

    @controlled
    def acquire(
        self, thread: ControlledThread, blocking: bool = True, timeout: float | None = None
    ) -> bool:
        """Count down; wait while the count is zero. False if the time was up."""
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        if blocking:
            limit = None if timeout is None else max(timeout, 0)
            step = thread.step("acquires", self, lambda late: late or self.value > 0, limit)
        else:
            step = thread.step("tries to acquire", self)
        if self.value == 0:
            step.result = "in vain"
            return False
        self.value -= 1
        return True

    @controlled
    def release(self, thread: ControlledThread, n: int = 1) -> None:
        """Count up by `n`."""
        if n < 1:
            raise ValueError("n must be one or more")
        thread.step("releases", self)
        if self.value + n > self.most:
            raise ValueError("Semaphore released too many times")
        self.value += n

    def __enter__(self) -> bool:
        return bool(self.acquire())

    def __exit__(self, *error: object) -> None:
        self.release()


class BoundedSemaphore(Semaphore):
    """A semaphore that must not be released too often; see `threading.BoundedSemaphore`."""

    kind = "BoundedSemaphore"

    @property
    def most(self) -> float:
        return self.first
