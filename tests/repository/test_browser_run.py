"""`make test-browser` as far as it goes without a browser: what it says where there is none, and
which tests it would run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "browser" / "run.py"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The script as a module, on a tree of its own with a widget and a chapter; tests pass."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("browser_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("d2lmini/widgets/watch.js", "chapters/00.ipynb", "d2lmini/engine/core.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"a\nb\n")
    commands = []

    def passes(command, cwd):
        commands.append(Path(command[4]).name)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PASSED", tmp_path / "passed.txt")
    monkeypatch.setattr(module, "obtain", lambda: "a browser")
    monkeypatch.setattr(module.subprocess, "run", passes)
    module.commands = commands
    return module


def test_what_has_passed_is_not_asked_again(run, tmp_path):
    assert run.main(["--if-possible"]) == 0  # writes passed.txt
    assert run.main(["--if-possible"]) == 0
    (tmp_path / "d2lmini/engine/core.py").write_bytes(b"changed")
    (tmp_path / "chapters/00.ipynb").write_bytes(b"a\r\nb\r\n")  # as Git writes it on Windows
    assert run.main(["--if-possible"]) == 0
    assert run.commands == ["browser", run.ONE_TEST, run.ONE_TEST]


@pytest.mark.parametrize("name", ["d2lmini/widgets/watch.js", "chapters/01.ipynb"])
def test_what_has_changed_is_asked_for(run, tmp_path, name):
    run.main([])
    (tmp_path / name).write_bytes(b"changed")
    run.main(["--if-possible"])
    run.main([])
    assert run.commands == ["browser"] * 3


def test_a_part_of_the_tests_settles_nothing(run):
    run.main(["-k", "watch"])
    assert not run.PASSED.exists()


def test_a_part_that_is_asked_for_runs_though_all_has_passed(run):
    run.main([])
    run.main(["--if-possible", "-k", "watch"])
    assert run.commands == ["browser"] * 2


@pytest.mark.parametrize(("options", "code"), [([], 1), (["--if-possible"], 0)])
def test_without_a_browser_it_says_so_loudly(tmp_path, options, code):
    named = str(tmp_path / "no-such-browser")
    done = subprocess.run(
        [sys.executable, SCRIPT, *options],
        capture_output=True,
        text=True,
        env={**os.environ, "D2LMINI_BROWSER": named},
    )
    assert done.returncode == code, done.stderr
    problem, loud = done.stdout.splitlines()
    assert repr(named) in problem
    assert (
        loud.startswith("NO BROWSER: THE TESTS OF THE WIDGETS IN JUPYTERLAB") and "NOT RUN" in loud
    )
