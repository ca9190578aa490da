"""Memory that is lent: to one at a time, again when it came back, and not kept for ever."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from d2lmini import cpu
from d2lmini.device import scratch
from d2lmini.device.scratch import LEAST_LENT, loan

N = LEAST_LENT


@pytest.fixture(autouse=True)
def nothing_kept():
    scratch._blocks.clear()
    yield
    scratch._blocks.clear()


def kept() -> list[int]:
    return sorted(block.nbytes for block in scratch._blocks)


def test_two_at_once_have_two():
    with loan((N,), np.uint8) as a, loan((N,), np.uint8) as b:
        a[:], b[:] = 1, 2
        assert not np.shares_memory(a, b) and a.min() == 1
    with loan((2, N // 4), np.float16) as c:
        assert c.shape == (2, N // 4) and c.dtype == np.float16
        assert np.shares_memory(c, a) or np.shares_memory(c, b)
    assert kept() == [N, N]


def test_none_that_is_too_small_or_far_too_large():
    with loan((4 * N,), np.uint8) as large:
        pass
    with loan((N,), np.uint8) as a:
        assert not np.shares_memory(a, large)
    with loan((2 * N,), np.uint8) as b:
        assert np.shares_memory(b, large)
    assert kept() == [N, 4 * N]


def test_small_ones_are_not_kept_and_of_many_the_last():
    with loan((N - 1,), np.uint8):
        pass
    assert kept() == []
    for i in range(scratch.MOST_LENT + 2):
        scratch._blocks.append(np.empty(N + i, np.uint8))
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
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
