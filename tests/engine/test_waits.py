"""The ledger of waits and the lint of hidden ones: all are named by line, and no others."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_waits import HIDDEN, run, write, write_all

import d2lmini
from d2lmini import MXNetError, autograd, engine, gpu, nd, profile, virtual_gpus
from d2lmini.base import callsite
from d2lmini.profiler.lint import HiddenWait

# Fixed when generator and lint were done; not one of them was seen before.
SEEDS = range(61_000, 61_040)


def line_of(found: Any) -> int:
    return callsite.line_of(found.site)


@pytest.mark.parametrize("seed", SEEDS)
def test_planted_waits_are_all_named_and_no_others(seed: int, tmp_path: Path):
    program = write(seed)
    path = tmp_path / "planted.py"
    with warnings.catch_warnings(record=True) as caught, d2lmini.lint_waits("warn") as lint:
        warnings.simplefilter("always")
        with profile() as trace:
            run(program.text, path)
    assert not [each for each in caught if "instrument" in str(each.message)], "one was dropped"
    ours = [each for each in caught if "hidden wait" in str(each.message)]
    assert {each.lineno for each in ours} == set(program.planted), program.text
    assert {each.filename for each in ours} <= {str(path)}
    assert {line_of(each) for each in lint.found} == set(program.planted)
    assert {line_of(row) for row in trace.waits().hidden} == set(program.planted)
    assert len(ours) == len(lint.found), "a line in a loop is warned of once"


def test_each_way_to_wait_is_named_alone(tmp_path: Path):
    program = write_all()
    with warnings.catch_warnings(), d2lmini.lint_waits("warn") as lint, profile() as trace:
        warnings.simplefilter("ignore")
        run(program.text, tmp_path / "planted.py")
    assert {line_of(each) for each in lint.found} == set(program.planted)
    assert {line_of(row) for row in trace.waits().hidden} == set(program.planted)


def test_the_seeds_plant_every_kind_often():
    planted = [kind for seed in SEEDS for kind in write(seed).planted.values()]
    assert len(HIDDEN) >= 12
    assert all(planted.count(kind) >= 15 for kind in HIDDEN)


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_raise_stops_at_the_first_and_leaves_the_engine_usable(seed: int, tmp_path: Path):
    program = write(seed)
    with d2lmini.lint_waits("raise"), pytest.raises(HiddenWait) as caught:
        run(program.text, tmp_path / "planted.py")
    lines = [each.lineno for each in caught.traceback if str(each.path).endswith("planted.py")]
    assert lines[-1] + 1 in program.planted
    nd.waitall()
    assert (nd.ones(3) + 1).asnumpy().tolist() == [2, 2, 2]
    assert not engine.current.gates and engine.stats().pending == 0


def test_the_message_says_what_waited_for_what_and_what_to_do_instead():
    with d2lmini.lint_waits("raise"):
        x = nd.ones((3, 3))
        m = nd.dot(x, x).mean()  # issued here
        with pytest.raises(HiddenWait) as caught:
            float(m)  # waits here
    text = str(caught.value)
    assert text.startswith("hidden wait (float): ") and "float(m)  # waits here waits for" in text
    assert "mean, issued at" in text and "# issued here. Instead: calculate with the array" in text
    assert isinstance(caught.value, MXNetError)


def test_what_is_raised_instead_of_a_wait_loses_nothing():
    with d2lmini.lint_waits("raise"):
        x = nd.ones((2,))
        for ask in (bool, str, float):
            with pytest.raises(HiddenWait):
                ask(x[0])
        with pytest.raises(HiddenWait):
            5 in x  # noqa: B015
    assert x.asnumpy().tolist() == [1, 1]
    with virtual_gpus(1), d2lmini.lint_waits("raise"):
        y = nd.ones((2,), ctx=gpu(0)) * 3
        with pytest.raises(HiddenWait):
            print(y)
        assert y.asnumpy().tolist() == [3, 3]


def test_scopes_nest_and_off_is_off():
    x = nd.ones((1,))
    with d2lmini.lint_waits("raise"):
        with d2lmini.lint_waits("off"):
            assert x
        with pytest.raises(HiddenWait):
            bool(x)
    assert x
    lint = d2lmini.lint_waits("raise")
    with pytest.raises(HiddenWait):
        float(x)
    d2lmini.lint_waits("off")
    assert float(x) == 1 and len(lint.found) == 1
    from d2lmini import instrument

    assert instrument.listeners == () and instrument.before_wait is None


def test_bad_arguments():
    with pytest.raises(ValueError, match="mode is 'shout', need one of warn, raise, off"):
        d2lmini.lint_waits("shout")


def test_a_warning_made_an_error_is_raised_at_the_line():
    x = nd.ones((1,))
    with d2lmini.lint_waits("warn"), pytest.raises(UserWarning, match="hidden wait"):
        bool(x)  # warnings are errors in the tests
    assert x.asscalar() == 1


def test_lines_of_the_standard_library_and_numpy_are_passed_over():
    x = nd.ones((4,))
    log = logging.Logger("of its own")  # pytest's handlers have lines of their own
    log.addHandler(logging.StreamHandler(io.StringIO()))
    with warnings.catch_warnings(record=True) as caught, d2lmini.lint_waits() as lint:
        warnings.simplefilter("always")
        log.warning("x is %s", x)
        np.median(x)
    assert {each.filename for each in caught} == {__file__}
    assert [each.kind for each in lint.found] == ["print", "__array__"]
    assert "x is %s" in lint.found[0].where and "np.median" in lint.found[1].where


def test_other_threads_are_seen():
    x = nd.ones((2,))
    with warnings.catch_warnings(), d2lmini.lint_waits() as lint:
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=lambda: str(x))  # here
        thread.start()
        thread.join()
    assert "# here" in lint.found[0].where


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (lambda x: threading.Thread(target=str, args=(x,)), "print"),  # here
        (lambda x: threading.Timer(0, float, [x.sum()]), "float"),  # here
    ],
)
def test_a_thread_without_a_line_of_the_program_has_the_line_that_started_it(start, kind):
    x = nd.ones((2,))
    failed: list[Any] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        with d2lmini.lint_waits("raise") as lint, profile() as trace:
            thread = start(x)
            thread.start()  # the start
            thread.join()
        assert [each.kind for each in lint.found] == [kind]
        assert "thread.start()  # the start" in lint.found[0].where
        assert failed[0].exc_type is HiddenWait
        failed.clear()
    finally:
        threading.excepthook = before
    assert len(trace.waits) == 0, "the wait was refused"
    assert threading.Thread.start.__module__ == "threading", "as before when nothing listens"


def test_text_that_exec_runs_and_a_dataclass(tmp_path: Path):
    x = nd.ones((2,))
    with warnings.catch_warnings(), d2lmini.lint_waits() as lint:
        warnings.simplefilter("ignore")
        exec("y = x * 2\nz = float(y.sum())", {"x": x})
        _Pair(x[0]) == _Pair(x[1])  # noqa: B015  compared here
    assert [each.kind for each in lint.found] == ["float", "bool"]
    assert lint.found[0].where == "<string>:2"
    assert "compared here" in lint.found[1].where or sys.version_info < (3, 11)


@dataclass
class _Pair:
    value: Any


SHOWS_LINES = """\
import warnings
import d2lmini
from d2lmini import nd
warnings.simplefilter("ignore")
with d2lmini.lint_waits() as lint:
    x = nd.ones((2,))
    str(x * 2)
print(lint.found[0].where)
"""


def test_a_program_on_the_command_line_and_one_that_is_an_installed_package(tmp_path: Path):
    package = tmp_path / "site-packages" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "run.py").write_text(SHOWS_LINES)
    user = tmp_path / "user.py"
    user.write_text("import trainer.run  # the user's\n")

    def said(*command: str) -> str:
        path = os.pathsep.join([str(package.parent), *filter(None, sys.path)])
        return subprocess.run(
            [sys.executable, *command], check=True, text=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
        ).stdout.strip()  # fmt: skip

    assert said("-c", SHOWS_LINES).startswith("<string>:7")
    assert said("-m", "trainer.run").endswith("run.py:7: str(x * 2)")
    assert said("user.py") == "user.py:1: import trainer.run  # the user's"


def test_a_function_of_the_users_that_backward_calls():
    class Peek(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, g):
            float(g.sum())  # in backward
            return g * 2

    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = Peek()(x)
    with d2lmini.lint_waits("raise"), pytest.raises(HiddenWait, match="# in backward"):
        y.backward()


# -- the ledger ------------------------------------------------------------------------------------


def test_every_wait_is_in_the_ledger():
    with profile() as trace:
        x = nd.ones((50, 50))
        for _ in range(4):
            x = nd.dot(x, x) / 50
            x.wait_to_read()
        s = x.sum().asscalar()
        nd.waitall()
    ledger = trace.waits()
    found = {row.kind: (row.times, row.hidden) for row in ledger}
    assert found == {"wait_to_read": (4, False), "asscalar": (1, False), "waitall": (1, False)}
    assert ledger.times == len(trace.waits) == 6
    assert ledger.seconds == pytest.approx(sum(wait.seconds for wait in trace.waits))
    assert [row.seconds for row in ledger] == sorted((r.seconds for r in ledger), reverse=True)
    by_kind = {row.kind: row for row in ledger}
    assert by_kind["wait_to_read"].awaited.name == "_div_scalar"
    assert "x = nd.dot(x, x) / 50" in by_kind["wait_to_read"].awaited.where
    assert by_kind["asscalar"].awaited.name == "sum" and s == 2500
    assert "x.wait_to_read()" in by_kind["wait_to_read"].where


def test_what_was_held_and_what_could_have_run_meanwhile():
    release = threading.Event()
    a, b, c = (engine.new_var() for _ in range(3))
    with profile() as trace:
        engine.push(release.wait, writes=[a], name="slow")
        threading.Timer(0.05, release.set).start()
        engine.wait_for_var(a)
        engine.push(int, reads=[a], writes=[b], name="needs it")
        engine.push(int, writes=[c], name="does not")
        engine.push(int, reads=[b], name="needs what was held")
        engine.wait_for_var(b)
        engine.push(int, name="later")
    row = next(row for row in trace.waits() if row.awaited and row.awaited.name == "slow")
    assert row.seconds > 0.02 and len(row.waits) == 1
    assert row.held == 3 and row.held_first.name == "needs it"
    assert row.idle == 1, "'needs it' could not have run meanwhile: it needs what the wait was for"


def test_waits_for_everything_and_for_room_name_what_ended():
    with engine.use("threaded", workers=1, limit=1_000_000), profile() as trace:
        x = nd.ones((300, 300))
        ys = [nd.dot(x, x) for _ in range(8)]
        nd.waitall()
    rows = {row.kind: row for row in trace.waits()}
    assert rows["backpressure"].awaited.name == rows["waitall"].awaited.name == "dot"
    assert not rows["backpressure"].hidden and len(ys) == 8
    assert rows["backpressure"].held >= rows["backpressure"].times


def test_the_table():
    with profile() as trace:
        x = nd.ones((2, 2))
        if x.sum() > 3:
            x = x + 1
    lines = str(trace.waits()).splitlines()
    assert lines[0].split()[:3] == ["seconds", "times", "wait"]
    assert "bool *" in lines[1] and "if x.sum() > 3:" in lines[1] and "_greater_scalar" in lines[1]
    assert "1: _plus_scalar" in lines[1]
    assert lines[2].endswith("of the time") and " ms in 1 wait, " in lines[2]
    assert lines[3].startswith("* hidden")
    with profile() as trace:
        nd.ones((2,))
    assert str(trace.waits()) == "no wait" and list(trace.waits) == []
