"""CPU time of operations: planted causes of time off the CPU, on made-up and on real runs."""

import gc
from types import SimpleNamespace

import pytest

from d2lmini import profile
from d2lmini.engine.thread_clock import Reading
from d2lmini.profiler import Operation, Trace, Wait
from d2lmini.profiler.evidence import (
    CpuTime,
    CpuTimes,
    OffCpu,
    Pause,
    ThreadReadings,
)

MS = 1_000_000


def ran(number: int, begin_ms: int, end_ms: int) -> SimpleNamespace:
    begin, end = begin_ms * MS, end_ms * MS
    return SimpleNamespace(number=number, began_ns=begin, ended_ns=end, run_ns=end - begin)


def split(*operations, times, pauses=()):
    """The parts of operations of which are known: number, CPU time, delay, blocked, in ms."""
    cpu = CpuTimes()
    cpu.times = {
        number: CpuTime(ns * MS, None if delay is None else delay * MS, True, rest * MS)
        for number, ns, delay, rest in times
    }
    cpu.pauses = [Pause(a * MS, b * MS, "", None) for a, b in pauses]
    return cpu.off_cpu(operations)


def test_delay_comes_first_then_collection_then_sleep():
    pauses = [(0, 12), (26, 28), (40, 50)]
    parts = split(ran(1, 10, 30), times=[(1, 8, 3, 4)], pauses=pauses)
    assert parts == {1: OffCpu(3 * MS, 4 * MS, 4 * MS, 1 * MS)}


# -- what readings say, in ms: of a worker "w", and of the program's thread "main" -----------------


def reading(cpu, delay, sleeps, known=True):
    return Reading(cpu * MS, b"0 %d 0" % (delay * MS) if known else b"", sleeps)


def at(ms):
    return (1000 + ms) * MS


def judged(threads, ran, pushed=(), shared=(), waits=()):
    """What is found of operations (number, begin, end) on the worker "w", and of threads {name:
    [(when, reading), ...]}."""
    trace = Trace()
    trace.begin_ns, trace.end_ns, trace.thread = at(0), at(100), "main"
    for number, begin, end in ran:
        operation = Operation()
        operation.number, operation.by, operation.worker, operation.thread = number, 0, "w", "main"
        operation.site = None
        operation.pushed_ns = operation.ready_ns = at(0)
        operation.began_ns, operation.ended_ns = at(begin), at(end)
        trace.operations.append(operation)
    trace.waits.extend(Wait("waitall", None, 0, 0, None, "main", at(a), at(b)) for a, b in waits)
    trace.cpu.pushed.update(pushed)
    trace.shared.update(shared)
    read = []
    for name, readings in threads.items():
        thread = ThreadReadings()
        thread.name, thread.works = name, name == "w"
        thread.readings = [(at(when), counts) for when, counts in readings]
        read.append(thread)
    trace.cpu.judge(trace, read)
    found = {n: tuple(x / MS for x in parts) for n, parts in trace.off_cpu().items()}
    spans = [(s.thread, (s.begin_ns - at(0)) / MS, (s.end_ns - at(0)) / MS, s.cause)
             for s in trace.cpu.spans]  # fmt: skip
    return found, spans


def test_short_operations_share_by_duration_what_is_known_of_all():
    readings = {"w": [(0, reading(0, 0, 0)), (20, reading(5, 9, 0))]}
    found, _ = judged(readings, [(1, 0, 5), (2, 5, 20)])
    assert found[1] == pytest.approx((2.25, 0, 0, 1.5))  # 15 of 20 ms off, 9 without a core
    assert found[2] == pytest.approx((6.75, 0, 0, 4.5))


def test_a_pushed_function_that_sleeps_once_for_long_is_blocked_whoever_computes():
    readings = {
        "w": [(0, reading(0, 0, 0)), (20, reading(1, 0, 1))],
        "main": [(0, reading(0, 0, 0)), (100, reading(100, 0, 0))],
    }
    found, _ = judged(readings, [(1, 0, 20)], pushed=[1])
    assert found[1] == (0, 0, 19, 0)


def test_operations_of_the_library_are_never_blocked():
    readings = {"w": [(0, reading(0, 0, 0)), (20, reading(1, 0, 8))]}
    assert judged(readings, [(1, 0, 20)])[0][1] == (0, 0, 0, 19)


def test_without_the_kernels_figures_nothing_is_explained():
    readings = {"w": [(0, reading(0, 0, 0, False)), (20, reading(1, 0, 8, False))]}
    assert judged(readings, [(1, 0, 20)], pushed=[1])[0][1] == (0, 0, 0, 19)


def test_a_worker_without_a_core_begins_late_or_is_late_after_an_operation():
    readings = {"w": [(0, reading(0, 0, 0)), (20, reading(10, 10, 1))]}
    _, spans = judged(readings, [(1, 0, 5), (2, 15, 20)])
    assert spans == [("w", 5, 15, "preempted")]


def test_the_program_slept_between_two_operations():
    readings = {"main": [(0, reading(0, 0, 0)), (100, reading(72, 5, 1))]}
    _, spans = judged(readings, [])
    assert spans == [("main", 0, 5, "preempted"), ("main", 5, 28, "blocked")]


def test_time_in_which_a_thread_without_a_core_may_have_kept_a_lock_is_not_blocked():
    readings = {
        "w": [(0, reading(0, 0, 0)), (30, reading(1, 20, 1))],
        "main": [(0, reading(0, 0, 0)), (100, reading(70, 0, 1))],
    }
    _, spans = judged(readings, [(1, 29, 30)])
    mine = {cause: end - begin for thread, begin, end, cause in spans if thread == "main"}
    assert mine == pytest.approx({"blocked": 10, "unexplained": 20})


# -- real runs -------------------------------------------------------------------------------------


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
