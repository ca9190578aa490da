"""The roofline: its table, and the measured peaks: copies come from memory, not from a cache."""

import re
import time

import numpy as np
import pytest

from d2lmini import nd, profile
from d2lmini.profiler import roofline
from d2lmini.profiler.cpu_time import CpuTime


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cache_mb", [1, 48])
def test_copies_take_twice_as_much_memory_as_the_last_cache_holds(monkeypatch, threads, cache_mb):
    touched: set[int] = set()
    copy = np.copyto

    def note(target: np.ndarray, source: np.ndarray) -> None:
        copy(target, source)
        touched.update((target.ctypes.data, source.ctypes.data))

    def one_turn(n: int, body) -> float:
        for _ in range(100):
            for i in range(n):
                body(i)
        return 1.0

    monkeypatch.setattr(roofline, "last_cache_bytes", lambda: cache_mb << 20)
    monkeypatch.setattr(roofline, "_rate", one_turn)
    monkeypatch.setattr(np, "copyto", note)
    roofline.peak.__wrapped__(threads)
    assert len(touched) * 4 * roofline._COPIED >= 2 * cache_mb << 20


def test_the_last_cache_has_a_size():
    assert roofline.last_cache_bytes() >= 1 << 18


def test_peaks_are_measured_once():
    began_s = time.perf_counter()
    first = roofline.peak(1)
    assert roofline.peak(1) is first and first.gflops_per_s > 0 and first.gb_per_s > 0
    assert time.perf_counter() - began_s < 20  # less than a second where nobody disturbs
    assert str(first).startswith("1 thread: ")
    with pytest.raises(ValueError, match="threads are 1 or more, got 0"):
        roofline.peak(0)


def test_the_table_has_its_columns_apart_and_says_that_operations_had_no_core():
    row = roofline.RooflineRow(
        "a_name_that_is_long", "gpu(0) in", 1, 2.5, 2e15, 3e9, 800, 1.2, 0.5, "link"
    )
    lines = str(roofline.Roofline([row], {}, 0.0)).splitlines()
    cells = ["a_name_that_is_long", "gpu(0) in", "1", "2500.00 ms", "2e+09 MFLOP", "3000 MB",
             "800 GFLOP/s", "1.2 GB/s", "50 % (link)"]  # fmt: skip
    assert re.split("  +", lines[1]) == cells and len(lines) == 2
    assert str(roofline.Roofline([row], {}, 0.5)).splitlines()[2] == (
        "for 500.00 ms of 2.50 s operations had no core, because other programs ran: without them "
        "the rates are higher"
    )


def test_the_time_without_a_core_is_that_of_the_operations():
    with profile() as trace:
        nd.dot(nd.ones((200, 200)), nd.ones((200, 200))).wait_to_read()
    trace.cpu.times.clear()
    assert trace.roofline().preempted_s == 0
    trace.cpu.times[3] = CpuTime(trace[3].run_ns // 2, trace[3].run_ns // 4, False)
    assert trace.roofline().preempted_s == pytest.approx(trace[3].run_ns / 4e9, abs=1e-9)
