"""What a line of the benchmark is: a program's name, its inputs, its right answer, its targets.

A workload names a *program* (a method of the classes in `peers/`, a few lines for each library)
and gives it float32 inputs, the same numbers for every library, and a number of calls. NumPy
computes the expected answer, so that no library is ever timed while doing nothing or something
else:

>>> x = np.ones((2, 2), np.float32)
>>> modes = {"quick": (2, 500)}
>>> doubles = Workload("double", "2 x", "double", modes, lambda n: [x], lambda x: 2 * x)
>>> doubles.problem("quick", np.full((2, 2), 2.0, np.float32)) is None
True
>>> doubles.problem("quick", np.zeros((2, 2), np.float32))
'values differ from the expected ones by up to 2'

Like the other files of this folder that hold numbers, this one runs in every library's own
environment, hence with old NumPy versions too, and imports nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Target:
    """`ours / theirs <= at_most`, or, with `unit="us"`, `ours - theirs <= at_most` microseconds.

    `peer` is a row's label; of "jax or jax jit" the faster one counts. `row` is the row of ours.
    `bases`: two rows by which ours and theirs are divided first. So what is compared is how much
    each gains over a base of its own.
    """

    peer: str
    at_most: float
    unit: str = "ratio"
    row: str = "d2lmini"
    bases: tuple[str, str] | None = None


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
