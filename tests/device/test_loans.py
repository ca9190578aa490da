"""Memory that is lent: to one at a time, again when it came back, and not kept for ever."""

from __future__ import annotations

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


def test_it_comes_back_after_an_error_and_goes_with_the_cache():
    with pytest.raises(ValueError, match="within"), loan((N,), np.uint8):
        raise ValueError("within")
    assert kept() == [N]
    cpu().empty_cache()
    assert kept() == []
