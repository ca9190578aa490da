"""The programs of the texts this project was founded on run unchanged, by `install_as_mxnet`.

They are read from the folder `../shared/seeds` beside a checkout (the tests are skipped where it
is not there); `seeds_table.py` lists them. The programs of a text share their names, as a
notebook's cells do, and have the sizes the text gives them: those of 001, which train for 200
steps, take about a minute on two cores. Compared is what the texts say of the output: its shape.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rows import over
from seeds_table import PROGRAMS, SEEDS, Program, blocks, listings, source_of, text_of

from d2lmini import engine, random
from d2lmini.compat.mxnet_alias import install_as_mxnet, uninstall
from d2lmini.symbol import Symbol

pytestmark = [
    pytest.mark.skipif(not SEEDS.is_dir(), reason="the founding texts (shared/seeds) are not here"),
    pytest.mark.timeout(400),
]


@pytest.fixture(autouse=True)
def as_mxnet() -> Iterator[None]:
    install_as_mxnet()
    yield
    uninstall()


def run(program: Program, names: dict) -> str:
    """Run it; what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = compile(source_of(program), f"{program.text}, {program.place}", "exec")
        exec(code, names)
    return out.getvalue()


@functools.cache
def outputs(text: str) -> dict[str, str]:
    """What each program of the text printed, by title, and under "names" what they left.

    Text 003 speaks of "a net": the one of 002, so its programs begin with the names of that. They
    run in a folder of their own, which is under "files".
    """
    names: dict = {"__name__": "__main__"}
    if text == "003":
        names.update(outputs("002")["names"])  # type: ignore[arg-type]
    random.seed(0)
    rows = [p for p in PROGRAMS if p.text == text]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            found: dict = {p.title: run(p, names) for p in rows}
        finally:
            os.chdir(here)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    return {**found, "names": names, "files": files}


def test_the_table_holds_every_program():
    rows = Counter(program.text for program in PROGRAMS)
    assert rows == {"000": 4, "001": 15, "002": 6, "003": 4}
    for text, n in rows.items():
        places = [p.place for p in PROGRAMS if p.text == text and p.place != "inline"]
        found = [f"block {i + 1}" for i in range(len(blocks(text_of(text))))]
        found += [f"listing {i + 1}" for i in range(len(listings(text_of(text))))]
        assert places == found
        assert n - len(places) == (text == "003")
    assert len({(p.text, p.title) for p in PROGRAMS}) == len(PROGRAMS)


def first_text_queues_then_finishes():
    text = outputs("000")["a product is queued, printing waits; NumPy computes at once"]
    ours, theirs = text.split("===============start using numpy")
    matrix = r"\n\[\[\s*\d{3}\.\d+.*\.\.\..*\]\]\n<NDArray 2000x2000 @cpu\(0\)>\n"
    assert re.search(matrix, ours, flags=re.DOTALL)
    for part in (ours, theirs):
        assert len(re.findall(r"(?:queued|finished):\t[\d.]+ sec", part)) == 2


def first_text_waits():
    assert re.fullmatch(r"\d+\.\d{4}\n\d+\.\d{4}\n", outputs("000")["wait_to_read and waitall"])


def first_text_predicts_60_batches():
    text = outputs("000")["memory of predicting 60 batches, waiting for each"]
    times = re.findall(r"batch (\d+), time ([\d.]+) sec\n", text)
    assert [int(n) for n, _ in times] == [10, 20, 30, 40, 50]
    assert sorted(times, key=lambda t: float(t[1])) == times
    # Each batch is waited for: never more than a few of its 4 MB activations at once.
    (mem,) = re.findall(r"Increased memory (-?[\d.]+) MB\n", text)
    assert float(mem) < 64


def second_text_from_the_stopwatch_to_the_loops():
    out = outputs("001")
    queue = out["queued, then finished"]
    assert re.match(r"Workloads are queued. time: \d+\.\d{4} sec\n", queue)
    assert re.search(r"sum = \n\[\d\.?\d*e\+09\]\n<NDArray 1 @cpu\(0\)>\n", queue)
    assert len(re.findall(r"time: \d+\.\d{4} sec\n", queue)) == 2
    for title in ("wait_to_read", "waitall", "asnumpy waits", "asscalar waits"):
        assert re.fullmatch(r"time: \d+\.\d{4} sec\n", out[title])
    loops = out["1000 sums, waiting for each and at the end"]
    assert re.fullmatch(r"synchronous. time: [\d.]+ sec\nasynchronous. time: [\d.]+ sec\n", loops)


def second_text_trains():
    for title in ("training, reading each loss", "training without waiting"):
        text = outputs("001")[title]
        batches = re.findall(r"batch (\d+), time [\d.]+ sec\n", text)
        assert batches == ["50", "100"], title
        assert len(re.findall(r"increased memory: -?[\d.]+ MB\n", text)) == 1, title


def second_text_learns():
    """The labels are 1: after 200 steps the mean loss has come down from its 1/2."""
    names: dict = outputs("001")["names"]  # type: ignore[assignment]
    X = names["X"]
    assert names["loss"](names["y"], names["net"](X)).mean().asscalar() < 0.1
    assert 0 < float(names["l_sum"]) < 0.5 * 100
    assert [p.shape for p in names["net"].collect_params().values()] == [
        (2048, 512), (2048,), (512, 2048), (512,), (1, 512), (1,),
    ]  # fmt: skip


#: The long texts are a test each: of two tests, each in a process of its own, both would run them.
LONG = {
    "000": [
        first_text_queues_then_finishes, first_text_waits, first_text_predicts_60_batches,
    ],
    "001": [
        second_text_from_the_stopwatch_to_the_loops, second_text_trains, second_text_learns,
    ],
}  # fmt: skip


@over("check", LONG, name=lambda check: check.__name__)
def test_long_text(check: Callable[[], None]):
    check()


def test_third_text_defines_compiles_and_runs():
    out = outputs("002")
    assert out["a program as a string, compiled and run"].endswith("\n10\n")
    assert out["imperative functions"] == ""
    names: dict = out["names"]  # type: ignore[assignment]
    assert names["fancy_func"](1, 2, 3, 4) == 10
    assert names["c"].asnumpy().tolist() == [[3, 3]]


def test_third_text_hybridizes():
    """The text's net is compiled: its calls are one task each, and say what they said before."""
    out = outputs("002")
    times = re.fullmatch(
        r"before hybridizing: ([\d.]+) sec\nafter hybridizing: ([\d.]+) sec\n",
        out["before and after hybridizing"],
    )
    assert times is not None
    names: dict = out["names"]  # type: ignore[assignment]
    net, x = names["net"], names["x"]
    (program,) = net.program()
    assert "def run(" in str(program)
    before = engine.stats().executed
    y = net(x)
    engine.waitall()
    assert engine.stats().executed - before == 1
    net.hybridize(False)
    assert abs(net(x).asnumpy() - y.asnumpy()).max() < 1e-5
    net.hybridize()


def test_fourth_text():
    out = outputs("003")
    assert out["a program as a string"].endswith("\n10\n")
    assert out["a * b + 2, printed"] == "\n[[3. 3.]]\n<NDArray 1x2 @cpu(0)>\n"


def test_fourth_text_exports():
    """'It makes a json file and a params file: the symbolic program and the model's parameters.'"""
    files: dict = outputs("003")["files"]  # type: ignore[assignment]
    assert sorted(files) == ["my_mlp-0000.params", "my_mlp-symbol.json"]
    graph = json.loads(files["my_mlp-symbol.json"])
    ops = [node["op"] for node in graph["nodes"] if node["op"] != "null"]
    assert ops == ["FullyConnected", "Activation"] * 2 + ["FullyConnected"]
    assert len(files["my_mlp-0000.params"]) > 4 * (512 * 256 + 256 + 256 * 128 + 128 + 128 * 2 + 2)


def test_fourth_text_calls_a_net_with_a_symbol():
    """What the call gives, as a notebook's last line would show it."""
    names: dict = outputs("003")["names"]  # type: ignore[assignment]
    y = names["net"](names["x"])
    assert isinstance(names["x"], Symbol) and isinstance(y, Symbol)
    assert y.list_arguments()[0] == "data" and len(y.list_arguments()) == 7
    assert y.infer_shape(data=(1, 512))[1] == [(1, 2)]


def test_a_program_runs_from_the_command_line(tmp_path):
    """The same, as a reader would: the block in a file, unchanged."""
    program = next(p for p in PROGRAMS if p.title == "wait_to_read and waitall")
    file = tmp_path / "waits.py"
    file.write_text(source_of(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", "run", str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+\.\d{4}\n\d+\.\d{4}\n", done.stdout)
