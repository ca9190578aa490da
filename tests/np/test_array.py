"""What `data/small_programs/np.txt` does not ask of `np.ndarray`s."""

from __future__ import annotations

import numpy as onp
import pytest

from d2lmini import autograd, np


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
