"""Memory that is lent: to one at a time, again when it came back, and not kept for ever."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from d2lmini import cpu
from d2lmini.device import scratch
from d2lmini.device.scratch import LEAST_LENT, loan
from d2lmini.device.storage import RED_ZONE

N = LEAST_LENT


@pytest.fixture(autouse=True)
def nothing_kept():
    scratch._blocks.clear()
    yield
    scratch._blocks.clear()


def kept() -> list[int]:
    return sorted(block.nbytes - RED_ZONE for block in scratch._blocks)


def lent(nbytes: int) -> int:
    """The address of a loan that is over."""
    with loan((nbytes,), np.uint8) as a:
        return a.ctypes.data


def test_two_at_once_have_two():
    with loan((N,), np.uint8) as a, loan((N,), np.uint8) as b:
        a[:], b[:] = 1, 2
        assert not np.shares_memory(a, b) and a.min() == 1
        places = {a.ctypes.data, b.ctypes.data}
    del a, b
    with loan((2, N // 4), np.float16) as c:
        assert c.shape == (2, N // 4) and c.dtype == np.float16
        assert c.ctypes.data in places
    assert kept() == [N, N]


def test_none_that_is_too_small_or_far_too_large():
    large = lent(4 * N)
    assert lent(N) != large
    assert lent(2 * N) == large
    assert kept() == [N, 4 * N]


def test_none_that_somebody_still_looks_into():
    with loan((N,), np.uint8) as a:
        row = a.reshape(4, -1)[2]
    del a
    where = row.ctypes.data - N // 2
    assert lent(N) != where
    row[:] = 1
    assert kept() == [N], "it belongs to who looks into it, and is not kept"


def test_small_ones_are_not_kept_and_of_many_the_last():
    with loan((N - 1,), np.uint8):
        pass
    assert kept() == []
    for i in range(scratch.MOST_LENT + 2):
        scratch._blocks.append(np.empty(N + i + RED_ZONE, np.uint8))
    assert kept() == [N + i for i in range(2, scratch.MOST_LENT + 2)]


def test_it_comes_back_after_an_error_and_goes_with_the_cache():
    with pytest.raises(ValueError, match="within"), loan((N,), np.uint8):
        raise ValueError("within")
    assert kept() == [N]
    cpu().empty_cache()
    assert kept() == []


def test_threads_have_their_own():
    """Each writes its number all over its loan, and finds nothing else there in the end."""
    together = threading.Barrier(4, timeout=30)
    wrong = []

    def work(number: int) -> None:
        for _ in range(3):
            with loan((N,), np.uint8) as a:
                a[:] = number
                together.wait()
                if a.min() != number or a.max() != number:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
