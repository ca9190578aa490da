"""Train without waiting in each batch: `check.at_most_waits(trace, n, per="batch")`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from d2lmini import autograd, engine, gluon, metric, nd
from d2lmini.d2l import check

from .answer import Exercise, Exercises


def draw(rng: Any) -> SimpleNamespace:
    """Batches for a net of one weight; the losses do not depend on how the weight is updated."""
    numbers = [rng.randint(1, 5) for _ in range(rng.randint(4, 6))]
    batches = [nd.full((200, 200), number) for number in numbers]
    return SimpleNamespace(numbers=numbers, batches=batches, lr=rng.choice([0.01, 0.1]))


def expected(inputs: SimpleNamespace) -> float:
    """The sum of the means of the batches."""
    return float(sum(inputs.numbers))


QUIET = Exercise(
    "quiet", draw, expected, lambda trace, inputs: check.at_most_waits(trace, 0, per="batch")
)
ONCE = Exercise(
    "once", draw, expected, lambda trace, inputs: check.at_most_waits(trace, 1, per="batch")
)
IN_ALL = Exercise("in all", draw, expected, lambda trace, inputs: check.at_most_waits(trace, 1))
BY_NUMBER = Exercise(
    "by number",
    draw,
    expected,
    lambda trace, inputs: check.at_most_waits(trace, 1, per=len(inputs.batches)),
)
BY_WORD = Exercise(
    "by word", draw, expected, lambda trace, inputs: check.at_most_waits(trace, 0, per="dot")
)
EXERCISES = Exercises()
right, wrong = EXERCISES.right, EXERCISES.wrong


class Net:
    """A product, whose mean over the batch is the loss: the weight is updated by a Trainer."""

    def __init__(self, inputs: SimpleNamespace):
        self.net = gluon.nn.Dense(1, in_units=200, use_bias=False)
        self.net.initialize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": inputs.lr})

    def step(self, X: Any) -> Any:
        with autograd.record():
            l = (self.net(X) * 0 + X.mean()).mean()
        l.backward()
        self.trainer.step(1)
        return l


@right(QUIET, ONCE, BY_WORD)
def keeps_the_losses(inputs):
    net = Net(inputs)
    losses = [net.step(X) for X in inputs.batches]
    return sum(l.asscalar() for l in losses)


@right(QUIET, ONCE, IN_ALL, BY_NUMBER)
def adds_the_losses_up(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        total = total + net.step(X)
    return total.asscalar()


@right(QUIET, IN_ALL)
def waitall_and_then_reads(inputs):
    net = Net(inputs)
    losses = [net.step(X) for X in inputs.batches]
    nd.waitall()
    return sum(l.asscalar() for l in losses)


@right(QUIET, IN_ALL)
def reads_the_last_first(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        total += net.step(X)
    total.wait_to_read()
    return float(total.asscalar())


@right(ONCE, BY_NUMBER)
def reads_each_once(inputs):
    net = Net(inputs)
    return sum(net.step(X).asscalar() for X in inputs.batches)


@right(ONCE)
def reads_the_same_twice(inputs):
    net, total = Net(inputs), 0
    for X in inputs.batches:
        l = net.step(X)
        l.wait_to_read()
        total += l.asscalar()
    return total


@right(QUIET)
def looks_before_it_trains(inputs):
    net = Net(inputs)
    print("mean", inputs.batches[0].mean().asscalar(), "weight", net.net.weight.data().sum())
    net.net(inputs.batches[0]).wait_to_read()
    losses = [net.step(X) for X in inputs.batches]
    return sum(l.asscalar() for l in losses)


@right(QUIET)
def reads_once_in_an_epoch(inputs):
    net, total = Net(inputs), 0
    half = len(inputs.batches) // 2
    for epoch in (inputs.batches[:half], inputs.batches[half:]):
        losses = []
        for X in epoch:
            losses.append(net.step(X))
        total += nd.concat(*[l.reshape((1,)) for l in losses], dim=0).sum().asscalar()
    return total


@right(QUIET, ONCE)
def sgd_by_hand(inputs):
    w, losses = nd.ones((200, 1)), []
    w.attach_grad()
    for X in inputs.batches:
        with autograd.record():
            l = (nd.dot(X, w) * 0 + X.mean()).mean()
        l.backward()
        w[:] = w - inputs.lr * w.grad
        losses.append(l)
    return sum(l.asscalar() for l in losses)


@right(QUIET, ONCE)
def sgd_by_hand_with_two_parameters(inputs):
    params, losses = [nd.ones((200, 1)), nd.zeros((1,))], []
    for param in params:
        param.attach_grad()
    for X in inputs.batches:
        with autograd.record():
            l = ((nd.dot(X, params[0]) + params[1]) * 0 + X.mean()).mean()
        l.backward()
        for param in params:
            param -= inputs.lr * param.grad
        losses.append(l)
    return sum(l.asscalar() for l in losses)


@right(QUIET)
def momentum_by_hand(inputs):
    w, losses = nd.ones((200, 1)), []
    velocity = nd.zeros((200, 1))
    w.attach_grad()
    for X in inputs.batches:
        with autograd.record():
            l = (nd.dot(X, w) * 0 + X.mean()).mean()
        l.backward()
        velocity[:] = 0.9 * velocity + w.grad
        w[:] = w - inputs.lr * velocity
        losses.append(l)
    return sum(l.asscalar() for l in losses)


@right(QUIET)
def new_weights_each_time(inputs):
    w, losses = nd.ones((200, 1)), []
    for X in inputs.batches:
        w.attach_grad()
        with autograd.record():
            l = (nd.dot(X, w) * 0 + X.mean()).mean()
        l.backward()
        w = w - inputs.lr * w.grad
        losses.append(l)
    return sum(l.asscalar() for l in losses)


@right(ONCE)
def another_thread_reads(inputs):
    net, sums = Net(inputs), []
    with ThreadPoolExecutor(1) as pool:
        for X in inputs.batches:
            pool.submit(lambda l: sums.append(l.asscalar()), net.step(X))
    return sum(sums)


@wrong("reading", to=QUIET)
def reads_each(inputs):
    net = Net(inputs)
    return sum(net.step(X).asscalar() for X in inputs.batches)


@wrong("hidden", to=QUIET)
def float_of_each(inputs):
    net, total = Net(inputs), 0.0
    for X in inputs.batches:
        total += float(net.step(X))
    return total


@wrong("hidden", to=ONCE)
def prints_two_things(inputs):
    net, total = Net(inputs), 0.0
    for X in inputs.batches:
        l = net.step(X)
        f"{net.net.weight.data().norm()}"
        total += float(l * 1)
    return total


@wrong("waitall", to=QUIET)
def waitall_in_each(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        total = total + net.step(X)
        nd.waitall()
    return total.asscalar()


@wrong("waiting", to=QUIET)
def wait_to_read_in_each(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        l = net.step(X)
        l.wait_to_read()
        total = total + l
    return total.asscalar()


@wrong("polling", to=QUIET)
def polls_in_each(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        total = total + net.step(X)
        while engine.stats().pending:
            time.sleep(1e-5)
    return total.asscalar()


@wrong("waiting", to=QUIET)
def joins_a_thread_in_each(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        l = net.step(X)
        thread = threading.Thread(target=l.wait_to_read)
        thread.start()
        thread.join()
        total = total + l
    return total.asscalar()


@wrong("hidden", to=QUIET)
def a_pool_prints_each(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    with ThreadPoolExecutor(1) as pool:
        for X in inputs.batches:
            l = net.step(X)
            pool.submit(str, l).result()
            total = total + l
    return total.asscalar()


@wrong("hidden", "reading", to=QUIET)
def a_metric_in_each(inputs):
    net, total, score = Net(inputs), nd.zeros((1,)), metric.MSE()
    for X in inputs.batches:
        l = net.step(X)
        score.update([nd.zeros((1,))], [l.reshape((1,))])
        score.get()
        total = total + l
    return total.asscalar()


@wrong("hidden", to=QUIET)
def stops_early(inputs):
    net, total = Net(inputs), nd.zeros((1,))
    for X in inputs.batches:
        l = net.step(X)
        if l > 1e9:
            break
        total = total + l
    return total.asscalar()


@wrong("reading", to=QUIET)
def reads_in_sgd_by_hand(inputs):
    w, total = nd.ones((200, 1)), 0
    w.attach_grad()
    for X in inputs.batches:
        with autograd.record():
            l = (nd.dot(X, w) * 0 + X.mean()).mean()
        l.backward()
        w[:] = w - inputs.lr * w.grad
        total += l.asscalar()
    return total


@wrong("reading", to=ONCE)
def reads_gradient_and_loss_by_hand(inputs):
    w, total = nd.ones((200, 1)), 0
    for X in inputs.batches:
        w.attach_grad()
        with autograd.record():
            l = (nd.dot(X, w) * 0 + X.mean()).mean()
        l.backward()
        np.abs(w.grad.asnumpy()).max()
        w = w - inputs.lr * w.grad
        total += (l + w.sum() * 0).asscalar()
    return total


@wrong("reading", to=IN_ALL)
def reads_one_by_one_at_the_end(inputs):
    return sum(X.mean().asscalar() for X in inputs.batches)


@wrong("reading", to=BY_NUMBER)
def reads_twice_as_often(inputs):
    return sum((X.mean().asscalar() + X.max().asscalar()) / 2 for X in inputs.batches)


@wrong("missing", to=QUIET)
def never_updates(inputs):
    return nd.add_n(*[X.mean() for X in inputs.batches]).asscalar()


@wrong("value", to=QUIET)
def leaves_one_out(inputs):
    net = Net(inputs)
    return sum(l.asscalar() for l in [net.step(X) for X in inputs.batches[1:]])


@wrong("reading", to=BY_WORD)
def reads_between_products(inputs):
    net = Net(inputs)
    return sum(net.step(X).asscalar() for X in inputs.batches)
