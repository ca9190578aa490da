"""Traces of several ranks as one: clocks, places, collectives; made by hand, and by a
job of two processes."""

from __future__ import annotations

from pathlib import Path

import mpi_jobs
import pytest
from test_replay import BASE, Made

from d2lmini import MXNetError, cpu, profiler
from d2lmini.profiler import Trace, load, merge

JOB = Path(mpi_jobs.__file__).with_name("trace_job.py")


def a_rank(late: int, clock: int = 0, names: tuple[str, ...] = ("AllReduce", "AllReduce")) -> Trace:
    """Two steps of 1000 ns, with work for `late` more, and a collective each, in which the ranks
    of a pair leave together at 3000 and 6000; its clock is `clock` ns ahead."""
    made = Made()
    for k, name in enumerate(names):
        begin = 3000 * k
        work = 1000 + late
        made.op(begin, begin, begin + work, writes=[1], name="work", worker="w")
        made.op(begin + 10, begin + work, begin + 3000, reads=[1], writes=[2], lane="wire",
                name=name, worker="wire", ready=begin + work)  # fmt: skip
        made.wait(begin + 20, begin + 3000, 2 * k + 2)
    trace = made.end(6000, 6010)
    for operation in trace.operations:
        for field in ("pushed_ns", "ready_ns", "began_ns", "ended_ns"):
            setattr(operation, field, getattr(operation, field) + clock)
    trace.waits[:] = [
        w._replace(begin_ns=w.begin_ns + clock, end_ns=w.end_ns + clock) for w in trace.waits
    ]
    trace.begin_ns, trace.left_ns, trace.end_ns = (
        BASE + clock,
        6000 + BASE + clock,
        6010 + BASE + clock,
    )
    return trace


@pytest.mark.parametrize("clock", [0, 10**9, -5000])
def test_clocks_are_aligned_by_what_the_ranks_do_together(clock):
    merged = merge([a_rank(0), a_rank(1500, clock)])
    assert (merged.begin_ns, merged.end_ns) == (BASE, BASE + 6010)
    ends = [o.ended_ns - BASE for o in merged.operations if o.lane == "wire"]
    assert ends == [3000, 3000, 6000, 6000]
    assert {o.place for o in merged.operations} == {
        "rank 0 cpu", "rank 1 cpu", "rank 0 cpu wire", "rank 1 cpu wire",
    }  # fmt: skip
    assert {w.thread for w in merged.waits} == {"rank 0 main", "rank 1 main"}


def test_a_merged_trace_answers_as_one_run():
    merged = merge([a_rank(0), a_rank(1500)])
    again = merged.replay()
    assert again.end_ns - again.begin_ns == merged.end_ns - merged.begin_ns == 6010
    collectives = [o for o in merged.operations if o.lane == "wire"]
    for late, early in zip(collectives[1::2], collectives[::2]):
        assert late.rank == 1 and late.number in merged.needs(early.number)
    waiting = merged.account(2)["imbalance"].ns + merged.account(2)["transfer"].ns
    assert waiting > 2000  # rank 0 needs the work of rank 1, and what the two exchange
    path = merged.critical_path()
    assert {merged[number].rank for number in path.operations if merged[number].name == "work"} == {
        1
    }


def test_a_merged_trace_travels(tmp_path):
    merged = merge([a_rank(0), a_rank(1500, 777)])
    merged.save(tmp_path / "t.json.gz")
    again = load(tmp_path / "t.json.gz")
    assert again.order == merged.order and str(again.account()) == str(merged.account())


def test_memory_of_the_ranks_is_kept_apart():
    ranks = [a_rank(0), a_rank(0)]
    for size, trace in enumerate(ranks, start=1):
        trace.memory.add(trace.begin_ns + 5, cpu(), 100 * size, 1, 1, None, 100 * size, 0)
    report = merge(ranks).memory()
    assert [(str(device.ctx), device.peak_bytes) for device in report] == [
        ("cpu(0)", 100), ("cpu(1)", 200),
    ]  # fmt: skip


def test_what_cannot_be_merged_is_refused():
    with pytest.raises(MXNetError, match="no trace"):
        merge([])
    with pytest.raises(MXNetError, match=r"collective 2 is AllReduce on rank 0 and Broadcast"):
        merge([a_rank(0), a_rank(0, names=("AllReduce", "Broadcast"))])


@pytest.mark.parametrize("late", ["task", "program"])
def test_a_job_of_two_processes(late, tmp_path):
    """Rank 1 is late, so rank 0 needs what it does. On a busy machine rank 0 may once be later."""
    status, told = mpi_jobs.launched(2, tmp_path, late, job=JOB)
    assert status == 0, told
    merged = profiler.merge([tmp_path / "0.json.gz", tmp_path / "1.json.gz"])
    ranks = [[o for o in merged.operations if o.lane == "wire" and o.rank == k] for k in (0, 1)]
    assert len(ranks[0]) == len(ranks[1]) == 5
    last = [max(pair, key=lambda call: call.came_ns) for pair in zip(*ranks)]
    for call, pair in zip(last, zip(*ranks)):
        assert all(call.number in merged.needs(other.number) for other in pair if other is not call)
    assert sum(call.rank == 1 for call in last) >= 3
    again, length = merged.replay(), merged.end_ns - merged.begin_ns
    assert abs((again.end_ns - again.begin_ns) / length - 1) < 0.05
