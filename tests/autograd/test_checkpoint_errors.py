"""autograd.checkpoint: what cannot be computed again is an error that says why, and where."""

from __future__ import annotations

import pytest
from test_activation_checkpoint import leaf

from d2lmini import autograd, nd
from d2lmini.base import MXNetError


def test_inputs_may_be_overwritten():
    x, w, c = leaf([1, 2]), leaf([3, 4]), nd.array([[0, 0], [5, 6]])
    with autograd.record():
        y = autograd.checkpoint(
            lambda x, table: x * table["w"] * table["c"], x, {"w": w, "c": c[1]}
        )
    for changed in (x, w, c):
        changed[:] = 0
    y.backward()
    assert x.grad.asnumpy().tolist() == [15, 24] and w.grad.asnumpy().tolist() == [5, 12]


@pytest.mark.parametrize("what", ["closure", "constant", "input, by the closure"])
def test_what_was_overwritten_is_named(what):
    x, w, c = leaf([1, 2]), leaf([3, 4]), nd.array([5, 6])
    closure = x if what.startswith("input") else nd.zeros(2)
    with autograd.record():
        y = autograd.checkpoint(lambda x: x + w + c + closure, x)
    changed = {"closure": w, "constant": c}.get(what, x)
    changed[:] = 0
    with pytest.raises(MXNetError, match="checkpoint: a value of shape") as caught:
        y.backward()
    assert "changed[:] = 0" in str(caught.value)
    assert "y = autograd.checkpoint(" in str(caught.value)


class Changing:
    """A function that is another one in its second run."""

    def __init__(self, *functions):
        self.functions = list(functions)

    def __call__(self, *xs):
        return self.functions.pop(0)(*xs)


w = nd.array([3, 4])
w.attach_grad()
DIFFERENT = {
    "another array": (lambda x: x * 2, lambda x: x * w, "used a recorded array .leaf, shape .2,.."),
    "another shape": (lambda x: x * 2, lambda x: x[0:1] * 2, r"array 0 .* was .*\(2,\).* now .*1,"),
    "fewer arrays": (lambda x: (x * 2, x * 3), lambda x: [], "array 0 .* now none"),
    "no history": (lambda x: x * 2, lambda x: x.detach() * 2, "was not computed in this run"),
    "the input": (lambda x: x * 2, lambda x: x, "was not computed in this run"),
    "more numbers": (
        lambda x: x * 2, lambda x: nd.Dropout(x, p=0.5), "draws random numbers on cpu.0. that it"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_second_run_that_differs_is_an_error(name):
    first, second, message = DIFFERENT[name]
    x = leaf([1, 2])
    with autograd.record():
        y = autograd.checkpoint(Changing(first, second), x)
        y = y[0] if type(y) is tuple else y
    with pytest.raises(MXNetError, match=message):
        y.backward()
    assert not autograd.is_recording() and not autograd.is_training()
    with autograd.record():
        z = autograd.checkpoint(lambda x: nd.BatchNorm(
            x.reshape((2, 1)), nd.ones(1), nd.zeros(1), moving, nd.ones(1)), x)  # fmt: skip
    assert moving.asscalar() != 0  # the scopes of the failed run are left
    moving[:] = 0
    z.backward()


moving = nd.zeros(1)
