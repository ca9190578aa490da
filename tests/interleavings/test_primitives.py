"""Controlled locks, events, queues and threads behave like those of the standard library."""

from __future__ import annotations

import queue
import threading

import pytest

from d2lmini.interleavings import explore


def use_lock():
    lock = threading.Lock()
    yield lambda: lock.acquire()
    yield lambda: lock.locked()
    yield lambda: lock.acquire(blocking=False)
    yield lambda: lock.acquire(timeout=0.01)
    yield lambda: lock.acquire(False, 1)
    yield lambda: lock.acquire(timeout=-2)
    yield lambda: lock.release()
    yield lambda: lock.release()
    yield lambda: lock.__enter__()


def use_rlock():
    lock = threading.RLock()
    yield lambda: lock.release()
    yield lambda: [lock.acquire(), lock.acquire(timeout=1), lock.release(), lock.release()]
    yield lambda: lock.release()


def use_condition():
    condition = threading.Condition(threading.Lock())
    yield lambda: condition.wait()
    yield lambda: condition.notify()
    yield lambda: condition.acquire()
    yield lambda: condition.wait(0.01)
    yield lambda: condition.wait(-1)
    yield lambda: condition.notify_all()
    yield lambda: condition.wait_for(lambda: 3)
    yield lambda: condition.wait_for(lambda: 0, timeout=0.02)
    yield lambda: condition.release()


def use_event():
    event = threading.Event()
    yield lambda: event.is_set()
    yield lambda: event.wait(0.01)
    yield lambda: [event.set(), event.wait(), event.is_set()]
    yield lambda: [event.clear(), event.wait(0)]


def use_semaphores():
    yield lambda: threading.Semaphore(-1)
    free, bounded = threading.Semaphore(1), threading.BoundedSemaphore(1)
    for semaphore in (free, bounded):
        yield semaphore.acquire
        yield lambda s=semaphore: s.acquire(blocking=False)
        yield lambda s=semaphore: s.acquire(timeout=0.01)
        yield lambda s=semaphore: s.acquire(False, 1)
        yield semaphore.release
        yield semaphore.release
        yield lambda s=semaphore: s.release(0)


def use_queues():
    for kind in (queue.Queue, queue.LifoQueue, queue.PriorityQueue):
        items = kind(2)
        yield lambda q=items: [q.put(2), q.put(1), q.full(), q.qsize(), q.empty()]
        yield lambda q=items: q.put(3, timeout=0.01)
        yield lambda q=items: q.put_nowait(3)
        yield lambda q=items: q.put(3, timeout=-1)
        yield lambda q=items: [q.get(), q.get(timeout=1)]
        yield lambda q=items: q.get(timeout=0.01)
        yield lambda q=items: q.get_nowait()
        yield lambda q=items: [q.task_done(), q.task_done(), q.join()]
        yield lambda q=items: q.task_done()
    simple = queue.SimpleQueue()
    yield lambda: [simple.put(1), simple.qsize(), simple.get(), simple.empty()]
    yield lambda: simple.get(timeout=0.01)
    yield lambda: simple.get_nowait()


def use_threads():
    thread = threading.Thread(target=lambda: names.append(threading.current_thread()), daemon=True)
    names: list[threading.Thread] = []
    yield lambda: [thread.is_alive(), thread.daemon, thread.ident]
    yield lambda: thread.join()
    yield lambda: [thread.start(), thread.join(), thread.is_alive(), names == [thread]]
    yield lambda: thread.start()
    yield lambda: thread.join(timeout=0.01)
    yield lambda: threading.current_thread().join()
    late = threading.Timer(0.01, lambda: names.append(late))
    yield lambda: [late.start(), late.join(), len(names)]


def use_barrier():
    barrier = threading.Barrier(2, timeout=0.01)
    yield lambda: barrier.wait()
    yield lambda: [barrier.broken, barrier.reset(), barrier.broken]


def results_of(use) -> list[str]:
    results = []
    for call in use():
        try:
            results.append(repr(call()))
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}")
    return results


USES = [
    use_lock, use_rlock, use_condition, use_event, use_semaphores, use_queues, use_threads,
    use_barrier,
]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_controlled_objects_behave_like_those_of_the_standard_library(use):
    controlled: list[list[str]] = []
    found = explore(lambda: controlled.append(results_of(use)), schedules=1)
    assert found.failure is None, found
    assert controlled == [results_of(use)]
