"""What a call of a small eager net costs at least: NumPy's part, the interpreter's, and the rest.

The net of `net_call`, 512-256-128-2 with relu between, on one example, in three ways, in turns:

    numpy     NumPy's calls alone
    least     the same calls, each made by a Python function that does what no asynchronous library
              can leave out: under a lock it looks at the state of every input, and makes one object
              for the output
    d2lmini   layers of Gluon, not hybridized

    python tests/benchmarks/least.py

Times are CPU microseconds of the one thread that works, the lowest tenth of many short turns. The
calls of Python functions are counted (`sys.setprofile`), and priced by what a call takes that does
nothing: so it can be said how much of d2lmini's time is interpreter and how much of it work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
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


def bare(x: np.ndarray, layers: list[tuple[Any, Any]]) -> np.ndarray:
    for w, b in layers[:-1]:
        x = relu(dense(x, w, b))
    return dense(x, *layers[-1])


def least(x: Value, layers: list[tuple[Any, Any]]) -> Value:
    for w, b in layers[:-1]:
        x = apply(relu, apply(dense, x, w, b))
    return apply(dense, x, *layers[-1])


def programs() -> dict[str, Callable[[], Any]]:
    """The three nets with one set of weights, each ready to be called."""
    from peers import gluon_nets

    from d2lmini import nd
    from d2lmini.gluon import nn

    x, *weights = compiled.net(1)
    layers = [(w, np.zeros(len(w), np.float32)) for w in weights]
    values = [(Value(w), Value(b)) for w, b in layers]
    net = gluon_nets.dense(nn, *(len(w) for w in weights))
    net.initialize()
    array, value = nd.array(x), Value(x)
    net(array)
    gluon_nets.start(list(net.collect_params().values()), weights, nd)
    nd.waitall()
    return {
        "numpy": lambda: bare(x, layers),
        "least": lambda: least(value, values),
        "d2lmini": lambda: net(array),
    }


def calls_of(program: Callable[[], Any]) -> int:
    """How many Python functions it calls."""
    n = -1  # itself

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
    return {name: statistics.quantiles(us, n=10)[0] for name, us in found.items()}


def account(loops: int = 100, rounds: int = 60) -> dict[str, tuple[float, int]]:
    """name -> (CPU microseconds, calls of Python functions); "call" is one that does nothing."""
    nets = programs()
    answers = [np.asarray(getattr(y, "data", y)) for y in (nets["numpy"](), nets["least"]())]
    answers.append(nets["d2lmini"]().asnumpy())
    assert all(np.array_equal(y, answers[0]) for y in answers), "the nets differ"
    us = in_turns({**nets, "call": lambda: None}, loops, rounds)
    return {name: (us[name], calls_of(nets[name]) if name in nets else 1) for name in us}


def table(found: dict[str, tuple[float, int]]) -> str:
    """The account as text."""
    call_us = found["call"][0]
    numpy_us = found["numpy"][0]
    lines = [
        f"{'':8}  {'CPU us':>7}  {'above numpy':>11}  {'Python calls':>12}  {'these alone':>11}"
    ]
    for name in ("numpy", "least", "d2lmini"):
        us, calls = found[name]
        lines.append(
            f"{name:8}  {us:7.1f}  {us - numpy_us:11.1f}  {calls:12}  {calls * call_us:11.1f}"
        )
    lines.append(f"a call of a Python function that does nothing: {1e3 * call_us:.0f} ns")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=100, help="calls per turn")
    parser.add_argument("--rounds", type=int, default=60, help="turns of each")
    options = parser.parse_args()
    print(table(account(options.loops, options.rounds)))


if __name__ == "__main__":
    main()
