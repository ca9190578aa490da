"""Layers, cells, losses and optimizers on a GPU of the fake, in random schedules, equal the CPU's.

The rows are those of `gluon_rows/`: forward and backward, in training and not. What is drawn at
random is left out, for a GPU draws other numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from gluon_rows.repeatable import ROWS
from gluon_rows.runner import Row, examine_here
from gpu_kinds import fake_gpus

from d2lmini import gpu, nd, random


@contextmanager
def a_gpu(seed: str) -> Iterator[None]:
    """A scope with one GPU, gpu(0), whose schedule is drawn from a text."""
    number = zlib.crc32(seed.encode())
    with fake_gpus(1, number):
        yield


@pytest.mark.law
@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_gpu_says_what_the_cpu_says(row: Row):
    want = examine_here(row)
    with a_gpu(row.id), gpu(0):
        got = examine_here(row)
    assert got.keys() == want.keys()
    assert str(got.pop("about")) == str(want.pop("about"))
    half = row.dtype == "float16"
    for key, value in want.items():
        assert (got[key].shape, got[key].dtype) == (value.shape, value.dtype), key
        np.testing.assert_allclose(
            got[key], value, rtol=5e-3 if half else row.rtol, atol=5e-3 if half else row.atol,
            err_msg=f"{row.build}: {key}",
        )  # fmt: skip


# -- what users write ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_a_seed_gives_the_same_numbers_again(name: str):
    with a_gpu(name):
        samples = []
        for _ in range(2):
            random.seed(5)
            first, second = (getattr(nd.random, name)(shape=40, ctx=gpu(0)) for _ in range(2))
            assert first.context == gpu(0)
            samples.append((first.asnumpy().tolist(), second.asnumpy().tolist()))
        assert samples[0] == samples[1]
        assert samples[0][0] != samples[0][1]
