"""`Trace.explain`: why two operations never overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from d2lmini import engine, nd, profile
from d2lmini.profiler.event_graph import Explanation
from d2lmini.profiler.tracing import Trace

US = 1000


def trace_of(program: Callable[[], Any], workers: int = 2) -> Trace:
    """On a virtual clock, where each operation takes a millisecond."""
    with engine.stepped(times=US, workers=workers), profile() as trace:
        program()
    return trace


def number(trace: Trace, line: str) -> int:
    (found,) = [each.number for each in trace.operations if line in each.line]
    return found


def overwrites() -> None:
    x = nd.ones((2,))
    nd.exp(x)  # left
    x[:] = 3  # right


def with_a_fresh_array() -> None:
    x = nd.ones((2,))
    nd.exp(x)  # left
    nd.full((2,), 3)  # right


def waits() -> None:
    x, z = nd.ones((2,)), nd.ones((2,))
    y = nd.exp(x)  # left
    y.wait_to_read()
    nd.tanh(z)  # right


def waits_below() -> None:
    x, z = nd.ones((2,)), nd.ones((2,))
    y = nd.exp(x)  # left
    nd.tanh(z)  # right
    y.wait_to_read()


def explained(program: Callable[[], Any], workers: int = 2) -> Explanation:
    trace = trace_of(program, workers)
    return trace.explain(number(trace, "# right"), number(trace, "# left"))


@pytest.mark.parametrize(
    ("program", "why", "words"),
    [
        (overwrites, "room", "makes room by waiting"),
        (waits, "waits", "waits until it is over (wait_to_read)"),
        (with_a_fresh_array, "", "nothing forbids it"),
        (waits_below, "", "nothing forbids it"),
    ],
)
def test_why_two_operations_cannot_overlap(program, why, words):
    found = explained(program)
    assert found.why == why and words in str(found)
    assert bool(why) == ("test_overlap.py" in str(found))


def test_the_chain_names_every_link():
    def program() -> None:
        x = nd.ones((2,))
        y = nd.exp(x)  # first
        z = nd.tanh(y)  # second
        nd.sqrt(z)  # third

    trace = trace_of(program)
    found = trace.explain(number(trace, "# first"), number(trace, "# third"))
    assert [link.split(": ")[0] for link in found.chain] == [
        "3 tanh reads what 2 exp makes", "4 sqrt reads what 3 tanh makes",
    ]  # fmt: skip
    assert "# second" in str(found)


def test_what_an_operation_issues():
    """While the program waits: not after the wait. By one that needs the value: after it."""

    def program(needs: bool) -> Trace:
        def run() -> None:
            x, done = nd.ones((2,)), engine.new_var()
            y = nd.exp(x)  # left
            reads = [y._chunk] if needs else []
            engine.push(lambda: engine.push(int, name="inner"), reads, [done], name="outer")
            y.wait_to_read()
            engine.wait_for_var(done)

        return trace_of(run)

    for needs, why in ((True, "child"), (False, "")):
        trace = program(needs)
        (inner,) = [each for each in trace.operations if each.name == "inner"]
        assert inner.by and trace.events.between(trace[2], inner) == why
        found = str(trace.explain(trace[2], inner))
        assert ("outer issues" in found) == needs
