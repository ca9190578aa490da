"""`labs.schedules`: schedules are repeated, failures found and told, and all threads end."""

import threading as real_threading

import pytest
from labs.schedules import explore, queue, threading, time


def cross(first, second):
    """Two threads take two locks, each in its own order."""

    def work(one, other):
        with one, other:
            return

    a = threading.Thread(target=work, args=(first, second), name="a")
    b = threading.Thread(target=work, args=(second, first), name="b")
    a.start(), b.start()
    a.join(), b.join()
    return "through"


def test_a_circle_of_locks_is_found_told_and_repeated():
    found = explore(lambda: cross(threading.Lock(), threading.Lock()))
    assert set(found.outcomes) == {"deadlock", "through"}
    assert "a         acquires Lock 2" in found.message and "and holds Lock 1" in found.message
    assert repr(found) == repr(explore(lambda: cross(threading.Lock(), threading.Lock())))
    assert found.outcomes == explore(lambda: cross(threading.Lock(), threading.Lock())).outcomes


def test_an_update_between_a_read_and_its_write_is_lost():
    def program():
        counter = [0]

        def add():
            seen = counter[0]
            time.sleep(0)
            counter[0] = seen + 1

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return counter[0]

    assert set(explore(program).outcomes) == {1, 2}


def test_queues_have_places_and_count():
    def program():
        jobs, done = queue.Queue(2), []
        with pytest.raises(queue.Empty):
            jobs.get_nowait()

        def work():
            while True:
                done.append(jobs.get())
                jobs.task_done()

        jobs.put(0), jobs.put(1)
        assert jobs.full() and jobs.qsize() == 2
        with pytest.raises(queue.Full):
            jobs.put_nowait(2)
        with pytest.raises(queue.Full):
            jobs.put(2, timeout=1)
        threading.Thread(target=work, daemon=True).start()
        jobs.put(2)
        jobs.join()
        return str(done)

    assert explore(program, schedules=50).outcomes == {"[0, 1, 2]": 50}


def test_the_shortest_sleep_ends_first_and_a_timeout_only_if_nothing_else_runs():
    def program():
        order, event, places = [], threading.Event(), threading.Semaphore(0)

        def sleep(seconds):
            time.sleep(seconds)
            order.append(seconds)
            places.release()

        for seconds in (0.3, 0.1, 0.2):
            threading.Thread(target=sleep, args=(seconds,)).start()
        assert not event.wait(0.25) and order == [0.1, 0.2]
        for _ in range(3):
            places.acquire()
        assert not places.acquire(blocking=False)
        return str(order)

    assert explore(program, schedules=50).outcomes == {"[0.1, 0.2, 0.3]": 50}


def test_an_error_of_any_thread_ends_the_run():
    def program():
        threading.Thread(target=lambda: 1 / 0, name="other").start()
        threading.Event().wait()

    found = explore(program, schedules=3)
    assert found.message == "other: ZeroDivisionError: division by zero"
    assert len(found.errors) == 3


def test_threads_that_go_on_without_end_are_ended():
    def spins():
        while True:
            pass

    def yields():
        while True:
            time.sleep(0)

    before = real_threading.active_count()
    for program, kind in ((spins, "no step"), (yields, "no end")):
        found = explore(program)
        assert found.failure == kind and found.outcomes == {kind: 1}
    assert real_threading.active_count() <= before + 1
