"""The exercises of the chapter Inside the engine: the folded solutions pass the check that the
chapter gives for them, and typical wrong answers each get a hint of their own.

The engine is the reader's: the cells of the chapter that define it are run here as they stand.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from d2lmini import d2l
from d2lmini.cli.assign import find_exercises
from d2lmini.d2l.check import Wrong

CHAPTER = Path(__file__).parents[2] / "chapters" / "07-inside-the-engine.ipynb"
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
    exec(next(source for source, kind in CELLS if kind == "code"), place)
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


def names_of_the_check() -> dict[str, Any]:
    """The names of the chapter, with those by which it checks an engine."""
    (source,) = [source for source, _ in CELLS if "def ask(" in source]
    return engine_with(source.partition("\n\nwith engine.use")[0])


def test_ask_raises_for_a_wrong_engine_and_prints_for_a_right_one(capsys):
    place = names_of_the_check()
    place["ask"]("ours", place["Engine"]())
    assert capsys.readouterr().out.startswith("ours: every task runs once")
    with pytest.raises(Wrong, match="a writer began while a reader was running"):
        place["ask"]("without queues", place["NoQueues"]())
    assert capsys.readouterr().out == ""
    assert place["broken_promise"](place["NoQueues"]()).startswith("NO (room) a writer began")


@pytest.mark.parametrize(("engine", "status"), [("Engine", 0), ("NoQueues", 1)])
def test_a_wrong_answer_in_a_notebook_ends_a_run_with_1(tmp_path, engine, status):
    """`d2lmini run`, as docs/grading.md says."""
    place = names_of_the_check()
    cells = [source for source, kind in CELLS if kind == "code"][:1]
    cells += [ast.unparse(definitions()[name]) for name in PARTS if name != "execute"]
    cells += [ast.unparse(definitions()["execute"])]
    (check,) = [source for source, _ in CELLS if "def ask(" in source]
    cells += [check.partition("\n\nwith engine.use")[0], f'ask("mine", {engine}())']
    assert engine in place
    path = tmp_path / "exercise.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)
    command = [sys.executable, "-m", "d2lmini", "run", str(path)]
    job = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert job.returncode == status, job.stdout + job.stderr


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
    "one by one": """
def leave(var, task):
    var.readers.discard(task)
    if var.writer is task:
        var.writer = None
    if var.queue and grant(var, *var.queue[0]):
        return [var.queue.popleft()[0]]
    return []
""",
    "overtakes": """
def leave(var, task):
    var.readers.discard(task)
    if var.writer is task:
        var.writer = None
    granted = []
    while var.queue:
        first = next((pair for pair in var.queue if pair[1]), var.queue[0])
        if not grant(var, *first):
            break
        var.queue.remove(first)
        granted.append(first[0])
    return granted
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


def test_the_newest_first_is_a_jump():
    newest_first = """
def claim(var, task, writes):
    if not var.queue and grant(var, task, writes):
        return True
    var.queue.appendleft((task, writes))
    return False
"""
    assert hint_of(engine_with(newest_first)["Engine"](), errors=True) == "jumps"


RIGHT_LINES = {
    "a list of those let in": """
def leave(var, task):
    var.readers, var.writer = var.readers - {task}, None if var.writer is task else var.writer
    count = 0
    while count < len(var.queue) and grant(var, *var.queue[count]):
        count += 1
    return [var.queue.popleft()[0] for _ in range(count)]
""",
    "one holder list": """
def holders(var):
    return var.readers | ({var.writer} - {None})

def grant(var, task, writes):
    if writes and holders(var) or var.writer:
        return False
    if writes:
        var.writer = task
    else:
        var.readers |= {task}
    return True
""",
    "a generator": """
def leave(var, task):
    var.readers -= {task}
    if var.writer is task:
        var.writer = None
    while var.queue and grant(var, *var.queue[0]):
        yield var.queue.popleft()[0]
""",
    "recursion": """
def leave(var, task=None):
    var.readers.discard(task)
    if task is not None and var.writer is task:
        var.writer = None
    if not var.queue or not grant(var, *var.queue[0]):
        return []
    return [var.queue.popleft()[0], *leave(var)]
""",
    "readers first, then at most a writer": """
def leave(var, task):
    var.readers.discard(task)
    if var.writer is task:
        var.writer = None
    granted = []
    while var.queue and not var.queue[0][1] and grant(var, *var.queue[0]):
        granted.append(var.queue.popleft()[0])
    if not granted and var.queue and grant(var, *var.queue[0]):
        granted.append(var.queue.popleft()[0])
    return granted
""",
}


@pytest.mark.parametrize("name", list(RIGHT_LINES))
def test_an_unusual_right_rule_passes(name):
    d2l.check_engine(engine_with(RIGHT_LINES[name])["Engine"](), errors=True, patience_s=5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "source",
    [
        "def leave(var, task):\n    return lets_go(var)",
        "def claim(var, task, writes):\n    return granted",
        "def execute(task):\n    task.fnc()",
    ],
)
def test_an_error_in_an_answer_is_raised_as_it_is(source):
    with pytest.raises((NameError, AttributeError), match=r"lets_go|granted|fnc"):
        d2l.check_engine(engine_with(source)["Engine"](), patience_s=1)


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


def check_bounded(source: str, most: int = 0) -> None:
    """The chapter's check of the answer `bounded` in `source`; `most` 0: it draws a bound."""
    place = names_of_the_check()
    exec(source, place)
    (check,) = [source for source, _ in CELLS if source.startswith("def check_bounded(")]
    exec(check, place)
    if most:
        place["random"] = SimpleNamespace(randint=lambda *_: most, randrange=random.randrange)
    place["check_bounded"](place["bounded"])


def test_the_bound(capsys):
    for _ in range(3):
        check_bounded(solutions()[1])
    said = capsys.readouterr().out.splitlines()
    assert all(re.match(r"bounded: at most (\d+) tasks pending; ", line) for line in said)


def test_the_assignment_has_the_exercise():
    (exercise,) = find_exercises(json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"])
    assert (exercise.number, exercise.check, exercise.answer) == (8, "check_bounded", "bounded")


RIGHT_BOUNDS = {
    "a semaphore": """
def bounded(engine, most):
    slots, push = threading.Semaphore(most), engine.push
    def limited(fn, reads=(), writes=()):
        slots.acquire()
        def run():
            try:
                fn()
            finally:
                slots.release()
        push(run, reads, writes)
    engine.push = limited
    return engine
""",
    "a queue of slots": """
def bounded(engine, most):
    slots, push = queue.Queue(most), engine.push
    def limited(fn, reads=(), writes=()):
        slots.put(None)
        push(lambda: (fn(), slots.get()), reads=reads, writes=writes)
    engine.push = limited
    return engine
""",
    "one lock over both": """
def bounded(engine, most):
    push = engine.push
    def limited(fn, reads=(), writes=()):
        with engine.lock:
            while not engine.pending < most:
                engine.lock.wait()
            push(fn, reads, writes)
    engine.push = limited
    return engine
""",
    "a class": """
def bounded(engine, most):
    class Bounded(type(engine)):
        def push(self, *args, **kwargs):
            with self.lock:
                self.lock.wait_for(lambda: self.pending <= most - 1)
            return super().push(*args, **kwargs)
    engine.__class__ = Bounded
    return engine
""",
    "looking again and again": """
def bounded(engine, most):
    push = engine.push
    def limited(fn, reads=(), writes=()):
        while engine.pending >= most:
            time.sleep(1e-4)
        push(fn, reads, writes)
    engine.push = limited
    return engine
""",
}


@pytest.mark.parametrize("name", list(RIGHT_BOUNDS))
def test_an_unusual_right_bound_passes(name):
    check_bounded(RIGHT_BOUNDS[name])


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


def test_a_bound_that_returns_nothing_is_no_engine():
    nothing = "def bounded(engine, most):\n    engine.most = most"
    with pytest.raises(Wrong) as caught:
        check_bounded(nothing)
    assert caught.value.hint == "engine"


@pytest.mark.parametrize("hint", list(WRONG_BOUNDS))
def test_a_wrong_bound_is_told_from_the_others(hint):
    with pytest.raises(Wrong) as caught:
        check_bounded(WRONG_BOUNDS[hint])
    assert caught.value.hint == hint and len(str(caught.value)) > 30


@pytest.mark.parametrize(("most", "hint"), [(7, "off by one"), (5, "unbounded"), (12, "timid")])
def test_an_answer_that_knows_one_bound_by_heart_is_wrong(most, hint):
    with pytest.raises(Wrong) as caught:
        check_bounded(solutions()[1].replace("< most", "< 8"), most)
    assert caught.value.hint == hint


def test_an_error_in_the_answer_is_raised_as_it_is():
    with pytest.raises(NameError, match="mist"):
        check_bounded(solutions()[1].replace("< most", "< mist"))
