"""autograd.checkpoint: the peak of a step falls by the bytes that its formula predicts."""

from __future__ import annotations

import numpy as np
import pytest
from test_activation_checkpoint import leaf

from d2lmini import autograd, engine, nd, storage

MB = 1 << 20


def chain(h, n: int = 8):
    """n megabytes of intermediate results that backward needs, for an input of one."""
    for _ in range(n):
        h = h.tanh()
    return h


def live() -> int:
    nd.waitall()
    return storage.stats().live


def test_the_peak_falls_to_the_inputs_and_one_part():
    """Four parts of eight results: 32 are kept without, 3 + 8 with `checkpoint`."""
    peaks, kept = [], []
    with engine.use("naive"):
        for checkpoint in (lambda f, *xs: f(*xs), autograd.checkpoint):
            x = leaf(np.full(MB // 4, 0.5, np.float32))
            before = live()
            storage.reset_peak()
            with autograd.record():
                h = x
                for _ in range(4):
                    h = checkpoint(chain, h)
                h = h.sum()
            kept.append((live() - before) / MB)
            h.backward()
            peaks.append((storage.stats().peak - before) / MB)
            del h
            assert live() == pytest.approx(before, abs=4096)
    # The program holds the first input, and the last result is in the sum.
    assert kept == pytest.approx([32, 3], rel=0.01)
    assert peaks == pytest.approx([32 + 2, 3 + 8 + 2], rel=0.01)  # and two gradients
