"""Optimizers: formulas over several steps, files, no waits."""

from __future__ import annotations

import math
import pickle
import threading

import numpy as np
import pytest

from d2lmini import MXNetError, engine, nd, optimizer
from d2lmini.ndarray import serialize
from d2lmini.ops.update import BLOCK
from d2lmini.optimizer import Optimizer

SHAPES = [(3, 4), (5,), (1, 2)]


def draw(shape, *seed) -> np.ndarray:
    return np.random.default_rng([*shape, *seed]).uniform(-1, 1, shape)


# -- formulas, in float64, as the papers have them -----------------------------------------------
# Each is a generator: it gets w, then a gradient at a time (decay and clipping as `inside` says),
# and yields the new weight.


def sgd(w, o, lr, wd):
    mom = 0 * w
    while True:
        g = yield w
        mom = o.get("momentum", 0) * mom - lr * (g + wd * w)
        w = w + mom


def nag(w, o, lr, wd):
    mom = 0 * w
    while True:
        g = (yield w) + wd * w
        mom = o["momentum"] * mom - lr * g
        w = w + o["momentum"] * mom - lr * g


def signum(w, o, lr, wd):
    mom, m = 0 * w, o.get("momentum", 0.9)
    while True:
        g = yield w
        mom = m * mom - (1 - m) * (g + wd * w)
        w = (1 - lr * o.get("wd_lh", 0)) * w + lr * np.sign(mom)


def adam(w, o, lr, wd):
    m = v = 0 * w
    for t in range(1, 100):
        g = yield w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        rate = lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        w = w - rate * m / (np.sqrt(v) + o.get("epsilon", 1e-8))


def adagrad(w, o, lr, wd):
    total = 0 * w
    while True:
        g = yield w
        total = total + g * g
        w = w - lr * (g / np.sqrt(total + 1e-7) + wd * w)


def rmsprop(w, o, lr, wd):
    n = 0 * w
    while True:
        g = yield w
        n = 0.9 * n + 0.1 * g * g
        w = w - lr * g / np.sqrt(n + 1e-8)
        w = np.clip(w, -o.get("clip_weights", 9), o.get("clip_weights", 9))


def rmsprop_centered(w, o, lr, wd):
    n = mean = delta = 0 * w
    while True:
        g = yield w
        n, mean = 0.9 * n + 0.1 * g * g, 0.9 * mean + 0.1 * g
        delta = 0.9 * delta - lr * g / np.sqrt(n - mean * mean + 1e-8)
        w = w + delta


def adadelta(w, o, lr, wd):
    acc_g = acc_d = 0 * w
    while True:
        g = yield w
        acc_g = 0.9 * acc_g + 0.1 * g * g
        d = np.sqrt(acc_d + 1e-5) / np.sqrt(acc_g + 1e-5) * g
        acc_d = 0.9 * acc_d + 0.1 * d * d
        w = w - d - wd * w


def ftrl(w, o, lr, wd):
    z = n = 0 * w
    while True:
        g = yield w
        z = z + g - (np.sqrt(n + g * g) - np.sqrt(n)) / lr * w
        n = n + g * g
        w = -np.sign(z) * np.maximum(np.abs(z) - 0.01, 0) / ((1 + np.sqrt(n)) / lr + wd)


def adamax(w, o, lr, wd):
    m = u = 0 * w
    for t in range(1, 100):
        g = yield w
        m, u = 0.9 * m + 0.1 * g, np.maximum(0.999 * u, np.abs(g))
        w = w - lr / (1 - 0.9**t) * m / u


def ftml(w, o, lr, wd):
    d = v = z = 0 * w
    for t in range(1, 100):
        g = yield w
        v = 0.999 * v + 0.001 * g * g
        new = (1 - 0.6**t) / lr * (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        z = 0.6 * z + 0.4 * g - (new - 0.6 * d) * w
        d, w = new, -z / new


def lamb(w, o, lr, wd):
    m = v = 0 * w
    for t in range(1, 100):
        g = yield w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + wd * w
        w = w - lr * np.linalg.norm(w) / np.linalg.norm(step) * step


# name, own options, formula, is decay part of the gradient that is clipped?
FORMULAS = [
    ("sgd", {}, sgd, False),
    ("sgd", {"momentum": 0.9}, sgd, False),
    ("nag", {"momentum": 0.9}, nag, False),
    ("signum", {"momentum": 0.9}, signum, False),
    ("signum", {"momentum": 0.5, "wd_lh": 0.1}, signum, False),
    ("adam", {}, adam, True),
    ("adam", {"epsilon": 1e-3}, adam, True),
    ("adagrad", {}, adagrad, False),
    ("rmsprop", {}, rmsprop, True),
    ("rmsprop", {"clip_weights": 0.4}, rmsprop, True),
    ("rmsprop", {"centered": True}, rmsprop_centered, True),
    ("adadelta", {}, adadelta, False),
    ("ftrl", {}, ftrl, False),
    ("adamax", {}, adamax, True),
    ("ftml", {}, ftml, True),
    ("lamb", {}, lamb, False),
]
COMMON = [
    {},
    {"wd": 0.1, "rescale_grad": 0.5},
    {"wd": 0.1, "rescale_grad": 0.5, "clip_gradient": 0.2},
]
NAMES = [f"{n}-{'-'.join(f'{k}={v}' for k, v in o.items())}" for n, o, *_ in FORMULAS]


def expected(formula, inside: bool, w, grads, own, common, lr: float):
    wd = common.get("wd", 0.0)
    clip = common.get("clip_gradient", np.inf)
    run = formula(w, own, lr, wd)
    w = next(run)
    for g in grads:
        g = common.get("rescale_grad", 1.0) * g + (wd * w if inside else 0)
        w = run.send(np.clip(g, -clip, clip))
    return w


@pytest.mark.parametrize("common", COMMON, ids=str)
@pytest.mark.parametrize(("name", "own", "formula", "inside"), FORMULAS, ids=NAMES)
def test_updates_follow_the_formula(name, own, formula, inside, common, engine_kind):
    opt = optimizer.create(name, learning_rate=0.05, **own, **common)
    shapes = SHAPES
    weights = [nd.array(draw(s), dtype="float64") for s in shapes]
    states = [opt.create_state_multi_precision(i, w) for i, w in enumerate(weights)]
    grads = [[draw(s, t) for t in range(6)] for s in shapes]
    updater = optimizer.get_updater(opt)
    updater.states.update(enumerate(states))
    updater.states_synced.update(dict.fromkeys(range(len(shapes)), True))
    for t in range(6):
        updater(list(range(len(shapes))), [nd.array(g[t], dtype="float64") for g in grads], weights)
    for shape, w, gs in zip(shapes, weights, grads, strict=True):
        want = expected(formula, inside, draw(shape), gs, own, common, 0.05)
        np.testing.assert_allclose(w.asnumpy(), want, rtol=1e-5, atol=1e-6)


HALF = [row for row in FORMULAS if row[0] not in ("lamb", "signum")]


@pytest.mark.parametrize(
    ("name", "own", "formula", "inside"), HALF, ids=[f"{n}-{o}" for n, o, *_ in HALF]
)
def test_mixed_precision_is_the_formula_in_float32(name, own, formula, inside):
    opt = optimizer.create(name, learning_rate=0.05, multi_precision=True, wd=0.01, **own)
    start = draw((3, 4)).astype("float16")
    weight = nd.array(start, dtype="float16")
    state = opt.create_state_multi_precision(0, weight)
    grads = [draw((3, 4), t).astype("float16") for t in range(6)]
    for g in grads:
        opt.update_multi_precision(0, weight, nd.array(g, dtype="float16"), state)
    common = {"wd": 0.01}
    wide = [g.astype("float64") for g in grads]
    want = expected(formula, inside, start.astype("float64"), wide, own, common, 0.05)
    master = opt._split(state)[0]
    assert weight.dtype == np.float16 and master.dtype == np.float32
    np.testing.assert_allclose(master.asnumpy(), want, rtol=2e-4, atol=2e-5)
    assert weight.asnumpy().tobytes() == master.asnumpy().astype("float16").tobytes()


# -- one task ------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_lists_and_single_updates_agree_to_the_bit(together: bool):
    """And so do large parameters, cut into pieces, with any number of workers."""
    shapes = [(700, 900), (3,), (2 * BLOCK + 7,), (0,), ()]
    results = []
    for kind, options in (("naive", {}), ("threaded", {"workers": 3, "inline_below": 0.0})):
        with engine.use(kind, **options):
            adam = optimizer.create("adam", wd=0.1)
            weights = [nd.array(draw(s), dtype="float32") for s in shapes]
            updater = optimizer.get_updater(adam)
            for t in range(3):
                grads = [nd.array(draw(s, t), dtype="float32") for s in shapes]
                if together:
                    updater(list(range(5)), grads, weights)
                else:
                    for each in zip(range(5), grads, weights, strict=True):
                        updater(*each)
            results.append([w.asnumpy().tobytes() for w in weights])
    assert results[0] == results[1]


def test_an_update_does_not_wait():
    with engine.use("threaded"):
        weight, grad = nd.ones((100, 100)), nd.ones((100, 100))
        go = threading.Event()
        engine.push(lambda: go.wait(30), writes=[grad], name="held")
        for name in sorted(Optimizer.opt_registry):
            updater = optimizer.get_updater(optimizer.create(name))
            updater([0], [grad], [weight.copy()])
        assert engine.stats().pending > len(Optimizer.opt_registry)
        go.set()
        nd.waitall()


# -- keeping -------------------------------------------------------------------------------------


def trained(name: str, updates: int, updater=None, start: int = 0, **options):
    updater = updater or optimizer.get_updater(optimizer.create(name, wd=0.01, **options))
    weights = [nd.array(draw(s)) for s in SHAPES]
    for t in range(start, start + updates):
        updater([0, 1, 2], [nd.array(draw(s, t)) for s in SHAPES], weights)
    return updater, [w.asnumpy() for w in weights]


@pytest.mark.parametrize("name", sorted(Optimizer.opt_registry))
def test_states_survive_bytes(name: str):
    """Six updates in one go, or three, a file, and three more."""
    options = {"momentum": 0.9} if name in ("sgd", "nag") else {}
    updater, _ = trained(name, 3, **options)
    blob = updater.get_states(dump_optimizer=True)
    fresh = optimizer.get_updater(optimizer.create(name))
    fresh.set_states(blob)
    assert fresh.optimizer.num_update == 3 and fresh.optimizer.wd == 0.01
    for other in (updater, fresh):
        assert other.optimizer._index_update_count == {0: 3, 1: 3, 2: 3}
    want = trained(name, 3, updater, start=3)[1]
    got = trained(name, 3, fresh, start=3)[1]
    for a, b in zip(want, got, strict=True):
        assert a.tobytes() == b.tobytes()


def test_files_that_could_run_code_are_refused():
    class Trap:
        def __reduce__(self):
            return print, ("this must not be printed",)

    updater = optimizer.get_updater(optimizer.create("sgd"))
    with pytest.raises(MXNetError, match="pickle"):
        updater.set_states(pickle.dumps(Trap()))
    with pytest.raises(MXNetError):
        updater.set_states(b"nonsense")
    other = nd.ones((2,))
    with pytest.raises(MXNetError, match="no optimizer states"):
        updater.set_states(_params_of(other))


def _params_of(array) -> bytes:
    return serialize.dumps([(array.asnumpy(), (1, 0))], ["w"])


def test_only_the_same_class_takes_the_states_of_a_file():
    class Unknown(Optimizer):
        def update(self, index, weight, grad, state):
            weight[:] -= grad

    updater = optimizer.get_updater(Unknown())
    updater(0, nd.ones((1,)), nd.ones((1,)))
    blob = updater.get_states(dump_optimizer=True)
    fresh = optimizer.get_updater(optimizer.create("sgd"))
    with pytest.raises(MXNetError, match="saved with Unknown, the Trainer has SGD"):
        fresh.set_states(blob)
    optimizer.get_updater(Unknown()).set_states(blob)


@pytest.mark.parametrize("name", sorted(set(Optimizer.opt_registry) - {"adadelta"}))
def test_a_learning_rate_of_0_leaves_the_weight(name):
    """Also those that divide by it, and whatever the state is by then."""
    adjusted = optimizer.create(name, learning_rate=0.0, wd=0.1)
    weight = nd.array([1.0, -2.0, 0.5])
    state = adjusted.create_state(0, weight)
    for _ in range(2):
        adjusted.update(0, weight, nd.array([3.0, 0.1, -1.0]), state)
    assert weight.asnumpy().tolist() == [1.0, -2.0, 0.5]
    adjusted.set_learning_rate(0.1)
    adjusted.update(0, weight, nd.array([3.0, 0.1, -1.0]), state)
    assert np.isfinite(weight.asnumpy()).all()
    assert weight.asnumpy().tolist() != [1.0, -2.0, 0.5]
