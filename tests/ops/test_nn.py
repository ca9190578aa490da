"""Layers beyond the table: training, random masks, outputs that carry a loss, errors, pieces."""

from __future__ import annotations

import numpy as np
import pytest

import d2lmini
from d2lmini import MXNetError, nd
from d2lmini.ops.core import ALL, modes, registry
from d2lmini.ops.random_state import Key

rng = np.random.default_rng(0)


@pytest.fixture
def training():
    modes.training = True
    yield
    modes.training = False


def array(*shape, low=-1.0, high=1.0, dtype="float64"):
    return nd.array(rng.uniform(low, high, shape), dtype=dtype)


# -- Dropout --------------------------------------------------------------------------------------


def test_dropout_in_training_keeps_the_mean_and_scales_what_is_left(training):
    y = nd.Dropout(nd.ones((1000, 1000)), p=0.2).asnumpy()
    assert set(np.unique(y)) == {0, np.float32(1.25)}
    assert abs((y == 0).mean() - 0.2) < 0.002
    assert abs(y.mean() - 1) < 0.003


def test_dropout_along_axes_shares_one_fate(training):
    y = nd.Dropout(nd.ones((40, 30, 20)), p=0.5, axes=(0, -1)).asnumpy()
    assert (y == y[:1, :, :1]).all()
    assert 0 < (y[0, :, 0] == 0).sum() < 30


def test_dropout_repeats_with_the_seed_and_not_without(training):
    x = nd.ones((300, 1000))
    d2lmini.random.seed(5)
    first, second = nd.Dropout(x).asnumpy(), nd.Dropout(x).asnumpy()
    d2lmini.random.seed(5)
    assert (nd.Dropout(x).asnumpy() == first).all()
    assert (first != second).any()


@pytest.mark.parametrize("axes", [(), (1,)])
def test_backward_of_dropout_draws_the_same_mask_again(axes):
    dropout, key = registry["Dropout"], Key(3, 1, 4)
    x = np.ones((600, 500), "float32")
    attrs = {"p": 0.3, "axes": axes, "rng": key}
    y = dropout.compute(np, x, mode="training", training=True, **attrs)
    g = dropout.rule(nd.array(x), **attrs)
    assert (g.asnumpy() == y).all()
    again = registry["_dropped"].rule(g, p=0.3, axes=axes, key=key)
    assert (again.asnumpy() == y * y).all()
    g = nd.array(x)
    assert dropout.rule(g, **{**attrs, "rng": None}) is g  # a call that drew nothing


# -- BatchNorm ------------------------------------------------------------------------------------


def statistics(x, axis):
    others = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    return x.mean(others), x.var(others)


@pytest.mark.parametrize("shape, axis", [((4, 3), 1), ((2, 3, 4, 5), 1), ((2, 3, 4), -1)])
def test_batch_norm_in_training_uses_and_remembers_the_batch(training, shape, axis):
    x = array(*shape, low=-3, high=5)
    C = shape[axis]
    gamma, beta = array(C), array(C)
    mean, var = nd.zeros(C, dtype="float64"), nd.ones(C, dtype="float64")
    y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, axis=axis, eps=1e-5, momentum=0.8)
    want_mean, want_var = statistics(x.asnumpy(), axis)
    np.testing.assert_allclose(mean.asnumpy(), 0.2 * want_mean)
    np.testing.assert_allclose(var.asnumpy(), 0.8 + 0.2 * want_var)
    got_mean, got_var = statistics(y.asnumpy(), axis)
    np.testing.assert_allclose(got_mean, beta.asnumpy(), atol=1e-12)
    np.testing.assert_allclose(
        got_var, gamma.asnumpy() ** 2 * want_var / (want_var + 1e-5), rtol=1e-9
    )


@pytest.mark.parametrize("fix_gamma", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_gradient_of_batch_norm(fix_gamma, training):
    op = registry["BatchNorm"]
    attrs = {**op.defaults, "fix_gamma": fix_gamma, "training": training, "eps": 0.1}
    arrays = [a.asnumpy() for a in (array(4, 3, 2), array(3), array(3), array(3))]
    arrays.append(rng.uniform(0.5, 2, 3))
    directions = [rng.uniform(-1, 1, a.shape) for a in arrays[:3]]
    head = rng.uniform(-1, 1, arrays[0].shape)

    def f(step):
        moved = [a + step * d for a, d in zip(arrays, directions)] + [a.copy() for a in arrays[3:]]
        return (op.compute(np, *moved, **attrs)[0] * head).sum()

    y = [nd.array(a, dtype="float64") for a in op.compute(np, *(a.copy() for a in arrays), **attrs)]
    x, gamma = (nd.array(a, dtype="float64") for a in arrays[:2])
    beta = nd.array(arrays[2], dtype="float64")
    g = [nd.array(head, dtype="float64"), None, None]
    grads = op.gradients(g, op.saved_of([x, gamma, beta], y), attrs, ALL)
    analytic = sum((d * v.asnumpy()).sum() for d, v in zip(directions, grads))
    np.testing.assert_allclose(analytic, (f(1e-6) - f(-1e-6)) / 2e-6, rtol=1e-6)
    assert not (fix_gamma and grads[1].asnumpy().any())


def test_batch_norm_takes_half_precision_data_with_single_precision_parameters(training):
    x = array(8, 3, 4, dtype="float16")
    one, zero = nd.ones(3), nd.zeros(3)
    mean, var = nd.zeros(3), nd.ones(3)
    y = nd.BatchNorm(x, one, zero, mean, var)
    assert y.dtype == np.float16 and mean.dtype == np.float32
    np.testing.assert_allclose(y.asnumpy().std((0, 2)), 1, rtol=1e-2)
    op = registry["BatchNorm"]
    attrs = {**op.defaults, "training": True}
    g = [nd.ones(x.shape, dtype="float16"), None, None]
    saved = op.saved_of([x, one, zero], [y, one, one])
    dx, dgamma, *_ = op.gradients(g, saved, attrs, ALL)
    assert dx.dtype == np.float16 and dgamma.dtype == np.float32


# -- outputs that stand for a loss ----------------------------------------------------------------


def gradients_of(op, g, y, *inputs, **attrs):
    """What the gradient rule of a call gives for each input, from what it keeps."""
    return op.gradients(g, op.saved_of(inputs, [y]), {**op.defaults, **attrs}, ALL)


def softmax_loss_gradient(p, label, *, grad_scale=1.0):
    """One softmax after the other."""
    dx = p.reshape(len(p), -1).copy()
    for i, c in enumerate(label):
        if 0 <= c < dx.shape[1]:
            dx[i, int(c)] -= 1
    return (dx * grad_scale).reshape(p.shape)


@pytest.mark.parametrize(
    "shape, label, attrs",
    [
        ((3, 4), (3,), {}),
        ((3, 4), (3,), {"grad_scale": 3.0}),
        ((2, 3, 2), (2,), {}),
    ],
)
def test_softmax_output_sends_back_the_gradient_of_the_cross_entropy(shape, label, attrs):
    op = registry["SoftmaxOutput"]
    data, label = array(*shape), nd.array(rng.integers(-1, 3, label), dtype="float64")
    y = op(data, label, **attrs)
    want = softmax_loss_gradient(y.asnumpy(), label.asnumpy(), **attrs)
    dx, dlabel = gradients_of(op, array(*shape), y, data, label, **attrs)
    np.testing.assert_allclose(dx.asnumpy(), want, atol=1e-12)
    assert dlabel is None


# -- work in pieces, and errors -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, shapes, attrs, says",
    [
        ("Activation", [(2,)], {"act_type": "gelu"}, "act_type='gelu' is unknown"),
        ("LeakyReLU", [(2, 3)], {"act_type": "prelu"}, "'gamma' is missing"),
        ("LeakyReLU", [(2, 3, 4), (4,)], {"act_type": "prelu"}, "one slope for each channel"),
        ("softmax", [(2, 3)], {"axis": 2}, "axis=2 is out of range"),
        ("softmax", [(2, 3)], {"temperature": 0}, "temperature must not be 0"),
        ("SoftmaxOutput", [(3, 4), (4,)], {}, r"label is \(4,\), need \(3, 4\) or \(3,\)"),
        ("FullyConnected", [(3, 4), (2, 5), (2,)], {"num_hidden": 2}, r"weight is \(2, 5\)"),
        ("Dropout", [(3,)], {"p": 1.5}, "p must be from 0 to 1, got 1.5"),
        ("L2Normalization", [(3, 4)], {"mode": "channel"}, "need more axes"),
        ("LayerNorm", [(3, 4), (3,), (3,)], {}, r"gamma is \(3,\), need \(4,\)"),
        ("InstanceNorm", [(3, 4), (4,), (4,)], {}, "three axes or more"),
        ("GroupNorm", [(2, 4, 3), (3,), (3,)], {"num_groups": 3}, "equal groups"),
        ("BatchNorm", [(2, 3), (3,), (3,), (3,), (2,)], {}, r"moving_var is \(2,\)"),
        ("Pooling", [(1, 1, 5, 5)], {"kernel": (2, 2), "pad": (2, 2)}, "lies in padding"),
        ("Pooling", [(1, 1, 5, 5)], {"kernel": (2, 2), "stride": (0, 1)}, "one number per axis"),
        (
            "Pooling",
            [(1, 1, 5)],
            {"kernel": (2,), "pool_type": "min"},
            "pool_type='min' is unknown",
        ),
    ],
)
def test_what_does_not_fit_is_explained_at_the_call(name, shapes, attrs, says):
    with pytest.raises(MXNetError, match=f"{name}: .*{says}"):
        getattr(nd, name)(*(array(*shape) for shape in shapes), **attrs)
