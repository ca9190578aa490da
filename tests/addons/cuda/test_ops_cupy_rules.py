"""What ops do on CuPy that differs from NumPy, or that no row of the table shows."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.cupy_arrays import no_host_sync
from fakes.cupy_module import cupy
from op_rows.case import draw

from d2lmini.cuda.kernels import windows
from d2lmini.ops.core import registry
from d2lmini.ops.kernels import kind_of
from d2lmini.ops.random_state import Key
from d2lmini.ops.windows import geometry


def on_both(name: str, *arrays, **attrs):
    """(on CuPy, on NumPy), of arrays that are given as NumPy's."""
    there = [cupy.asarray(a) for a in arrays]
    with no_host_sync():
        got = registry[name].kernel_for("cuda")(cupy, *there, **attrs)
    with np.errstate(all="ignore"):
        want = registry[name].compute(np, *(a.copy() for a in arrays), **attrs)
    return got, want


# -- integers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_large_integers_are_divided_exactly(dtype: str):
    large = np.array([2**53 + 1, 2**62 + 3, 7, 0, 5], dtype)
    small = np.array([1, 3, 2, 4, 0], dtype)
    got, want = on_both("broadcast_div", large, small)
    assert got.raw.tolist() == want.tolist()
    if dtype == "int64":
        got, want = on_both("broadcast_div", -large, small)
        assert got.raw.tolist() == want.tolist() == [-(2**53) - 1, -((2**62 + 3) // 3), -3, 0, 0]
    got, want = on_both("_rdiv_scalar", small, scalar=2**53 + 1)
    assert got.raw.tolist() == want.tolist()


def test_a_label_outside_makes_the_loss_nan():
    data, good, bad = draw((4, 2, 3)), np.array([[1, 2], [2, 1]]), np.array([[1, 2], [3, 1]])
    (loss, _), (want, _) = on_both("CTCLoss", data, good)
    np.testing.assert_allclose(loss.raw, want, rtol=1e-5)
    with no_host_sync():
        loss, dx = registry["CTCLoss"].kernel_for("cuda")(cupy, *map(cupy.asarray, (data, bad)))
    assert np.isfinite(loss.raw[0]) and np.isnan(loss.raw[1])
    assert np.isfinite(dx.raw[:, 0]).all() and np.isnan(dx.raw[:, 1]).any(axis=1).all()


# -- convolution -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workspace", [1, 3000, 1 << 28])
@pytest.mark.parametrize("groups", [1, 2])
def test_columns_of_few_images_at_a_time(monkeypatch, workspace: int, groups: int):
    """The workspace bounds the memory, not the result."""
    monkeypatch.setattr(windows, "WORKSPACE", workspace)
    x, w, g = draw((5, 4, 7, 6)), draw((6, 4 // groups, 3, 2), seed=1), draw((5, 6, 4, 5), seed=2)
    how = dict(kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0))
    how |= dict(num_group=groups)
    g = g[:, :, :, :4]
    got, want = on_both("Convolution", x, w, num_filter=6, no_bias=True, **how)
    np.testing.assert_allclose(got.raw, want, rtol=1e-4, atol=1e-5)
    how = dict(geo=geometry((7, 6), (3, 2), (2, 1), (1, 2), (1, 0)), num_group=groups)
    got, want = on_both("_conv_backward_weight", x, g, **how)
    np.testing.assert_allclose(got.raw, want, rtol=1e-4, atol=1e-5)
    got, want = on_both("_conv_backward_data", g, w, **how)
    np.testing.assert_allclose(got.raw, want, rtol=1e-4, atol=1e-5)


def test_no_images_no_gradient():
    x, g = np.zeros((0, 2, 4, 4), "f"), np.zeros((0, 3, 2, 2), "f")
    how = dict(geo=geometry((4, 4), (3, 3), (), (), ()), num_group=1)
    got, want = on_both("_conv_backward_weight", x, g, **how)
    assert got.raw.tolist() == want.tolist()


# -- random numbers: others than the CPU's, of the same distributions ------------------------------


def drawn(name: str, xp, *arrays, number: int = 1, **attrs):
    with no_host_sync():
        return registry[name].kernel_for(kind_of(xp))(xp, *arrays, rng=Key(5, 0, number), **attrs)


def test_a_gpu_draws_categories():
    p = np.array([[0.1, 0.0, 0.6, 0.3], [0.0, 1.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0]], "float32")
    got, logs = drawn("_sample_multinomial", cupy, cupy.asarray(p), shape=(4000,), get_prob=True)
    assert got.shape == (3, 4000) and got.dtype == "int32" and logs.dtype == "float32"
    shares = np.array([np.bincount(row, minlength=4) for row in got.raw]) / 4000
    np.testing.assert_allclose(shares, p / p.sum(axis=1, keepdims=True), atol=0.03)
    assert (shares[p == 0] == 0).all()
    np.testing.assert_allclose(logs.raw, np.log(np.take_along_axis(p, got.raw, 1)), rtol=1e-6)
    one = drawn("_sample_multinomial", cupy, cupy.asarray(p[0]))
    assert one.shape == (1,) and one.raw[0] in (0, 2, 3)


def test_dropout_drops_the_same_again():
    x = np.ones((50, 40), "float32")
    y = drawn("Dropout", cupy, cupy.asarray(x), p=0.25, training=True)
    assert set(np.unique(y.raw)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y.raw == 0).mean() - 0.25) < 0.05
    g = registry["_dropped"].kernel_for("cuda")(
        cupy, cupy.asarray(x), p=0.25, axes=(), key=Key(5, 0, 1)
    )
    assert g.raw.tolist() == y.raw.tolist()
    rows = drawn("Dropout", cupy, cupy.asarray(x), p=0.5, axes=(1,), training=True).raw
    assert (rows == rows[:, :1]).all() and 5 < (rows[:, 0] == 0).sum() < 45
