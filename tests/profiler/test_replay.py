"""What-if replays: exact on traces made by hand, a fixed point on random ones, near the truth on
programs that sleep.

No test here times a computation: that is for tests/benchmarks/bands.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from d2lmini import MXNetError, cpu, gpu
from d2lmini.profiler import Operation, Trace, Wait
from d2lmini.profiler.records import SplitRecord
from d2lmini.profiler.replay import fit_link

#: When the traces made by hand begin: 0 would say that something did not happen.
BASE = 1_000_000


class Made:
    """A trace made by hand, in nanoseconds from its begin."""

    def __init__(self, **workers: int):
        self.trace = Trace()
        self.trace.workers = {"cpu": 1, **{k.replace("_", " "): n for k, n in workers.items()}}
        self.trace.begin_ns = BASE

    def op(
        self, pushed: int, began: int | None, ended: int, reads: Any = (), writes: Any = (),
        ctx: Any = None, lane: str = "compute", worker: str = "w", thread: str = "main",
        nbytes: float = 0.0, ready: int | None = None, name: str = "op", site: Any = None,
        by: int = 0,
    ) -> None:  # fmt: skip
        task = Operation()
        task.by = by
        task.number = len(self.trace.operations) + 1
        task.name, task.ctx, task.lane = name, ctx or cpu(), lane
        task.worker = worker if worker == "caller" else f"{task.place} {worker}"
        task.thread, task.site, task.priority, task.predicted_us = thread, site, 0, 1.0
        task.reads, task.writes = tuple(reads), tuple(writes)
        task.pushed_ns, task.ended_ns = BASE + pushed, BASE + ended
        task.began_ns = 0 if began is None else BASE + began
        task.ready_ns = task.began_ns if ready is None else BASE + ready
        task.failure = None
        task.footprint = lambda: nd_cost(nbytes)
        self.trace.operations.append(task)

    def wait(
        self, begin: int, end: int, operation: int | None = None, kind: str = "wait_to_read",
        site: Any = None, thread: str = "main",
    ) -> None:  # fmt: skip
        pushed = sum(operation.pushed_ns <= BASE + begin for operation in self.trace.operations)
        writes = self.trace.operations[operation - 1].writes if operation else ()
        self.trace.waits.append(
            Wait(kind, writes[0] if writes else None, operation or 0, pushed, site, thread,
                 BASE + begin, BASE + end)
        )  # fmt: skip

    def end(self, left: int, end: int) -> Trace:
        self.trace.left_ns, self.trace.end_ns = BASE + left, BASE + end
        return self.trace


def nd_cost(nbytes: float) -> Any:
    from d2lmini.ops.spec import Cost

    return Cost(0.0, nbytes)


def length(trace: Trace) -> int:
    return trace.end_ns - trace.begin_ns


def spans(trace: Trace) -> list[tuple[int, int]]:
    return [
        (operation.began_ns and operation.began_ns - BASE, operation.ended_ns - BASE)
        for operation in trace.operations
    ]


def two(dependent: bool) -> Trace:
    """Two operations after each other, because there is one worker, or because one needs both."""
    made = Made()
    made.op(100, 100, 3100, writes=[1])
    made.op(200, 3100, 5100, reads=[1] if dependent else [], writes=[2])
    return made.end(300, 5150)


def test_a_replay_of_what_was_recorded_is_what_was_recorded():
    for trace in (two(False), two(True)):
        again = trace.replay()
        assert length(again) == length(trace) and spans(again) == spans(trace)
        assert again.recorded is trace and again.left_ns == trace.left_ns
        assert "predicted trace of 2 operations" in repr(again) and "recorded" in repr(again)


def test_a_second_worker_takes_what_is_independent():
    faster = two(False).replay(workers=2)
    assert spans(faster) == [(100, 3100), (200, 2200)]
    assert length(faster) == 3150
    assert faster.workers["cpu"] == 2
    assert len({operation.worker for operation in faster.operations}) == 2
    assert length(two(True).replay(workers=2)) == 5150


def with_wait() -> Trace:
    """The second operation could run beside the first; the program waits between."""
    site = compile("\nx\n", "/projects/me/train.py", "exec"), 0
    made = Made(cpu=2)
    made.op(0, 0, 3000, writes=[1])
    made.wait(500, 3100, operation=1, site=(site[0].replace(co_firstlineno=12), 10**6))
    made.op(3200, 3200, 6200, writes=[2])
    return made.end(3300, 6250)


@pytest.mark.parametrize("at", ["train.py:12", 12, ["me/train.py:12"], "/projects/me/train.py:12"])
def test_a_wait_that_is_left_out_lets_the_program_go_on(at: Any):
    trace = with_wait()
    assert length(trace.replay()) == 6250
    free = trace.replay(without_wait_at=at)
    # Its own 500 ns before the wait and 100 ns after it are left.
    assert spans(free) == [(0, 3000), (600, 3600)]
    assert length(free) == 3650 and free.left_ns == BASE + 700
    assert [len(each.waits) for each in (trace, trace.replay(), free)] == [1, 1, 0]
    assert length(trace.replay(without_wait_at=at, workers=1)) == 6050


def test_a_wait_is_named_by_all_that_tells_of_it():
    """By itself, its row of the ledger, what the ledger prints, and the operation that it is for;
    a line of several waits names all."""
    trace = with_wait()
    row = trace.waits()[0]
    assert row.where in str(trace.waits())
    for at in (trace.waits[0], row, row.where, [row.where, 12], trace[1], trace.waits()):
        assert length(trace.replay(without_wait_at=at)) == 3650, at
    site = compile("\n", "/a/" + "long/" * 20 + "train.py", "exec"), 10**6
    trace.waits[0] = trace.waits[0]._replace(site=site)
    (row,) = trace.waits()
    assert len(row.where) > 60
    assert not trace.replay(without_wait_at=row.where[:59] + "…").waits
    with pytest.raises(MXNetError, match=r"no wait at 2 op"):
        trace.replay(without_wait_at=trace[2])


def test_the_time_of_copies_grows_with_their_bytes():
    """100 ns and 2 ns a byte, which is 0.5 GB/s; one copy was held up."""
    made = Made(**{"gpu(0)_in": 1})
    now = 0
    for i, nbytes in enumerate([100, 200, 300, 1000, 1100, 1200, 150]):
        took = 100 + 2 * nbytes + (900 if i == 6 else 0)
        made.op(i, now, now + took, writes=[i], ctx=gpu(0), lane="in", nbytes=nbytes)
        now += took
    trace = made.end(7, now)
    assert fit_link(trace.operations) == pytest.approx(2)
    assert length(trace.replay()) == now
    faster = trace.replay(link_gb_s=2.0)
    assert [operation.run_ns for operation in faster.operations] == [
        150,
        200,
        250,
        600,
        650,
        700,
        1075,
    ]


def on_two_devices() -> Trace:
    made = Made(**{"gpu(0)": 1, "gpu(1)": 1, "gpu(1)_in": 1})
    made.op(0, 0, 1000, writes=[1], ctx=gpu(0))
    made.op(0, 0, 1000, writes=[2], ctx=gpu(1))
    made.op(0, 1000, 5000, reads=[1], writes=[3], ctx=gpu(1), lane="in", nbytes=100)
    made.op(0, 5000, 6000, reads=[2, 3], writes=[4], ctx=gpu(1))
    return made.end(0, 6000)


def test_two_devices_become_one():
    one = on_two_devices().replay(devices=1)
    assert {str(operation.ctx) for operation in one.operations} == {"gpu(0)"}
    assert spans(one) == [(0, 1000), (1000, 2000), (1000, 1000), (2000, 3000)]
    assert length(on_two_devices().replay(devices=2)) == 6000


def test_idle_workers_help_with_an_operation_that_is_cut():
    """400 ns of its own and 3000 in pieces; then one of 1000 that keeps one of two workers busy."""
    made = Made()
    made.op(0, 0, 3400, writes=[1], worker="a")
    made.trace.shared[1] = SplitRecord(8, 3000, 3000)
    made.op(1, 3400, 4400, writes=[2], worker="a")
    trace = made.end(2, 4400)
    assert spans(trace.replay()) == spans(trace)
    # Beside the second one nobody helps; at 1001, two of eight pieces of 375 are taken.
    two_workers = trace.replay(workers=2)
    assert spans(two_workers) == [(0, 400 + 5 * 375), (1, 1001)]
    # And back: what several did together is one worker's work.
    assert length(two_workers.replay(workers=1)) == pytest.approx(4400, rel=0.001)
    # No more help than there are pieces.
    trace.shared[1] = SplitRecord(2, 3000, 3000)
    assert trace.replay(workers=9)[1].run_ns == 400 + 1500
    # One that is done as a whole where nobody is idle when it begins.
    trace.shared[1] = SplitRecord(8, 3000, 3000, late=False)
    assert spans(trace.replay(workers=2)) == [(0, 3400), (1, 1001)]
    # One is: it is cut, and who comes at 1001 begins the last piece at 1376.
    assert trace.replay(workers=3)[1].run_ns == 1376 + 375


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"workers": 0}, "workers of 'cpu' are 1 or more, got 0"),
        ({"workers": {"gpu(7)": 1}}, r"no such lane, but 'cpu'"),
        ({"devices": 2}, "no operation ran on a GPU"),
        ({"devices": 0}, "devices are 1 or more"),
        ({"link_gb_s": 0}, "a rate in GB/s above 0"),
        ({"without_wait_at": "train.py:99"}, r"no wait at 'train.py:99'(.|\n)*train.py:12"),
    ],
)
def test_what_the_trace_does_not_have_cannot_be_changed(asked: Any, message: str):
    with pytest.raises(MXNetError, match=message):
        with_wait().replay(**asked)
