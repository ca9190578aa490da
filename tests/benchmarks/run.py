"""The benchmark: d2lmini and its peers side by side, in turns, each in a process of its own.

    python tests/benchmarks/run.py                    # d2lmini, and NumPy of this interpreter
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
from pathlib import Path

from report import Outcome, machine, markdown, revision, targets, text
from turns import Library, Referee
from workloads import TABLE, WORKLOADS, Workload

PEERS = ("d2lmini", "numpy", "torch", "jax", "mxnet")


def measure(
    workload: Workload, libraries: list[Library], mode: str, rounds: int, referee: Referee
) -> Outcome:
    """All libraries through one workload: prepare each, then turns, each round begun by another."""
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
    for turn in range(rounds * workload.turns):
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
        "--rounds", type=int, help="turns of each library (full: 9, quick: 3, tiny: 1)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="S",
        help="repeat a turn that other programs disturbed, for up to S seconds",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page")
    parser.set_defaults(mode="full")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run, print, and return 1 if a row has no time."""
    options = arguments(words)
    rounds = options.rounds or {"full": 9, "quick": 3, "tiny": 1}[options.mode]
    libraries, about, referee = [], [machine()], Referee(options.patience)
    try:
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
        print("\n".join([*about, ""]), flush=True)
        outcomes = []
        for workload in TABLE:
            if not options.only or workload.name in options.only:
                outcomes.append(measure(workload, libraries, options.mode, rounds, referee))
                print(text(outcomes[-1]), flush=True)
        print("\n".join(["targets:", *(f"  {line}" for line in targets(outcomes)), ""]))
        about.append(
            f"mode {options.mode}, {rounds} rounds; {referee.calm} of {referee.given} turns "
            "undisturbed by other programs"
        )
        print(about[-1])
        if options.markdown:
            options.markdown.write_text(markdown(outcomes, about), encoding="utf-8")
    finally:
        for library in libraries:
            library.close()
    return int(any(outcome.problems for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
