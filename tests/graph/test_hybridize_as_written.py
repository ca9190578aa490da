"""Forwards that do more than compute: hybridized they give the values and gradients of eager ones.

What a graph cannot hold, the modes of autograd and functions with a gradient of their own, makes
the Blocks around it run as they are written, and the user is told so once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d2lmini import autograd, init, nd, random
from d2lmini.gluon import HybridBlock, compiled, nn


class Tenfold(autograd.Function):
    def forward(self, x):
        return x * 3

    def backward(self, dy):
        return dy * 10


class Two(autograd.Function):
    def forward(self, x, y):
        self.save_for_backward(x)
        return x * y, x + y

    def backward(self, da, db):
        (x,) = self.saved_tensors
        return da * 5, db * x


def paused(F, x):
    with autograd.pause():
        y = x * x
    return y + x * x


def in_train_mode(F, x):
    with autograd.train_mode():
        return F.Dropout(x, p=0.5) + x


def in_predict_mode(F, x):
    with autograd.predict_mode():
        return F.Dropout(x, p=0.5) + x


def recorded(F, x):
    with autograd.record(train_mode=False):
        return F.Dropout(x, p=0.5) * x


#: Those that run as they are written, in some mode.
AS_WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "Function": lambda F, x: Tenfold()(x) * x,
    "Function of two": lambda F, x: Two()(x, x * 2)[0] + x,
    "pause": paused,
    "train_mode": in_train_mode,
    "predict_mode": in_predict_mode,
    "record(False)": recorded,
    "is_recording": lambda F, x: x * x * 2 if autograd.is_recording() else x * x,
}


def in_place_of_view(F, x):
    h = x * 2
    v = h.reshape((-1,))
    v += 1
    return h * x


def in_place_of_input(F, x):
    x += 1
    return x * x


def in_place_of_alias(F, x):
    y = z = x * 2
    y += 1
    return z * x


#: Those that are compiled, or run as they are written; recorded, arrays refuse them.
IN_PLACE = [in_place_of_view, in_place_of_input, in_place_of_alias]

#: Those that are compiled.
COMPILED: dict[str, Callable[[Any, Any], Any]] = {
    "detach": lambda F, x: x.detach() * x,
    "BlockGrad": lambda F, x: F.BlockGrad(x) * x,
    "is_training": lambda F, x: x * x * 2 if autograd.is_training() else x * x,
}


class Plain(HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(nd, x)


class Hybrid(HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


def nested(function) -> HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=4, flatten=False), Hybrid(function), nn.Dense(4, in_units=4))
    return net


KINDS = {"forward": Plain, "hybrid_forward": Hybrid, "nested": nested}
MODES = {"predict": (False, False), "train": (True, True), "record(False)": (True, False)}


def answers(net: HybridBlock, modes: list[str], shape: tuple[int, ...]) -> list[np.ndarray]:
    """Outputs and gradients in these modes, twice."""
    found = []
    for mode in modes * 2:
        recording, training = MODES[mode]
        x = nd.array(np.linspace(-1, 2, np.prod(shape)).reshape(shape))
        x.attach_grad()
        with autograd.record(training) if recording else autograd.pause(training):
            y = net(x)
        found.append(y.asnumpy())
        found.append(x.asnumpy())
        if recording:
            y.backward()
            found.append(x.grad.asnumpy())
            found += [p.grad().asnumpy() for p in net.collect_params().values()]
    return found


def check(build: Callable[[], HybridBlock], modes: list[str]) -> HybridBlock:
    """The same eager and hybridized, in two shapes."""
    results = []
    for hybridized in (False, True):
        random.seed(3)
        net = build()
        net.initialize(init.Xavier())
        net.hybridize(hybridized)
        random.seed(4)
        results.append([a for s in ((2, 4), (3, 4), (2, 4)) for a in answers(net, modes, s)])
    for eager, ours in zip(*results, strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-5, atol=1e-6)
    return net


ORDERS = [
    ["predict", "train", "record(False)"], ["train", "predict"], ["record(False)", "train"],
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*AS_WRITTEN, *COMPILED])
def test_eager_and_hybridized_agree(name: str, kind: str, order: list[str], monkeypatch):
    monkeypatch.setattr(compiled, "_told", set())
    function = {**AS_WRITTEN, **COMPILED}[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        net = check(lambda: KINDS[kind](function), order)
    texts = [str(w.message) for w in told if "not compiled" in str(w.message)]
    if name in COMPILED:
        assert not texts and len(net._compiled().placed) > 0
    else:
        assert len(texts) == 1 and "test_hybridize_as_written.py" in texts[0]


@pytest.mark.filterwarnings("ignore:x \\+= y")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", IN_PLACE)
def test_writes_into_what_others_see(function, kind):
    check(lambda: KINDS[kind](function), ["predict"])
