"""Products, convolutions, pooling beyond the table: costs, errors, tiles."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import MXNetError, nd
from d2lmini.ops import conv, conv_im2col
from d2lmini.ops.core import registry
from d2lmini.ops.windows import geometry

rng = np.random.default_rng(0)


def array(*shape, dtype="float32"):
    return nd.array(rng.uniform(-1, 1, shape), dtype=dtype)


@pytest.mark.parametrize(
    "name, shapes, attrs, flops",
    [
        ("dot", [(3, 4), (4, 5)], {}, 2 * 3 * 4 * 5),
        ("dot", [(2, 3, 4), (4, 5, 6)], {}, 2 * 6 * 4 * 30),
        ("batch_dot", [(7, 4, 3), (7, 4, 5)], {"transpose_a": True}, 7 * 2 * 3 * 4 * 5),
        ("linalg_gemm2", [(3, 4), (4, 5)], {"alpha": 2.0}, 2 * 3 * 4 * 5),
        ("FullyConnected", [(2, 3, 4), (5, 12), (5,)], {"num_hidden": 5}, 2 * 2 * 12 * 5 + 10),
        (
            "Convolution",
            [(2, 4, 6, 6), (8, 2, 3, 3)],
            {"kernel": (3, 3), "num_filter": 8, "num_group": 2, "no_bias": True},
            2 * (2 * 8 * 4 * 4) * (2 * 3 * 3),
        ),
        (
            "Deconvolution",
            [(2, 4, 3, 3), (4, 8, 2, 2)],
            {"kernel": (2, 2), "num_filter": 8},
            2 * (2 * 4 * 3 * 3) * (8 * 2 * 2),
        ),
    ],
)
def test_cost_of_products_is_exact(name, shapes, attrs, flops):
    assert registry[name].cost([(shape, "float32") for shape in shapes], **attrs).flops == flops


@pytest.mark.parametrize(
    "name, shapes, attrs, says",
    [
        ("dot", [(2, 3), (4, 5)], {}, r"dot: inner sizes differ: a is \(2, 3\), b is \(4, 5\)"),
        ("batch_dot", [(2, 3, 4), (1, 4, 5)], {}, "agree on all but the last two"),
        ("batch_dot", [(2, 3, 4), (2, 3, 4)], {}, "inner sizes differ"),
        ("Convolution", [(1, 2, 5, 5), (3, 2, 3, 3)], {}, "'bias' is missing: no_bias=False"),
        (
            "Convolution",
            [(1, 2, 5, 5), (3, 2, 3, 3), (3,)],
            {"no_bias": True},
            "'bias' was given, but is not used with no_bias=True",
        ),
        ("Convolution", [(1, 2, 5, 5), (4, 2, 3, 3), (3,)], {}, "weight is"),
        (
            "Convolution",
            [(1, 2, 5, 5), (3, 2, 3, 3), (3,)],
            {"stride": (2,)},
            "one number per axis",
        ),
        ("Convolution", [(1, 2, 5, 5), (3, 2, 3, 3), (3,)], {"num_group": 2}, "equal parts"),
        ("Deconvolution", [(1, 2, 2, 2), (2, 3, 3, 3)], {"adj": (1, 1)}, r"in \[0, stride\)"),
    ],
)
def test_shapes_that_do_not_fit_are_explained_at_the_call(name, shapes, attrs, says):
    if "onvolution" in name:
        attrs = {"kernel": (3, 3), "num_filter": 3, **attrs}
    with pytest.raises(MXNetError, match=says):
        getattr(nd, name)(*(array(*shape) for shape in shapes), **attrs)


@pytest.mark.parametrize(
    "name, dtypes, says",
    [
        ("dot", ("float32", "float64"), "dtypes differ"),
        ("dot", ("bool", "bool"), "needs numbers, got bool"),
    ],
)
def test_dtypes_that_do_not_fit_are_explained_at_the_call(name, dtypes, says):
    with pytest.raises(MXNetError, match=says):
        getattr(nd, name)(*(nd.ones((2, 2), dtype=d) for d in dtypes))


@pytest.mark.parametrize("size, kernel", [((9,), (3,)), ((9, 7), (3, 2)), ((5, 4, 4), (2, 2, 2))])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilate", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_is_the_same_by_tiles_of_any_size(
    monkeypatch, size, kernel, stride, dilate, groups
):
    """Whole batches, a few images, some rows of one image, single rows; images apart and side by
    side."""
    ndim = len(kernel)
    lists = {"kernel": kernel, "stride": (stride,) + (1,) * (ndim - 1),
             "dilate": (1,) * (ndim - 1) + (dilate,), "pad": (1,) * ndim,
             "num_group": groups}  # fmt: skip
    geo = geometry(size, *list(lists.values())[:4])
    x = array(7, 4, *size, dtype="float64")
    w = array(6, 4 // groups, *kernel, dtype="float64")

    def all_three():
        y = nd.Convolution(x, w, num_filter=6, no_bias=True, **lists)
        how = {"geo": geo, "num_group": groups}
        dx = registry["_conv_backward_data"](y, w, **how)
        dw = registry["_conv_backward_weight"](x, y, **how)
        return [v.asnumpy() for v in (y, dx, dw)]

    monkeypatch.setattr(conv, "choose_algorithm", lambda *_: conv_im2col)
    whole = all_three()
    monkeypatch.setattr(conv_im2col, "FEWEST_COLUMNS", 1)
    for side_by_side in (True, False):
        monkeypatch.setattr(conv_im2col, "is_small", lambda *_, small=side_by_side: small)
        for elements in (1 << 18, 2000, 300, 60, 1):
            monkeypatch.setattr(conv_im2col, "TILE_ELEMENTS", elements)
            conv_im2col._tiles_of.cache_clear()
            for got, want in zip(all_three(), whole):
                np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    conv_im2col._tiles_of.cache_clear()


def test_max_pooling_sends_gradients_to_the_first_largest_of_each_window():
    """Against a search of each window, on small integers, so that there are ties."""
    for _ in range(60):
        ndim = int(rng.integers(1, 4))
        size = tuple(map(int, rng.integers(4, 8, ndim)))
        kernel = tuple(map(int, rng.integers(1, 4, ndim)))
        stride = tuple(map(int, rng.integers(1, 4, ndim)))
        pad = tuple(int(rng.integers(0, k)) for k in kernel)
        _check_max_pooling(size, {"kernel": kernel, "stride": stride, "pad": pad}, "float64")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [(2, 2), (4, 6), (8, 2), (5, 4)])
def test_max_pooling_of_squares_does_so_too(dtype, size):
    _check_max_pooling(size, {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0)}, dtype)


def _check_max_pooling(size, how, dtype):
    kernel, stride, pad = how.values()
    x = rng.integers(0, 3, (2, 2, *size)).astype(dtype)
    y = registry["Pooling"].compute(np, x, **how)
    g = rng.uniform(size=y.shape).astype(dtype)
    dx = np.zeros_like(x)
    for place in np.ndindex(*y.shape):
        image, window = place[:2], place[2:]
        starts = [o * s - p for o, s, p in zip(window, stride, pad)]
        taps = [tuple(a + t for a, t in zip(starts, tap)) for tap in np.ndindex(*kernel)]
        inside = [q for q in taps if all(0 <= i < n for i, n in zip(q, size))]
        first = image + max(inside, key=lambda q, image=image: x[image + q])
        dx[first] += g[place]
    pool = geometry(size, kernel, stride, (), pad)
    got = registry["_max_pooling_backward"].compute(np, g, x, y, pool=pool)
    np.testing.assert_allclose(got, dx, rtol=1e-12, err_msg=f"{size} {how}")
