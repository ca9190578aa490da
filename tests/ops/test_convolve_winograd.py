"""Convolution by Winograd's trick: right for all windows, in few digits less, the same whoever
computes."""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import all_three, check_workers_change_no_bit, way_of
from op_rows import conv as plain

from d2lmini.ops import conv_im2col, conv_winograd
from d2lmini.ops.conv_winograd import POINTS
from d2lmini.ops.windows import geometry

THREE = {"kernel": (3, 3), "stride": (1, 1), "dilate": (1, 1), "pad": (1, 1)}


def draw_case(rng):
    """A random convolution of two axes that goes place by place and fits its image."""
    while True:
        size, kernel = rng.integers(1, 15, 2), rng.integers(2, POINTS, 2)
        pad = rng.integers(0, kernel)
        if all(size + 2 * pad >= kernel):
            break
    N, C, F = rng.choice((1, 2, 9)), *rng.integers(1, 5, 2)
    geo = geometry(
        *(tuple(map(int, axes)) for axes in (size, kernel)), (), (), tuple(map(int, pad))
    )
    x, w = rng.normal(size=(N, C, *size)), rng.normal(size=(F, C, *kernel))
    return geo, x, w, rng.normal(size=(N, F, *geo.out))


@pytest.mark.parametrize("held", [(1, 1), (5000, 3), (1 << 19, 64)])
def test_equal_to_one_multiplication_after_the_other(monkeypatch, held):
    """Odd sizes, oblong kernels, padding; groups of few rows of tiles, of an image, of many."""
    rng = np.random.default_rng(held[0])
    monkeypatch.setattr(conv_winograd, "VALUES", held[0])
    monkeypatch.setattr(conv_winograd, "FEWEST_TILES", held[1])
    conv_winograd._choose_tiling.cache_clear()
    for _ in range(12):
        geo, x, w, g = draw_case(rng)
        how = dict(kernel=geo.kernel, stride=geo.stride, dilate=geo.dilate, pad=geo.pad)
        wants = (
            plain.convolution(x, w, **how, num_filter=len(w), no_bias=True),
            plain.backward_data(g, w, geo=geo, num_group=1),
            plain.backward_weight(x, g, geo=geo, num_group=1),
        )
        for got, want in zip(all_three(conv_winograd, geo, x, w, g), wants):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10, err_msg=str(geo))
    conv_winograd._choose_tiling.cache_clear()


def test_few_digits_are_lost():
    """In float32, beside the typical size of a result; straight away it is about 3e-7."""
    geo = geometry((12, 12), **THREE)
    rng = np.random.default_rng(0)
    wide = [rng.normal(size=s) for s in ((16, 128, 12, 12), (96, 128, 3, 3), (16, 96, *geo.out))]
    exact = all_three(conv_im2col, geo, *wide)
    for got, want in zip(
        all_three(conv_winograd, geo, *(a.astype("float32") for a in wide)), exact
    ):
        off = (got - want) / want.std()
        assert np.sqrt(np.mean(off**2)) < 3e-6
        assert abs(off).max() < 4e-5


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_workers_do_not_change_a_bit(dtype):
    """Of several groups, which any of them may compute."""
    rng = np.random.default_rng(1)
    data, weight = rng.normal(size=(24, 32, 14, 14)), rng.normal(size=(48, 32, 3, 3))
    assert way_of(24, weight.shape, (14, 14), pad=1) is conv_winograd
    assert len(conv_winograd._choose_tiling(24, 48, (3, 3), (14, 14)).groups(24)) > 1
    check_workers_change_no_bit(data, weight, dtype, pad=(1, 1))
