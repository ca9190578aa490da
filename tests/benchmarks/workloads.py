"""The workloads: what is computed, how large, what the answer must be, which ratio we aim at.

A workload names a *program* (a method of the classes in `peers/`, a few lines for each library)
and gives it float32 inputs, the same numbers for every library, and a number of calls. NumPy
computes the expected answer here, so that no library is ever timed while doing nothing or
something else:

>>> workload = WORKLOADS["small_add"]
>>> [x.shape for x in workload.inputs("quick")], workload.modes["quick"]
([(2, 2)], (2, 500))
>>> workload.problem("quick", np.full((2, 2), 2.0, np.float32)) is None
True
>>> workload.problem("quick", np.zeros((2, 2), np.float32))
'values differ from the expected ones by up to 2'

This file runs in every library's own environment, hence with old NumPy versions too; it imports
nothing else. Training steps are made in `training.py` and `gru.py`, nets in `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import compiled
import gru
import numpy as np
import training

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Target:
    """`ours / theirs <= at_most`, or, with `unit="us"`, `ours - theirs <= at_most` microseconds.

    `peer` is a row's label; of "jax or jax jit" the faster one counts. `row` is the row of ours.
    """

    peer: str
    at_most: float
    unit: str = "ratio"
    row: str = "d2lmini"


@dataclass(frozen=True)
class Workload:
    """One line of the benchmark.

    `modes` gives for "full", "quick" and "tiny" the edge length n of the inputs and the calls per
    turn. `unit` is what the table prints times in. `ops` is how many engine operations one call
    is for d2lmini; None: as many as in the turn before. Every library takes `turns` turns in each
    round: more where small differences matter.
    """

    name: str
    title: str
    program: str
    modes: dict[str, tuple[int, int]]
    make: Callable[[int], Arrays]
    answer: Callable[..., np.ndarray] | None
    unit: str = "ms"
    targets: tuple[Target, ...] = ()
    ops: int | None = 1
    turns: int = 1
    note: str = ""
    check: Callable[[np.ndarray, int], str | None] = field(default=lambda result, n: None)

    def inputs(self, mode: str) -> Arrays:
        return self.make(self.modes[mode][0])

    def problem(self, mode: str, result: np.ndarray) -> str | None:
        """None if `result` is the right answer, else what is wrong with it."""
        if result.dtype != np.float32:
            return f"dtype is {result.dtype}, expected float32"
        if self.answer is None:
            return self.check(result, self.modes[mode][0])
        expected = np.asarray(self.answer(*self.inputs(mode)))
        if result.size != expected.size or result.squeeze().shape != expected.squeeze().shape:
            return f"shape is {result.shape}, expected {expected.shape}"
        error = np.abs(result.reshape(expected.shape) - expected)
        if not error.max() <= 1e-4 * np.abs(expected).max():
            return f"values differ from the expected ones by up to {error.max():g}"
        return None


def square(n: int) -> np.ndarray:
    """An n by n matrix of small, uneven numbers in [-0.5, 0.5), the same everywhere."""
    return (
        ((np.arange(n * n, dtype=np.int64) * 7919 % 1000) / 1000 - 0.5)
        .astype(np.float32)
        .reshape(n, n)
    )


def one(n: int) -> Arrays:
    return [square(n)]


def two(n: int) -> Arrays:
    return [square(n), square(n)[::-1].copy()]


def ones(n: int) -> Arrays:
    return [np.ones((n, n), np.float32)]


def nothing(n: int) -> Arrays:
    return []


def matrix_and_row(n: int) -> Arrays:
    return [square(n), square(n)[0].copy()]


def dot_with_itself(a: np.ndarray) -> np.ndarray:
    return np.dot(a, a)


def add_one(x: np.ndarray) -> np.ndarray:
    return x + 1


def looks_normal(x: np.ndarray, n: int) -> str | None:
    """n * 1000 numbers, mean 0, variance 1: three moments, each within six standard errors."""
    if x.size != n * 1000:
        return f"{x.size} numbers, expected {n * 1000}"
    x = x.ravel().astype(np.float64)
    error = 6 / np.sqrt(x.size)
    moments = (
        ("mean", x.mean(), 0, 1),
        ("variance", x.var(), 1, 2**0.5),
        ("skewness", (x**3).mean(), 0, 15**0.5),
    )
    for what, found, expected, scale in moments:
        if abs(found - expected) > scale * error:
            return f"{what} is {found:.4f}, expected {expected} +- {scale * error:.4f}"
    return None


def is_done(result: np.ndarray, n: int) -> str | None:
    return None if result.ravel()[0] == 1 else "the import did not succeed"


def large(calls: int, quick: int, n: int = 2000) -> dict[str, tuple[int, int]]:
    return {"full": (n, calls), "quick": (n, quick), "tiny": (50, 3)}


def small(calls: int = 2000, quick: int = 500) -> dict[str, tuple[int, int]]:
    return {"full": (2, calls), "quick": (2, quick), "tiny": (2, 10)}


TABLE = (
    Workload(
        "push",
        "`dot(a, a)` of 2000x2000: until the call returns, engine free",
        "issue_dot",
        large(8, 3),
        one,
        dot_with_itself,
        unit="us",
        targets=(Target("mxnet", 0.25),),
        note="Only libraries that return before the product is there; the wait is not counted.",
    ),
    Workload(
        "push_burst",
        "the same, several in a row, per call: the engine at work on the first",
        "issue_dots",
        large(10, 4),
        one,
        dot_with_itself,
        unit="us",
        targets=(Target("mxnet", 0.25),),
    ),
    Workload(
        "small_add",
        "`y = x + 1` on 2x2, a loop, waited for at its end",
        "add",
        small(),
        ones,
        add_one,
        unit="us",
        targets=(Target("mxnet", 1 / 6), Target("torch", 0.9)),
    ),
    Workload(
        "large_add",
        "`y = x + 1` on 2000x2000, a loop, waited for at its end",
        "add",
        large(1000, 100),
        one,
        add_one,
        targets=(
            Target("numpy", 0.6),
            Target("torch", 0.6),
            Target("mxnet", 0.5),
            Target("jax or jax jit", 1.0),
        ),
    ),
    Workload(
        "dot",
        "`dot(a, b)` of 2000x2000, each waited for",
        "dot",
        large(1, 1),
        two,
        np.dot,
        turns=8,
        targets=(Target("numpy-here", 200, "us"), Target("numpy-here out", 200, "us")),
        note="`numpy-here` is NumPy's own product in d2lmini's process, in turns, call by call.",
    ),
    Workload(
        "normal",
        "4 million normal random numbers, float32",
        "normal",
        {"full": (4000, 8), "quick": (4000, 3), "tiny": (20, 3)},
        nothing,
        None,
        check=looks_normal,
        targets=(Target("torch", 2.0), Target("mxnet", 0.25)),
    ),
    Workload(
        "import",
        "importing until an array can be made (a fresh interpreter, less a bare one)",
        "import_it",
        {"full": (1, 4), "quick": (1, 2), "tiny": (1, 1)},
        nothing,
        None,
        check=is_done,
        ops=0,
        targets=(Target("numpy", 1.5),),
    ),
    Workload(
        "small_add_sync",
        "`y = x + 1` on 2x2, each waited for",
        "add_sync",
        small(1000, 300),
        ones,
        add_one,
        unit="us",
    ),
    Workload(
        "large_add_sync",
        "`y = x + 1` on 2000x2000, each waited for",
        "add_sync",
        large(100, 30),
        one,
        add_one,
    ),
    Workload(
        "small_dot_sync",
        "`dot(a, b)` of 512x512, each waited for",
        "dot",
        large(100, 30, n=512),
        two,
        np.dot,
        unit="us",
        targets=(Target("numpy-here", 200, "us"), Target("numpy-here out", 200, "us")),
    ),
    Workload("sum", "`sum(x)` of 2000x2000 to one number", "sum", large(100, 30), one, np.sum),
    Workload("exp", "`exp(x)` of 2000x2000", "exp", large(100, 30), one, np.exp),
    Workload(
        "broadcast",
        "`x + row`, 2000x2000 and 2000",
        "broadcast",
        large(100, 30),
        matrix_and_row,
        np.add,
    ),
    Workload(
        "transpose", "a transposed copy of 2000x2000", "transpose", large(50, 15), one, np.transpose
    ),
    Workload(
        "concat",
        "two 2000x2000 side by side",
        "concat",
        large(50, 15),
        two,
        lambda a, b: np.concatenate([a, b], axis=1),
    ),
    Workload(
        "mlp_train",
        "one training step, 512-2048-512-1, batch 1024, SGD",
        "mlp_train",
        {"full": (1024, 8), "quick": (1024, 3), "tiny": (8, 2)},
        training.mlp,
        None,
        ops=None,
        check=training.learns(training.mlp, training.mlp_loss),
        targets=(
            Target("mxnet", 0.6),
            Target("torch", 1.0),
            Target("d2lmini", 1.0, row="d2lmini hybrid"),
        ),
    ),
    Workload(
        "lenet_train",
        "one training step of LeNet, 28x28, batch 256, SGD",
        "lenet_train",
        {"full": (256, 10), "quick": (256, 3), "tiny": (10, 2)},
        training.lenet,
        None,
        ops=None,
        check=training.learns(training.lenet, training.lenet_loss),
        targets=(Target("mxnet", 0.7), Target("torch", 1.2)),
    ),
    Workload(
        "gru_cell",
        "a GRU cell, batch 32, 128 -> 256, 35 steps under autograd, forward and backward",
        "gru_cell",
        {"full": (35, 8), "quick": (35, 3), "tiny": (3, 2)},
        gru.cell,
        gru.gradients,
        ops=None,
        targets=(Target("mxnet", 0.4), Target("torch", 1.0)),
    ),
    Workload(
        "net_call",
        "a net 512-256-128-2 on one example, hybridized, called in a loop",
        "net_call",
        {"full": (1, 1000), "quick": (1, 200), "tiny": (1, 3)},
        compiled.net,
        compiled.net_output,
        unit="us",
        ops=None,
        targets=(
            Target("d2lmini eager", 1 / 3),
            Target("mxnet", 0.3),
            Target("torch", 0.4),
            Target("jax jit", 1.2),
            Target("torch", 1.0, row="d2lmini eager"),
        ),
    ),
    Workload(
        "chain",
        "ten elementwise operations (tanh, products, sums) on 2000x2000, hybridized",
        "chain",
        large(10, 4),
        one,
        compiled.chain_output,
        ops=None,
        targets=(Target("numpy", 0.4), Target("jax jit", 1.5)),
    ),
)
WORKLOADS = {workload.name: workload for workload in TABLE}
