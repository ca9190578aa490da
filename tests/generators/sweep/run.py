"""Ask the real MXNet and d2lmini the same drawn questions and print how often they agree.

    python tests/generators/sweep/run.py                         # 20 questions for each name
    python tests/generators/sweep/run.py nd gluon --seeds 50     # some modules, more questions
    python tests/generators/sweep/run.py --list                  # and what differs, listed or not

Of each module the table has two shares. `strict` counts every call; `rest` leaves those calls out
whose difference is in `tools/listed_differences.py`. D2LMINI_MXNET_PYTHON names the interpreter
with MXNet 1.9.1. The exit status is 1 if the share `rest` of a module is less than `--least`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "tools")]

import listed_differences  # noqa: E402
import migration_table  # noqa: E402
import mxnet_names  # noqa: E402
from oracle import Oracle, OracleDied, OracleError  # noqa: E402

from generators.sweep import calls, draw, execute  # noqa: E402
from generators.sweep.compare import difference  # noqa: E402


class Case(NamedTuple):
    """One question and its outcome."""

    name: str  # "nd.topk"
    seed: int
    text: str
    kind: str  # "agrees", a kind of difference, or "MXNet died"
    words: str
    listed: listed_differences.Listed | None = None  # why the difference is wanted


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
        return Case(path, seed, text, *found, listed_differences.find_row(path, text, *found))

    def close(self) -> None:
        self.theirs.close()
        self.ours.close()


def names_of(module: str) -> list[str]:
    """The names of a module that are drawn: those that d2lmini has."""
    names = mxnet_names.stored()[module]
    found = migration_table.look_up(module, names)
    left_out = set(found.left_out)
    if module == "sym":
        left_out |= {name for name in names if name not in mxnet_names.stored()["nd"]}
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
    columns = ["calls", "errors", "agree", "listed", "differ", "strict", "rest"]
    print(f"{'module':14} " + " ".join(f"{column:>7}" for column in columns))
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
    """Of one module: calls, how many of them both libraries refuse, and the shares that agree."""
    counted = count(found)
    agree = sum(case.kind == "agrees" for case in counted)
    errors = sum(case.kind == "agrees" and bool(case.words) for case in counted)
    listed = sum(case.listed is not None for case in counted)
    numbers = [len(counted), errors, agree, listed, len(counted) - agree - listed]
    lost = len(found) - len(counted)
    return (
        f"{module:14} {' '.join(f'{number:7}' for number in numbers)} "
        f"{agree / (len(counted) or 1):7.1%} {share(found):7.1%}"
        + (f"  ({lost} lost)" if lost else "")
    )


def count(cases: list[Case]) -> list[Case]:
    """The questions that MXNet answers."""
    return [case for case in cases if case.kind not in ("MXNet died", "no question")]


def share(cases: list[Case]) -> float:
    """Of the questions whose answer is not listed, how many agree."""
    counted = [case for case in count(cases) if case.listed is None]
    return sum(case.kind == "agrees" for case in counted) / (len(counted) or 1)


def differences(cases: list[Case]) -> str:
    """What differs, by name and kind, and then by listed difference, most frequent first."""
    groups = defaultdict(list)
    for case in count(cases):
        if case.kind != "agrees":
            groups[case.listed is not None, case.listed or (case.name, case.kind)].append(case)
    lines = []
    for (is_listed, _), group in sorted(groups.items(), key=lambda g: (g[0][0], -len(g[1]))):
        first = group[0]
        title = f"listed: {first.listed.reason}" if is_listed else f"{first.name}: {first.kind}"
        lines.append(f"{len(group):4} {title}; {[f'{c.name} {c.seed}' for c in group][:6]}")
        lines.append(f"       {first.words.strip()[-300:]!r}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(draw.MODULES)}; default: all")
    parser.add_argument("--seeds", type=int, default=20, help="questions for each name")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--least", type=float, default=0.0, help="the share that has to agree")
    parser.add_argument("--list", action="store_true", help="list what differs")
    options = parser.parse_args()
    if not Oracle("mxnet").python:
        print("skipped: D2LMINI_MXNET_PYTHON names no interpreter")
        return 0
    seeds = range(options.first, options.first + options.seeds)
    cases = sweep(options.modules or list(draw.MODULES), seeds, options.list)
    if len(cases) > 1:
        print(row("all", [case for found in cases.values() for case in found]))
    return int(any(share(found) < options.least for found in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
