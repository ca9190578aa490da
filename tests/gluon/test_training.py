"""Training as a whole: real digits are learnt, alike to the bit whoever computes; no step waits,
none leaves memory behind, and a step that fails spoils nothing else.
"""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from d2lmini import autograd, d2l, engine, gluon, init, nd, random, storage
from d2lmini.base import MXNetError, instrument
from d2lmini.gluon import nn, rnn
from d2lmini.ops.composed import COMPILED_CALL
from d2lmini.ops.core import registry
from d2lmini.optimizer import lr_scheduler

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import accuracy

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def batch(n=16, size=28, seed=0):
    """Made-up pictures (n, 1, size, size) and labels (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1, size, size))
    return nd.array(X), nd.array(rng.integers(0, 10, n))


def step(net, trainer, X, y):
    with autograd.record():
        l = LOSS(net(X), y)
    l.backward()
    trainer.step(X.shape[0])
    return l


def chancy():
    """A net of all that could differ from run to run: dropout, batch statistics, big operations."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, kernel_size=3, padding=1), nn.BatchNorm(), nn.Activation("relu"),
        nn.MaxPool2D(), nn.Conv2D(16, kernel_size=3), nn.Dropout(0.2), nn.BatchNorm(),
        nn.Activation("tanh"), nn.AvgPool2D(), nn.Dense(64, activation="sigmoid"), nn.Dropout(0.5),
        nn.Dense(10),
    )  # fmt: skip
    return net


class ByRows(gluon.HybridBlock):
    """Reads a picture row by row."""

    def __init__(self):
        super().__init__()
        self.lstm = rnn.LSTM(16, layout="NTC")
        self.out = nn.Dense(10)

    def hybrid_forward(self, F, x):
        return self.out(self.lstm(x.reshape((0, -3, -2)))[:, -1])


NETS = {"lenet": accuracy.lenet, "resnet": accuracy.resnet, "chancy": chancy, "lstm": ByRows}


def made(name="lenet", optimizer="sgd", **options):
    """A net that has seen its first batch, and its Trainer."""
    net = NETS[name]()
    net.initialize(init.Xavier())
    net(batch(1)[0])
    if optimizer == "sgd":
        options = options or {"learning_rate": 0.05, "momentum": 0.9}
    return net, gluon.Trainer(net.collect_params(), optimizer, options)


def values(net):
    return {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


# -- it learns -------------------------------------------------------------------------------------


def test_lenet_learns_real_digits():
    """A third of the recipe of `benchmarks/accuracy.py`, which reaches 98 %."""
    net, test_iter = accuracy.train(accuracy.RECIPES["lenet"], seed=0, epochs=4)
    assert d2l.evaluate_accuracy(test_iter, net) > 0.93


# -- it repeats to the bit -------------------------------------------------------------------------


class Wide(gluon.HybridBlock):
    """Its products are large enough to be cut, and to be shared by BLAS's own threads if let."""

    def __init__(self):
        super().__init__()
        self.gru = rnn.GRU(128, layout="NTC")
        self.hidden = nn.Dense(600, activation="relu")
        self.out = nn.Dense(10)

    def hybrid_forward(self, F, x):
        return self.out(self.hidden(self.gru(x.reshape((0, -3, -2)))))


def wide_steps():
    """What three steps make of a wide net."""
    random.seed(7)
    net = Wide()
    net.initialize(init.Xavier())
    X, y = batch(64)
    net(X[:1])
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    for _ in range(3):
        step(net, trainer, X, y)
    return values(net)


def test_bits_of_wide_layers_depend_neither_on_workers_nor_on_threads_of_blas():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    with engine.use("naive"):
        serial = wide_steps()
    for workers, threads in ((1, 2), (2, 1), (2, 2), (4, 2)):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            with engine.use("threaded", workers=workers):
                assert_equal(wide_steps(), serial)


# -- it does not wait ------------------------------------------------------------------------------


class Waits(instrument.Instrument):
    def __init__(self):
        self.seen = []

    def wait(self, kind, target, site, begin_ns, end_ns):
        self.seen.append((kind, site))


def test_a_loop_over_loaded_batches_does_not_wait():
    """Nor do the loader, a schedule of rates, clipped gradients and sums of losses."""
    X, y = batch(64, 16)
    data = gluon.data.ArrayDataset(X, y)
    loader = gluon.data.DataLoader(data, 16, shuffle=True)
    net = accuracy.resnet()
    net.initialize(init.Xavier())
    rate = lr_scheduler.CosineScheduler(20, base_lr=0.1)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"lr_scheduler": rate})
    total = nd.zeros(1)
    with instrument.listening(Waits()) as waits:
        for X, y in loader:
            with autograd.record():
                l = LOSS(net(accuracy.shifted(X, 1)), y)
            l.backward()
            grads = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
            gluon.utils.clip_global_norm(grads, 1.0, check_isfinite=False)
            trainer.step(16)
            total += l.sum()
        assert waits.seen == []
        accuracy_now = d2l.evaluate_accuracy(loader, net)
        assert [kind for kind, _ in waits.seen] == ["float"]
    assert np.isfinite(total.asscalar()) and 0 <= accuracy_now <= 1


# -- it leaves nothing behind ----------------------------------------------------------------------


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def live():
    nd.waitall()
    return storage.stats().live


@pytest.mark.parametrize("name", NETS)
def test_steps_do_not_pile_up(name, no_collector):
    """As many bytes and Python objects after few steps as after many, though the garbage collector
    is off: no step leaves a circle behind. What is remembered on purpose, up to a bound, is not
    counted: plans of calls, which differ in the key of a dropout, and tuples, for every array notes
    the last 64 writes into it."""
    net, trainer = made(name)
    X, y = batch(4)

    def steps(n):
        for _ in range(n):
            step(net, trainer, X, y)
        nbytes = live()
        for op in registry.values():
            op.plans.clear()
            op.bound.cache_clear()
        return nbytes, sum(type(obj) is not tuple for obj in gc.get_objects())

    steps(COMPILED_CALL)  # by then formulas are compiled, and have their arenas
    counts = [steps(4) for _ in range(4)]
    # A worker that starts, a cache that fills, or what other tests left shows once; a circle in
    # every step.
    assert min(np.diff([nbytes for nbytes, _ in counts])) <= 0
    assert min(np.diff([objects for _, objects in counts])) < 4


# -- a step that fails -----------------------------------------------------------------------------


class Broken(autograd.Function):
    """Fails on the way back."""

    def forward(self, x):
        return x * 1

    def backward(self, g):
        raise KeyError("on the way back")


def wrong_shape(net, trainer, X, y):
    with autograd.record():
        net(X[:, :, :20])


def wrong_labels(net, trainer, X, y):
    with autograd.record():
        l = LOSS(net(X), y[:3])
    l.backward()


def wrong_head(net, trainer, X, y):
    with autograd.record():
        l = LOSS(net(X), y)
    l.backward(nd.ones(3))


def broken_backward(net, trainer, X, y):
    with autograd.record():
        l = LOSS(Broken()(net(X)), y)
    l.backward()


def no_backward(net, trainer, X, y):
    with autograd.record():
        LOSS(net(X), y)
    trainer.step(16)


def interrupted(net, trainer, X, y):
    with autograd.record():
        net(X)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (wrong_shape, MXNetError), (wrong_labels, (MXNetError, ValueError)),
        (wrong_head, (MXNetError, ValueError, AssertionError)), (broken_backward, KeyError),
        (no_backward, UserWarning), (interrupted, KeyboardInterrupt),
    ],
)  # fmt: skip
def test_an_exception_in_a_step_changes_nothing(fail, error, engine_kind):
    """Training goes on as if that step had not been, to the bit."""
    runs = []
    X, y = batch()
    for fails in (False, True):
        random.seed(5)
        net, trainer = made()
        for i in range(3):
            if i == 1 and fails:
                before = values(net)
                with pytest.raises(error):
                    fail(net, trainer, X, y)
                assert not autograd.is_recording() and not autograd.is_training()
                assert_equal(values(net), before)
            step(net, trainer, X, y)
        runs.append(values(net))
    assert_equal(*runs)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_failed_batch_changes_no_weights(optimizer, engine_kind, tmp_path):
    """The failure flows on to everything computed from it, and every wait names its beginning; the
    update is skipped. Files with the state before bring all back, to the bit."""
    X, y = batch()
    random.seed(5)
    net, trainer = made("lenet", optimizer, learning_rate=0.01)
    step(net, trainer, X, y)
    net.save_parameters(tmp_path / "net.params")
    trainer.save_states(tmp_path / "net.states")
    step(net, trainer, X, y)
    expected = values(net)

    noise = nd.random.normal(0, -1, shape=X.shape)  # fails while it is computed
    l = step(net, trainer, X + noise, y)
    for missing in (l, net[0].weight.grad(), l):
        with pytest.raises(MXNetError, match=r"(?s)scale must be 0 or more.*noise = nd\.random"):
            missing.asnumpy()
    assert_equal(values(net), expected)
    assert np.isfinite(step(net, trainer, X, y).asnumpy()).all()

    net.load_parameters(tmp_path / "net.params")
    trainer.load_states(tmp_path / "net.states")
    step(net, trainer, X, y)
    assert_equal(values(net), expected)
    nd.waitall()
