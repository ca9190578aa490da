"""What tests of the engine share: arrays without NDArrays, waiting for a state, other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from d2lmini import cpu, engine
from d2lmini.device.storage import Chunk, pool_of
from d2lmini.engine.budget import Handle

ROOT = Path(__file__).parent.parent.parent
MB = 1 << 20


class Array:
    """Memory and its handle, as an NDArray has them: float32, `n` elements, nothing in it yet."""

    def __init__(self, n: int = MB // 4):
        self.chunk = Chunk(pool_of(cpu()), 4 * n)
        self.handle = Handle(self.chunk) if self.chunk.weight else None
        self.n = n

    @property
    def _chunk(self) -> Chunk:
        return self.chunk

    def _note_write(self) -> None:
        """No tape has saved it."""


def fill(array: Array, value: float = 1.0, during: Callable[[], object] = int) -> None:
    """Push the task that allocates and fills it; `during()` is called while it runs."""
    chunk, n = array.chunk, array.n

    def run() -> None:
        during()
        chunk.allocate((n,), np.dtype("float32"))[:] = value

    engine.push(run, writes=[array], name="fill")


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Let other threads run until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.0005)


def all_asleep() -> bool:
    """Have all workers gone to sleep, so that they hold nothing?"""
    current = engine.current
    with current.lock:
        pools = getattr(current, "_pools", {}).values()
        return not current.pending and all(len(p.idle) == len(p.workers) for p in pools)


def run_program(text: str, timeout_s: float = 60, **environment: str) -> tuple[int, str, str]:
    """A Python program in a process of its own: (exit code, what it printed, its errors)."""
    paths = [str(ROOT), str(ROOT / "tests" / "tools"), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    return result.returncode, result.stdout.strip(), result.stderr.strip()
