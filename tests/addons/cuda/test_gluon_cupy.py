"""Layers, cells, losses and optimizers on a GPU of the fake, in random schedules, equal the CPU's.

The rows are those of `gluon_rows/`: forward and backward, in training and not. What is drawn at
random is left out, for a GPU draws other numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from gluon_rows.repeatable import ROWS
from gluon_rows.runner import Row, examine_here
from gpu_kinds import fake_gpus

from d2lmini import cpu, gpu, nd, random
from d2lmini.gluon.data.vision import transforms as T
from d2lmini.ops import random_state


@contextmanager
def a_gpu(seed: str) -> Iterator[None]:
    """A scope with one GPU, gpu(0), whose schedule is drawn from a text."""
    number = zlib.crc32(seed.encode())
    with fake_gpus(1, number):
        yield


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


@pytest.mark.parametrize("name", ["uniform", "normal", "gamma", "poisson", "exponential"])
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


# -- pictures --------------------------------------------------------------------------------------

TRANSFORMS = [
    T.ToTensor(), T.Resize((7, 5)), T.Resize((4, 6), interpolation=0), T.CenterCrop((5, 4)),
    T.RandomResizedCrop((6, 6)),
    T.RandomFlipLeftRight(), T.RandomFlipTopBottom(), T.RandomBrightness(0.4),
    T.RandomContrast(0.4), T.RandomSaturation(0.4), T.RandomHue(0.4),
    T.RandomColorJitter(0.4, 0.4, 0.4, 0.4),
    T.Compose([T.ToTensor(), T.Normalize((0.1, 0.2, 0.3), 0.5)]),
]  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: type(t).__name__)
def test_transforms_of_pictures(transform):
    """What is random here are a few numbers, drawn on the host: the same ones."""
    image = np.random.default_rng(2).integers(0, 256, (10, 9, 3)).astype("uint8")
    random.seed(7, cpu())
    want = transform(nd.array(image, dtype="uint8"))
    want = want.asnumpy()
    with a_gpu(type(transform).__name__):
        random.seed(7, gpu(0))
        key = random_state.next_key

        def as_on_the_cpu(ctx=None):
            return key(ctx)._replace(device=cpu().device_typeid * 1000)

        with mock.patch.object(random_state, "next_key", as_on_the_cpu):
            got = transform(nd.array(image, dtype="uint8", ctx=gpu(0)))
            assert got.context == gpu(0)
            got = got.asnumpy()
    assert got.dtype == want.dtype and got.shape == want.shape
    # (Where it is cut towards zero, the last bit of a product can decide.)
    np.testing.assert_allclose(
        got.astype("float64"), want, rtol=1e-4, atol=1.01 if got.dtype == "uint8" else 1e-6
    )
