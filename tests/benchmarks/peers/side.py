"""What every library's side of the benchmark has in common: loops, clocks, programs by name.

A side turns inputs into its own arrays, and a workload's program into a `turn`: a function that
does all calls, waits until everything it asked for is there, and returns the seconds it took and
the last result. A library's own file overrides what is spelled differently there, with the idiom
its users would write:

>>> side = Side()
>>> turn = side.program("add")(1000, np.ones((2, 2), np.float32))
>>> seconds, y = turn()
>>> seconds > 0, y[0, 0]
(True, np.float32(2.0))

A method `dot__out` is a second way to run the program `dot`; its row in the table is labelled
"numpy out".
"""

from __future__ import annotations

import contextlib
import importlib
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

Turn = Callable[[], tuple[float, Any]]


class Side:
    """One library, here NumPy's spelling; `library` is its label, `module` what one imports."""

    library = "numpy"
    module = "numpy"
    # What a program imports before it can make an array.
    statement = "import numpy"
    # False if the library can wait for one result only: then we look whether it still computes.
    waits_for_all = True

    def __init__(self) -> None:
        self.lib: Any = importlib.import_module(self.module)
        # What a workload's programs need while it is measured; closed before the next one.
        self.scopes = contextlib.ExitStack()

    # -- to be overridden where the library differs

    def array(self, x: np.ndarray) -> Any:
        return x

    def to_numpy(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def wait(self, last: Any) -> None:
        """Returns when every operation issued so far is done, `last` being the newest result."""

    def threads(self) -> str:
        """How many threads the library computes with, and whose BLAS: a few words for the table."""
        return blas_threads()

    def executed(self) -> int | None:
        """How many operations the library has executed, if it counts them."""
        return None

    # -- the programs: (calls, *arrays) -> turn

    def add(self, calls: int, x: Any) -> Turn:
        def loop() -> Any:
            for _ in range(calls):
                y = x + 1
            return y

        return self.timed(loop, calls)

    def add_sync(self, calls: int, x: Any) -> Turn:
        wait = self.wait

        def loop() -> Any:
            for _ in range(calls):
                y = x + 1
                wait(y)
            return y

        return self.timed(loop, calls)

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.lib.dot(a, b), sync=True)

    def sum(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.sum())

    def exp(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: self.lib.exp(x))

    def broadcast(self, calls: int, x: Any, row: Any) -> Turn:
        return self.repeat(calls, lambda: x + row)

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T.copy())

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.lib.concatenate([a, b], axis=1))

    def import_it(self, calls: int, n: int) -> Turn:
        return self.interpreters(calls, self.statement)

    # -- the clocks

    def interpreters(self, calls: int, statement: str) -> Turn:
        """A fresh interpreter with the statement, less a bare one, in turns; the median."""

        def turn() -> tuple[float, Any]:
            extra = [interpreter(statement) - interpreter("pass") for _ in range(calls)]
            return statistics.median(extra), self.array(np.ones(1, np.float32))

        return turn

    def timed(self, loop: Callable[[], Any], calls: int) -> Turn:
        """Seconds per call of a loop of `calls` of them, including the wait for all of its work."""

        def turn() -> tuple[float, Any]:
            start = perf_counter()
            last = loop()
            self.wait(last)
            return (perf_counter() - start) / calls, last

        return turn

    def repeat(self, calls: int, call: Callable[[], Any], sync: bool = False) -> Turn:
        """`timed` for calls so large that calling one more Python function does not matter."""

        def loop() -> Any:
            for _ in range(calls):
                last = call()
                if sync:
                    self.wait(last)
            return last

        return self.timed(loop, calls)

    def steps(
        self, calls: int, reset: Callable[[], Any], step: Callable[[], Any], result: Callable
    ) -> Turn:
        """Seconds per training step; `reset` comes before the clock starts. `step` returns its
        loss, `result` makes one array of the first and the last."""

        def turn() -> tuple[float, Any]:
            reset()
            self.wait(None)
            start = perf_counter()
            first = last = step()
            for _ in range(calls - 1):
                last = step()
            self.wait(last)
            seconds = (perf_counter() - start) / calls
            losses = result(first, last)
            self.wait(losses)
            return seconds, losses

        self.wait(None)
        return turn

    def issue(self, calls: int, call: Callable[[], Any]) -> Turn:
        """Seconds until `call` returns: the median of `calls`, each begun when all is done."""

        def turn() -> tuple[float, Any]:
            seconds = []
            for _ in range(calls):
                start = perf_counter()
                last = call()
                seconds.append(perf_counter() - start)
                self.wait(last)
            return statistics.median(seconds), last

        return turn

    def issue_many(self, calls: int, call: Callable[[], Any]) -> Turn:
        """Seconds per call until the last of `calls` has returned; the wait is not counted."""

        def turn() -> tuple[float, Any]:
            start = perf_counter()
            for _ in range(calls):
                last = call()
            seconds = perf_counter() - start
            self.wait(last)
            return seconds / calls, last

        return turn

    # -- programs by name

    def program(self, name: str) -> Callable[..., Turn]:
        return getattr(self, name)

    def programs(self, name: str) -> dict[str, str]:
        """The ways to run program `name`: row label -> method. Empty if this library has none.

        >>> Side().programs("dot")
        {'numpy': 'dot'}
        """
        ways = [method for method in dir(self) if method == name or method.startswith(name + "__")]
        return {self.label(way[len(name) + 2 :]): way for way in ways}

    def label(self, variant: str) -> str:
        return f"{self.library} {variant}".strip().replace("_", "-")


def interpreter(statement: str) -> float:
    """Seconds for a fresh interpreter to run one statement."""
    start = perf_counter()
    subprocess.run(
        [sys.executable, "-c", statement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return perf_counter() - start


def blas_threads() -> str:
    """NumPy's BLAS and its threads, as far as the environment can tell.

    >>> "BLAS" in blas_threads()
    True
    """
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return f"BLAS threads not known ({os.cpu_count()} cores)"
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    words = [
        f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in pools
    ]
    return "BLAS: " + ("; ".join(words) or "not known")
