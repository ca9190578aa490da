"""Traces on the virtual clock of the stepped engine have exact times."""

from __future__ import annotations

from virtual_programs import length, spans

from d2lmini import engine, nd, profile


def test_times_are_those_of_the_virtual_clock():
    with engine.stepped(times=20, workers=2) as s, profile() as trace:
        a = nd.ones((2, 2))
        b = a * 2
        c = a * 3
        b.wait_to_read()
        a += 1
        b + c
    us = 1000
    assert spans(trace) == [
        (0, 0, 0, 20 * us),
        (0, 20 * us, 20 * us, 40 * us),
        (0, 20 * us, 20 * us, 40 * us),
        (40 * us, 40 * us, 40 * us, 60 * us),
        (40 * us, 40 * us, 40 * us, 60 * us),
    ]
    assert length(trace) == 60 * us and trace.left_ns - trace.begin_ns == 40 * us
    (wait,) = trace.waits
    assert (wait.begin_ns, wait.end_ns) == (trace.begin_ns, trace.begin_ns + 40 * us)
    assert (wait.pushed, wait.operation) == (3, 2)
    assert trace.workers == {"cpu": 2, "cpu(0) wire": 1}
    # The log of the engine tells the same.
    ends = {event.number: event.time_us for event in s.log if event.kind == "end"}
    assert [ends[operation.number] * us for operation in trace.operations] == [
        e[3] for e in spans(trace)
    ]


def test_a_wait_to_write_is_for_the_readers_too():
    times = {"_ones": 0, "exp": 5000, "tanh": 100}
    with engine.stepped(workers=2, times=times), profile() as trace:
        x = nd.ones((2, 2))
        y = x.exp()
        x.wait_to_write()
        y = y.tanh()
        nd.waitall()
    path = trace.critical_path()
    assert path.length_ns == length(trace) == 5_100_000
    assert path.operations == [2, 3] and all(step.kind != "wait" for step in path.steps)
