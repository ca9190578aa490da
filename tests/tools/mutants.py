"""Which faults do the tests notice? Faults are drawn and put into the library one at a time.

    python tests/tools/mutants.py map DIR             # once: which test executes which line
    python tests/tools/mutants.py run DIR --minutes 20 [--seed 19] [--count 200]
    python tests/tools/mutants.py show DIR [OTHER_DIR]

A mutant is one small change of the code: a comparison turned, a number changed, a condition
negated, a statement left out, two arguments exchanged, None returned, + for -. The tests that
execute its line are run, the quick ones first, until one fails (killed) or none is left (survived).
`run` writes DIR/mutants.json after each, and goes on where it was cut off. The draw depends on the
seed and the tree, so two trees are compared by their shares in each folder.

Everything happens in DIR/tree, a copy of the checkout. `map` takes the test files that it is given,
default the tour and all of the mutated folders' tests, and those that it has mapped before it
leaves; tests that fail under its tracer are not used.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("engine", "autograd", "graph", "gluon", "kvstore")
#: The tests of one mutant, the quick ones first: a number, for seconds differ with the machine.
MOST = 40


class Mutant(NamedTuple):
    """A change of `file` from byte `begin` to `end`; `name` does not depend on line numbers."""

    file: str
    line: int
    name: str
    begin: int
    end: int
    text: str


# -- drawing ---------------------------------------------------------------------------------------

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.LShift: ast.RShift,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """(kind, node to be replaced, what replaces it) of one node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        turned = COMPARISONS[type(node.ops[0])]()
        new = ast.Compare(node.left, [turned, *node.ops[1:]], node.comparators)
        yield "comparison", node, new
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and, or", node, ast.BoolOp(other, node.values)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool, float):
        new_value = not node.value if type(node.value) is bool else node.value + 1
        yield "constant", node, ast.Constant(new_value)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        swapped = ARITHMETIC[type(node.op)]()
        if isinstance(node, ast.BinOp):
            yield "arithmetic", node, ast.BinOp(node.left, swapped, node.right)
        else:
            yield "arithmetic", node, ast.AugAssign(node.target, swapped, node.value)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield "negated", node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Call) and len(node.args) > 1 and not node.keywords:
        first, second, *rest = node.args
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            yield "arguments", node, ast.Call(node.func, [second, first, *rest], [])
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield "returned", node.value, ast.Constant(None)
    if isinstance(node, (ast.Assign, ast.AugAssign)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "left out", node, ast.Pass()


def mutants(file: Path, root: Path) -> list[Mutant]:
    """All mutants of the code in functions: not of assertions, messages, annotations, reprs."""
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    path = file.relative_to(root).as_posix()
    found: list[Mutant] = []

    def walk(node: ast.AST, home: str, inside: bool) -> None:
        if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr)):
            return
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node.name in ("__repr__", "__str__"):
                return
            home = f"{home}.{node.name}".lstrip(".")
            inside = inside or isinstance(node, ast.FunctionDef)
            for child in node.body:
                walk(child, home, inside)
            return
        if inside:
            for kind, old, new in changes(node):
                begin = starts[old.lineno - 1] + old.col_offset
                end = starts[old.end_lineno - 1] + old.end_col_offset
                before, after = ast.unparse(old), ast.unparse(ast.fix_missing_locations(new))
                after = after if isinstance(new, ast.stmt) else f"({after})"
                name = f"{path} {home}: {kind}: {' '.join(before.split())[:80]} -> {after[:80]}"
                found.append(Mutant(path, old.lineno, name, begin, end, after))
        for field, child in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                for each in child if isinstance(child, list) else [child]:
                    if isinstance(each, ast.AST):
                        walk(each, home, inside)

    walk(ast.parse(source), "", False)
    return found


def drawn(tree: Path, seed: int, count: int) -> list[Mutant]:
    """As many of each folder, in turns, so that whatever is run of them is a fair choice."""
    rng = random.Random(seed)
    piles = []
    for folder in FOLDERS:
        files = sorted((tree / "d2lmini" / folder).rglob("*.py"))
        pile = list({m.name: m for file in files for m in mutants(file, tree)}.values())
        piles.append(rng.sample(pile, min(len(pile), -(-count // len(FOLDERS)))))
    return [pile[i] for i in range(max(map(len, piles))) for pile in piles if i < len(pile)]


# -- running ---------------------------------------------------------------------------------------


def copy(folder: Path) -> Path:
    """The checkout, copied and compiled."""
    tree = folder / "tree"
    if not tree.exists():
        leave = shutil.ignore_patterns("__pycache__", ".git", ".venv", "build", ".*_cache")
        shutil.copytree(ROOT, tree, ignore=leave, symlinks=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", "d2lmini", "tests"], cwd=tree)
    return tree


def pytest(tree: Path, words: list[str], before: list[str], limit_s: float) -> int | None:
    """The exit status of a run of tests in the copy; None if it took longer."""
    quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--no-header", "--tb=no", "-n0"]
    command = [sys.executable, "-m", *before, "pytest", *quiet, *words]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=tree, env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return None


def make_map(folder: Path, stems: list[str]) -> None:
    """Write DIR/map.json: the seconds of each test that passes, and the tests of each line."""
    import coverage

    tree = copy(folder)
    tests = tree / "tests"
    files = [str(path) for stem in stems for path in sorted(tests.rglob(f"{stem}.py"))]
    files = files or [
        str(path)
        for folder in (*FOLDERS, ".")
        for path in sorted((tests / folder).glob("test_*.py"))
    ]
    seconds: dict[str, float] = {}
    lines: dict[str, dict[str, list[str]]] = {}
    if (folder / "map.json").exists():
        before_this = json.loads((folder / "map.json").read_text())
        seconds = before_this["seconds"]
        lines |= before_this["lines"]
    for file in files:
        name = Path(file).relative_to(tree).as_posix()
        if any(test.startswith(f"{name}::") for test in seconds):
            continue  # it was mapped before
        data, report = folder / "coverage", folder / "report.xml"
        settings = folder / "coveragerc"
        sources = "".join(f"\n    {tree}/d2lmini/{each}" for each in FOLDERS)
        settings.write_text(
            f"[run]\ndata_file={data}\ndynamic_context=test_function\nsource={sources}\n"
        )
        before = ["coverage", "run", f"--rcfile={settings}", "-m"]
        words = [file, f"--junitxml={report}", "--timeout", "100"]
        began = time.monotonic()
        pytest(tree, words, before, 900)
        failed, took = set(), Counter()
        for case in ElementTree.parse(report).iter("testcase"):
            test = case.attrib["name"].partition("[")[0]
            took[test] += float(case.attrib["time"])
            if case.find("failure") is not None or case.find("error") is not None:
                failed.add(test)
        seconds |= {f"{name}::{t}": s for t, s in took.items() if t not in failed}
        found = coverage.CoverageData(str(data))
        found.read()
        for measured in found.measured_files():
            by_line = lines.setdefault(Path(measured).relative_to(tree).as_posix(), {})
            for line, contexts in found.contexts_by_lineno(measured).items():
                tests = {f"{name}::{c.rpartition('.')[2]}" for c in contexts if c}
                by_line[str(line)] = [*by_line.get(str(line), ()), *sorted(tests & seconds.keys())]
        print(f"{name:36} {len(took):4} tests, {len(failed)} not used, "
              f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        (folder / "map.json").write_text(json.dumps({"seconds": seconds, "lines": lines}))


def chosen(mapped: dict[str, Any], mutant: Mutant) -> list[str]:
    """The tests that execute its line, or one shortly before it, the quick ones first."""
    by_line = mapped["lines"].get(mutant.file, {})
    near = (mutant.line, mutant.line - 1, mutant.line - 2)
    tests = next((by_line[str(line)] for line in near if by_line.get(str(line))), [])
    return sorted(set(tests), key=lambda test: mapped["seconds"][test])[:MOST]


def judge(tree: Path, mutant: Mutant, tests: list[str], expected_s: float) -> str:
    """killed, timeout (a kill as well), survived, or not reached by any test."""
    if not tests:
        return "not reached"
    file = tree / mutant.file
    source = file.read_bytes()
    for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        cached.unlink()
    try:
        file.write_bytes(source[: mutant.begin] + mutant.text.encode() + source[mutant.end :])
        limit_s = 60 + 6 * expected_s
        status = pytest(tree, ["-x", "--timeout", "40", *tests], [], limit_s)
    finally:
        file.write_bytes(source)
    return {None: "timeout", 0: "survived"}.get(status, "killed")


def run(folder: Path, seed: int, count: int, minutes: float) -> None:
    tree = copy(folder)
    mapped = json.loads((folder / "map.json").read_text())
    store = folder / "mutants.json"
    done: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    end = time.monotonic() + 60 * minutes
    for mutant in drawn(tree, seed, count):
        if time.monotonic() > end:
            break
        if done.get(mutant.name, {"verdict": "not reached"})["verdict"] != "not reached":
            continue
        tests = chosen(mapped, mutant)
        verdict = judge(tree, mutant, tests, sum(mapped["seconds"][t] for t in tests))
        done[mutant.name] = {
            "folder": mutant.file.split("/")[1], "line": mutant.line, "verdict": verdict,
            "tests": len(tests),
        }  # fmt: skip
        print(f"{verdict:11} {mutant.name}", flush=True)
        store.write_text(json.dumps(done, indent=1))
    show(folder)


def show(*folders: Path) -> None:
    """How many of each folder were killed."""
    for folder in folders:
        done = json.loads((folder / "mutants.json").read_text()).values()
        print(folder)
        for name in (*FOLDERS, "all"):
            verdicts = Counter(m["verdict"] for m in done if name in ("all", m["folder"]))
            total, killed = verdicts.total(), verdicts["killed"] + verdicts["timeout"]
            share = f"{100 * killed / total:.0f} %" if total else "-"
            print(f"  {name:10} {killed:4} of {total:4} killed ({share})  {dict(verdicts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("map")
    sub.add_argument("folder", type=Path)
    sub.add_argument("--tests", nargs="*", default=[], help="stems of files, as test_tour")
    sub = commands.add_parser("run")
    sub.add_argument("folder", type=Path)
    sub.add_argument("--seed", type=int, default=19)
    sub.add_argument("--count", type=int, default=200)
    sub.add_argument("--minutes", type=float, default=20)
    sub = commands.add_parser("show")
    sub.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "map":
        options.folder.mkdir(parents=True, exist_ok=True)
        make_map(options.folder.resolve(), options.tests)
    elif options.command == "run":
        run(options.folder.resolve(), options.seed, options.count, options.minutes)
    else:
        show(*options.folders)


if __name__ == "__main__":
    main()
