"""Where the microseconds of one small operation go: `y = x + 1` on 2x2, line by line.

An operation on a tiny array takes the short road (`apply_small`). To price its lines, the function
is compiled again and again, each time with a `return` put before the next line that a real call
executes; all versions are timed in turns, and what a version takes more than the one before it is
the price of the line between them. What a line makes is freed at the return, so making and freeing
are priced together.

    python tests/benchmarks/anatomy.py

Beside the lines stand two figures timed in the same turns: the way from the operator to the short
road, and the whole, `y = x + 1` in a loop. Operator and lines must add up to the whole.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import statistics
import sys
import textwrap
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from d2lmini import nd, storage
from d2lmini.ndarray import apply as road
from d2lmini.ops.core import registry


def executed_lines(function: Callable, *arguments: Any) -> list[int]:
    """The lines of `function` that a call executes, counted from its `def`, each once, in order."""
    lines: dict[int, None] = {}
    code = function.__code__

    def tracer(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line":
            lines.setdefault(frame.f_lineno - code.co_firstlineno + 1)
        return tracer

    outer = sys.gettrace()
    sys.settrace(tracer)
    try:
        function(*arguments)
    finally:
        sys.settrace(outer)
    return list(lines)


class Cut(ast.NodeTransformer):
    """Puts `return None` before the statement that starts at a line."""

    def __init__(self, line: int):
        self.line = line
        self.done = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                at = [i for i, each in enumerate(block) if each.lineno == self.line]
                if at and not self.done:
                    block.insert(at[0], ast.Return(ast.Constant(None)))
                    self.done = True
        return super().generic_visit(node)


def cut_before(function: Callable, line: int) -> Callable | None:
    """`function`, returning None where `line` would begin; None if no statement starts there."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    cut = Cut(line)
    tree = ast.fix_missing_locations(cut.visit(tree))
    names = dict(function.__globals__)
    exec(compile(tree, "<cut>", "exec"), names)
    return names[function.__name__] if cut.done else None


def in_turns(programs: list[tuple[str, dict[str, Any]]], loops: int, rounds: int) -> list[float]:
    """Nanoseconds of each statement: the lowest tenth of its short turns.

    Interruptions only ever add, hence not the median. Before each turn the memory's books are
    brought up to date: a version that ends before the line that does so leaves that work undone.
    """
    timers = [
        timeit.Timer(statement, storage.stats, globals=names) for statement, names in programs
    ]
    times: list[list[float]] = [[] for _ in timers]
    for _ in range(rounds):
        for timer, found in zip(timers, times, strict=True):
            found.append(timer.timeit(loops) / loops * 1e9)
    return [statistics.quantiles(found, n=10)[0] for found in times]


def account(loops: int = 320, rounds: int = 200) -> tuple[list[tuple[str, float]], float, float]:
    """(what, nanoseconds) for the operator and each line, then the whole, then NumPy's share."""
    x = nd.ones((2, 2))
    x.wait_to_read()
    short = road.apply_small
    call = registry["_plus_scalar"], (x,), {"scalar": 1}
    source = textwrap.dedent(inspect.getsource(short)).splitlines()
    lines = [n for n in executed_lines(short, *call) if cut_before(short, n)]
    versions = [cut_before(short, n) for n in lines] + [short]

    ready = short(*call)
    assert ready is not None, "y = x + 1 did not take the short road"
    array, number = x.asnumpy(), road.fit[road.np][x._spec.dtype][1]
    programs: list[tuple[str, dict[str, Any]]] = [
        ("f(op, inputs, attrs)", dict(zip(("op", "inputs", "attrs"), call), f=version))
        for version in versions
    ]
    programs += [
        ("y = x + 1", {"x": x}),
        ("add(a, b)", {"add": road.np.add, "a": array, "b": number}),
    ]
    programs += [("pass", {})]

    # The way to the short road: the same statement with the short road replaced by its result.
    way = "road.apply_small = shortcut; y = x + 1; road.apply_small = short"
    names = {"road": road, "x": x, "short": short, "shortcut": lambda op, inputs, attrs: ready}
    bare = "road.apply_small = shortcut; road.apply_small = short"
    programs += [(way, names), (bare, names)]

    *cuts, whole, kernel, loop, way_ns, bare_ns = in_turns(programs, loops, rounds)
    rows = [("the operator, down to the short road", way_ns - bare_ns)]
    for line, before, after in zip(lines, cuts, cuts[1:]):
        rows.append((source[line - 1].strip(), after - before))
    return rows, whole - loop, kernel - loop


def table(rows: list[tuple[str, float]], whole: float, kernel: float) -> str:
    """The account as text, nanoseconds."""
    total = sum(ns for _, ns in rows)
    width = max(len(what) for what, _ in rows)
    lines = [f"{what:<{width}}  {ns:7.0f} ns" for what, ns in rows]
    lines += [
        "-" * (width + 12),
        f"{'sum of the lines':<{width}}  {total:7.0f} ns",
        f"{'y = x + 1, measured as a whole':<{width}}  {whole:7.0f} ns",
        f"{'not accounted for':<{width}}  {whole - total:7.0f} ns ({1 - total / whole:+.1%})",
        f"{'for comparison, the NumPy call alone':<{width}}  {kernel:7.0f} ns",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=320, help="runs of a statement per turn")
    parser.add_argument("--rounds", type=int, default=200, help="turns of each statement")
    options = parser.parse_args()
    print(table(*account(options.loops, options.rounds)))


if __name__ == "__main__":
    main()
