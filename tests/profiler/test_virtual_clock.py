"""Predictions on the virtual clock are exact: a run of the changed program is the oracle.

`make stress` tries hundreds of random programs, the other runs a few.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from virtual_programs import Copy, Program, draw, length, seeds, spans, trace_of

from d2lmini import Context, MXNetError, cpu, engine, gpu, nd, profile, virtual_gpus
from d2lmini.callsite import describe
from d2lmini.profiler import Trace
from d2lmini.profiler.causal import SPEEDUPS
from d2lmini.profiler.replay import Prediction


def rank(name: str) -> int:
    """A priority for operations of this name."""
    return zlib.crc32(name.encode()) % 5


def where(trace: Trace) -> list[str]:
    """The lines that waited."""
    return sorted({wait.where.partition(": ")[0] for wait in trace.waits})


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
    expect(trace.replay(priorities=lambda x: rank(x.name)), trace_of(program, priorities=rank))
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


def changed(program: Program, trace: Trace, cores: int) -> dict[str, Trace]:
    """The program run without each cause that a change of the program removes."""
    free = {step.name for step in program.steps if step.copies}
    found = {
        "waits": trace_of(program, waits=False),
        "dependency": trace_of(program, order=False),
        "workers": trace_of(program, workers=max(cores, trace.workers["cpu"])),
    }
    if free:

        def times(task: Any) -> float:
            return 0 if isinstance(task, Copy) else program.times[task.name]

        found["transfer"] = trace_of(program, times=times)
    return found


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


def chain_beside(place: Callable[[], Context]) -> Trace:
    """Ten operations in a line, and a short one."""
    with engine.stepped(times={"long": 100, "short": 20}, workers=2), profile() as trace:
        line = engine.new_var()
        engine.push(int, writes=[engine.new_var()], ctx=place(), name="short")
        for _ in range(10):
            engine.push(int, [line], [line], ctx=place(), name="long")
    return trace


def test_a_chain_on_the_cpu_is_dependency_and_no_imbalance():
    account = chain_beside(cpu).account(cores=2)
    assert account["imbalance"].ns == 0 and account["imbalance"].saves_ns == 0
    assert account["dependency"].ns == pytest.approx(490_000)
    assert account.causes == ["dependency"]


def test_the_last_operation_alone_is_imbalance():
    """100 us beside 20 us: shared, the last 80 us would take 40."""
    with engine.stepped(times={"long": 100, "short": 20}, workers=2), profile() as trace:
        for name in ("long", "short"):
            engine.push(int, writes=[engine.new_var()], name=name)
    account = trace.account(cores=2)
    assert account.causes == ["imbalance"]
    assert (account["imbalance"].ns, account["imbalance"].saves_ns) == (40_000, 40_000)


@pytest.mark.parametrize("gpus", [0, 2])
@seeds(10, 200)
def test_the_critical_path_is_no_longer_than_the_run_and_has_no_gap(seed: int, gpus: int):
    trace = trace_of(draw(seed, gpus, inner=0.3))
    path = trace.critical_path()
    assert 0 < path.length_ns <= length(trace)
    ends = [0, *(step.end_ns for step in path.steps)]
    assert [step.begin_ns for step in path.steps] == ends[:-1] and ends[-1] == path.length_ns


def test_a_line_is_listed_once_in_the_critical_path():
    with engine.stepped(times=10), profile() as trace:
        x = nd.ones((2, 2))
        y = (x * 2 + 1) * 3
        y.wait_to_read()
    rows = [row.partition(" x  ")[2] for row in str(trace.critical_path()).splitlines()[1:]]
    assert len(rows) == len(set(rows)) == 2


def test_a_trace_of_one_device_says_nothing_of_two():
    with virtual_gpus(2), engine.stepped(times=10), profile() as trace:
        nd.ones((2, 2), ctx=gpu(1)) + 1
    assert length(trace.replay(devices=1)) == length(trace)
    with pytest.raises(MXNetError, match=r"trace has 1 \(gpu\(1\)\).*virtual_gpus\(2\)"):
        trace.replay(devices=2)
    with pytest.raises(MXNetError, match="nothing was copied over a link"):
        trace.replay(link_gb_s=1.0)


# -- the causal profile ----------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [0, 2])
@seeds(4, 200)
def test_a_causal_curve_is_that_of_the_program_made_faster(seed: int, gpus: int):
    program = draw(seed, gpus, inner=0)
    trace = trace_of(program)
    found = trace.causal()
    assert found.run.ns == length(trace)
    names = {operation.name for operation in trace.operations}
    lines = {operation.where for operation in trace.operations}
    assert {(row.kind, row.name) for row in found.rows} == {
        *(("operation", name) for name in names), *(("line", line) for line in lines)
    }  # fmt: skip
    rng = random.Random(seed)
    for row in found.rows:
        for percent in rng.sample(SPEEDUPS, 3):

            def times(task: Any) -> float:
                planted = task.name if row.kind == "operation" else describe(task.site)  # noqa: B023
                left = 100 - percent if planted == row.name else 100  # noqa: B023
                return program.times[task.name] * left // 100

            assert row.curve[percent].ns == length(trace_of(program, times=times)), row


def test_a_causal_profile_is_a_table_and_a_picture():
    """Of two operations side by side the longer one decides, until it is as short as the other."""
    pytest.importorskip("matplotlib")
    with engine.stepped(times={"long": 100, "short": 60}, workers=2), profile() as trace:
        for name in ("long", "short"):
            engine.push(int, writes=[engine.new_var()], name=name)
    found = trace.causal()
    assert [row.kind for row in found.rows] == ["line", "operation", "operation"]
    curve = [found["long"].curve[percent].ns / 1000 for percent in SPEEDUPS]
    assert curve == [90, 80, 70, 60, 60, 60, 60, 60, 60, 60]
    assert {p.ns for p in found["short"].curve.values()} == {100_000}
    assert found["engine.push(int, writes=[engine.new_var()], name=name)"].curve[100].ns == 0
    with pytest.raises(KeyError, match="no 'tanh', but "):
        found["tanh"]
    text = str(found)
    assert text.startswith("the run takes 0.10 ms; ") and "long " in text
    axes = found.plot().figure.axes[0]
    assert [list(line.get_ydata()[:2]) for line in axes.lines][1] == pytest.approx([0, 10])
    assert len(found.plot()._repr_png_()[0]) < 100_000


def test_a_trace_without_operations_has_an_empty_causal_profile():
    with engine.stepped(), profile() as trace:
        engine.waitall()
    assert trace.causal().rows == [] and trace.causal().run.ns == 0
