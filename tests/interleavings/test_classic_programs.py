"""Classic programs: the wrong ones are found within seconds, the right ones are not accused."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from d2lmini.interleavings import access, explore


def run_threads(*works) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Counter:
    def __init__(self):
        self.n = 0
        self.lock = threading.Lock()

    def add(self):
        self.n += 1

    def add_locked(self):
        with self.lock:
            self.n += 1


def lost_update():
    counter = Counter()
    run_threads(counter.add, counter.add)
    n = counter.n
    assert n == 2


def locked_update():
    counter = Counter()
    run_threads(counter.add_locked, counter.add_locked)
    assert counter.n == 2


def dine(n, first_of):
    forks = [threading.Lock() for _ in range(n)]

    def eat(i):
        one, other = first_of(i, (i + 1) % n)
        with forks[one], forks[other]:
            return

    run_threads(*[lambda i=i: eat(i) for i in range(n)])


def dining():
    dine(4, lambda i, j: (i, j))


def dining_in_order():
    dine(4, lambda i, j: (min(i, j), max(i, j)))


def missed_signal():
    """The signal comes before the wait, and nothing remembers it."""
    condition = threading.Condition()

    def consume():
        with condition:
            condition.wait()

    consumer = threading.Thread(target=consume)
    consumer.start()
    with condition:
        condition.notify()
    consumer.join()


def remembered_signal():
    condition, ready = threading.Condition(), []

    def consume():
        with condition:
            condition.wait_for(lambda: ready)

    consumer = threading.Thread(target=consume)
    consumer.start()
    with condition:
        ready.append(True)
        condition.notify()
    consumer.join()


def stolen_signal():
    """`if` in place of `while`: another consumer takes the item between notify and wake-up."""
    condition, items = threading.Condition(), []

    def consume():
        with condition:
            if not items:
                condition.wait()
            items.pop()

    def produce():
        for item in range(2):
            with condition:
                items.append(item)
                condition.notify()

    run_threads(consume, consume, produce)


class Stack:
    """A stack of links; `pop` compares and swaps the top, without versions."""

    def __init__(self, names):
        self.below = dict(zip(names, [*names[1:], None], strict=True))
        self.top = names[0]

    def compare_and_swap(self, old, new):
        access("top", write=True)
        if self.top != old:
            return False
        self.top = new
        return True

    def pop(self):
        while True:
            access("top")
            old = self.top
            if old is None:
                return None
            below = self.below[old]
            if self.compare_and_swap(old, below):
                return old

    def push(self, name):
        while True:
            access("top")
            old = self.top
            self.below[name] = old
            if self.compare_and_swap(old, name):
                return


def aba():
    """A thread pops A and B and pushes A again, while another is in the middle of popping A."""
    stack = Stack(["A", "B", "C"])

    def busy():
        a, b = stack.pop(), stack.pop()
        popped.append(b)
        stack.push(a)

    popped = []
    run_threads(lambda: popped.append(stack.pop()), busy)
    left = []
    while (name := stack.pop()) is not None:
        left.append(name)
    assert sorted(popped + left) == ["A", "B", "C"], (popped, left)


def double_release():
    """Two threads free one handle: both saw it in use."""
    semaphore = threading.BoundedSemaphore(1)
    used = threading.Event()
    semaphore.acquire()
    used.set()

    def free():
        if used.is_set():
            used.clear()
            semaphore.release()

    run_threads(free, free)


def lock_held_while_waiting():
    """A thread waits for an answer with the lock that the answer needs."""
    lock, answers = threading.Lock(), queue.Queue()

    def answer():
        with lock:
            answers.put(1)

    thread = threading.Thread(target=answer)
    thread.start()
    with lock:
        answers.get()
    thread.join()


def livelock():
    """Two polite threads: each gives its lock back if it does not get the other's in time."""
    locks = [threading.Lock(), threading.Lock()]

    def work(i):
        while True:
            with locks[i]:
                time.sleep(1)
                if locks[1 - i].acquire(timeout=1):
                    locks[1 - i].release()
                    return

    run_threads(lambda: work(0), lambda: work(1))


def starves():
    """A low priority waits while high ones come: the queue is never empty of them."""
    tasks = queue.PriorityQueue()
    done = threading.Event()

    def work():
        while not done.is_set():
            priority, name = tasks.get()
            if name == "low":
                done.set()
            else:
                tasks.put((priority, name))

    tasks.put((0, "high"))
    tasks.put((1, "low"))
    worker = threading.Thread(target=work)
    worker.start()
    done.wait()
    worker.join()


def sleeps_instead_of_waiting():
    values = []

    def work():
        time.sleep(0.1)
        values.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(1)
    assert values
    thread.join()


def pipeline():
    """A bounded queue between two stages, ended by a mark."""
    one, two, out = queue.Queue(1), queue.SimpleQueue(), []

    def double():
        while (item := one.get()) is not None:
            two.put(2 * item)
        two.put(None)

    def collect():
        while (item := two.get()) is not None:
            out.append(item)

    def feed():
        for item in (1, 2, None):
            one.put(item)

    run_threads(double, collect, feed)
    assert out == [2, 4]


def pool():
    with ThreadPoolExecutor(2) as executor:
        assert list(executor.map(lambda x: x * x, range(3))) == [0, 1, 4]


def barrier():
    meeting, order = threading.Barrier(2), []

    def work(name):
        order.append(name)
        meeting.wait()
        assert len(order) == 2

    run_threads(lambda: work("a"), lambda: work("b"))


def polls():
    """A loop that asks until another thread has answered ends under every fair schedule."""
    event = threading.Event()
    thread = threading.Thread(target=event.set)
    thread.start()
    while not event.is_set():
        time.sleep(0)
    thread.join()


def busy_polls():
    """Two threads that poll without a pause do not keep a third from answering."""
    event = threading.Event()

    def poll():
        while not event.wait(timeout=1):
            access("nothing")

    run_threads(poll, poll, event.set)


def competes_for_a_lock():
    """A thread that takes and frees a lock in a loop does not keep another from taking it once."""
    lock, ended = threading.Lock(), []

    def loop():
        while True:
            with lock:
                if ended:
                    return

    def once():
        with lock:
            ended.append(True)

    run_threads(loop, once)


WRONG = [
    (lost_update, "exception", {"lines": [Counter]}),
    (dining, "deadlock", {}),
    (missed_signal, "deadlock", {}),
    (stolen_signal, "exception", {}),
    (aba, "exception", {"preemptions": 3}),
    (double_release, "exception", {}),
    (lock_held_while_waiting, "deadlock", {}),
    (livelock, "no end", {"steps": 300}),
    (starves, "no end", {"steps": 300}),
    (sleeps_instead_of_waiting, "exception", {"timers": "any"}),
]
RIGHT = [
    (locked_update, {"lines": [Counter]}),
    (dining_in_order, {}),
    (remembered_signal, {}),
    (pipeline, {}),
    (pool, {}),
    (barrier, {}),
    (polls, {}),
    (busy_polls, {"timers": "any", "steps": 1000}),
    (competes_for_a_lock, {"steps": 1000}),
    (sleeps_instead_of_waiting, {}),
]


def name_of(value):
    return getattr(value, "__name__", "")


@pytest.mark.parametrize("search", ["mixed", "random"])
@pytest.mark.parametrize(("program", "kind", "options"), WRONG, ids=name_of)
def test_a_wrong_program_is_found_and_its_schedule_repeats(program, kind, options, search):
    begin = time.monotonic()
    found = explore(program, search=search, seconds=10, **options)
    assert found.failure is not None, found
    assert found.failure.kind == kind, found
    assert time.monotonic() - begin < 10
    options = {name: value for name, value in options.items() if name != "preemptions"}
    again = explore(program, schedule=found.schedule, **options)
    assert (again.failure.message, again.story) == (found.failure.message, found.story)


@pytest.mark.parametrize("search", ["mixed", "random", "reduced"])
@pytest.mark.parametrize(("program", "options"), RIGHT, ids=name_of)
def test_a_right_program_is_not_accused(program, options, search):
    found = explore(program, search=search, schedules=150, **options)
    assert found.failure is None, found
    assert found.schedules == 150 or found.complete
