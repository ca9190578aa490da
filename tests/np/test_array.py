"""Short programs on `np.ndarray`s give what they give in the real MXNet 1.9.1."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest
from np_rows import stories
from oracle import Oracle

import d2lmini as mx
from d2lmini import autograd, np, npx


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal values, shapes and dtypes, part by part."""
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, yours in zip(ours, theirs):
            assert_same(mine, yours)
    elif isinstance(theirs, (onp.ndarray, float)):
        assert onp.shape(ours) == onp.shape(theirs)
        assert onp.asarray(ours).dtype == onp.asarray(theirs).dtype
        onp.testing.assert_allclose(ours, theirs, rtol=1e-6)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", [story.__name__ for story in stories.STORIES])
def test_story_equals_mxnet(name, mxnet: Oracle):
    assert_same(stories.tell(mx, name), mxnet.ask(stories.tell, name))


def test_files_equal_mxnet(tmp_path, mxnet: Oracle):
    folder = str(tmp_path)
    ours = stories.tell(mx, "saved", folder)
    assert_same(ours, mxnet.ask(stories.tell, "saved", folder))
    path = str(tmp_path / "x.npy")  # which MXNet wrote last
    assert_same([(k, v.asnumpy()) for k, v in sorted(npx.load(path).items())], ours[-1])


def test_a_part_of_numpy_that_np_has_not_is_computed_from_copies():
    x = np.array([3.0, 1.0, 2.0])
    assert isinstance(onp.nanmedian(x), onp.floating)
    assert isinstance(onp.roll(x, 1), np.ndarray)
    mixed = onp.concatenate([onp.zeros(1, "float32"), x])
    assert isinstance(mixed, np.ndarray) and mixed.tolist() == [0, 3, 1, 2]


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "var", "std"])
def test_floats_reduced_to_integers_keep_their_gradient(name):
    """The result is converted, as in MXNet, not the elements."""
    grads = []
    for dtype in ("int32", "float32"):
        x = np.array([1.7, 2.6, 4.4])
        x.attach_grad()
        with autograd.record():
            y = getattr(np, name)(x, dtype=dtype)
        y.backward()
        assert y.dtype == dtype
        grads.append(x.grad.asnumpy())
    onp.testing.assert_allclose(*grads, rtol=1e-6)
    assert onp.abs(grads[0]).max() > 0
