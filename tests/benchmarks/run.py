"""The benchmark: d2lmini and its peers side by side, in turns, each in a process of its own.

    python tests/benchmarks/run.py                    # d2lmini, and NumPy of this interpreter
    python tests/benchmarks/run.py --rounds 9 --minutes 60      # to be surer
    python tests/benchmarks/run.py --quick --peer torch=/path/to/python --only small_add
    D2LMINI_JAX_PYTHON=/path/to/python make bench

How it measures: every library runs in its own process (`peer.py`) that lives through the whole
run, and computes only when it is its turn; the others are suspended by the operating system
meanwhile, so that no idle pool of threads spins beside it. In every round each library takes its
turn, and each round another one begins. All figures are medians over the turns of this one run;
the quartiles beside them tell how far to trust them, and so does the last line, which says how
many turns other programs left undisturbed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from report import Outcome, machine, markdown, revision, targets, text
from row import Workload
from turns import Library, Referee
from workloads import TABLE, WORKLOADS

PEERS = ("d2lmini", "numpy", "torch", "jax", "mxnet")


class Budget:
    """Shares out the minutes: every workload goes on with its rounds until its share is used up,
    and has one round at least. What it leaves over is there for those that follow."""

    def __init__(self, minutes: float, workloads: int) -> None:
        self.end_s = time.monotonic() + 60 * minutes
        self.workloads = workloads

    def share_ends_s(self) -> float:
        """When the share of the next workload is used up."""
        now_s = time.monotonic()
        share_s = max(0.0, self.end_s - now_s) / max(1, self.workloads)
        self.workloads -= 1
        return now_s + share_s


def measure(
    workload: Workload, libraries: list[Library], mode: str, rounds: int, referee: Referee,
    end_s: float = float("inf"),
) -> Outcome:  # fmt: skip
    """All libraries through one workload: prepare each, then turns, each round begun by another;
    no round is begun that would end after `end_s`, if it took as long as the last."""
    outcome = Outcome(workload, {}, {})
    rows: list[tuple[Library, str]] = []
    for library in libraries:
        answer = library.ask(f"prepare {workload.name}|{mode}")
        if "error" in answer:
            outcome.problems[library.name] = answer["error"]
            continue
        outcome.problems.update(answer["problems"])
        rows += [(library, row) for row in answer["rows"]]
    outcome.seconds = {row: [] for _, row in rows}
    begun_s = time.monotonic()
    for turn in range(rounds * workload.turns):
        now_s = time.monotonic()
        if turn and now_s + (now_s - begun_s) > end_s:
            break
        begun_s = now_s
        first = turn % max(1, len(rows))
        for library, row in rows[first:] + rows[:first]:
            if row in outcome.problems:
                continue
            answer = referee.turn(library, row)
            if "error" in answer:
                outcome.problems[row] = answer["error"]
                del outcome.seconds[row]
            else:
                outcome.seconds[row].append(answer["seconds"])
    return outcome


def interpreters(given: list[str]) -> dict[str, str]:
    """Library -> interpreter, from `--peer` and the environment; this one for d2lmini and NumPy."""
    chosen = {"d2lmini": sys.executable, "numpy": sys.executable}
    for name in PEERS:
        if python := os.environ.get(f"D2LMINI_{name.upper()}_PYTHON"):
            chosen[name] = python
    for pair in given:
        name, _, python = pair.partition("=")
        if name not in PEERS or not python:
            raise SystemExit(f"--peer {pair}: expected NAME=PYTHON, NAME one of {', '.join(PEERS)}")
        chosen[name] = python
    return {name: chosen[name] for name in PEERS if name in chosen}


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="the interpreter of a peer",
    )
    parser.add_argument(
        "--without", action="append", default=[], choices=PEERS, help="leave a library out"
    )
    parser.add_argument(
        "--only", action="append", default=[], choices=list(WORKLOADS), help="these workloads only"
    )
    parser.add_argument(
        "--quick", action="store_const", dest="mode", const="quick", help="fewer calls and rounds"
    )
    parser.add_argument(
        "--tiny",
        action="store_const",
        dest="mode",
        const="tiny",
        help="a test of the programs only",
    )
    parser.add_argument(
        "--rounds", type=int, help="turns of each library (full and quick: 3, tiny: 1), at most"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="S",
        help="repeat a turn that other programs disturbed, for up to S seconds",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        default=15,
        help="fewer rounds where M minutes would not suffice (15)",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page")
    parser.set_defaults(mode="full")
    return parser.parse_args(words)


def started(options: argparse.Namespace, libraries: list[Library]) -> list[str]:
    """Start the processes, each put into `libraries` at once; a line about each."""
    about = []
    for name, python in interpreters(options.peer).items():
        if name in options.without:
            continue
        library = Library(name, python)
        libraries.append(library)
        hello = library.ask("hello")
        if "error" in hello:
            raise SystemExit(
                f"{name}: {hello['error']}; try `{python} tests/benchmarks/peer.py {name}`"
            )
        about.append(f"{hello['library']}, Python {hello['python']}; {hello['threads']}")
        if name == "d2lmini" and (commit := revision()):
            about[-1] += f"; commit {commit}"
    return about


def main(words: list[str] | None = None) -> int:
    """Run, print, and return 1 if a row has no time."""
    options, begun_s = arguments(words), time.monotonic()
    rounds = options.rounds or {"full": 3, "quick": 3, "tiny": 1}[options.mode]
    chosen = [w for w in TABLE if not options.only or w.name in options.only]
    budget = Budget(options.minutes, len(chosen))
    libraries: list[Library] = []
    referee = Referee(options.patience)
    try:
        about = [machine(), *started(options, libraries)]
        print("\n".join([*about, ""]), flush=True)
        outcomes = []
        for workload in chosen:
            end_s = budget.share_ends_s()
            outcome = measure(workload, libraries, options.mode, rounds, referee, end_s)
            outcomes.append(outcome)
            print(text(outcome), flush=True)
        about.append(
            f"mode {options.mode}, at most {rounds} rounds; {referee.calm} of {referee.given} "
            f"turns undisturbed by other programs; {(time.monotonic() - begun_s) / 60:.1f} minutes"
        )
        said = targets(outcomes)
        print("\n".join(["targets:", *(f"  {line}" for line in said), "", about[-1]]))
        if options.markdown:
            page = markdown(outcomes, about, said)
            options.markdown.write_text(page, encoding="utf-8")
    finally:
        for library in libraries:
            library.close()
    return int(any(outcome.problems for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
