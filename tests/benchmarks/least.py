"""What a call of a small eager net costs at least, and where the rest goes.

The net of `net_call`, 512-256-128-2 with relu between, on one example, in six ways, in turns:

    numpy    NumPy's calls alone
    least    the same, each by a function that does what no asynchronous library can leave out:
             under a lock it looks at the state of every input, and makes an object for the output
    compute  the functions of d2lmini's ops on arrays of NumPy
    road     d2lmini's dispatcher: plan, lock, state of the inputs, compute, memory, NDArray
    ops      nd.FullyConnected and nd.Activation, with their attributes by name
    net      layers of Gluon, not hybridized: hooks, parameters, hybrid_forward

    python tests/benchmarks/least.py

Times are CPU microseconds of the one thread that works, the lowest tenth of many short turns. The
calls of Python functions are counted (`sys.setprofile`), and priced by what a call takes that does
nothing: so it can be said how much of a way's time calls alone are.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import compiled
import numpy as np

lock = threading.RLock()


class Value:
    """An array that may be on its way: its contents, who writes it, who waits, what failed."""

    __slots__ = ("data", "error", "queue", "writer")

    def __init__(self, data: np.ndarray):
        self.data = data
        self.writer = self.error = None
        self.queue = ()


def apply(function: Callable[..., np.ndarray], *inputs: Value) -> Value:
    """`function` of the inputs' contents, if all of them are there."""
    with lock:
        arrays = []
        for x in inputs:
            assert x.writer is None and not x.queue and x.error is None, "it would be queued"
            arrays.append(x.data)
        return Value(function(*arrays))


def dense(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = x.dot(w.T)
    return np.add(y, b, y)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def forward(x: Any, layers: list[tuple], dense: Callable, relu: Callable) -> Any:
    """The net, of layers (weight, bias, and what else `dense` asks for)."""
    for layer in layers[:-1]:
        x = relu(dense(x, *layer))
    return dense(x, *layers[-1])


def ways() -> dict[str, Callable[[], Any]]:
    """The net in all its ways, with one set of weights, each ready to be called."""
    from peers import gluon_nets

    from d2lmini import nd
    from d2lmini.gluon import nn

    fc, act = nd.FullyConnected, nd.Activation
    x, *weights = compiled.net(1)
    net = gluon_nets.dense(nn, *(len(w) for w in weights))
    net.initialize()
    array = nd.array(x)
    net(array)
    gluon_nets.start(list(net.collect_params().values()), weights, nd)
    nd.waitall()

    bare = [(w, np.zeros(len(w), np.float32)) for w in weights]
    values = [(Value(w), Value(b)) for w, b in bare]
    arrays = [(layer.weight.data(), layer.bias.data()) for layer in net]
    # In the words of the layers, whose plans are known.
    _, curve = act.bind((array,), {"act_type": "relu"})
    words = [{"num_hidden": len(w), "no_bias": False, "flatten": True} for w, _ in arrays]
    known = [fc.bind((array, *each), said)[1] for each, said in zip(arrays, words)]
    kernels = [(*each, attrs) for each, attrs in zip(bare, known)]
    calls = [(*array, attrs) for array, attrs in zip(arrays, known)]
    named = [(*array, len(array[0])) for array in arrays]

    return {
        "numpy": partial(forward, x, bare, dense, relu),
        "least": partial(
            forward, Value(x), values, lambda x, *wb: apply(dense, x, *wb), lambda x: apply(relu, x)
        ),
        "compute": partial(
            forward, x, kernels,
            lambda x, w, b, attrs: fc.compute(np, x, w, b, **attrs),
            lambda x: act.compute(np, x, **curve),
        ),
        "road": partial(
            forward, array, calls,
            lambda x, w, b, attrs: x._apply(fc, (x, w, b), attrs),
            lambda x: x._apply(act, (x,), curve),
        ),
        "ops": partial(
            forward, array, named,
            lambda x, w, b, n: fc(x, w, b, num_hidden=n, no_bias=False, flatten=True, name="fwd"),
            lambda x: act(x, act_type="relu", name="fwd"),
        ),
        "net": partial(net, array),
    }  # fmt: skip


def calls_of(program: Callable[[], Any]) -> int:
    """How many Python functions it calls."""
    n = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal n
        n += event == "call"

    program()
    sys.setprofile(count)
    try:
        program()
    finally:
        sys.setprofile(None)
    return n


def in_turns(calls: dict[str, Callable[[], Any]], loops: int, rounds: int) -> dict[str, float]:
    """CPU microseconds of a call of each: the lowest tenth of the turns (others only ever add)."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin_s = time.thread_time()
            for _ in range(loops):
                call()
            found[name].append((time.thread_time() - begin_s) / loops * 1e6)
    return {
        name: statistics.quantiles(us, n=10, method="inclusive")[0] for name, us in found.items()
    }


def account(loops: int = 100, rounds: int = 60) -> tuple[dict[str, tuple[float, int]], float]:
    """way -> (CPU microseconds, calls of Python functions); and the microseconds of one such."""
    nets = ways()
    answers = []
    for call in nets.values():
        y = call()
        answers.append(y.asnumpy() if hasattr(y, "asnumpy") else getattr(y, "data", y))
    assert all(np.array_equal(np.asarray(y), answers[0]) for y in answers), "the ways differ"
    us = in_turns({**nets, "call": lambda: None}, loops, rounds)
    return {name: (us[name], calls_of(nets[name])) for name in nets}, us["call"]


def table(found: dict[str, tuple[float, int]], call_us: float) -> str:
    """The account as text."""
    numpy_us = before_us = found["numpy"][0]
    lines = [f"{'':7}  {'CPU us':>7}  {'above numpy':>11}  {'more':>6}  {'calls':>5}  {'alone':>6}"]
    for name, (us, calls) in found.items():
        lines.append(
            f"{name:7}  {us:7.1f}  {us - numpy_us:11.1f}  {us - before_us:6.1f}  {calls:5}  "
            f"{calls * call_us:6.1f}"
        )
        before_us = numpy_us if name == "least" else us  # what follows is built on NumPy's calls
    lines.append(f"a call of a Python function that does nothing: {1e3 * call_us:.0f} ns")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=100, help="calls per turn")
    parser.add_argument("--rounds", type=int, default=60, help="turns of each")
    options = parser.parse_args()
    print(table(*account(options.loops, options.rounds)))


if __name__ == "__main__":
    main()
