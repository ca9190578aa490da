"""Pairs of programs that differ in one thing: the difference that is found is that one.

The programs push tasks that sleep or do nothing, so that what runs beside what does not depend on
the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from d2lmini import engine, nd, profile
from d2lmini.profiler import Trace
from d2lmini.profiler.diff import Diff

#: Kinds of finding that say what a program does; the others say how long it takes.
CERTAIN = ("added", "removed")


@pytest.fixture(autouse=True)
def two_workers() -> Iterator[None]:
    """Two workers, and nothing runs inline."""
    with engine.use("threaded", workers=2, inline_below=0):
        yield


def traced(program: Callable[..., Any], *args: Any) -> Trace:
    with profile() as trace:
        program(*args)
    return trace


def certain(diff: Diff) -> list[tuple[str, str, int]]:
    return [(each.kind, each.name, each.n) for each in diff.findings if each.kind in CERTAIN]


def plain() -> None:
    a = nd.ones((2, 2))
    b = a + 1
    c = a * 2
    d = b - c
    d.wait_to_read()


def test_two_runs_of_one_program_do_not_differ_in_what_they_do():
    diff = traced(plain).diff(traced(plain))
    assert certain(diff) == [] and not diff.of("added")


def without_a_line() -> None:
    a = nd.ones((2, 2))
    b = a + 1
    d = b - b
    d.wait_to_read()


def test_a_line_that_is_gone():
    diff = traced(plain).diff(traced(without_a_line))
    # What took the place of `d = b - c` is compared with it; the lines below are not shifted.
    assert certain(diff) == [("removed", "_mul_scalar", 1)]
    assert "c = a * 2" in diff.findings[0].where
    back = traced(without_a_line).diff(traced(plain))
    assert certain(back) == [("added", "_mul_scalar", 1)]


def nap() -> None:
    time.sleep(0.02)


def naps(waits: bool) -> None:
    a, b = engine.new_var(), engine.new_var()
    for _ in range(3):
        engine.push(nap, writes=[a])
        if waits:
            engine.wait_for_var(a)
        engine.push(nap, writes=[b])
        if waits:
            engine.wait_for_var(b)


def test_a_wait_that_was_added():
    free, waiting = traced(naps, False), traced(naps, True)
    diff = free.diff(waiting)
    assert certain(diff) == []
    waits = diff.of("newly waiting")
    assert [(wait.name, wait.n) for wait in waits] == [("wait_for_var", 3), ("wait_for_var", 3)]
    assert "engine.wait_for_var(a)" in waits[0].where
    assert waits[0].before == 0 and waits[0].after >= 0.05
    back = waiting.diff(free)
    assert len(back.of("no longer waiting")) == 2


def dozing(us: float) -> Trace:
    """On a virtual clock."""
    with engine.stepped(times=us), profile() as trace:
        engine.push(int, writes=[engine.new_var()], name="doze")
    return trace


def test_what_takes_longer():
    short, long = dozing(10_000), dozing(80_000)
    (finding,) = short.diff(long).of("slower")
    assert (finding.name, finding.before, finding.after) == ("doze", 0.01, 0.08)
    assert len(long.diff(short).of("faster")) == 1
    assert "ms -> " in str(finding)
