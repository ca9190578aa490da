"""Programs in the manner of the book's second edition run as they are: on the CPU, on two virtual
GPUs, in this process and as a command. They print what MXNet 1.9.1 prints.

Beside each program of `data/second_edition` stands what the real MXNet printed, with the helpers of
`d2l.mxnet` over it (`tools/peer_d2l.py`); where one is at hand, that record is made anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import peer_d2l
import pytest
from oracle import Oracle
from test_old_programs import assert_same_text

from d2lmini import cpu, engine, npx, virtual_gpus
from d2lmini.compat.mxnet_alias import install_as_mxnet, uninstall
from d2lmini.d2l import mxnet as d2l

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "data" / "second_edition"
NAMES = [
    "async_computation", "auto_parallelism", "hybridize", "multiple_gpus", "multiple_gpus_concise",
]  # fmt: skip
#: How far numbers may be apart. Batch normalization enlarges differences of the last digit.
TOLERANCES = {"multiple_gpus_concise": 5e-3}


def run(folder: Path, *command: object, **environment: str) -> str:
    """What a command prints; it runs in a folder of its own."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_as_command(name: str, folder: Path, **environment: str) -> str:
    command = sys.executable, "-W", "error", "-m", "d2lmini", "run", FOLDER / f"{name}.py"
    return run(folder, *command, **environment)


@pytest.fixture
def as_mxnet(tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    install_as_mxnet()
    yield
    engine.waitall()
    npx.reset_np()
    uninstall()


def run_here(name: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return out.getvalue()


def record(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def lines_of(text: str) -> str:
    """What does not depend on the machine: without times and devices."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not re.search(r" sec\b|/sec |^devices:", line))


def assert_same(name: str, text: str, expected: str) -> None:
    """The same words, and nearly the same numbers."""
    rel = TOLERANCES.get(name, 1e-3)
    assert_same_text(lines_of(text), lines_of(expected), rel, 1e-5)


def losses_of(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^epoch \d+, loss ([\d.]+)", text, re.M)]


@pytest.mark.parametrize("name", NAMES)
def test_as_a_command(name, tmp_path):
    assert_same(name, run_as_command(name, tmp_path), record(name))


@pytest.mark.parametrize("name", NAMES)
def test_on_two_virtual_gpus(name, as_mxnet, monkeypatch):
    """The results are those of one device; of a net that normalizes each device's part of a batch,
    those of two contexts of the CPU."""
    with virtual_gpus(2):
        on_gpus = run_here(name)
    if name == "multiple_gpus_concise":
        monkeypatch.setattr(d2l, "try_all_gpus", lambda: [cpu(0), cpu(1)])
        expected = run_here(name)
        assert losses_of(expected) != losses_of(record(name))
    else:
        expected = record(name)
    assert_same(name, on_gpus, expected)
    assert "devices: 2" in on_gpus or "devices:" not in on_gpus


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_what_mxnet_prints(name, tmp_path, mxnet: Oracle):
    command = mxnet.python, "-W", "ignore", peer_d2l.__file__, FOLDER / f"{name}.py"
    assert_same(name, record(name), run(tmp_path, *command))


def test_the_comparison_leaves_out_what_the_machine_decides():
    with pytest.raises(AssertionError):
        assert_same("hybridize", "x: 1 sec\na 1.0", "a 1.1")
    assert_same("hybridize", "fast: 1.0 sec\ndevices: 2\nloss 1.00001", "loss 1.0")
