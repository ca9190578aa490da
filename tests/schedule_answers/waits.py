"""Train without waiting in each batch: `at_most_waits(trace, n)`."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from labs.grading import at_most_waits

from d2lmini import autograd, engine, gluon, metric, nd

from .answer import Exercise, Exercises


def draw(rng: Any) -> SimpleNamespace:
    """Batches for a net of one weight; the losses do not depend on how the weight is updated."""
    numbers = [rng.randint(1, 5) for _ in range(rng.randint(4, 6))]
    batches = [nd.full((200, 200), number) for number in numbers]
    return SimpleNamespace(numbers=numbers, batches=batches, lr=rng.choice([0.01, 0.1]))


def expected(inputs: SimpleNamespace) -> float:
    """The sum of the means of the batches."""
    return float(sum(inputs.numbers))


def _check_no_wait_in_the_loop(trace: Any, inputs: SimpleNamespace) -> None:
    updates = [operation for operation in trace.operations if "update" in operation.name]
    at_most_waits(trace, 0, before=updates[-1])


QUIET = Exercise("quiet", draw, expected, _check_no_wait_in_the_loop)
IN_ALL = Exercise("in all", draw, expected, lambda trace, inputs: at_most_waits(trace, 1))
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


@right(QUIET)
def keeps_the_losses(inputs):
    net = Net(inputs)
    losses = [net.step(X) for X in inputs.batches]
    return sum(l.asscalar() for l in losses)


@right(QUIET, IN_ALL)
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


@wrong("reading", to=IN_ALL)
def reads_one_by_one_at_the_end(inputs):
    return sum(X.mean().asscalar() for X in inputs.batches)
