"""`d2l.mxnet`: the classes for models and training, the loops, devices."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import numpy
import pytest
import second_edition

import d2lmini
from d2lmini import autograd, cpu, gluon, gpu, np, npx, virtual_gpus
from d2lmini.d2l import mxnet as d2l
from d2lmini.gluon import nn


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


# -- oop.py ----------------------------------------------------------------------------------------


def test_a_board_keeps_means():
    board = d2l.ProgressBoard("x", display=False)
    for x in range(5):
        board.draw(x, 10 * x, "a", every_n=2)
        board.draw(x, x, "b")
    assert board.data["a"] == [(0.5, 5), (2.5, 25)] and len(board.data["b"]) == 5
    assert board.raw_points["a"] == [(4, 40)] and board.figsize == (3.5, 2.5)


class Line(d2l.Module):
    """y = w x, on an array; one step of SGD is known."""

    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.w = np.array([2])
        self.w.attach_grad()

    def forward(self, X):
        return X * self.w

    def loss(self, y_hat, y):
        return ((y_hat - y) ** 2).mean()


class Points(d2l.DataModule):
    """Two batches for training, one for validation, or none."""

    def __init__(self, val=True):
        super().__init__()
        self.save_hyperparameters()

    def get_dataloader(self, train):
        if not train and not self.val:
            return None
        return [(np.array([1]), np.array([0]))] * (2 if train else 1)


def test_a_trainer_steps_and_draws():
    model, trainer = Line(), d2l.Trainer(max_epochs=2)
    trainer.fit(model, Points())
    # w <- w - 0.1 * 2 w, four times.
    assert float(model.w) == pytest.approx(2 * 0.8**4)
    losses = [4 * 0.64**i for i in range(4)]
    assert [p.y for p in model.board.data["train_loss"]] == pytest.approx(losses)
    assert [p.x for p in model.board.data["train_loss"]] == [0, 0.5, 1, 1.5]
    assert [tuple(p) for p in model.board.data["val_loss"]] == [
        (1, pytest.approx(losses[2])), (2, pytest.approx(4 * 0.64**4)),
    ]  # fmt: skip
    assert (trainer.epoch, trainer.train_batch_idx, trainer.val_batch_idx) == (1, 4, 2)
    assert model.board.xlim == [0, 2] and model.trainer is trainer


def test_without_validation_and_with_clipping():
    model = Line()
    d2l.Trainer(max_epochs=1, gradient_clip_val=0.5).fit(model, Points(val=False))
    assert float(model.w) == pytest.approx(2 - 2 * 0.1 * 0.5)
    assert list(model.board.data) == ["train_loss"]


def test_what_a_model_must_define():
    model = d2l.Module()
    with pytest.raises(AssertionError, match="Neural network is defined"):
        model(np.ones(1))
    with pytest.raises(AssertionError, match="Trainer is not inited"):
        model.plot("loss", 1, train=True)
    with pytest.raises(NotImplementedError, match=r"Module defines no loss\(y_hat, y\)"):
        model.loss(1, 2)


def test_parameters_on_arrays_and_of_gluon():
    scratch = Line()
    assert [p is scratch.w for p in scratch.parameters()] == [True]
    assert isinstance(scratch.configure_optimizers(), d2l.SGD)
    concise = d2l.LinearRegression(lr=0.1)
    assert len(concise.parameters()) == 2
    assert isinstance(concise.configure_optimizers(), gluon.Trainer)


def test_a_trainer_moves_the_model_to_the_gpu():
    with virtual_gpus(1):
        model, trainer = Line(), d2l.Trainer(max_epochs=2, num_gpus=3)
        assert trainer.gpus == [gpu(0)]
        trainer.fit(model, Points())
        assert model.w.ctx == gpu(0) and float(model.w) == pytest.approx(2 * 0.8**4)
        outer = Line()
        outer.inner, outer.row = Line(), [Line(), 3]
        outer.set_scratch_params_device(gpu(0))
        assert {line.w.ctx for line in (outer, outer.inner, outer.row[0])} == {gpu(0)}
        assert d2l.Trainer(1, num_gpus=0).gpus == []


def test_a_classifier():
    model = d2l.Classifier()
    scores, y = np.array([[3, 1], [0, 5], [2, 1]]), np.array([0, 1, 1])
    assert float(model.accuracy(scores, y)) == pytest.approx(2 / 3)
    assert model.accuracy(scores, y, averaged=False).tolist() == [1, 1, 0]
    expected = [math.log1p(math.exp(-d)) for d in (2, 5, -1)]
    assert model.loss(scores, y, averaged=False).tolist() == pytest.approx(expected, rel=1e-4)
    assert float(model.loss(scores, y)) == pytest.approx(sum(expected) / 3, rel=1e-4)


def test_training_learns():
    """Every curve that MXNet's oracle compares falls, here too."""
    boards = [found for found in second_edition.regression(d2lmini) if isinstance(found, dict)]
    assert len(boards) >= 3
    for board in boards:
        for points in board.values():
            assert points[-1][1] < points[0][1]


# -- training.py -----------------------------------------------------------------------------------


def test_a_timer_and_a_benchmark(capsys):
    timer = d2l.Timer()
    time.sleep(0.002)
    assert timer.stop() >= 0.002 and timer.avg() == timer.sum() == timer.times[0]
    timer.start()
    timer.stop()
    assert timer.cumsum() == [timer.times[0], sum(timer.times)]
    with d2l.Benchmark() as benchmark:
        pass
    with d2l.Benchmark("named"):
        pass
    assert benchmark.description == "Done"
    with d2l.Benchmark("not printed", quiet=True):
        pass

    @d2l.Benchmark("decorated")
    def nothing():
        return 3

    assert nothing() == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["Done", "named", "decorated"]
    assert all(line.endswith(" sec") and "time" not in line for line in lines)


def test_clipping_the_arrays_of_a_model():
    model = Line()
    by_hand = SimpleNamespace(params=[model.w])
    for theta, expected in ((1.0, 1.0), (5.0, 4.0)):
        with autograd.record():
            l = model.loss(model(np.array([1])), np.array([0]))
        l.backward()
        d2l.grad_clipping(by_hand, theta)
        assert float(model.w.grad) == pytest.approx(expected, rel=1e-5)


def test_what_an_epoch_returns():
    data = d2l.load_array((np.eye(4), np.arange(4, dtype="int32")), 2, is_train=False)
    net = nn.Dense(4)
    net.initialize()
    steps = []
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    _, acc = d2l.train_epoch_ch3(net, data, loss, steps.append)
    assert steps == [2, 2] and 0 <= acc <= 1
    assert acc == d2l.evaluate_accuracy(net, data) == d2l.evaluate_accuracy_gpu(net, data, cpu())


def blobs(n):
    rng = numpy.random.default_rng(0)
    y = numpy.arange(n) % 2
    X = rng.normal(size=(n, 2)) + 6 * y[:, None] - 3
    return np.array(X.astype("float32")), np.array(y.astype("int32"))


@pytest.mark.parametrize("loop", ["ch3", "ch6", "ch13"])
def test_a_loop_trains_and_says_how_well(loop, capsys):
    data = d2l.load_array(blobs(64), 16)
    net = nn.Sequential()
    net.add(nn.Dense(2))
    if loop == "ch6":
        d2l.train_ch6(net, data, data, 3, lr=0.5)
    else:
        net.initialize()
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
        arguments = net, data, data, loss
        if loop == "ch3":
            d2l.train_ch3(*arguments, 3, trainer)
        else:
            d2l.train_ch13(*arguments, trainer, 3, [cpu(0)])
    assert d2l.evaluate_accuracy(net, data) == 1
    printed = capsys.readouterr().out
    assert ("train acc" in printed and "examples/sec on" in printed) == (loop != "ch3")


# -- devices -------------------------------------------------------------------------------------


def test_two_devices_make_the_step_of_one():
    weights = []
    for count in (1, 2):
        with virtual_gpus(count):
            devices = d2l.try_all_gpus()
            net = nn.Dense(3, in_units=4)
            net.initialize(d2lmini.init.Constant(0.1), ctx=devices)
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
            X, y = np.arange(24).reshape(6, 4) / 24, np.array([0, 1, 2, 0, 1, 2])
            loss = gluon.loss.SoftmaxCrossEntropyLoss()
            l, right = d2l.train_batch_ch13(net, X, y, loss, trainer, devices)
            assert l == pytest.approx(6 * math.log(3), rel=1e-5) and right == 2
            weights.append(net.weight.data(devices[-1]).asnumpy())
    numpy.testing.assert_allclose(*weights, rtol=1e-5)
    assert numpy.ptp(weights[0]) > 0
