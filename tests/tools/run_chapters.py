"""Run chapters with the library that is installed: do they run to their end, and do their asserts
hold? Nothing is compared and nothing stored.

    python tests/tools/run_chapters.py FOLDER [index hybridize ...]     # FOLDER/chapters/*.ipynb
    python tests/tools/run_chapters.py . --order cells-twice            # make chapters-again
    python tests/tools/run_chapters.py . --busy 4 --times 3             # beside four that spin
    python tests/tools/run_chapters.py . --cores 1                      # on one core

`--order` says how a reader goes through the cells:

    once         from top to bottom
    cells-twice  from top to bottom, each cell twice before the next (Ctrl-Enter)
    twice        Run All, and again in the same kernel
    backward     Run All, then the sections once more from the last to the first

A chapter runs in its own folder, as in Jupyter, and imports the library of FOLDER if there is one.
Outputs are compared strictly on one reference environment (`make chapters`); elsewhere this is
what can be asked.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from d2lmini.cli.files import chapter_name

ORDERS = ("once", "cells-twice", "twice", "backward")


def sections(cells: list) -> list[list[int]]:
    """The positions of the code cells of each section; first those before the first heading."""
    found: list[list[int]] = [[]]
    for position, cell in enumerate(cells):
        if cell.cell_type == "markdown" and re.match(r"## ", cell.source):
            found.append([])
        elif cell.cell_type == "code":
            found[-1].append(position)
    return found


def run_order(cells: list, order: str) -> list[int]:
    """The positions of code cells in the order in which they are run.

    >>> from nbformat.v4 import new_code_cell as code, new_markdown_cell as text
    >>> cells = [code(), text("## 1. A"), code(), code(), text("## 2. B"), code()]
    >>> run_order(cells, "cells-twice"), run_order(cells, "backward")
    ([0, 0, 2, 2, 3, 3, 5, 5], [0, 2, 3, 5, 5, 2, 3])
    """
    parts = sections(cells)
    once = list(chain.from_iterable(parts))
    return {
        "once": once,
        "cells-twice": [position for position in once for _ in range(2)],
        "twice": once + once,
        "backward": once + list(chain.from_iterable(parts[:0:-1])),
    }[order]


def main(words: list[str]) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("chosen", nargs="*", metavar="chapter")
    options.add_argument("--order", default="once", choices=ORDERS)
    options.add_argument("--busy", type=int, default=0, help="processes that keep the cores busy")
    options.add_argument("--cores", type=int, help="use only so many (Linux)")
    options.add_argument("--times", type=int, default=1, help="how often each chapter is run")
    asked = options.parse_args(words)
    if asked.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])
    paths = sorted((asked.folder / "chapters").glob("*.ipynb"))
    names = {*asked.chosen}
    paths = [path for path in paths if not names or names & {path.stem, chapter_name(path)}]
    paths = [path for path in paths for _ in range(asked.times)]
    if not paths:
        print(f"no chapter of {asked.folder} is named {asked.chosen}", file=sys.stderr)
        return 2
    library = [str(asked.folder.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(library)}
    with busy(asked.busy):
        failed = run(paths, asked.order, environment)
    print(f"{len(paths) - failed} passed, {failed} failed")
    return int(failed > 0)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep cores busy with programs that compute all the time."""
    # Each ends with this process, also if this one is killed.
    program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    spin = [sys.executable, "-c", program]
    spinning = [subprocess.Popen(spin) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def run(paths: list[Path], order: str, environment: dict[str, str]) -> int:
    """Run the chapters and print what became of each; returns how many failed."""
    failed = 0
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(
            notebook, kernel_name="python3", timeout=600,
            resources={"metadata": {"path": str(path.resolve().parent)}},
        )  # fmt: skip
        positions = run_order(notebook.cells, order)
        begin_s = time.perf_counter()
        position = -1
        try:
            with client.setup_kernel(env=environment):
                for position in positions:
                    client.execute_cell(notebook.cells[position], position)
        except CellExecutionError as error:
            failed += 1
            print(f"FAILED   {path.stem}, cell {position}\n{error}", flush=True)
            continue
        seconds = time.perf_counter() - begin_s
        print(f"ok       {path.stem}: {len(positions)} cells in {seconds:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
