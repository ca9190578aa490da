"""The workloads in two checkouts of d2lmini, in turns: what did a change cost, what did it gain?

    git worktree add /tmp/before v0.1
    python tests/benchmarks/trees.py /tmp/before                        # all workloads
    python tests/benchmarks/trees.py /tmp/before --rounds 15 small_add mlp_train

Programs and inputs are those of this checkout; only the library differs. Every turn of the other
tree has one of this tree beside it, and they take turns to be the first. The table shows the median
of these pairs' ratios (below 1: this tree is faster) with its quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from turns import REPOSITORY, Library, Referee
from workloads import WORKLOADS


def ratios(this: Library, other: Library, row: str, pairs: int, referee: Referee) -> list[float]:
    """Seconds in this tree by seconds in the other, for so many pairs of turns."""
    found = []
    for turn in range(pairs):
        both = (this, other) if turn % 2 else (other, this)
        seconds = {}
        for library in both:
            answer = referee.turn(library, row)
            if "error" in answer:
                raise SystemExit(f"{row}: {answer['error']}")
            seconds[library] = answer["seconds"]
        found.append(seconds[this] / seconds[other])
    return found


def main(words: list[str] | None = None) -> int:
    """Print a line for each row of each workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="the other checkout")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: all")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of turns for each row (9)")
    parser.add_argument("--mode", choices=("full", "quick", "tiny"), default="full")
    parser.add_argument("--patience", type=float, default=0, help="as in run.py (seconds)")
    options = parser.parse_intermixed_args(words)
    if not (options.tree / "d2lmini" / "__init__.py").exists():
        parser.error(f"{options.tree} is no checkout of d2lmini: it has no d2lmini/__init__.py")
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"no workload {min(unknown)}; there are {', '.join(WORKLOADS)}")
    this = Library("d2lmini", sys.executable)
    other = Library("d2lmini", sys.executable, options.tree)
    referee = Referee(options.patience)
    print(f"{REPOSITORY} / {options.tree}: median of the pairs' ratios, its quartiles")
    try:
        for name in options.workloads or WORKLOADS:
            answers = [library.ask(f"prepare {name}|{options.mode}") for library in (this, other)]
            rows = [row for row in answers[0].get("rows", ()) if row in answers[1].get("rows", ())]
            if not rows:
                print(f"{name:28} no time: {answers}")
            for row in rows:
                pairs = options.rounds * WORKLOADS[name].turns
                found = ratios(this, other, row, pairs, referee)
                low, middle, high = statistics.quantiles(found, n=4) if pairs > 1 else found * 3
                print(f"{name:28} {row:20} {middle:6.3f}  {low:6.3f} - {high:6.3f}", flush=True)
    finally:
        this.close()
        other.close()
    print(f"{referee.calm} of {referee.given} turns undisturbed by other programs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
