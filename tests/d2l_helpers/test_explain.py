"""What a verdict says beside the ratio: where the time went, and why no difference is seen.

All on a virtual clock (`virtual_engine.py`), so that every figure and every sentence is exact.
"""

import pytest
from virtual_engine import VirtualEngine

from d2lmini import d2l, engine, nd
from d2lmini.d2l import compare

MS, US = 1e-3, 1e-6


@pytest.fixture
def machine(monkeypatch):
    return VirtualEngine().install(monkeypatch)


def pushing(machine, n, issue_s, work_s, **options):
    """A candidate: n operations, one after the other."""

    def run():
        for _ in range(n):
            machine.push(issue_s, work_s, **options)

    return run


def sentence_of(verdict):
    """The verdict's sentence without the BLAS threads, which are the real machine's."""
    threads = verdict.blas_threads
    words = "" if threads is None else f", {threads} BLAS thread{'s' * (threads != 1)}"
    return verdict.sentence.replace(words, "")


# --- where the time goes ---


@pytest.fixture
def book(machine):
    """Ten operations: 1 ms to issue, 1 ms to compute. Waiting each time costs the overlap."""

    def synchronous():
        for _ in range(10):
            machine.push(MS, MS)
            machine.waitall()

    asynchronous = pushing(machine, 10, MS, MS)
    return compare({"synchronous": synchronous, "asynchronous": asynchronous})


def test_a_call_is_split_into_issue_wait_and_drain(book):
    assert book.issue["synchronous"] == pytest.approx([10 * MS] * 10)
    assert book.wait["synchronous"] == pytest.approx([10 * MS] * 10)
    assert book.drain["synchronous"] == pytest.approx([0] * 10)
    assert book.parts["asynchronous"] == pytest.approx((10 * MS, 0, 1 * MS))
    assert book.cores_busy == pytest.approx({"synchronous": 1, "asynchronous": 20 / 11})
    for name, times in book.times.items():
        split = zip(book.issue[name], book.wait[name], book.drain[name])
        assert times == pytest.approx([sum(parts) for parts in split])


def test_the_table(book):
    assert book.table.splitlines() == [
        "              in the call  waiting  draining  in all  processor",
        "synchronous         10 ms    10 ms       0 s   20 ms      20 ms",
        "asynchronous        10 ms      0 s      1 ms   11 ms      20 ms",
    ]


# --- why no difference is seen ---


def test_both_wait_once_before_they_go_on(machine):
    def run():
        machine.push(MS, 20 * MS)
        machine.waitall()
        machine.push(MS, MS)

    causes = compare({"a": run, "b": lambda: run()}).causes()
    line = run.__code__.co_firstlineno + 2
    assert (
        causes[0]
        == f"both wait at tests/d2l_helpers/test_explain.py:{line} before they go on pushing"
    )


def test_each_waits_at_a_line_of_its_own(machine):
    def one():
        for _ in range(3):
            machine.push(MS, 9 * MS)
            machine.waitall()

    def other():
        for _ in range(3):
            machine.push(MS, 9 * MS)
            machine.waitall()

    here = "tests/d2l_helpers/test_explain.py"
    lines = [run.__code__.co_firstlineno + 3 for run in (one, other)]
    assert compare({"one": one, "other": other}).causes() == [
        f"one waits at {here}:{lines[0]}, and other at {here}:{lines[1]}"
    ]
    assert compare({"one": one, "never": pushing(machine, 1, MS, 29 * MS)}).causes() == [
        "most of never is one operation, work, of 29 ms"
    ]


def test_one_after_the_other(machine):
    def chain():
        for n in range(10):
            machine.push(1 * US, MS, after=(n,) if n else ())

    race = {"apart": pushing(machine, 10, 1 * US, MS), "chain": chain}
    verdict = compare(race)
    assert verdict.observed["chain"].chain_s == pytest.approx(10 * MS)
    assert verdict.observed["apart"].chain_s == pytest.approx(1 * MS)
    assert verdict.causes() == [
        "the operations of chain come one after the other, each after the one before"
    ]
    assert verdict.causes("apart", "chain") == ["one worker runs all operations of apart"]


def test_most_is_one_operation(machine):
    def product():
        machine.push(1 * US, 60 * MS)
        machine.push(1 * US, 2 * MS)

    verdict = compare({"NumPy": lambda: machine.spend(61 * MS), "NDArray": product})
    assert sentence_of(verdict) == (
        "no measurable difference between NumPy and NDArray (1.02-1.02, 10 rounds): "
        "most of NDArray is one operation, work, of 60 ms"
    )


@pytest.mark.parametrize(
    ("cores", "busy", "words"),
    [
        (2, 0.4, None),
        (2, 0.6, "1 of the 2 cores was busy with something else"),
        (2, 1.5, "1 of the 2 cores was busy with something else"),
        (2, 1.8, "2 of the 2 cores were busy with something else"),
        (4, 1.8, "2 of the 4 cores were busy with something else"),
        (16, 13.0, "13 of the 16 cores were busy with something else"),
        (1, 0.9, "this process has one core"),
    ],
)
def test_cores_that_were_busy_with_something_else(machine, cores, busy, words):
    machine.cores, machine.elsewhere = cores, busy
    verdict = compare({n: lambda: machine.spend(0.1) for n in "ab"}, rounds=5)
    assert verdict.elsewhere == pytest.approx(busy)
    assert verdict.causes() == ([words] if words else [])
    end = f": {words}" if words else ""
    assert sentence_of(verdict) == (
        f"no measurable difference between a and b (1.00-1.00, 5 rounds){end}"
    )


def test_the_first_alone_keeps_all_cores_busy(machine):
    def at_once():
        machine.push(1 * US, 10 * MS, threads=2)
        machine.push(1 * US, 10 * MS, threads=2)

    def in_turns():
        machine.push(1 * US, 10 * MS, threads=2)
        machine.waitall()
        machine.push(1 * US, 10 * MS, threads=2)

    verdict = compare({"in turns": in_turns, "at once": at_once})
    assert verdict.causes() == [
        "one worker runs all operations of at once",
        "in turns alone keeps 2.0 of the 2 cores busy",
    ]


# --- the real engine, no times ---


def test_the_real_engine_is_observed():
    x = nd.ones((3, 3))

    def waiting():
        for _ in range(3):
            y = x + 1
            y.wait_to_read()

    with engine.use("threaded", workers=2, inline_below=0):
        verdict = d2l.compare({"waiting": waiting, "not": lambda: [x + 1, x * 2]}, rounds=5)
    waiting_seen, other = verdict.observed.values()
    assert (waiting_seen.operations, other.operations) == (3, 2)
    (line,) = waiting_seen.waits
    assert line == f"tests/d2l_helpers/test_explain.py:{waiting.__code__.co_firstlineno + 3}"
    assert waiting_seen.waits[line][0] == pytest.approx(2)
    assert 0 < waiting_seen.wait_s < waiting_seen.returned_s
    assert other.waits == {} and other.wait_s == 0
    assert waiting_seen.workers == other.workers == 2
    assert verdict.cores >= 1
    assert len(verdict.table.splitlines()) == 3
