"""Traces on the virtual clock of the stepped engine: exact times, and an oracle for the replay.

The stepped engine runs a program on two workers; from its trace the replay foresees one, or three;
the stepped engine with so many workers says what is true, to the nanosecond.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from d2lmini import engine, gpu, nd, profile, virtual_gpus
from d2lmini.profiler import Trace


def spans(trace: Trace) -> list[tuple[int, ...]]:
    """Pushed, ready, begun, ended, in nanoseconds from the begin."""
    times = [(e.pushed_ns, e.ready_ns, e.began_ns, e.ended_ns) for e in trace.operations]
    return [tuple(t - trace.begin_ns for t in time) for time in times]


def length(trace: Trace) -> int:
    return trace.end_ns - trace.begin_ns


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


def test_account_timeline_and_critical_path_are_of_virtual_time():
    with engine.stepped(times=50, workers=2), profile() as trace:
        x = nd.ones((2, 2))
        for _ in range(3):
            x = x * 2
        x.asnumpy()
    account = trace.account()
    assert account.wall_ns == 200_000
    assert sum(part.ns for part in account.parts.values()) == pytest.approx(length(trace))
    assert trace.critical_path().length_ns == length(trace) == 200_000
    assert trace.critical_path().operations == [1, 2, 3, 4]
    assert str(trace.timeline())
    assert [row.seconds for row in trace.waits()] == [pytest.approx(200e-6)]
    assert trace.memory()


def test_an_empty_program_takes_no_time():
    with engine.stepped(), profile() as trace:
        pass
    assert length(trace) == 0 and str(trace.account())


def test_a_trace_that_begins_before_the_engine_is_there():
    with profile() as trace, engine.stepped(times=30):
        (nd.ones((2,)) + 1).wait_to_read()
    assert [operation.run_ns for operation in trace.operations] == [30_000, 30_000]
    assert trace.begin_ns <= trace.operations[0].pushed_ns


def program(seed: int) -> Any:
    """Tasks on a few Vars, with waits; how long each takes. (Without priorities: where pushing
    takes no time, those of higher ones overtake others that in truth had begun.)"""
    rng = random.Random(seed)
    n = rng.randint(2, 6)
    times = {f"op{i}": rng.uniform(5, 90) for i in range(12)}
    plan = [
        (rng.choice(list(times)), [rng.randrange(n)] if rng.random() < 0.5 else [],
         rng.randrange(n), rng.random() < 0.1)
        for _ in range(rng.randint(5, 40))
    ]  # fmt: skip

    def run() -> None:
        variables = [engine.new_var() for _ in range(n)]
        for name, reads, write, waits in plan:
            engine.push(int, [variables[k] for k in reads], [variables[write]], name=name)
            if waits:
                engine.wait_for_var(variables[write])

    return run, times


def traced(run: Any, **options: Any) -> Trace:
    with engine.stepped(**options), profile() as trace:
        run()
    return trace


@pytest.mark.parametrize("seed", range(40))
def test_replay_foresees_what_the_stepped_engine_does(seed: int):
    run, times = program(seed)
    two = traced(run, times=times, workers=2)
    assert spans(two.replay()) == spans(two)
    for workers in (1, 3):
        true, foreseen = traced(run, times=times, workers=workers), two.replay(workers=workers)
        assert length(foreseen) == pytest.approx(length(true), abs=len(true.operations))
        assert [e.began_ns - foreseen.begin_ns for e in foreseen.operations] == pytest.approx(
            [e.began_ns - true.begin_ns for e in true.operations], abs=len(true.operations)
        )


@pytest.mark.parametrize("seed", range(10))
def test_the_same_seed_gives_the_same_trace(seed: int):
    run, times = program(seed)

    def told() -> Any:
        trace = traced(run, times=times, seed=7)
        first = min((n for e in trace.operations for n in (*e.reads, *e.writes)), default=0)
        return spans(trace), [
            (e.number, e.name, e.worker, e.where, tuple(n - first for n in e.writes))
            for e in trace.operations
        ], [w._replace(begin_ns=w.begin_ns - trace.begin_ns, end_ns=w.end_ns - trace.begin_ns,
                       target=None) for w in trace.waits]  # fmt: skip

    assert told() == told()


@pytest.mark.parametrize("seed", range(20))
def test_parts_sum_to_the_virtual_time_and_no_path_is_longer(seed: int):
    run, times = program(seed)
    trace = traced(run, times=times, workers=2)
    account = trace.account()
    assert sum(part.ns for part in account.parts.values()) == pytest.approx(length(trace))
    assert trace.critical_path().length_ns <= length(trace)


def test_devices_and_links_too():
    with (
        virtual_gpus(2),
        engine.stepped(times=lambda task: 100 if task.lane != "compute" else 10),
        profile() as trace,
    ):
        x = nd.ones((4, 4), ctx=gpu(0))
        y = x.copyto(gpu(1)) + 1
        y.wait_to_read()
    copies = [operation for operation in trace.operations if operation.is_copy]
    assert copies and {copy.run_ns for copy in copies} == {100_000}
    assert trace.replay().end_ns == trace.end_ns
