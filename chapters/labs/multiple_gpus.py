"""Several GPUs: LeNet with its parameters in a list, a comparison of accuracies, and two checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini import MXNetError, autograd, engine, gluon, init, nd, profile, random, virtual_gpus
from d2lmini.gluon import nn
from d2lmini.profiler.tracing import Trace
from labs.grading import CheckFailed, at_most_waits, overlaps
from labs.shared import never_stuck

#: Weight and bias of two convolutions and of two dense layers.
SHAPES = [
    (20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (128, 800), (128,), (10, 128), (10,),
]  # fmt: skip


def draw_params() -> list[nd.NDArray]:
    """LeNet's eight parameters on the CPU, the same at each call."""
    random.seed(1)
    fan_in = [int(np.prod(shape[1:])) for shape in SHAPES]
    return [
        nd.zeros(s) if len(s) == 1 else nd.random.normal(scale=(2 / n) ** 0.5, shape=s)
        for s, n in zip(SHAPES, fan_in)
    ]


def lenet(X: nd.NDArray, params: list[nd.NDArray]) -> nd.NDArray:
    """The scores of pictures, (N, 1, 28, 28) -> (N, 10), where the pictures are."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    half: dict[str, Any] = dict(pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h = nd.relu(nd.Convolution(X, W1, b1, kernel=(3, 3), num_filter=20))
    h = nd.Pooling(h, **half)  # (N, 20, 13, 13)
    h = nd.relu(nd.Convolution(h, W2, b2, kernel=(5, 5), num_filter=50))
    h = nd.Pooling(h, **half)  # (N, 50, 4, 4)
    h = nd.relu(nd.FullyConnected(h, W3, b3, num_hidden=128))
    return nd.FullyConnected(h, W4, b4, num_hidden=10)


def say_accuracies(runs: dict[str, list[float]]) -> None:
    """Print the accuracies of runs after each epoch, and how the others stand to the first."""
    (name, base), *others = runs.items()
    for run, accuracies in runs.items():
        print(f"measured: {run}:", *(f"{accuracy:.3f}" for accuracy in accuracies))
    for epoch in (0, len(base) - 1):
        for other, accuracies in others:
            gap = accuracies[epoch] - base[epoch]
            stands = "level with" if abs(gap) < 0.03 else "ahead of" if gap > 0 else "behind"
            print(f"measured: after epoch {epoch + 1}: {other} is {stands} {name}")


# -- a net split by layers -------------------------------------------------------------------------


def check_by_layers(answer: Callable[..., Any]) -> None:
    """The first layer on the first device, the rest on the second: several batches forward, on the
    stepped engine. Number and size of the batches are drawn."""
    draw, params = np.random.default_rng(), draw_params()
    count, batch_size = (int(n) for n in draw.integers(3, 6, 2))
    Xs = [nd.array(draw.uniform(size=(batch_size, 1, 28, 28))) for _ in range(count)]
    expected = [lenet(X, params).asnumpy() for X in Xs]
    with engine.stepped(), virtual_gpus(2) as pair:
        parts = [p.copyto(pair[i >= 2]) for i, p in enumerate(params)]
        inputs = [X.copyto(pair[0]) for X in Xs]
        nd.waitall()
        with profile() as trace, never_stuck():
            try:
                scores = [answer(x, parts, pair) for x in inputs]
            except MXNetError as error:
                raise CheckFailed("error", f"the answer raised an error: {error}") from error
        if not all(isinstance(s, nd.NDArray) for s in scores):
            raise CheckFailed("nothing", f"return the scores, an NDArray; got {scores[0]!r}")
        if scores[0].context != pair[1]:
            raise CheckFailed("place", f"scores on {scores[0].context}: so is the last layer")
        found = [s.asnumpy() for s in scores]
    for got, right in zip(found, expected):
        if got.shape != right.shape or not np.allclose(got, right, rtol=1e-3, atol=1e-4):
            raise CheckFailed("values", "other scores than those of lenet(X, params)")
    _check_cut(trace, "gpu(1)", count, 4 * batch_size * 20 * 13 * 13)
    at_most_waits(trace, 0)
    print(overlaps(trace, "gpu(0)", "gpu(1)", but=3))


def _check_cut(trace: Trace, place: str, count: int, nbytes: int) -> None:
    """CheckFailed unless `nbytes` a batch are copied to the place, of `count` batches."""
    copied = sum(op.nbytes for op in trace.operations if op.is_copy and str(op.ctx) == place)
    if copied != count * nbytes:
        raise CheckFailed(
            "cut",
            f"{copied // count} bytes travel to {place} for a batch, but the pooled outputs of the "
            f"first layer have {nbytes}: compute them on the first device, and copy nothing else",
        )


# -- gradients clipped -----------------------------------------------------------------------------

HINTS = {
    "still": "no weight has moved: call trainer.update at the end",
    "parts": "the gradient of each device's part was clipped: add them up first",
    "each": "each parameter was clipped by its own norm: use one norm over all of them",
    "batch": "the norm of the sum was compared: the gradient is the sum divided by batch_size",
    "unclipped": "the gradient was not clipped: scale the summed gradients before the update",
    "always": "a gradient whose norm is below theta keeps its norm",
}


def check_clipped(answer: Callable[..., Any]) -> None:
    """Gradients and the size of the batch are drawn; one theta clips and one does not."""
    draw = np.random.default_rng()
    sizes, n = (6, 3, 3), int(draw.integers(3, 8))
    gradients = [draw.uniform(0.5, 2, (2, size)).astype("float32") for size in sizes]
    total = [both.sum(axis=0) / n for both in gradients]
    norm = _norm(total)
    for theta in (0.3 * norm, 1.5 * norm):
        one, other, trace = _step(answer, gradients, theta, n)
        at_most_waits(trace, 0)
        if not _alike(one, other):
            raise CheckFailed("apart", "the devices' weights differ: both need the same gradients")
        if _alike(one, _clip(total, theta)):
            continue
        for hint, step in _typical_steps(gradients, theta, n).items():
            if _alike(one, step):
                raise CheckFailed(hint, HINTS[hint])
        found, right = _norm(one), min(theta, norm)
        raise CheckFailed("norm", f"the step's norm is {found:.3f}, it should be {right:.3f}")
    print("clipped when it is too long, and only then")


def _step(answer: Callable[..., Any], gradients: list[Any], theta: float, n: int) -> Any:
    """The steps of both devices with these gradients, from weights 0 at rate 1; and the trace."""
    net = nn.Sequential()
    net.add(nn.Dense(3, in_units=2), nn.Dense(1, in_units=3, use_bias=False))
    params = net.collect_params()
    with engine.stepped(), virtual_gpus(2) as pair:
        net.initialize(init.Zero(), ctx=pair)
        trainer = gluon.Trainer(params, "sgd", {"learning_rate": 1.0}, update_on_kvstore=False)
        with autograd.record():
            losses = [net(nd.ones((1, 2), ctx=ctx)) for ctx in pair]
        autograd.backward(losses)
        for p, both in zip(params.values(), gradients):
            for g, value in zip(p.list_grad(), both):
                g[:] = nd.array(value.reshape(g.shape), ctx=g.context)
        nd.waitall()
        with profile() as trace, never_stuck(most=0):
            answer(net, trainer, theta, n)
        weights = zip(*(p.list_data() for p in params.values()))
        one, other = ([-w.asnumpy().ravel() for w in device] for device in weights)
    return one, other, trace


def _typical_steps(gradients: list[Any], theta: float, n: int) -> dict[str, list[Any]]:
    """The steps of wrong answers that are often given, by the name of their hint."""
    one, other = ([both[i] / n for both in gradients] for i in range(2))
    total = [a + b for a, b in zip(one, other)]
    return {
        "still": [0 * part for part in total],
        "parts": [a + b for a, b in zip(_clip(one, theta), _clip(other, theta))],
        "each": [_clip([part], theta)[0] for part in total],
        "batch": [part / n for part in _clip([part * n for part in total], theta)],
        "unclipped": total,
        "always": [part * theta / _norm(total) for part in total],
    }


def _clip(parts: list[Any], theta: float) -> list[Any]:
    """Arrays scaled so that their common norm is at most theta."""
    return [part * min(theta / _norm(parts), 1) for part in parts]


def _norm(parts: list[Any]) -> float:
    return float(sum((part**2).sum() for part in parts) ** 0.5)


def _alike(some: list[Any], others: list[Any]) -> bool:
    return all(np.allclose(a, b, rtol=1e-4) for a, b in zip(some, others))
