"""What weak collections hold, listed while other threads let go of elements."""

import threading
import time
from weakref import WeakKeyDictionary

from d2lmini.base.forks import living


class Element:
    """Something that can be referred to weakly."""


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
