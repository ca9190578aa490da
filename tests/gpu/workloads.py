"""The same work by d2lmini and by PyTorch, on one GPU: the rows, and their table.

    python tests/gpu/workloads.py d2lmini             # microseconds of each row, as lines of JSON
    python tests/gpu/workloads.py torch "LeNet eager"
    python tests/gpu/workloads.py d2lmini --cpu       # of processor time, for stand-ins of a GPU

Same mathematics, float32 without TF32 unless said, programs as users of each library write them
(`work_d2lmini.py`, `work_torch.py`; D2LMINI_TORCH_PYTHON names PyTorch's interpreter if it is
another). A figure is the median of seven repeats, each with a wait for the device at its end, but
for the row that says otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

#: Library -> the interpreter that has it, and what fails there if no GPU can be used.
LIBRARIES = {
    "d2lmini": (sys.executable, "import d2lmini"),
    "torch": (
        os.environ.get("D2LMINI_TORCH_PYTHON", sys.executable),
        "import torch; torch.cuda.current_device()",
    ),
}

_NETS = {
    "MLP": "MLP, one example",
    "step": "training step of 1024 x (512-2048-512-1)",
    "LeNet": "LeNet, step of 256 images",
    "ResNet-18": "ResNet-18, step of 128 x 3 x 32 x 32",
}
#: Row -> what it says in the table.
ROWS = {
    "issue": "product of 2000 x 2000, until the call returns",
    "product float32": "product of 4096 x 4096, float32, with its wait",
    "product float16": "product of 4096 x 4096, float16, with its wait",
    "add": "`x + 1` on 2000 x 2000, each of 1,000",
    "chain": "`x + 1` on 2 x 2 in a chain, each",
    **{
        f"{net} {way}": f"{title}, {way}"
        for net, title in _NETS.items()
        for way in ("eager", "compiled", "graph")
    },
    "gelu": "a formula of ten operations on 2000 x 2000, compiled",
    "normal": "normal numbers, 4 million",
    "GRU": "GRU cell, 35 steps and backward",
    "parallel cpu": "the book's automatic parallelism: 10 products of 2000 x 2000 on the CPU",
    "parallel gpu": "50 products of 6000 x 6000 on the GPU",
    "parallel both": "both at once",
    "overlap compute": "the book's computing and copying: 20 products of 3000 x 3000",
    "overlap copy": "their copies to the CPU",
    "overlap both": "both, without a wait between",
}
#: Those whose time is the host's where kernels take none.
ON_THE_HOST = [row for row in ROWS if not row.startswith(("parallel", "overlap"))]


class Sizes(NamedTuple):
    """How large the work is; the names of rows say the ones by default."""

    product: int = 4096
    plane: int = 2000
    times: int = 1000
    hidden: int = 2048
    batch: int = 1024
    images: int = 256
    channels: int = 64
    sequence: int = 35
    steps: int = 10
    book: tuple[int, int, int] = (2000, 6000, 3000)
    repeats: int = 7


FULL = Sizes()
#: For a look at whether it runs.
SMALL = Sizes(8, 8, 2, 32, 4, 2, 2, 2, 1, (8, 8, 8), 1)


class Clock:
    """Times work. `wait`: of the library, for the device."""

    def __init__(self, now: Callable[[], float], wait: Callable[[], object]):
        self.now, self.wait = now, wait

    def of(self, body: Callable[[], object], times: int = 1) -> Callable[[], float]:
        """A function that runs `body` so many times, waits, and returns the seconds of one."""

        def once() -> float:
            begin = self.now()
            for _ in range(times):
                body()
            self.wait()
            return (self.now() - begin) / times

        return once

    def until_return(self, body: Callable[[], object], times: int) -> Callable[[], float]:
        """The same, but for the wait, which comes after."""

        def once() -> float:
            begin = self.now()
            for _ in range(times):
                body()
            seconds = (self.now() - begin) / times
            self.wait()
            return seconds

        return once


def figures(
    library: str, rows: Sequence[str] = (), sizes: Sizes = FULL, cpu: bool = False
) -> Iterator[tuple[str, float]]:
    """(row, microseconds) of a library, in this process."""
    side = importlib.import_module(f"work_{library}")
    clock = Clock(time.process_time if cpu else time.perf_counter, side.wait)
    for row in rows or side.WORKS:
        once = side.WORKS[row](clock, sizes)
        for _ in range(3):  # kernels are compiled, graphs recorded
            once()
        yield row, statistics.median(once() for _ in range(sizes.repeats)) * 1e6


class Answer(NamedTuple):
    """The figures of a library, and whether all rows ran."""

    figures: dict[str, float]
    went_well: bool


def ask(library: str) -> Answer:
    """A library in a process of its own; no figures where it is not installed, or for no GPU."""
    python, probe = LIBRARIES[library]
    if subprocess.run([python, "-c", probe], stderr=subprocess.DEVNULL).returncode:
        return Answer({}, True)
    command = [python, str(Path(__file__)), library]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return Answer(dict(map(json.loads, done.stdout.splitlines())), done.returncode == 0)


def table(ours: dict[str, float], theirs: dict[str, float]) -> str:
    """The rows of both, side by side.

    >>> print(table({"chain": 16.123, "add": 2500.0}, {"chain": 8.2}))
    | work | d2lmini | PyTorch |
    | --- | --- | --- |
    | `x + 1` on 2000 x 2000, each of 1,000 | 2,500 us | - |
    | `x + 1` on 2 x 2 in a chain, each | 16.1 us | 8.2 us |
    """
    lines = ["| work | d2lmini | PyTorch |", "| --- | --- | --- |"]
    for row, title in ROWS.items():
        if row in ours:
            lines.append(f"| {title} | {shown(ours[row])} | {shown(theirs.get(row))} |")
    return "\n".join(lines)


def shown(us: float | None) -> str:
    """Three digits, or all before the point."""
    if us is None:
        return "-"
    return f"{us:,.0f} us" if us >= 1000 else f"{us:.3g} us"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="one library's figures, as lines of JSON")
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--cpu", action="store_true", help="processor time in place of time")
    options = parser.parse_args(words)
    for figure in figures(options.library, options.rows, cpu=options.cpu):
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
