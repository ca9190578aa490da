"""The exercises of chapters/inside-the-engine.ipynb: the folded solutions pass the check that the
chapter gives for them, and typical wrong answers each get a hint of their own.

The engine is the reader's: the cells of the chapter that define it are run here as they stand.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from d2lmini import d2l
from d2lmini.d2l.check import Wrong

CHAPTER = Path(__file__).parents[2] / "chapters" / "inside-the-engine.ipynb"
CELLS = [
    ("".join(cell["source"]), cell["cell_type"])
    for cell in json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
]
PARTS = "Var grant claim leave Task enter finish execute Workers Engine".split()


def definitions() -> dict[str, ast.stmt]:
    """The last definition of each part of the reader's engine."""
    found: dict[str, ast.stmt] = {}
    for source, kind in CELLS:
        if kind == "code":
            for node in ast.parse(source).body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in PARTS:
                    found[node.name] = node
    return found


def engine_with(changed: str = "") -> dict[str, Any]:
    """The names of the chapter, with what `changed` defines anew."""
    place: dict[str, Any] = {}
    exec(CELLS[1][0], place)
    for name in PARTS:
        exec(ast.unparse(definitions()[name]), place)
    exec(changed, place)
    return place


def solutions() -> list[str]:
    text = "\n\n".join(source for source, kind in CELLS if kind == "markdown")
    build = text.split("### Build")[1]
    return re.findall(r"```python\n(.*?)```", build, re.S)


def hint_of(engine: Any, **options: Any) -> str:
    with pytest.raises(Wrong) as caught:
        d2l.check_engine(engine, patience_s=2, **options)
    assert len(str(caught.value)) > 30
    return caught.value.hint


def test_the_engine_is_as_short_as_the_chapter_says():
    def lines(node: ast.AST) -> int:
        """Without docstrings, comments and blank lines."""
        for each in ast.walk(node):
            if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(each):
                each.body = each.body[1:]
        return len([line for line in ast.unparse(node).splitlines() if line.strip()])

    found = definitions()
    count = sum(lines(found[name]) for name in PARTS if name != "execute")
    assert 60 <= count <= 75, count
    assert count + lines(found["execute"]) <= 88


def test_the_engine_keeps_its_promises():
    d2l.check_engine(engine_with()["Engine"](), errors=True)


def test_there_are_two_exercises_to_build_with_an_answer():
    assert len(solutions()) == 2


# -- the rule of the lines, by heart ---------------------------------------------------------------


def test_the_lines_by_heart():
    d2l.check_engine(engine_with(solutions()[0])["Engine"](), errors=True, patience_s=5)


WRONG_LINES = {
    "room": """
def grant(var, task, writes):
    if var.writer:
        return False
    if writes:
        var.writer = task
    else:
        var.readers.add(task)
    return True
""",
    "needs": """
def grant(var, task, writes):
    if writes and (var.writer or var.readers):
        return False
    if writes:
        var.writer = task
    else:
        var.readers.add(task)
    return True
""",
    "jumps": """
def claim(var, task, writes):
    if grant(var, task, writes):
        return True
    var.queue.append((task, writes))
    return False
""",
    "readers": """
def grant(var, task, writes):
    if var.writer:
        return False
    var.writer = task
    return True
""",
    "hangs": """
def leave(var, task):
    var.readers.discard(task)
    if var.writer is task:
        var.writer = None
    return []
""",
    "itself": """
class Pairs(list):
    def items(self):
        return list(self)

class Task:
    def __init__(self, fn, reads, writes):
        self.fn, self.reads = fn, reads
        self.touches = Pairs([(var, False) for var in reads] + [(var, True) for var in writes])

def finish(task):
    ready = []
    for var, _ in task.touches:
        for other in leave(var, task):
            other.waits -= 1
            if other.waits == 0:
                ready.append(other)
    return ready
""",
}


@pytest.mark.parametrize("hint", list(WRONG_LINES))
def test_a_wrong_rule_is_told_from_the_others(hint):
    assert hint_of(engine_with(WRONG_LINES[hint])["Engine"](), errors=True) == hint


# -- the workers and the waits ---------------------------------------------------------------------

WRONG_WORKERS = {
    "lock": """
class Engine(Engine):
    def work(self):
        while True:
            task = self.ready.get()
            with self.lock:
                execute(task)
                for other in finish(task):
                    self.ready.put(other)
                self.pending -= 1
                self.lock.notify_all()
""",
    "hangs": """
class Engine(Engine):
    def work(self):
        while True:
            task = self.ready.get()
            execute(task)
            with self.lock:
                for other in finish(task):
                    self.ready.put(other)
                self.pending -= 1
""",
    "early": """
class Engine(Engine):
    def waitall(self):
        with self.lock:
            self.lock.wait_for(self.ready.empty)
""",
    "waits": """
class Engine(Engine):
    def push(self, fn, reads=(), writes=()):
        super().push(fn, reads, writes)
        self.waitall()
""",
    "twice": """
def execute(task):
    task.fn()
    task.fn()
""",
    "worker": """
def execute(task):
    task.fn()
""",
    "lost": """
def execute(task):
    try:
        task.fn()
    except Exception:
        pass
""",
    "skips": """
def execute(task):
    error = None
    try:
        task.fn()
    except Exception as problem:
        error = problem
    for var, writes in task.touches.items():
        if writes:
            var.error = error
""",
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("hint", list(WRONG_WORKERS))
def test_a_wrong_worker_or_wait_is_told_from_the_others(hint):
    assert hint_of(engine_with(WRONG_WORKERS[hint])["Engine"](), errors=True) == hint


# -- a bound ---------------------------------------------------------------------------------------


def bounded_by(source: str) -> Any:
    place = engine_with(source)
    return place["bounded"](place["Engine"](), 8)


def test_the_bound():
    said = d2l.check_engine(bounded_by(solutions()[1]), most=8, patience_s=5)
    assert said.startswith("at most 8 tasks pending; ")


WRONG_BOUNDS = {
    "unbounded": """
def bounded(engine, most):
    return engine
""",
    "off by one": """
def bounded(engine, most):
    push = engine.push
    def wait_then_push(fn, reads=(), writes=()):
        with engine.lock:
            engine.lock.wait_for(lambda: engine.pending <= most)
        push(fn, reads, writes)
    engine.push = wait_then_push
    return engine
""",
    "timid": """
def bounded(engine, most):
    push = engine.push
    def wait_then_push(fn, reads=(), writes=()):
        with engine.lock:
            engine.lock.wait_for(lambda: engine.pending < most // 2)
        push(fn, reads, writes)
    engine.push = wait_then_push
    return engine
""",
    "stuck": """
def bounded(engine, most):
    push = engine.push
    def wait_then_push(fn, reads=(), writes=()):
        end = time.monotonic() + 10  # not for ever: this thread outlives the test
        with engine.lock:
            while engine.pending >= most and time.monotonic() < end:
                time.sleep(0.001)
        push(fn, reads, writes)
    engine.push = wait_then_push
    return engine
""",
    "dropped": """
def bounded(engine, most):
    push = engine.push
    def wait_then_push(fn, reads=(), writes=()):
        if engine.pending < most:
            push(fn, reads, writes)
    engine.push = wait_then_push
    return engine
""",
}


@pytest.mark.parametrize("hint", list(WRONG_BOUNDS))
def test_a_wrong_bound_is_told_from_the_others(hint):
    assert hint_of(bounded_by(WRONG_BOUNDS[hint]), most=8) == hint
