"""Nets and a picture of *Memory and precision*, and the check of its exercise."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from d2lmini import autograd, d2l, engine, gluon, init, nd, profile
from d2lmini.base.dtypes import finfo
from d2lmini.gluon import nn
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import as_dtype
from labs.grading import CheckFailed

Step = Callable[..., object]


def mlp(*sizes: int) -> nn.HybridSequential:
    """A net of dense layers; ReLU after each but the last."""
    net = nn.HybridSequential()
    for number, (inputs, units) in enumerate(itertools.pairwise(sizes), start=2):
        activation = "relu" if number < len(sizes) else None
        net.add(nn.Dense(units, activation=activation, in_units=inputs))
    net.initialize(init.Xavier())
    return net


def convolutions() -> nn.HybridSequential:
    """Three convolutions, each with BatchNorm and ReLU, and a dense layer."""
    net = nn.HybridSequential()
    for channels in (8, 16, 16):
        net.add(nn.Conv2D(channels, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.Dense(10))
    net.initialize()
    return net


def compare_parts(backward: Step, *, whole_numbers: bool) -> None:
    """Print how `backward(net, loss, X, y, parts)` in four parts compares with one part."""
    draw = np.random.RandomState(1)

    def numbers(*shape: int) -> NDArray:
        return nd.array(draw.randint(-2, 3, shape) if whole_numbers else draw.normal(size=shape))

    net = mlp(20, 30, 5)
    params = net.collect_params()
    params.setattr("grad_req", "add")
    for p in params.values():
        p.set_data(numbers(*p.shape))
    X, y, found = numbers(64, 20), numbers(64, 5), []
    for parts in (1, 4):
        backward(net, lambda y_hat, y: ((y_hat - y) ** 2).sum(), X, y, parts)
        found.append(np.concatenate([p.grad().asnumpy().ravel() for p in params.values()]))
    one, four = found
    assert np.allclose(one, four, rtol=1e-4, atol=1e-2)
    equal = "to the bit" if np.array_equal(one, four) else "to rounding"
    print(f"{'whole' if whole_numbers else 'normal'} numbers: equal {equal}")


class Lost(NamedTuple):
    """Shares, from 0 to 1, of the numbers that are not 0.

    zero        too small for the dtype: rounded to 0
    subnormal   kept, but with fewer digits than the dtype has
    inf         too large for the dtype, or inf or nan before
    """

    zero: float
    subnormal: float
    inf: float


def count_exponents(arrays: Any) -> dict[int, int]:
    """How many numbers have which binary exponent: e counts 2**e <= |x| < 2**(e+1). Without zeros,
    inf and nan. arrays: an NDArray, a NumPy array, or several; waits."""
    values = _nonzero(arrays)
    exponents = np.frexp(values[np.isfinite(values)])[1] - 1
    found, counts = np.unique(exponents, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def find_lost(arrays: Any, dtype: Any = "float16", scale: float = 1.0) -> Lost:
    """Which numbers, multiplied by `scale`, the dtype cannot hold. All shares are 0 if there is no
    number except 0. arrays: as for `count_exponents`; waits."""
    dtype = as_dtype(dtype)
    values = _nonzero(arrays) * scale
    with np.errstate(over="ignore", under="ignore"):
        kept = np.abs(values.astype(dtype).astype(np.float64))
    least = float(finfo(dtype).tiny)
    held = [kept == 0, (kept > 0) & (kept < least), ~np.isfinite(kept)]
    return Lost(*[float(part.mean()) if values.size else 0.0 for part in held])


def _nonzero(arrays: Any) -> np.ndarray:
    """All numbers except 0 as one vector of float64."""
    several: Iterable[Any] = [arrays] if isinstance(arrays, (NDArray, np.ndarray)) else arrays
    flat = [np.asarray(x.asnumpy() if isinstance(x, NDArray) else x).ravel() for x in several]
    values = np.concatenate([x.astype(np.float64) for x in flat]) if flat else np.zeros(0)
    return values[values != 0]


def plot_exponents(gradients: list[NDArray], power: int) -> None:
    """Draw how many gradients have which exponent, as they are and of the loss times 2**power."""
    counts = count_exponents(gradients)
    axes = d2l.plt.subplots(figsize=(6, 2.6))[1]
    for shift, color in ((0, "#1f4e8c"), (power, "#f0a04b")):
        label = f"of the loss times 2**{shift}" if shift else "gradients"
        moved = [exponent + shift for exponent in counts]
        axes.bar(moved, counts.values(), 1, align="edge", color=color, alpha=0.7, label=label)
    for left, right, word in ((-45, -25, "becomes 0"), (16, 25, "inf")):
        axes.axvspan(left, right, color="0.85")
        axes.text(left + 0.5, axes.get_ylim()[1] * 0.85, word)
    axes.set(xlabel="binary exponent of a gradient", ylabel="number", xlim=(-45, 25))
    axes.legend(frameon=False, fontsize=8, loc="center left")
    d2l.plt.show()


# -- the exercise ----------------------------------------------------------------------------------

#: Waits that bring no array into NumPy.
HARMLESS = ("waitall", "wait_to_read", "asscalar", "engine.use", "end of profile")


def check_fit(answer: Any) -> None:
    """Check two steps of `fit` on a net that is drawn. Bytes are counted, seconds never."""
    if not callable(answer):
        raise CheckFailed("function", f"a function is needed, got {type(answer).__name__}")
    sizes, values, batches = _draw()
    (twin, its_trainer), (net, trainer) = _make(sizes, values), _make(sizes, values)
    for number, (X, y) in enumerate(batches):
        before = [p.data().copy() for p in net.collect_params().values()]
        _, plain_bytes = _step_and_bytes(twin, _plain, its_trainer, X, y)
        trace, nbytes = _step_and_bytes(net, answer, trainer, X, y)
        found, expected = _weights_of(net), _weights_of(twin)
        change = expected - _flat(before)
        if not np.abs(found - expected).max() <= 3e-4 * np.abs(change).max():
            hint, text = _why_wrong(found, sizes, before, X, y)
            if number and hint != "precision":
                hint, text = "stale", f"the first step was right. In the second, {text}"
            raise CheckFailed(hint, text)
        read = [wait for wait in trace.waits if wait.kind not in HARMLESS]
        if read:
            raise CheckFailed("numpy", f"values in NumPy arrays need memory, too: {read[0].where}")
        bound = 3 * plain_bytes // 4
        if nbytes > bound:
            raise CheckFailed("bytes", f"{nbytes:,} bytes, allowed are {bound:,}: keep less")
    print(f"right: {nbytes:,} bytes, allowed are {bound:,}, and the weights of the plain step")


def _draw() -> tuple[list[int], list[NDArray], list[list[NDArray]]]:
    """Sizes of a net, its weights, and two batches."""
    draw = np.random.default_rng()
    width, n = 16 * int(draw.integers(3, 6)), 64 * int(draw.integers(6, 10))
    sizes = [width] * int(draw.integers(10, 15)) + [int(draw.integers(2, 9))]
    shapes = [s for a, b in itertools.pairwise(sizes) for s in ((b, a), (b,))]
    values = [nd.array(draw.normal(0, width**-0.5, shape)) for shape in shapes]
    batches = [[nd.array(draw.normal(size=(n, s))) for s in (sizes[0], sizes[-1])] for _ in "12"]
    return sizes, values, batches


def _make(sizes: list[int], values: list[NDArray]) -> tuple[nn.Sequential, gluon.Trainer]:
    """Dense layers with these weights, and their Trainer."""
    net = nn.Sequential()
    for inputs, units in itertools.pairwise(sizes):
        net.add(nn.Dense(units, activation="tanh", in_units=inputs))
    net.initialize()
    for p, value in zip(net.collect_params().values(), values):
        p.set_data(value)
    return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})


def _plain(layers: list[Any], loss: Any, trainer: gluon.Trainer, X: NDArray, y: NDArray) -> None:
    with autograd.record():
        for layer in layers:
            X = layer(X)
        l = loss(X, y)
    l.backward()
    trainer.step(len(y))


def _step_and_bytes(
    net: nn.Sequential, step: Step, trainer: gluon.Trainer, X: NDArray, y: NDArray
) -> tuple[Any, int]:
    """The trace of a step, and the bytes that it needs on all devices."""
    gc.collect()
    with engine.use("naive"), profile() as trace:
        step(list(net), gluon.loss.L2Loss(), trainer, X, y)
    return trace, sum(device.peak_bytes - device.begin_bytes for device in trace.memory())


def _flat(arrays: list[NDArray]) -> np.ndarray:
    return np.concatenate([array.asnumpy().ravel() for array in arrays])


def _weights_of(net: nn.Sequential) -> np.ndarray:
    return _flat([p.data() for p in net.collect_params().values()])


def _factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """c, if a is nearly c * b; else None."""
    c = a @ b / (b @ b)
    return c if np.abs(a - c * b).max() < 0.01 * np.abs(a).max() else None


def _why_wrong(
    found: np.ndarray, sizes: list[int], values: list[NDArray], X: NDArray, y: NDArray
) -> tuple[str, str]:
    """A hint for weights that are not those of the plain step on all rows."""
    before, n = _flat(values), len(X)

    def moved(rows: slice) -> np.ndarray:
        net, trainer = _make(sizes, values)
        _plain(list(net), gluon.loss.L2Loss(), trainer, X[rows], y[rows])
        return _weights_of(net) - before

    change = found - before
    if not change.any():
        return "nothing", "the weights have not changed: call backward and trainer.step"
    times = _factor(change, moved(slice(0, n)))
    if times is not None and abs(times - 1) > 0.005:
        return "scale", f"the update is {times:.3g} times the right one: divide by all {n} rows"
    if times is not None:
        return "precision", "the update is only roughly right: compute in float32, as the net does"
    for k in (2, 4, 8):
        parts = [slice(i * n // k, (i + 1) * n // k) for i in range(k)]
        if any(_factor(change, moved(rows)) is not None for rows in parts):
            return "rows", f"only 1/{k} of the rows counts: add the gradients of all {n} rows"
    return "values", "the new weights are not those of the plain step"
