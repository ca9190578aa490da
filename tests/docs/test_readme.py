"""The README says what is true: its example prints what it shows, its commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository import PYPROJECT
from sanitizer import sanitize

from d2lmini.compat.mxnet_alias import install_as_mxnet, uninstall
from d2lmini.compat.mxnet_alias.examine import ask

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")
)


def block(language: str, number: int = 0) -> str:
    """A code block of a language: the first, or another."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)[number]


def run_example(tmp_path: Path, number: int) -> subprocess.CompletedProcess:
    """Run a Python block from a folder that holds nothing else."""
    (tmp_path / "example.py").write_text(block("python", number), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_example_prints_what_the_readme_shows(tmp_path):
    run = run_example(tmp_path, 0)
    assert run.stderr == ""
    assert sanitize(run.stdout) == sanitize(block("text"))
    assert run.stdout.count(" sec\n") == 2


def test_the_net_learns_as_the_readme_shows(tmp_path):
    """Nearly: another BLAS adds up in another order."""
    run = run_example(tmp_path, 1)
    assert run.stderr == ""
    found, shown = (
        [float(line.split()[-1]) for line in text.splitlines()]
        for text in (run.stdout, block("text", 1))
    )
    assert len(found) == len(shown) == 3
    assert found == pytest.approx(shown, abs=0.1)
    assert min(found[-1], shown[-1]) > 0.9


def test_an_old_program_prints_what_the_readme_shows(tmp_path):
    run = run_example(tmp_path, 2)
    assert run.stdout + run.stderr.splitlines()[-1] + "\n" == block("text", 2)


def test_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = set(re.findall(r"`make ([a-z-]+)`", README))
    assert {"lab", "test", "bench"} <= named <= targets
    pages = README + (ROOT / "docs/what-works.md").read_text(encoding="utf-8")
    extras = set(re.findall(r"\[(\w+)\](?=['`\"])", pages))
    assert extras == PYPROJECT["project"]["optional-dependencies"].keys() - {"test"}


@pytest.mark.parametrize(
    "place", re.findall(r"^    (\S+\.py|\w\S*/)", CONTRIBUTING.partition("## Layout")[2], re.M)
)
def test_the_layout_names_what_is_there(place):
    assert (ROOT / place.rstrip(",")).exists()


@pytest.fixture
def as_mxnet():
    install_as_mxnet()
    yield
    uninstall()


@pytest.mark.parametrize(
    "name",
    """mod.Module model.FeedForward rnn callback monitor gluon.model_zoo gluon.contrib.rnn
    gluon.contrib.nn gluon.contrib operator.CustomOp nd.Custom rtc nd.contrib.foreach
    nd.contrib.while_loop nd.contrib.cond nd.sparse.csr_matrix image.imread recordio
    nd.contrib.box_nms contrib.text contrib.quantization""".split(),
)
def test_what_is_said_to_be_left_out_is_left_out(name, as_mxnet):
    assert ask(f"mxnet.{name}").startswith("left out, ")
    said = {"nd.sparse.csr_matrix": "sparse", "nd.contrib.box_nms": "detection"}
    word = said.get(name, name.removesuffix(".imread").rpartition(".")[2])
    assert word.lower() in README.partition("## What it leaves out")[2].lower()


def rows_of_the_benchmark() -> dict[str, list[str]]:
    """Workload -> d2lmini's time, and its ratios to PyTorch and MXNet, as the page has them."""
    page = (ROOT / "tests/benchmarks/results/two-cores-epyc.md").read_text(encoding="utf-8")
    found = {}
    for part in page.split("\n## ")[1:]:
        time = re.search(r"^\| d2lmini \| ([^|]+?) \|", part, re.M)
        ratios = [
            re.search(rf"^\| {peer} \|[^|]*\|[^|]*\| ([\d.]+) \(", part, re.M)
            for peer in ("torch", "mxnet")
        ]
        found[part.split(":")[0]] = [match[1] if match else "" for match in (time, *ratios)]
    return found


def gpu_rows() -> dict[str, list[str]]:
    """Work -> d2lmini's time on a GPU, and its ratio to PyTorch."""
    page = (ROOT / "tests/benchmarks/results/h100.md").read_text(encoding="utf-8")
    times = re.findall(r"^\| (.+) \| ([\d.,]+) us \| ([\d.,]+) us \|$", page, re.M)
    number = {text: float(text.replace(",", "")) for _, *row in times for text in row}
    return {work: [f"{a} us", f"{number[a] / number[b]:.2f}"] for work, a, b in times}


def test_figures_are_those_of_the_pages():
    known, on_gpu = rows_of_the_benchmark(), gpu_rows()
    part = README.partition("\n## How fast\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| (.*\d) \|$", part, re.M)
    rows = [row for row in found if row[0] != "work"]
    assert len(rows) >= 11
    for work, figures in rows:
        name = re.match(r"`(\w+)`", work)
        expected = known[name[1]] if name and name[1] in known else on_gpu[work]
        assert figures.split(" | ") == expected, work
