"""The networks of the book, compiled: the numbers of the eager run in outputs, gradients and moving
averages, in training and in prediction, for one shape after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hybrid_nets import NETS, mlp, numbers, run

from d2lmini import autograd, nd, random


@pytest.mark.parametrize("train", [True, False], ids=["train", "predict"])
@pytest.mark.parametrize("name", NETS)
def test_compiled_equals_eager(name, train):
    """Over its shapes in turn and again, so that what was compiled is used, too."""
    build, shapes, words = NETS[name]
    random.seed(1)
    net = build()
    net.initialize()
    first = numbers(shapes[0], words)
    net(*first)
    before = {n: p.data().asnumpy() for n, p in net.collect_params().items()}

    def runs() -> list[dict[str, np.ndarray]]:
        for n, p in net.collect_params().items():
            p.set_data(before[n])
        alike = [shape for shape in shapes if len(shape) == len(shapes[0])]
        return [run(net, numbers(each, words), train) for each in (*alike, *alike)]

    eager = runs()
    net.hybridize()
    for expected, got in zip(eager, runs(), strict=True):
        assert expected.keys() == got.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


def test_same_seed_same_masks():
    """Dropout drops the same elements, compiled or not, call after call."""
    net = mlp()
    net.initialize()
    x = nd.ones((8, 5))
    net(x)  # initializing draws as well

    def masks() -> np.ndarray:
        random.seed(11)
        with autograd.train_mode():
            return np.stack([net(x).asnumpy() for _ in range(3)])

    eager = masks()
    assert not np.allclose(eager[0], eager[1])
    net.hybridize()
    np.testing.assert_allclose(masks(), eager, rtol=1e-5, atol=1e-7)
