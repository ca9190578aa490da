"""The stepped engine with `times="measured"`: each operation takes what it took here, computed
alone; the schedule of the workers is exact."""

from __future__ import annotations

import heapq
import time

import pytest

from d2lmini import MXNetError, engine, nd, profile, virtual_gpus
from d2lmini.engine.thread_clock import Stopwatch


def compute(cpu_s: float) -> None:
    """Compute for so long, however many other programs do."""
    begin_s = time.thread_time()
    while time.thread_time() - begin_s < cpu_s:
        continue


def test_operations_take_their_cpu_time_and_no_more_than_the_thread_spent():
    x = nd.ones((600, 600))
    x.wait_to_read()
    with engine.stepped(times="measured"), profile() as trace:
        ys = [nd.dot(x, x) for _ in range(10)]
        begin_ns = time.thread_time_ns()
        nd.waitall()
        spent_ns = time.thread_time_ns() - begin_ns
    assert (ys[-1].asnumpy() == 600).all()
    measured_ns = sum(operation.run_ns for operation in trace.operations)
    assert 0.5 * spent_ns < measured_ns < spent_ns


def test_a_pushed_function_takes_the_time_that_it_computes_or_sleeps():
    with engine.stepped(times="measured"), profile() as trace:
        engine.push(lambda: compute(0.01), name="compute")
        engine.push(lambda: time.sleep(0.01), name="sleep")
    for operation in trace.operations:
        assert 10e6 <= operation.run_ns < 1e9, operation


def test_a_stopwatch_counts_sleep_only_if_it_is_told():
    awake, asleep = Stopwatch(sleeps=False), Stopwatch(sleeps=True)
    time.sleep(0.02)
    # The time without a core is taken off, and begins when the timer fires.
    assert awake.read_us() < 18e3 <= asleep.read_us()


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_schedule_of_the_workers_is_exact(workers):
    """A worker takes the first operation when it becomes idle: so the length follows from the
    durations, whatever they are."""
    with engine.stepped(times="measured", workers=workers) as s, profile() as trace:
        for i in range(20):
            engine.push(lambda i=i: compute(1e-4 * (i % 4)), writes=[engine.new_var()])
    durations_us = [s.operations[number].measured_us for number in range(1, 21)]
    free_us = [0.0] * workers
    for us in durations_us:
        heapq.heapreplace(free_us, free_us[0] + us)
    assert (trace.end_ns - trace.begin_ns) / 1e3 == pytest.approx(max(free_us), abs=0.002)
    for operation, us in zip(trace.operations, durations_us, strict=True):
        assert operation.run_ns / 1e3 == pytest.approx(us, abs=0.002)


def test_an_operation_that_fails_has_a_duration_and_one_that_is_skipped_has_none():
    def fail() -> None:
        compute(1e-3)
        raise ValueError("no")

    with engine.stepped(times="measured") as s:
        a, b = engine.new_var(), engine.new_var()
        engine.push(fail, writes=[a])
        engine.push(int, reads=[a], writes=[b])
        with pytest.raises(MXNetError, match="no"):
            engine.wait_for_var(b)
        failed, skipped = s.operations[1], s.operations[2]
        assert failed.ended_ns - failed.began_ns >= 1e6
        assert skipped.ended_ns == skipped.began_ns


def test_a_simulated_device_takes_at_least_its_own_time():
    with virtual_gpus(1, gflops=1e-3, link_gb_s=1e-3) as (ctx,):
        with engine.stepped(times="measured"), profile() as trace:
            x = nd.ones((100, 100), ctx=ctx)
            nd.dot(x, x).asnumpy()
    took_us = {operation.name: operation.run_ns / 1e3 for operation in trace.operations}
    assert took_us["dot"] == pytest.approx(2e6)  # 2 MFLOP at 1 MFLOP/s, computed in far less
    assert took_us["CopyGPU2CPU"] == pytest.approx(4e4)
    assert took_us["_ones"] > 0  # no FLOPs, so what was measured
