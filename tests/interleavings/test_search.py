"""Which schedules a search runs: counted by hand for small programs, and against each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from math import comb, factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lmini.interleavings import access, explore

MANY = 100_000


def run_all(program: Callable[[], object], search: str, **options: object):
    """The exploration to its end, over failures."""
    found = explore(program, search=search, schedules=MANY, stop=False, **options)  # type: ignore[arg-type]
    assert found.complete
    return found


def start_and_join(*works: Callable[[], object]) -> None:
    """Run each function on a thread of its own."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def make_program(lengths: list[int]) -> Callable[[], object]:
    """Threads that take so many steps on variables of their own, released by one event."""

    def program() -> None:
        gate = threading.Event()

        def work(name: str, n: int) -> None:
            gate.wait()
            for _ in range(n):
                access(name, write=True)

        threads = [
            threading.Thread(target=work, args=(f"x{i}", n), daemon=True)
            for i, n in enumerate(lengths)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return program


def count_orders(chains: list[list[object]]) -> int:
    """The number of ways to merge chains of steps; a step is a thread's number, or the chain that
    it starts or waits for."""
    seen: dict[object, int] = {}

    def count(done: tuple[int, ...]) -> int:
        if done not in seen:
            total, finished = 0, True
            for i, chain in enumerate(chains):
                if done[i] == len(chain):
                    continue
                finished = False
                if _may_run(chains, done, i):
                    total += count((*done[:i], done[i] + 1, *done[i + 1 :]))
            seen[done] = 1 if finished else total
        return seen[done]

    return count(tuple(0 for _ in chains))


def _may_run(chains: list[list[object]], done: tuple[int, ...], i: int) -> bool:
    if i and ("start", i) in chains[0][done[0] :]:
        return False
    step = chains[i][done[i]]
    if isinstance(step, tuple) and step[0] == "join":
        return done[step[1]] == len(chains[step[1]])
    return True


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_two_threads_of_n_steps_have_as_many_orders_as_the_binomial_coefficient(n):
    """The threads run between two barriers that the main thread passes alone: it starts them in
    one step each, so the steps before the last start are counted too."""

    def program():
        def work(name):
            for _ in range(n):
                access(name, write=True)

        first = threading.Thread(target=work, args=("x",))
        first.start()
        work("y")
        first.join()

    # The new thread: its beginning and n steps. The main thread: n steps, then the join, which
    # is the last step of all.
    assert run_all(program, "all").schedules == comb(2 * n + 1, n)
    # Nothing is shared: one class.
    assert run_all(program, "reduced").schedules == 1


@pytest.mark.parametrize("lengths", [[1], [2, 1], [1, 1, 1], [3, 2]])
def test_full_enumeration_runs_every_order_once(lengths):
    def program():
        def work(name, n):
            for _ in range(n):
                access(name, write=True)

        start_and_join(*[lambda i=i, n=n: work(f"x{i}", n) for i, n in enumerate(lengths)])

    main: list[object] = ["begins"]
    main += [("start", i + 1) for i in range(len(lengths))]
    main += [("join", i + 1) for i in range(len(lengths))]
    chains = [main, *[["step"] * (n + 1) for n in lengths]]
    found = run_all(program, "all")
    assert found.schedules == count_orders(chains)
    assert run_all(program, "reduced").schedules == 1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_one_class_for_each_order_of_n_writers(n):
    def program():
        order = []

        def work(i):
            access("x", write=True)
            order.append(i)

        start_and_join(*[lambda i=i: work(i) for i in range(n)])
        return tuple(order)

    found = run_all(program, "reduced")
    assert found.schedules == factorial(n)
    assert len(found.outcomes) == factorial(n)


def test_the_bound_on_preemptions_is_kept_and_reached():
    """A failure that needs exactly three preemptions is found with the bound 3 and not with 2."""

    def program():
        seen = []

        def work(name):
            for i in range(2):
                access("x", write=True)
                seen.append((name, i))

        start_and_join(lambda: work("a"), lambda: work("b"))
        assert [name for name, _ in seen] != ["a", "b", "a", "b"] or seen[0] != ("a", 0)

    bounds = {
        n: explore(program, search="preemptions", preemptions=n, schedules=MANY) for n in range(4)
    }
    least = min(n for n, found in bounds.items() if found.failure)
    assert 0 < least < 4
    for n, found in bounds.items():
        assert (found.failure is None) == (n < least)
        assert found.complete == (found.failure is None)


# -- the reduction against full enumeration ------------------------------------------------------

LOCKS, CELLS = ("p", "q"), ("x", "y")
simple_operations = st.sampled_from(
    [
        *[("lock", name) for name in LOCKS],
        *[("try", name) for name in LOCKS],
        *[("add", name) for name in CELLS],
        *[("read", name) for name in CELLS],
        ("set", "e"),
        ("wait", "e"),
        ("up", "s"),
        ("down", "s"),
        ("put", "k"),
        ("get", "k"),
        ("sleep", "1"),
        ("sleep", "2"),
        ("soon", "p"),
        ("notify", "c"),
        ("await", "c"),
    ]
)
programs = st.lists(st.lists(simple_operations, min_size=1, max_size=3), min_size=2, max_size=2)


def perform(threads_operations: list[list[tuple[str, str]]]) -> object:
    """Run a drawn program; its outcome is all that its threads saw."""
    import queue
    import time

    cells = dict.fromkeys(CELLS, 0)
    locks = {name: threading.Lock() for name in LOCKS}
    event, semaphore, items = threading.Event(), threading.Semaphore(1), queue.Queue(1)
    condition = threading.Condition()
    seen: list[list[object]] = [[] for _ in threads_operations]

    def do(i: int, what: str, name: str) -> Iterator[object]:
        if what == "lock":
            with locks[name]:
                access("x")
                yield cells["x"]
        elif what == "try":
            if locks[name].acquire(blocking=False):
                access("y", write=True)
                cells["y"] += 1
                locks[name].release()
            else:
                yield "busy"
        elif what == "soon":
            if locks[name].acquire(timeout=1):
                access("x", write=True)
                cells["x"] += 10
                time.sleep(1.5)
                locks[name].release()
            else:
                yield "late"
        elif what == "add":
            access(name)
            value = cells[name]
            access(name, write=True)
            cells[name] = value + 1
        elif what == "read":
            access(name)
            yield cells[name]
        elif what == "set":
            event.set()
        elif what == "wait":
            yield event.wait(1.5)
        elif what == "up":
            semaphore.release()
        elif what == "down":
            semaphore.acquire()
        elif what == "put":
            items.put(i)
        elif what == "get":
            yield items.get()
        elif what == "sleep":
            time.sleep(float(name))
            yield time.monotonic()
        elif what == "notify":
            with condition:
                condition.notify()
        elif what == "await":
            with condition:
                yield condition.wait(2)

    def work(i: int) -> None:
        for what, name in threads_operations[i]:
            seen[i].extend(do(i, what, name))

    start_and_join(*[lambda i=i: work(i) for i in range(len(threads_operations))])
    return tuple(map(tuple, seen)), tuple(cells.values())


def outcomes_of(
    drawn: list[list[tuple[str, str]]], search: str, most: int, timers: str
) -> tuple[set, int] | None:
    """The outcomes of a program, and the number of schedules; None if there are too many."""
    found = explore(
        lambda: perform(drawn), search=search, schedules=most, stop=False, timers=timers
    )
    return (set(found.outcomes), found.schedules) if found.complete else None


@settings(max_examples=15, deadline=None)
@given(programs, st.sampled_from(["idle", "any"]))
def test_reduction_finds_the_outcomes_of_full_enumeration(drawn, timers):
    everything = outcomes_of(drawn, "all", 800, timers)
    if everything is None:
        return
    reduced = outcomes_of(drawn, "reduced", MANY, timers)
    assert reduced is not None
    assert reduced[0] == everything[0]
    assert reduced[1] <= everything[1]
