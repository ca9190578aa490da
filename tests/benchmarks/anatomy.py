"""Where the microseconds of one small operation go: `y = x + 1` on 2x2, line by line.

Such an operation takes the fast path: from the operator's method to `dispatch.apply`. A real
call is watched to see which functions it passes and which of their lines it executes. To price
these lines, each function is compiled again and again, each time with a `return` put before the
next line. One version after another takes the function's place, `x + 1` is timed with each, all in
turns; what it takes longer than with the version before is the price of the line between them.

    python tests/benchmarks/anatomy.py

So the prices leave nothing out: they add up to the whole, which is timed once more in the same
turns as a check. What a line makes is freed at the return: making and freeing are priced together.
"""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import statistics
import sys
import textwrap
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

from d2lmini import nd, storage
from d2lmini.ndarray import dispatch


@dataclass
class Stage:
    """A function that a call passes.

    lines: those it executed, counted from its `def`, each once, in order; calls: the one that
    called the next stage, 0 in the last stage.
    """

    function: FunctionType
    lines: list[int] = field(default_factory=list)
    calls: int = 0

    @property
    def source(self) -> list[str]:
        return textwrap.dedent(inspect.getsource(self.function)).splitlines()

    def cut_before(self, line: int) -> CodeType | None:
        """The function's code, returning where `line` would begin; None if no statement starts
        there."""
        tree = ast.parse("\n".join(self.source))
        cut = Cut(line)
        cut.visit(tree)
        if not cut.done:
            return None
        # Variables of an enclosing function become arguments of one made for the purpose.
        # (compile() takes over this file's `annotations` import: the copy's are not evaluated.)
        code = self.function.__code__
        maker = ast.parse(f"def maker({', '.join(code.co_freevars)}): pass").body[0]
        assert isinstance(maker, ast.FunctionDef)
        maker.body = [*tree.body, ast.Return(ast.Name(code.co_name, ast.Load()))]
        names: dict[str, Any] = {}
        module = ast.fix_missing_locations(ast.Module([maker], []))
        exec(compile(module, "<cut>", "exec"), names)
        made = names["maker"](*code.co_freevars).__code__
        assert made.co_freevars == code.co_freevars
        return made


class Cut(ast.NodeTransformer):
    """Puts `return True` before the statement that starts at a line; drops decorators, defaults."""

    def __init__(self, line: int):
        self.line = line
        self.done = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            node.args.defaults = []
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and not self.done:
                at = [i for i, each in enumerate(block) if each.lineno == self.line]
                if at:
                    block.insert(at[0], ast.Return(ast.Constant(True)))
                    self.done = True
        return super().generic_visit(node)


def watch(call: Callable[[], Any], last: FunctionType) -> list[Stage]:
    """The functions that `call()` passes on its way to `last`; empty if it does not go there."""
    stages: dict[FrameType, Stage] = {}
    way: list[FrameType] = []

    def line_of(frame: FrameType) -> int:
        return frame.f_lineno - frame.f_code.co_firstlineno + 1

    def tracer(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            stages[frame] = Stage(function_of(frame))
            if stages[frame].function is last and not way:
                each: FrameType | None = frame
                while each in stages:
                    way.insert(0, each)
                    if each is not frame:
                        stages[each].calls = line_of(each)
                    each = each.f_back
        elif event == "line" and line_of(frame) not in stages[frame].lines:
            stages[frame].lines.append(line_of(frame))
        return tracer

    outer = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(outer)
    return [stages[frame] for frame in way[1:]]  # the first is `call` itself


def function_of(frame: FrameType) -> FunctionType:
    """The function whose call this is: of those with its code, the one with its free variables."""
    for referrer in gc.get_referrers(frame.f_code):
        if isinstance(referrer, FunctionType):
            free = dict(zip(frame.f_code.co_freevars, referrer.__closure__ or ()))
            if all(frame.f_locals[name] is cell.cell_contents for name, cell in free.items()):
                return referrer
    raise LookupError(f"no function has the code of {frame.f_code.co_name}")


@dataclass
class Program:
    """A statement to time, while `function` has `code` in place of its own."""

    statement: str
    names: dict[str, Any]
    function: FunctionType | None = None
    code: CodeType | None = None

    def seconds(self, loops: int) -> float:
        timer = timeit.Timer(self.statement, storage.stats, globals=self.names)
        if self.function is None or self.code is None:
            return timer.timeit(loops)
        own, self.function.__code__ = self.function.__code__, self.code
        try:
            return timer.timeit(loops)
        finally:
            self.function.__code__ = own


def in_turns(programs: list[Program], loops: int, rounds: int) -> list[float]:
    """Nanoseconds of each statement: the lowest tenth of its short turns.

    Interruptions only ever add, hence not the median. Before each turn `storage.stats` brings the
    books up to date: a version that ends before the line that does so leaves that work undone.
    """
    times: list[list[float]] = [[] for _ in programs]
    for _ in range(rounds):
        for program, found in zip(programs, times, strict=True):
            found.append(program.seconds(loops) / loops * 1e9)
    return [statistics.quantiles(found, n=10)[0] for found in times]


def account(loops: int = 640, rounds: int = 120) -> tuple[list[tuple[str, float]], float, float]:
    """(what, nanoseconds) for each call and line, then the whole, then NumPy's call alone."""
    x = nd.ones((2, 2))
    x.wait_to_read()
    stages = watch(lambda: x + 1, dispatch.apply)
    assert stages, "y = x + 1 did not take the fast path"
    programs, labels = [], []

    def price(stage: Stage, depth: int, label: str) -> None:
        """Cut before each line of a stage; where it calls the next one, that one's lines follow."""
        for line in stage.lines:
            code = stage.cut_before(line)
            if code is not None:
                programs.append(Program("x + 1", {"x": x}, stage.function, code))
                labels.append(label)
                label = "  " * depth + stage.source[line - 1].strip()
            if line == stage.calls:
                price(stages[depth], depth + 1, label)
                return
        labels.append(label)

    price(stages[0], 1, "x + 1: to the first line of the operator's method")
    programs += [
        Program("x + 1", {"x": x}),
        Program("y = x + 1", {"x": x}),
        Program("pass", {}),
        Program("f(a, b)", {"f": np.add, "a": x.asnumpy(), "b": np.array(1, np.float32)}),
    ]
    *versions, whole, loop, kernel = in_turns(programs, loops, rounds)
    prices = [after - before for before, after in zip([loop, *versions], versions)]
    return list(zip(labels, prices)), whole - loop, kernel - loop


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
    parser.add_argument("--loops", type=int, default=640, help="runs of a statement per turn")
    parser.add_argument("--rounds", type=int, default=120, help="turns of each statement")
    options = parser.parse_args()
    print(table(*account(options.loops, options.rounds)))


if __name__ == "__main__":
    main()
