"""The workloads: what is computed, how large, what the answer must be, which ratio we aim at.

`row.py` says what a workload is. Here are those that are one operation, or a chain of them; those
that are nets are in `nets.py`.

>>> workload = WORKLOADS["small_add"]
>>> [x.shape for x in workload.inputs("quick")], workload.modes["quick"]
([(2, 2)], (2, 500))

"""

from __future__ import annotations

import compiled
import nets
import numpy as np
from row import Arrays, Target, Workload


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
        targets=(Target("mxnet", 0.15), Target("jax jit", 0.4)),
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
        targets=(Target("mxnet", 0.15), Target("jax jit", 0.4)),
    ),
    Workload(
        "small_add",
        "`y = x + 1` on 2x2, a loop, waited for at its end",
        "add",
        small(),
        ones,
        add_one,
        unit="us",
        turns=5,
        targets=(Target("mxnet", 1 / 6), Target("torch", 0.7)),
    ),
    Workload(
        "large_add",
        "`y = x + 1` on 2000x2000, a loop, waited for at its end",
        "add",
        large(300, 100),
        one,
        add_one,
        targets=(
            Target("numpy", 0.6),
            Target("torch", 0.5),
            Target("mxnet", 0.4),
            Target("jax or jax jit", 0.9),
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
        targets=(Target("torch", 1.0), Target("jax", 0.3), Target("mxnet", 0.25)),
    ),
    Workload(
        "import",
        "importing until an array can be made (a fresh interpreter, less a bare one)",
        "import_it",
        {"full": (1, 1), "quick": (1, 1), "tiny": (1, 1)},
        nothing,
        None,
        check=is_done,
        ops=0,
        turns=3,
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
        turns=5,
        targets=(Target("torch", 0.7),),
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
        "chain",
        "ten elementwise operations (tanh, products, sums) on 2000x2000, hybridized",
        "chain",
        large(5, 3),
        one,
        compiled.chain_output,
        ops=None,
        targets=(Target("numpy", 0.4), Target("jax jit", 1.2), Target("torch compile", 0.7)),
    ),
    *nets.TABLE,
)
WORKLOADS = {workload.name: workload for workload in TABLE}
