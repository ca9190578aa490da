"""The README says what is true: its example prints what it shows, its commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nbval.plugin import get_sanitize_patterns
from repository import PYPROJECT

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATTERNS = get_sanitize_patterns((ROOT / "chapters/nbval_sanitize.cfg").read_text(encoding="ascii"))


def sanitized(text: str) -> str:
    """What the chapters' test compares of a text: everything but times."""
    for regex, replacement in PATTERNS:
        text = re.sub(regex, replacement, text)
    return text


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
    assert sanitized(run.stdout) == sanitized(block("text"))
    assert run.stdout.count(" sec\n") == 2


def test_the_net_learns_as_the_readme_shows(tmp_path):
    """Nearly: another BLAS adds up in another order."""
    run = run_example(tmp_path, 1)
    assert run.stderr == ""
    found, shown = (
        [float(line.split()[-1]) for line in text.splitlines()]
        for text in (run.stdout, block("text", 1))
    )
    assert len(found) == len(shown) == 5
    assert found == pytest.approx(shown, abs=0.1)
    assert min(found[-1], shown[-1]) > 0.9


def test_an_old_program_prints_what_the_readme_shows(tmp_path):
    run = run_example(tmp_path, 2)
    assert run.stdout + run.stderr.splitlines()[-1] + "\n" == block("text", 2)


def test_the_first_screen_has_it_all():
    screen = "\n".join(README.splitlines()[:50])
    for needed in ("make lab", "make test", "py -m pip install", "```python", "```text", "<img "):
        assert needed in screen, needed


def test_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    named = set(re.findall(r"\bmake ([a-z]+)\b(?= *(?:#|`|$))", README, re.M))
    assert {"lab", "test", "bench"} <= named <= targets
    extras = set(re.findall(r"\.\[(\w+)\]", README))
    assert extras and extras <= PYPROJECT["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize("place", re.findall(r"^    (\S+\.py|\w\S*/)", README, re.M))
def test_the_layout_names_what_is_there(place):
    assert (ROOT / place.rstrip(",")).exists()


def ratios(peer: str) -> dict[str, float]:
    """By workload: d2lmini's time beside a peer's, as the page of the benchmark has it."""
    page = (ROOT / "tests/benchmarks/results/two-cores-epyc.md").read_text(encoding="utf-8")
    found = {}
    for part in page.split("\n## ")[1:]:
        row = re.search(rf"^\| {peer} \|[^|]*\|[^|]*\| ([\d.]+) \(", part, re.M)
        if row:
            found[part.split(":")[0]] = float(row[1])
    return found


def test_figures_are_those_of_the_page():
    text = " ".join(README.split())
    mxnet, torch = ratios("mxnet"), ratios("torch")
    least, most = min(mxnet.values()), max(mxnet.values())
    said = f"faster than MXNet 1.9.1 in all {len(mxnet)} workloads ({least:.2f} to {most:.2f} of"
    assert most < 1 and said in text
    steps = (torch[f"{net}_train"] for net in ("resnet", "mlp", "lenet"))
    assert "{:.2f} of the time for ResNet-18, {:.2f} for an MLP, {:.2f} for".format(*steps) in text
