"""Random small programs have the same gradients here and in the real MXNet 1.9.1.

Optional: D2LMINI_MXNET_PYTHON names an interpreter that has it (`make test-mxnet`).
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
from pathlib import Path

import autograd_oracle
import numpy as np
import pytest

import d2lmini

PYTHON = os.environ.get("D2LMINI_MXNET_PYTHON")
UNARY = [name for name, f in autograd_oracle.PLAIN.items() if f.__code__.co_argcount == 2]
BINARY = [name for name, f in autograd_oracle.PLAIN.items() if f.__code__.co_argcount == 3]


def values(rng: random.Random) -> list:
    return [[rng.uniform(-1, 1) for _ in range(4)] for _ in range(3)]


def program(seed: int) -> dict:
    """Two inputs or three, up to ten steps, one head or two; every value is (3, 4)."""
    rng = random.Random(seed)
    # Every op is at hand in the first programs, one after the other.
    first = (UNARY + BINARY)[seed] if seed < len(UNARY + BINARY) else None
    n = rng.choice([2, 3])
    steps = []
    for k in range(rng.randint(1, 10)):
        what = first if first and k == 0 else rng.choice(UNARY + BINARY)
        count = 1 if what in UNARY else 2
        steps.append((what, [rng.randrange(n + k) for _ in range(count)]))
    last = n + len(steps) - 1
    heads = [(last, None if rng.random() < 0.5 else values(rng))]
    if rng.random() < 0.4 and last > n:
        heads.append((last - 1, values(rng)))
    return {
        "inputs": [(values(rng), rng.choice(["write", "write", "add"])) for _ in range(n)],
        "steps": steps,
        "heads": heads,
        "times": rng.choice([1, 1, 2, 3]),
    }


PROGRAMS = [program(seed) for seed in range(300)]


@pytest.mark.skipif(not PYTHON, reason="set D2LMINI_MXNET_PYTHON to a Python that has mxnet==1.9.1")
def test_random_programs_have_the_gradients_of_mxnet():
    assert PYTHON
    answer = subprocess.run(
        [PYTHON, autograd_oracle.__file__],
        input=pickle.dumps(PROGRAMS, 2),
        stdout=subprocess.PIPE,
        timeout=110,
        check=True,
        cwd=Path(__file__).parent,
    )
    wrong = []
    for i, (each, theirs) in enumerate(zip(PROGRAMS, pickle.loads(answer.stdout), strict=True)):
        ours = autograd_oracle.run(d2lmini, each)
        for mine, their in zip(ours, theirs, strict=True):
            for a, b in zip(mine, their, strict=True):
                scale = 1 + np.abs(b).max()
                if not np.allclose(np.array(a) / scale, np.array(b) / scale, rtol=0, atol=2e-4):
                    wrong.append((i, each["steps"]))
    assert not wrong, f"{len(wrong)} differ, the first: {wrong[:5]}"


def test_every_program_runs_here():
    """The table is sound without MXNet, too."""
    for each in PROGRAMS[: len(UNARY + BINARY)]:
        grads, heads = autograd_oracle.run(d2lmini, each)
        assert len(grads) == len(each["inputs"]) and len(heads) == len(each["heads"])
    assert {what for each in PROGRAMS for what, _ in each["steps"]} == set(UNARY + BINARY)
