"""Ask the real MXNet and d2lmini the same drawn questions and print how often they agree.

    python tests/generators/sweep/run.py                         # 20 questions for each name
    python tests/generators/sweep/run.py nd gluon --seeds 50     # some modules, more questions
    python tests/generators/sweep/run.py --list                  # and what differs
    python tests/generators/sweep/run.py --show nd.topk 17       # one program, and both answers

D2LMINI_MXNET_PYTHON names the interpreter with MXNet 1.9.1. The exit status is 1 if a module agrees
in less than its share (`--least`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "tools")]

import listed_differences  # noqa: E402
import migration_table  # noqa: E402
from oracle import Oracle, OracleDied, OracleError  # noqa: E402

from generators.sweep import calls, draw, execute  # noqa: E402
from generators.sweep.compare import difference  # noqa: E402

#: What a program of the sweep needs to run as it is.
HEAD = """import numpy as np, mxnet as mx
from mxnet import autograd, gluon, init, nd, sym
keep = print
"""


class Case(NamedTuple):
    """One question and its outcome."""

    name: str  # "nd.topk"
    seed: int
    text: str
    kind: str  # "agrees", "listed", a kind of difference, or "MXNet died"
    words: str


class Sweep:
    """Both libraries, each in a process of its own."""

    def __init__(self) -> None:
        self.theirs, self.ours = Oracle("mxnet"), Oracle("d2lmini")

    def case(self, module: str, name: str, seed: int) -> Case:
        """Ask one question."""
        path, start = f"{module}.{name}", 0
        while True:
            try:
                text, theirs, is_random = self.theirs.ask(draw.case, module, name, seed, start)
                break
            except OracleDied:
                start += draw.TRIES
                if start > 3 * draw.TRIES:
                    return Case(path, seed, "", "MXNet died", "")
            except OracleError as problem:
                return Case(path, seed, "", "no question", str(problem))
        try:
            ours = self.ours.ask(execute.run, text)
        except OracleDied:
            return Case(path, seed, text, "died here", "")
        found = difference(theirs, ours, is_random, rough="float16" in text)
        if found is None:
            return Case(path, seed, text, "agrees", theirs[1] or "")
        kind = "listed" if listed_differences.reason(path, text, *found) else found[0]
        return Case(path, seed, text, kind, found[1])

    def close(self) -> None:
        self.theirs.close()
        self.ours.close()


def names_of(module: str) -> list[str]:
    """The names of a module that are drawn: those that d2lmini has."""
    names = migration_table.listed()[module]
    found = migration_table.look_up(module, names)
    left_out = {*found.left_out, *found.missing}
    if module == "sym":
        left_out |= {name for name in names if name not in migration_table.listed()["nd"]}
    names = [*names, *(calls.SPECIAL if module == "nd.NDArray" else [])]
    skipped = listed_differences.NOT_DRAWN
    return [
        n
        for n in names
        if n not in left_out
        and f"{module}.{n}" not in skipped
        and not migration_table.INNER.fullmatch(n)
    ]


def sweep(modules: list[str], seeds: range, show_all: bool) -> dict[str, list[Case]]:
    """The cases by module. Prints the row of each module when it is done, and with `show_all` what
    differs in it."""
    asked, cases = Sweep(), {}
    folder = os.getcwd()
    print(f"{'module':14} {'calls':>6} {'errors':>7} {'agree':>7} {'listed':>7} {'differ':>7}")
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # where programs write files
        try:
            for module in modules:
                cases[module] = [asked.case(module, n, s) for n in names_of(module) for s in seeds]
                print(row(module, cases[module]), flush=True)
                if show_all and (text := differences(cases[module])):
                    print(text, flush=True)
        finally:
            os.chdir(folder)
            asked.close()
    return cases


def row(module: str, found: list[Case]) -> str:
    """Of one module: calls, how many of them both libraries refuse, and the share that agrees."""
    kinds = Counter(case.kind for case in found)
    lost = kinds["MXNet died"] + kinds["no question"]
    calls_made, agree = len(found) - lost, kinds["agrees"]
    errors = sum(case.kind == "agrees" and bool(case.words) for case in found)
    differ = calls_made - agree - kinds["listed"]
    counts = f"{calls_made:6} {errors:7} {agree:7} {kinds['listed']:7} {differ:7}"
    return f"{module:14} {counts} {share(found):7.1%}" + (f"  ({lost} lost)" if lost else "")


def share(cases: list[Case]) -> float:
    """Of the questions whose answer is not listed, how many agree."""
    counted = [c for c in cases if c.kind not in ("MXNet died", "no question", "listed")]
    return sum(c.kind == "agrees" for c in counted) / (len(counted) or 1)


def differences(cases: list[Case]) -> str:
    """What differs, grouped by name and kind, most frequent first."""
    groups = defaultdict(list)
    for case in cases:
        if case.kind not in ("agrees", "listed", "MXNet died"):
            groups[case.name, case.kind].append(case)
    lines = []
    for (name, kind), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(group):4} {name}: {kind}; seeds {[c.seed for c in group][:6]}")
        lines.append(f"       {group[0].words.strip()[-300:]!r}")
    return "\n".join(lines)


def show(path: str, seed: int) -> str:
    """One program to paste, and both answers."""
    module, _, name = path.rpartition(".")
    asked = Sweep()
    case = asked.case(module, name, seed)
    asked.close()
    return f"{HEAD}{case.text}\n# {case.kind}: {case.words}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(draw.MODULES)}; default: all")
    parser.add_argument("--seeds", type=int, default=20, help="questions for each name")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--least", type=float, default=0.0, help="the share that has to agree")
    parser.add_argument("--list", action="store_true", help="list what differs")
    parser.add_argument("--show", nargs=2, metavar=("NAME", "SEED"), help="one program")
    options = parser.parse_args()
    if options.show:
        print(show(options.show[0], int(options.show[1])))
        return 0
    if not Oracle("mxnet").python:
        print("skipped: D2LMINI_MXNET_PYTHON names no interpreter")
        return 0
    seeds = range(options.first, options.first + options.seeds)
    cases = sweep(options.modules or list(draw.MODULES), seeds, options.list)
    return int(any(share(found) < options.least for found in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
