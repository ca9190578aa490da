"""The transitions of `core`, one after the other and without an engine: who is granted what."""

from __future__ import annotations

import pytest

from d2lmini.engine import core
from d2lmini.engine.core import Task, Var
from d2lmini.engine.failure import Failure


class Vars(dict[str, Var]):
    """Vars by name, made when they are first asked for."""

    def __missing__(self, name: str) -> Var:
        self[name] = Var()
        return self[name]

    def task(self, name: str, reads: str = "", writes: str = "") -> Task:
        """A task that reads and writes these Vars, prepared."""
        tuples = (tuple(self[v] for v in names) for names in (reads, writes))
        task = Task(name, *tuples)
        task.prepare()
        return task


def busy(kind: str) -> Var:
    """A Var that is held, or has a queue, or an error."""
    variables = Vars()
    if kind == "error":
        variables["a"].error = Failure("f", None, ValueError())
    elif kind != "idle":
        holder = variables.task("h", *(("a", "") if kind == "read" else ("", "a")))
        core.claim(holder)
        if kind == "queued":  # nothing holds it now
            core.claim(variables.task("q", "", "a"))
            variables["a"].writer = None
    return variables["a"]


@pytest.mark.parametrize("kind", ["idle", "read", "written", "queued", "error"])
def test_what_may_pass_without_queueing(kind):
    for reads, writes, passes in [
        ("a", "", kind in ("idle", "read")), ("", "a", kind == "idle"),
        ("ba", "c", kind in ("idle", "read")), ("b", "ca", kind == "idle"),
    ]:  # fmt: skip
        variables = Vars(a=busy(kind))
        before = variables["a"].version
        assert core.passes_through(variables.task("t", reads, writes)) is passes
        assert variables["a"].version == before + (passes and "a" in writes)
        assert (variables["c"].version == 1) is (passes and "c" in writes)


def test_mend_finishes_what_was_interrupted():
    variables = Vars()
    a, b = variables["a"], variables["b"]
    holder, both, reader = (
        variables.task(*row) for row in [("h", "", "a"), ("both", "b", "a"), ("r", "a")]
    )
    for task in (holder, both, reader):
        core.claim(task)
    assert both.waits == 1
    both.waits = 7  # the counts are made anew
    assert set(core.mend([a, b])) == {holder} and both.waits == 1
    a.writer = both  # granted, and not yet taken from the queue
    assert set(core.mend([a, b])) == {both} and [t for t, _ in a.queue] == [reader]
    a.writer = None  # released, and not yet passed on
    b.readers.clear()
    assert core.mend([a, b]) == [reader] or reader in a.readers
    core.forget(a)
    assert a.idle and not core.holds(reader, a) and core.mend([a]) == []
