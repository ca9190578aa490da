"""What watching costs: the seeds' loop `y = x + 1`, watched and not, in turns.

    python tests/benchmarks/watch.py [--n 1000] [--size 2000] [--turns 7]

Watched means `d2lmini.watch()` with a view that every message is made and turned into bytes for, as
for a browser; the browser itself is not part of it. CPU is that of all threads, which on a busy
machine says more than wall time; wall time on a machine with other work is too high on both sides,
and counts the ten looks a second for as long as it was stretched.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import d2lmini
from d2lmini import nd


class View:
    """Stands for the front in a notebook: makes bytes of what is sent."""

    model_id = "view"

    def __init__(self) -> None:
        self.nbytes = 0

    def send(self, header: dict[str, Any], buffers: list[Any]) -> None:
        """As ipywidgets does before it gives them to the socket."""
        self.nbytes += len(json.dumps(header)) + sum(map(len, map(bytes, buffers)))


def timed(loop: Callable[[], None]) -> tuple[float, float]:
    """Seconds that passed, and CPU seconds of all threads."""
    begin, cpu = time.perf_counter(), time.process_time()
    loop()
    return time.perf_counter() - begin, time.process_time() - cpu


def measure(n: int, size: int, turns: int) -> dict[str, Any]:
    """Of each turn (wall, CPU) without and with; and how much was sent."""
    x = nd.random.uniform(shape=(size, size))

    def loop() -> None:
        for _ in range(n):
            _y = x + 1
        nd.waitall()

    loop()
    plain, watched = [], []
    view = View()
    for _ in range(turns):
        plain.append(timed(loop))
        with d2lmini.watch() as w:
            w._front = view
            watched.append(timed(loop))
            w._front = None
    return {"plain": plain, "watched": watched, "nbytes": view.nbytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=7)
    asked = parser.parse_args()
    found = measure(**vars(asked))
    print(f"{asked.n} times y = x + 1, {asked.size} x {asked.size}, {asked.turns} turns")
    for i, what in enumerate(("wall", "CPU, all threads")):
        plain = [turn[i] for turn in found["plain"]]
        watched = [turn[i] for turn in found["watched"]]
        ratio = statistics.median(b / a for a, b in zip(plain, watched))
        print(
            f"{what}: {statistics.median(plain):.3f} s, "
            f"watched {statistics.median(watched):.3f} s; "
            f"ratio of medians by turn {ratio:.3f}, of the fastest {min(watched) / min(plain):.3f}"
        )
    print(f"sent: {found['nbytes'] / 1e6 / asked.turns:.2f} MB a turn")


if __name__ == "__main__":
    main()
