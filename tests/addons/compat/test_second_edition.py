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
from test_old_programs import NUMBER

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


def lines_of(text: str) -> list[str]:
    """The lines that do not depend on the machine: without times and devices."""
    return [line for line in text.splitlines() if not re.search(r" sec\b|/sec |^devices:", line)]


def assert_same(name: str, text: str, expected: str) -> None:
    """The same words, and nearly the same numbers."""
    rel = TOLERANCES.get(name, 1e-3)
    for ours, theirs in zip(lines_of(text), lines_of(expected), strict=True):
        words = [re.sub(r"\s", "", re.sub(NUMBER, "#", line)) for line in (ours, theirs)]
        assert words[0] == words[1], f"{ours}\n{theirs}"
        numbers = [[float(n) for n in re.findall(NUMBER, line)] for line in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=rel, abs=1e-5), f"{ours}\n{theirs}"


def losses_of(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^epoch \d+, loss ([\d.]+)", text, re.M)]


def test_there_are_programs():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == NAMES
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_as_a_command(name, tmp_path):
    assert_same(name, run_as_command(name, tmp_path), record(name))


@pytest.mark.parametrize("name", NAMES)
def test_in_this_process(name, as_mxnet):
    assert_same(name, run_here(name), record(name))


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


@pytest.mark.parametrize("name", ["auto_parallelism", "multiple_gpus"])
def test_as_a_command_on_two_virtual_gpus(name, tmp_path):
    text = run_as_command(name, tmp_path, D2LMINI_VIRTUAL_GPUS="2")
    assert "devices: 2" in text
    assert_same(name, text, record(name))


@pytest.mark.parametrize("name", ["multiple_gpus", "multiple_gpus_concise"])
def test_losses_fall(name):
    losses = losses_of(record(name))
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.8 * losses[0]


def test_compiled_and_imperative_agree():
    text = record("hybridize")
    assert "the same result: True" in text
    values = re.findall(r"^(?:first call|hybridized|and again): (.*)", text, re.M)
    assert len(values) == 3 and len({*values}) == 1


def test_the_times_are_printed_by_the_helpers(as_mxnet):
    text = run_here("async_computation")
    assert len(re.findall(r"^[a-z_ .,]+: \d+\.\d{4} sec$", text, re.M)) == 10


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_what_mxnet_prints(name, tmp_path, mxnet: Oracle):
    command = mxnet.python, "-W", "ignore", peer_d2l.__file__, FOLDER / f"{name}.py"
    assert_same(name, record(name), run(tmp_path, *command))


@pytest.mark.parametrize(
    ("text", "expected"), [("a 1.0", "a 1.1"), ("a", "b"), ("a", "a\nb"), ("x: 1 sec\na", "b")]
)
def test_the_comparison_sees_what_differs(text, expected):
    with pytest.raises((AssertionError, ValueError)):
        assert_same("hybridize", text, expected)
    assert_same("hybridize", "fast: 1.0 sec\ndevices: 2\nloss 1.00001", "loss 1.0")
