"""`make test-browser` as far as it goes without a browser: what it says where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "browser" / "run.py"


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
