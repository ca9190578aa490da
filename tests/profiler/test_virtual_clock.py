"""Predictions on the virtual clock are exact: a run of the changed program is the oracle.

`make stress` tries hundreds of random programs, the other runs a few.
"""

from __future__ import annotations

import pytest
from virtual_programs import (
    Program,
    changed,
    draw,
    length,
    seeds,
    spans,
    trace_of,
    where,
)

from d2lmini.profiler import Trace
from d2lmini.profiler.replay import Prediction


@pytest.mark.parametrize("gpus", [0, 2])
@seeds(15, 300)
def test_a_replay_is_the_run_that_was_recorded(seed: int, gpus: int):
    trace = trace_of(draw(seed, gpus, inner=0.1))
    again = trace.replay()
    assert spans(again) == spans(trace) and length(again) == length(trace)
    assert [x.worker for x in again.operations] == [x.worker for x in trace.operations]
    recorded = [(w.kind, w.pushed, w.begin_ns, w.end_ns) for w in trace.waits]
    assert [(w.kind, w.pushed, w.begin_ns, w.end_ns) for w in again.waits] == recorded
    assert again.prediction is not None and again.prediction.ns == length(trace)


def expect(foreseen: Trace, true: Trace) -> None:
    assert spans(foreseen) == spans(true) and length(foreseen) == length(true)


@pytest.mark.parametrize("gpus", [0, 2])
@seeds(10, 300)
def test_a_changed_replay_is_the_run_of_the_changed_program(seed: int, gpus: int):
    program = draw(seed, gpus, inner=0)
    trace = trace_of(program)
    for workers in (1, 3):
        expect(trace.replay(workers=workers), trace_of(program, workers=workers))
    if trace.waits:
        expect(trace.replay(without_wait_at=where(trace)), trace_of(program, waits=False))


def test_the_programs_have_what_replays_must_foresee():
    """Waits of each kind, pauses at the same time, priorities, links, operations that push."""
    programs: list[Program] = [draw(seed, 2, inner=0.1) for seed in range(15)]
    steps = [step for program in programs for step in program.steps]
    assert {step.wait for step in steps} == {"read", "write", "all", ""}
    assert len({step.priority for step in steps}) > 1
    assert any(step.copies for step in steps) and any(step.inner for step in steps)


# -- the account -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [0, 2])
@seeds(10, 400)
def test_a_cause_whose_removal_saves_time_is_listed_with_what_it_saves(seed: int, gpus: int):
    program = draw(seed, gpus, waits=0.2, inner=0)
    trace = trace_of(program)
    account = trace.account(cores=4)
    assert sum(part.ns for part in account.parts.values()) == pytest.approx(length(trace))
    for cause, true in changed(program, trace, 4).items():
        saved = max(0, length(trace) - length(true))
        assert account[cause].saves == Prediction(saved, saved), cause
        assert cause in account.causes or not saved
    for cause in account.causes:
        assert account[cause].ns > 0 or account[cause].saves_ns > 0


@pytest.mark.parametrize("gpus", [0, 2])
@seeds(10, 200)
def test_the_critical_path_is_no_longer_than_the_run_and_has_no_gap(seed: int, gpus: int):
    trace = trace_of(draw(seed, gpus, inner=0.3))
    path = trace.critical_path()
    assert 0 < path.length_ns <= length(trace)
    ends = [0, *(step.end_ns for step in path.steps)]
    assert [step.begin_ns for step in path.steps] == ends[:-1] and ends[-1] == path.length_ns
