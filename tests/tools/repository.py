"""The repository as tests see it: its root, pyproject.toml, the files under version control."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


ROOT = Path(__file__).parents[2]


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked_files() -> list[Path]:
    """The files under version control."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def requirements(lines) -> dict[str, str]:
    """Package name -> everything after the name: "numpy>=2.0,<3" -> {"numpy": ">=2.0,<3"}."""
    return {re.match(r"[\w.-]+", line)[0].lower(): re.sub(r"^[\w.-]+", "", line) for line in lines}
