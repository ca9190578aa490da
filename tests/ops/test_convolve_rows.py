"""Convolution by rows: right for all windows, chosen by sizes, the same whoever computes."""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import all_three, check_workers_change_no_bit, way_of
from op_rows import conv as plain

from d2lmini.base import MXNetError
from d2lmini.ops import conv_toeplitz
from d2lmini.ops.windows import geometry


def draw_case(rng):
    """A random convolution of one or two axes that fits its image."""
    while True:
        ndim = int(rng.integers(1, 3))
        size, kernel, stride, dilate, pad = (
            tuple(map(int, rng.integers(low, high, ndim)))
            for low, high in ((1, 15), (1, 5), (1, 4), (1, 3), (0, 3))
        )
        try:
            geo = geometry(size, kernel, stride, dilate, pad)
        except MXNetError:
            continue
        N, C, F = rng.choice((1, 2, 5, 40)), *rng.integers(1, 5, 2)
        x, w = rng.normal(size=(N, C, *size)), rng.normal(size=(F, C, *kernel))
        return geo, x, w, rng.normal(size=(N, F, *geo.out))


@pytest.mark.parametrize("blocks", [((1,), (1,)), ((1, 2), (1, 2, 4)), ((1, 3), (1, 3, 5))])
@pytest.mark.parametrize("tile", [1, 5000, conv_toeplitz.TILE])
def test_equal_to_one_multiplication_after_the_other(monkeypatch, blocks, tile):
    """Odd sizes, strides, dilation, padding, one and two axes, one image and many, the largest
    blocks that fit."""
    rng = np.random.default_rng(tile)
    monkeypatch.setattr(conv_toeplitz, "HEIGHTS", blocks[0])
    monkeypatch.setattr(conv_toeplitz, "WIDTHS", blocks[1])
    monkeypatch.setattr(conv_toeplitz, "TILE", tile)
    monkeypatch.setattr(
        conv_toeplitz.ToeplitzPlan, "cost", property(lambda plan: -plan.multiplications)
    )
    conv_toeplitz.plan.cache_clear()
    for _ in range(40):
        geo, x, w, g = draw_case(rng)
        how = dict(kernel=geo.kernel, stride=geo.stride, dilate=geo.dilate, pad=geo.pad)
        y, dx, dw = all_three(conv_toeplitz, geo, x, w, g)
        close = dict(rtol=1e-10, atol=1e-10, err_msg=str(geo))
        want = plain.convolution(x, w, **how, num_filter=len(w), no_bias=True)
        np.testing.assert_allclose(y, want, **close)
        want = plain.backward_data(g, w, geo=geo, num_group=1)
        np.testing.assert_allclose(dx, want, **close)
        want = plain.backward_weight(x, g, geo=geo, num_group=1)
        np.testing.assert_allclose(dw, want, **close)
    conv_toeplitz.plan.cache_clear()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_workers_do_not_change_a_bit(dtype):
    """Of several tiles, which any of them may compute."""
    rng = np.random.default_rng(1)
    data, weight = rng.normal(size=(150, 6, 14, 14)), rng.normal(size=(16, 6, 5, 5))
    plan = conv_toeplitz.plan(weight.shape, geometry((14, 14), (5, 5), (), (), ()))
    assert way_of(150, weight.shape, (14, 14)) is conv_toeplitz and plan.images < 75
    check_workers_change_no_bit(data, weight, dtype, pad=(0, 0))
