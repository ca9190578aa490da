"""The exercise of the chapter on memory and precision: right answers of several kinds pass, each
typical wrong answer gets its hint."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from chapter_cells import hint_of, names_in

from d2lmini import MXNetError, autograd, cpu, d2l, nd
from d2lmini.gluon import nn


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The check of the exercise, what it uses, and the answer in the chapter's fold."""
    begins = ("def mlp", "def in_groups", "def plain", "def draw_fit", "def why_wrong")
    return names_in("memory-and-precision", *begins, "def step_and_bytes", "def check_fit")


def run_layers(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def params_of(layers):
    return [p for layer in layers for p in layer.collect_params().values()]


# -- right answers ---------------------------------------------------------------------------------


def groups(size):
    def fit(layers, loss, trainer, X, y):
        with autograd.record():
            output = X
            for i in range(0, len(layers), size):
                part = layers[i : i + size]
                output = autograd.checkpoint(lambda x, part=part: run_layers(part, x), output)
            l = loss(output, y)
        l.backward()
        trainer.step(len(X))

    return fit


def nested(layers, loss, trainer, X, y):
    """Halves of halves: the second run of a half keeps only the middle of it."""

    def run(part, x):
        if len(part) < 3:
            return run_layers(part, x)
        middle = len(part) // 2
        x = autograd.checkpoint(lambda x: run(part[:middle], x), x)
        return autograd.checkpoint(lambda x: run(part[middle:], x), x)

    with autograd.record():
        l = loss(run(layers, X), y)
    l.backward()
    trainer.step(len(X))


def small_batches(parts):
    def fit(layers, loss, trainer, X, y):
        for p in params_of(layers):
            p.grad_req = "add"
            p.zero_grad()
        rows = -(-len(X) // parts)
        for i in range(0, len(X), rows):
            with autograd.record():
                l = loss(run_layers(layers, X[i : i + rows]), y[i : i + rows])
            l.backward()
        trainer.step(len(X))

    return fit


def sums_by_hand(layers, loss, trainer, X, y):
    """autograd.grad for each quarter, a sum of its own, and the update by hand."""
    data = [p.data() for p in params_of(layers)]
    rows, total = len(X) // 4, None
    for i in range(0, len(X), rows):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + rows]), y[i : i + rows])
        found = autograd.grad(l, data)
        total = found if total is None else [a + b for a, b in zip(total, found)]
    for x, g in zip(data, total):
        x -= trainer.learning_rate / len(X) * g


def stages(layers, loss, trainer, X, y):
    """Without checkpoint: forward keeps the inputs of four stages, backward runs each again."""
    cuts = [len(layers) * i // 4 for i in range(5)]
    parts = [layers[a:b] for a, b in pairwise(cuts)]
    inputs = [X]
    for part in parts[:-1]:
        inputs.append(run_layers(part, inputs[-1]))
    g = None
    for part in parts[::-1]:
        x = inputs.pop()
        x.attach_grad()
        with autograd.record():
            output = run_layers(part, x)
            output = loss(output, y) if g is None else output
        output.backward(g)
        g, output = x.grad, None
    trainer.step(len(X))


def all_but_the_last_two(layers, loss, trainer, X, y):
    """The last layers keep what they compute: backward begins with them anyway."""
    with autograd.record():
        x = X
        for i in range(0, len(layers) - 2, 3):
            part = layers[i : min(i + 3, len(layers) - 2)]
            x = autograd.checkpoint(lambda x, part=part: run_layers(part, x), x)
        l = loss(run_layers(layers[-2:], x), y)
    autograd.backward([l])
    trainer.step(len(X))


def prints_its_loss(layers, loss, trainer, X, y):
    """One number is read; that is no place to hide arrays."""
    total = 0.0
    for p in params_of(layers):
        p.grad_req = "add"
        p.zero_grad()
    for i in range(0, len(X), 32):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + 32]), y[i : i + 32]).sum()
        l.backward()
        total += l.asscalar()
    trainer.step(len(X))
    return total / len(X)


RIGHT = {
    "groups of two": groups(2),
    "groups of four": groups(4),
    "nested": nested,
    "halves": small_batches(2),
    "many parts": small_batches(16),
    "sums by hand": sums_by_hand,
    "stages by hand": stages,
    "all but the last two": all_but_the_last_two,
    "prints its loss": prints_its_loss,
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers(chapter, name, capsys):
    chapter["check_fit"](RIGHT[name])
    assert "the weights of the plain step" in capsys.readouterr().out


def test_the_answer_in_the_chapter(chapter):
    for _ in range(3):
        chapter["check_fit"](chapter["fit"])


# -- wrong answers ---------------------------------------------------------------------------------


def nothing(layers, loss, trainer, X, y):
    return None


def forgets_the_step(layers, loss, trainer, X, y):
    with autograd.record():
        l = loss(run_layers(layers, X), y)
    l.backward()


def half_of_the_rows(layers, loss, trainer, X, y):
    """The secretly smaller batch."""
    n = len(X) // 2
    with autograd.record():
        l = loss(run_layers(layers, X[:n]), y[:n])
    l.backward()
    trainer.step(n)


def replaces_gradients(layers, loss, trainer, X, y):
    """No grad_req: only the last part counts."""
    for i in range(0, len(X), len(X) // 4):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + len(X) // 4]), y[i : i + len(X) // 4])
        l.backward()
    trainer.step(len(X))


def divides_by_a_part(layers, loss, trainer, X, y):
    for p in params_of(layers):
        p.grad_req = "add"
        p.zero_grad()
    for i in range(0, len(X), len(X) // 4):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + len(X) // 4]), y[i : i + len(X) // 4])
        l.backward()
    trainer.step(len(X) // 4)


def never_sets_to_zero(layers, loss, trainer, X, y):
    for p in params_of(layers):
        p.grad_req = "add"
    for i in range(0, len(X), len(X) // 4):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + len(X) // 4]), y[i : i + len(X) // 4])
        l.backward()
    trainer.step(len(X))


def in_float16(layers, loss, trainer, X, y):
    """Half of the bytes, and rounded values."""
    with autograd.record():
        x = X.astype("float16")
        for layer in layers:
            weight, bias = (p.data().astype("float16") for p in (layer.weight, layer.bias))
            x = nd.tanh(nd.FullyConnected(x, weight, bias, num_hidden=len(bias)))
        l = loss(x.astype("float32"), y)
    l.backward()
    trainer.step(len(X))


def in_numpy(layers, loss, trainer, X, y):
    """Keeps the middle in an array that the storage does not count."""
    middle = len(layers) // 2
    kept = run_layers(layers[:middle], X).asnumpy()
    h = nd.array(kept)
    h.attach_grad()
    with autograd.record():
        l = loss(run_layers(layers[middle:], h), y)
    l.backward()
    del l
    with autograd.record():
        again = run_layers(layers[:middle], X)
    again.backward(h.grad)
    trainer.step(len(X))


def leaves_layers_out(layers, loss, trainer, X, y):
    """The first half learns nothing."""
    middle = len(layers) // 2
    h = run_layers(layers[:middle], X)
    with autograd.record():
        l = loss(run_layers(layers[middle:], h), y)
    l.backward()
    trainer.step(len(X), ignore_stale_grad=True)


def one_group(layers, loss, trainer, X, y):
    """All layers are one function: backward keeps all of them again."""
    with autograd.record():
        l = loss(autograd.checkpoint(lambda x: run_layers(layers, x), X), y)
    l.backward()
    trainer.step(len(X))


def elsewhere(layers, loss, trainer, X, y):
    """Activations on another device are arrays, too."""
    with autograd.record():
        kept = [X.copyto(cpu(1))]
        for layer in layers:
            kept.append(layer(kept[-1].as_in_context(cpu())).copyto(cpu(1)))
        l = loss(kept[-1].as_in_context(cpu()), y)
    l.backward()
    trainer.step(len(X))


WRONG = {
    nothing: "nothing",
    forgets_the_step: "nothing",
    half_of_the_rows: "rows",
    replaces_gradients: "rows",
    divides_by_a_part: "scale",
    never_sets_to_zero: "stale",
    in_float16: "precision",
    in_numpy: "numpy",
    leaves_layers_out: "values",
    one_group: "bytes",
    groups(1): "bytes",
    elsewhere: "bytes",
}


@pytest.mark.parametrize(
    ("answer", "hint"), WRONG.items(), ids=lambda value: getattr(value, "__name__", None)
)
def test_wrong_answers(chapter, answer, hint):
    assert hint_of(chapter["check_fit"], answer) == hint


def test_the_plain_step_needs_too_much(chapter):
    assert hint_of(chapter["check_fit"], chapter["plain"]) == "bytes"


def test_an_answer_with_an_unknown_name(chapter):
    def answer(layers, loss, trainer, X, y):
        return missing_name  # noqa: F821

    with pytest.raises(NameError):
        chapter["check_fit"](answer)


# -- what the answers say --------------------------------------------------------------------------


def test_bytes_in_the_answers(chapter):
    def peak(net, step, *shapes):
        return d2l.predict_memory(step, *shapes, net=net).peak_bytes

    mlp, in_groups = chapter["mlp"], chapter["in_groups"]
    net = mlp(784, 256, 10)
    step = chapter["training"](net, "adam")
    assert peak(net, step, (128, 784), (128,)) == 4_052_640
    found = {}
    for size in range(2, 10):
        net = mlp(*[256] * 25, 10)
        found[size] = d2l.predict_memory(in_groups(net, size), (512, 256), (512,), net=net)
    best = min(found, key=lambda size: found[size].peak_bytes)
    assert best == 5 and round(found[5].rows["activations"] / (4 * 512 * 256)) == 8

    def with_activation(activation):
        net = nn.HybridSequential()
        net.add(nn.Dense(256, in_units=784), activation, nn.Dense(10, in_units=256))
        net.initialize()
        return peak(net, chapter["training"](net), (64, 784), (64,))

    relu, tanh = (with_activation(nn.Activation(name)) for name in ("relu", "tanh"))
    assert relu == tanh == with_activation(nn.HybridLambda(lambda F, x: x * x)) - 4 * 64 * 256


def test_resnet(chapter):
    net = d2l.resnet18(10)
    net.initialize()
    rows = d2l.predict_memory(chapter["training"](net, "adam"), (4, 3, 32, 32), (4,), net=net).rows
    nbytes = rows["weights"] + rows["gradients"] + rows["optimizer state"]
    assert 175e6 < nbytes < 185e6


def test_errors_in_the_answers():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    X = nd.ones((4, 3))
    with autograd.record(), pytest.raises(TypeError, match="must be a function"):
        autograd.checkpoint(net(X))
    with autograd.record():
        l = autograd.checkpoint(net, X)
    net.weight.data()[:] = 0
    with pytest.raises(MXNetError, match="overwritten"):
        l.backward()
