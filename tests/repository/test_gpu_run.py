"""`make test-gpu` as far as it goes without a GPU: its measurements on the fake, what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "gpu" / "run.py"

# The second half of the command pretends that CuPy finds no GPU, wherever it runs.
NO_GPU = """
import runpy, sys
sys.modules["cupy"] = None
sys.argv = [{script!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_the_measurements_run():
    done = subprocess.run([sys.executable, SCRIPT, "--fake"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines()]
    units = {"us", "GB/s", "%", "TFLOP/s", "ms"}
    assert len(rows) == 28 and {unit.strip() for *_, unit in rows} == units
    assert all(float(figure) > 0 for _, figure, unit in rows if unit.strip() != "%")


def test_without_a_gpu_it_says_what_is_missing():
    command = [sys.executable, "-c", NO_GPU.format(script=str(SCRIPT))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no GPU to test on: CuPy is not installed" in done.stdout
