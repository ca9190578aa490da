"""`d2l.mxnet`: the classes for models and training, the loops, devices."""

from __future__ import annotations

import math

import numpy
import pytest
import second_edition

import d2lmini
from d2lmini import cpu, gluon, gpu, np, npx, virtual_gpus
from d2lmini.d2l import mxnet as d2l
from d2lmini.gluon import nn


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


# -- classes.py ------------------------------------------------------------------------------------


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
    timer.stop()
    assert timer.avg() == timer.sum() == timer.times[0] == timer.cumsum()[-1] > 0
    with d2l.Benchmark("named"):
        pass
    with d2l.Benchmark("not printed", quiet=True):
        pass
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("named: ") and line.endswith(" sec") and "time" not in line


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
