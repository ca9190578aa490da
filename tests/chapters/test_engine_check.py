"""`labs.engine_check`: the library's engine passes; one that breaks a promise is told which."""

from __future__ import annotations

import ast
import queue
import threading
from typing import Any

import pytest
from chapter_cells import code_of
from invariants import check_invariants
from labs.engine_check import check_engine
from labs.grading import CheckFailed

from d2lmini import engine


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_threaded_engine_keeps_its_promises(workers):
    with engine.use("threaded", workers=workers, inline_below=0):
        said = check_engine(engine, errors=True)
        assert engine.stats().pending == 0
        check_invariants()
    assert said.endswith("5 random programs as in program order; errors travel")


class NoRules:
    """Any worker takes any task."""

    new_var = object

    def __init__(self, workers: int):
        self.jobs: queue.Queue[Any] = queue.Queue()
        for _ in range(workers):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            self.jobs.get()()
            self.jobs.task_done()

    def push(self, fn, reads=(), writes=()):
        self.jobs.put(fn)

    def waitall(self):
        self.jobs.join()


@pytest.mark.parametrize(
    ("broken", "hint"),
    [(NoRules(1), "lock"), (NoRules(2), "room")],
    ids=["one worker", "two workers"],
)
def test_engines_without_rules(broken, hint):
    with pytest.raises(CheckFailed) as caught:
        check_engine(broken, patience_s=1)
    assert caught.value.hint == hint
    assert len(str(caught.value)) > 30


#: Hint -> what is changed in the engine of the chapter.
BROKEN = {
    "room": ("free = not var.holders if writes else", "free = writes or"),
    "needs": ("True not in var.holders.values()", "True"),
    "jumps": ("if var.queue or not grant", "if not grant"),
    "one by one": ("while var.queue and grant", "if var.queue and grant"),
    "readers": ("free = not var.holders if writes else True not in var.holders.values()",
                "free = not var.holders"),
    "early": ("self.lock.wait_for(lambda: self.pending == 0)", "pass"),
    "lost": ("raise var.error", "pass"),
    "skips": ("if not error:", "if True:"),
    "worker": ("except Exception as problem", "except KeyError as problem"),
}  # fmt: skip


def chapters_engine(old: str = "", new: str = "") -> Any:
    """The engine of the chapter, with a part of its text replaced by another."""
    first, *others = code_of("inside-the-engine")
    statements = [(cell, part) for cell in others for part in ast.parse(cell).body]
    parts = [
        ast.get_source_segment(cell, part) or ""
        for cell, part in statements
        if isinstance(part, (ast.FunctionDef, ast.ClassDef))
    ]
    source = "\n\n".join([first, *parts, "made = Engine()"])
    assert old in source
    place: dict[str, Any] = {}
    exec(source.replace(old, new), place)
    return place["made"]


def test_the_engine_of_the_chapter_passes():
    check_engine(chapters_engine(), errors=True)


@pytest.mark.parametrize("hint", BROKEN)
def test_an_engine_with_one_mistake_is_told_which(hint):
    with pytest.raises(CheckFailed) as caught:
        check_engine(chapters_engine(*BROKEN[hint]), errors=True, patience_s=1)
    assert caught.value.hint == hint
