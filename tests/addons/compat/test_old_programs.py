"""Programs as people wrote them for MXNet 1.x, run as they are, print what MXNet 1.9.1 printed.

`data/old_programs/*.py` are written in the manner of the book that the chapters follow; beside each
stands what the real MXNet printed. Where one is at hand, that record is made anew and
compared. Words must be the same, numbers nearly so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from oracle import Oracle

PROGRAMS = sorted((Path(__file__).parents[2] / "data" / "old_programs").glob("*.py"))
NUMBER = r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w)"


def printed(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same_text(text: str, record: str, rel: float = 1e-4, abs: float = 1e-6) -> None:
    """The same words; numbers to a part in ten thousand. Spaces, which depend on digits, do not
    count."""
    for ours, theirs in zip(text.splitlines(), record.splitlines(), strict=True):
        words = [re.sub(r"\s", "", re.sub(NUMBER, "#", line)) for line in (ours, theirs)]
        assert words[0] == words[1], f"{ours}\n{theirs}"
        numbers = [[float(n) for n in re.findall(NUMBER, line)] for line in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=rel, abs=abs), f"{ours}\n{theirs}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_old_program_prints_what_it_printed(program: Path):
    ours = printed(sys.executable, "-W", "error", "-m", "d2lmini", "run", program)
    assert_same_text(ours, program.with_suffix(".txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_record_is_what_mxnet_prints(program: Path, mxnet: Oracle):
    theirs = printed(mxnet.python, "-W", "ignore", program)
    assert_same_text(program.with_suffix(".txt").read_text(encoding="utf-8"), theirs)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("a 1.0 b", "a 1.0002 b"),
        ("a 1 b", "a 1 c"),
        ("a", "a\nb"),
        ("x -2", "x 2"),
        ("[1 2]", "[1]"),
    ],
)
def test_the_comparison_sees_what_differs(text, record):
    with pytest.raises((AssertionError, ValueError)):
        assert_same_text(text, record)
    assert_same_text("dense0 [ 1.00001 2]\n", "dense0 [1. 2]\n")
