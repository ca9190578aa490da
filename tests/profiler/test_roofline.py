"""The measured peaks: copies come from memory, not from a cache."""

import numpy as np
import pytest

from d2lmini.profiler import roofline


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
    first = roofline.peak(1)
    assert roofline.peak(1) is first and first.gflops_per_s > 0 and first.gb_per_s > 0
    assert str(first).startswith("1 thread: ")
    with pytest.raises(ValueError, match="threads are 1 or more, got 0"):
        roofline.peak(0)
