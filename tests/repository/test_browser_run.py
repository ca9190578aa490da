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


def test_what_has_passed_is_not_asked_again_and_what_has_changed_is(monkeypatch, tmp_path):
    """The script as a module, on a tree of its own, where all tests pass."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("browser_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    commands = []

    def passes(command, cwd):
        commands.append(Path(command[4]).name)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PASSED", tmp_path / "passed.txt")
    monkeypatch.setattr(module, "obtain", lambda: "a browser")
    monkeypatch.setattr(module.subprocess, "run", passes)
    module.main(["-k", "watch"])  # a part of the tests settles nothing
    assert commands == ["browser"] and not module.PASSED.exists()
    changes = {
        "d2lmini/widgets/watch.js": (b"a", "browser"),
        "chapters/00.ipynb": (b"a\nb\n", "browser"),
        "d2lmini/engine/core.py": (b"not shown", module.ONE_TEST),
        "chapters/../chapters/00.ipynb": (b"a\r\nb\r\n", module.ONE_TEST),  # Git on Windows
    }
    for name, (content, tests) in changes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
        assert module.main(["--if-possible"]) == 0
        assert commands[-1] == tests, name
    module.main(["--if-possible", "-k", "watch"])  # a part that is asked for runs
    assert commands[-1] == "browser"


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
    assert repr(named) in problem and "NO BROWSER" in loud and "NOT RUN" in loud
