"""CPU time of operations: planted causes of time off the CPU, on made-up and on real runs."""

import gc
import threading
import time
from types import SimpleNamespace

from d2lmini import engine, nd, profile
from d2lmini.profiler.cpu_time import CpuTime, OffCpu, Pause, split_off_cpu

MS = 1_000_000


def ran(number: int, begin_ms: int, end_ms: int) -> SimpleNamespace:
    begin, end = begin_ms * MS, end_ms * MS
    return SimpleNamespace(number=number, began_ns=begin, ended_ns=end, run_ns=end - begin)


def split(*operations, times, pauses=()):
    times = {
        number: CpuTime(ns * MS, None if delay is None else delay * MS, pushed)
        for number, ns, delay, pushed in times
    }
    return split_off_cpu(operations, times, [Pause(a * MS, b * MS, "", None) for a, b in pauses])


def test_an_operation_that_computes_all_the_time_has_no_parts():
    assert split(ran(1, 10, 20), times=[(1, 10, 0, False)]) == {1: OffCpu()}


def test_delay_comes_first_then_collection_then_the_lock():
    parts = split(ran(1, 10, 30), times=[(1, 8, 3, False)], pauses=[(0, 12), (26, 28), (40, 50)])
    assert parts == {1: OffCpu(3 * MS, 4 * MS, 5 * MS, 0)}


def test_delay_is_never_more_than_the_time_off_the_cpu():
    assert split(ran(1, 0, 10), times=[(1, 9, 4, False)]) == {1: OffCpu(1 * MS, 0, 0, 0)}


def test_a_pushed_function_waits_for_the_lock_no_longer_than_other_python_code_computes():
    times = [(1, 2, 0, True), (2, 3, 0, True), (3, 10, 0, False)]
    parts = split(ran(1, 0, 10), ran(2, 0, 6), ran(3, 0, 10), times=times)
    assert parts == {
        1: OffCpu(0, 0, 3 * MS, 5 * MS), 2: OffCpu(0, 0, 1.2 * MS, 1.8 * MS), 3: OffCpu()
    }  # fmt: skip


def test_the_ranks_of_a_merged_trace_do_not_share_a_lock():
    operations = [ran(number, 0, 10) for number in (1, 2)]
    times = [(1, 6, 0, True), (2, 8, 0, True)]
    together = split(*operations, times=times)
    assert together[1] == OffCpu(0, 0, 4 * MS, 0) and together[2] == OffCpu(0, 0, 2 * MS, 0)
    for rank, operation in enumerate(operations):
        operation.rank = rank
    apart = split(*operations, times=times)
    assert apart[1] == OffCpu(0, 0, 0, 4 * MS) and apart[2] == OffCpu(0, 0, 0, 2 * MS)


def test_a_short_operation_of_which_preemption_is_not_known_says_so():
    assert split(ran(1, 0, 10), times=[(1, 4, None, False)]) == {1: OffCpu(0, 0, 0, 6 * MS)}


def test_sleep_is_blocked():
    with profile() as trace:
        engine.push(lambda: time.sleep(0.02))
    (parts,) = trace.off_cpu().values()
    assert parts.blocked >= 19 * MS - parts.preempted
    assert parts.gil == 0


def test_two_functions_in_python_share_one_lock():
    both, over = threading.Barrier(2), threading.Event()

    def spin() -> None:
        both.wait(30)
        end = time.thread_time() + 0.06
        while time.thread_time() < end:
            sum(range(100))
        over.set()

    def spin_beside() -> None:
        both.wait(30)
        while not over.is_set():
            sum(range(100))

    with engine.use("threaded", workers=2), profile() as trace:
        engine.push(spin)
        engine.push(spin_beside)
    parts = trace.off_cpu().values()
    assert sum(part.gil for part in parts) > 15 * MS


def test_collections_are_seen_where_they_ran():
    garbage: list = []
    for _ in range(100_000):
        garbage.append([garbage])
    with profile() as trace:
        gc.collect()
    longest = max(trace.cpu.pauses, key=lambda pause: pause.end_ns - pause.begin_ns)
    assert longest.site is not None and longest.site[0].co_filename == __file__
    assert longest.thread == trace.cpu.pauses[-1].thread
    assert not any(getattr(listener, "__self__", None) is trace.cpu for listener in gc.callbacks)


def test_nothing_is_measured_on_a_virtual_clock():
    many = [[i] for i in range(200_000)]  # a collection that takes long enough to be kept
    with engine.stepped(), profile() as trace:
        engine.push(lambda: None)
        gc.collect()
        nd.waitall()
    assert trace.cpu.times == {} and trace.cpu.pauses == [] and len(many) > 0
