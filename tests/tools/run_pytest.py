"""Run a pytest of its own on tests that are a text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, tests: str, *options: str) -> str:
    """The output of a pytest of its own on these tests, under our configuration."""
    (tmp_path / "test_made_up.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-rA"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), *options]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = {**os.environ, "PYTHONPATH": paths, "D2LMINI_EXIT_DEADLINE_S": "0.5"}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90
    )
    return done.stdout + done.stderr
