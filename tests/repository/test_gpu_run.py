"""`make test-gpu` as far as it goes without a GPU: what is timed, on the fake, and what it says."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

from gpu import workloads

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "gpu" / "run.py"

# The second half of the command pretends that CuPy finds no GPU, wherever it runs.
NO_GPU = """
import runpy, sys
sys.modules["cupy"] = None
sys.argv = [{script!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_what_is_timed_runs():
    done = subprocess.run([sys.executable, SCRIPT, "--fake"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    work = [row[0] for row in rows if row[2] == "- |"]
    assert work == [f"| {title}" for title in workloads.ROWS.values()]


def test_the_example_of_a_table():
    assert doctest.testmod(workloads) == (0, 1)


def test_the_table_of_the_card_has_the_rows_of_today():
    """Work that is measured again can be laid beside it; rows that it lacks came later."""
    page = (ROOT / "tests/benchmarks/results/h100.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (.+) \| [\d.,]+ us \| (?:[\d.,]+ us|-) \|$", page, re.M)
    assert set(shown) == {*workloads.ROWS.values()}


def test_without_a_gpu_it_says_what_is_missing():
    command = [sys.executable, "-c", NO_GPU.format(script=str(SCRIPT))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no GPU to test on: CuPy is not installed" in done.stdout
