"""What weak collections hold, listed while other threads let go of elements."""

import threading
import time
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from d2lmini import profile
from d2lmini.base.forks import living
from d2lmini.profiler.recorder import this_thread


class Element:
    """Something that can be referred to weakly."""


def test_all_kinds_and_no_dead_ones():
    kept, lost = Element(), Element()
    collections = WeakSet([kept, lost]), WeakKeyDictionary({kept: 1, lost: 2})
    by_number = WeakValueDictionary({1: kept, 2: lost})
    assert len(living(by_number)) == 2
    del lost
    assert [living(each) for each in (*collections, by_number)] == [[kept]] * 3


def test_nothing_is_raised_while_elements_die_in_other_threads():
    elements, over = WeakKeyDictionary(), threading.Event()

    def come_and_go():
        while not over.is_set():
            elements[Element()] = 1

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        end_s = time.monotonic() + 0.5
        while time.monotonic() < end_s:
            living(elements)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_threads_that_end_while_others_are_named_drop_no_trace():
    """Each new thread asks for its name; the first letters of all are alike."""
    problems = []

    def ask():
        try:
            this_thread()
        except RuntimeError as problem:
            problems.append(problem)

    with profile():
        for _ in range(200):
            threads = [threading.Thread(target=ask) for _ in range(5)]
            for thread in threads:
                thread.start()
            del thread, threads
    assert not problems
