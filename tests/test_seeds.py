"""The programs of the texts this project was founded on, run as they stand.

They are read from the folder `../shared/seeds` beside a checkout (the tests are skipped where it
is not there); only the import of MXNet is replaced. Compared is what the texts say of the output:
its shape, and that queueing is quick while finishing takes the time of the product.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the founding texts are not here")


def blocks(number: str) -> list[str]:
    """The code blocks of a text, in order."""
    (path,) = SEEDS.glob(f"{number}_*.txt")
    text = path.read_text(encoding="utf-8")
    return re.findall(r"```[^\n]*python[^\n]*\n(.*?)```", text, flags=re.DOTALL)


def adapted(program: str) -> str:
    """The same program with MXNet's imports made ours."""
    program = program.replace("import mxnet.ndarray as nd", "from d2lmini import nd")
    return program.replace("from mxnet import autograd, gluon, nd", "from d2lmini import nd")


def printed(program: str, names: dict | None = None) -> str:
    """What a program prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(adapted(program), "seed", "exec"), {} if names is None else names)
    return out.getvalue()


def test_first_text_queues_then_finishes():
    (program,) = [b for b in blocks("000") if "start using numpy=" in b]
    assert "mxnet" in program and "mxnet" not in adapted(program).replace("start using mxnet", "")
    text = printed(program)
    ours, theirs = text.split("===============start using numpy")
    matrix = r"\n\[\[\s*\d{3}\.\d+.*\.\.\..*\]\]\n<NDArray 2000x2000 @cpu\(0\)>\n"
    assert re.search(matrix, ours, flags=re.DOTALL)
    queued, finished = map(float, re.findall(r"(?:queued|finished):\t([\d.]+) sec", ours))
    assert queued < 0.5 * finished
    queued, finished = map(float, re.findall(r"(?:queued|finished):\t([\d.]+) sec", theirs))
    assert queued > 0.5 * finished  # NumPy had done the work when it said "queued"


def test_first_text_waits():
    (program,) = [b for b in blocks("000") if b.startswith("import time\nimport mxnet")]
    assert "wait_to_read()" in program and "nd.waitall()" in program
    one, two = map(float, printed(program).split())
    assert one > 0 and two > one * 0.5


def test_second_text_from_the_stopwatch_to_the_loops():
    """Its programs in order, sharing names as a notebook's cells do, up to those that train."""
    names: dict = {}
    output: list[str] = []
    count = 0
    for program in blocks("001"):
        if "def data_iter" in program:
            break
        if program.startswith("from mxnet"):
            program = program.replace("from mxnet.gluon import loss as gloss, nn\n", "")
        if "for _ in range(1000)" in program:
            assert program.count("range(1000)") == 2
        output.append(printed(program, names))
        count += 1
    assert count == 9
    queue = output[3]
    assert re.match(r"Workloads are queued. time: 0\.\d{4} sec\n", queue)
    assert re.search(r"sum = \n\[\d\.?\d*e\+09\]\n<NDArray 1 @cpu\(0\)>\n", queue)
    queued, finished = map(float, re.findall(r"time: ([\d.]+) sec", queue))
    assert queued < finished
    for text in output[4:8]:
        assert re.fullmatch(r"time: \d+\.\d{4} sec\n", text)
    loops = output[8]
    assert re.fullmatch(r"synchronous. time: [\d.]+ sec\nasynchronous. time: [\d.]+ sec\n", loops)
    assert (names["y"] == names["x"] + 1).asnumpy().all()
