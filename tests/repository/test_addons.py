"""The core works without its add-ons: a copy of the library without their folders passes the core's
own tests and runs chapters, and in one without a single folder the error names what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_layout import ADDONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "d2lmini"

#: Tests that belong to the core.
CORE_TESTS = """
    tour engine_rules storage ndarray autograd symbol hybridize trainer optimizer""".split()


@pytest.fixture
def without(tmp_path):
    """Runs Python in a copy of the checkout that lacks the folders of add-ons."""

    def run(addons: set[str], *words: str) -> str:
        for name in ("d2lmini",) if words[0] == "-c" else ("d2lmini", "tests", "chapters"):
            shutil.copytree(
                ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for addon in addons:
            shutil.rmtree(tmp_path / "d2lmini" / addon)
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        folders = [tmp_path, tmp_path / "tests", tmp_path / "tests/tools"]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, folders)),
                "D2LMINI_TEST_GPUS": "virtual",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    return run


def test_nothing_but_the_table_names_an_add_on():
    """Not in strings either, which the layout's test cannot see; prose may say where things are."""
    name = re.compile(rf"(?:from |import |[\"'])d2lmini\.({'|'.join(ADDONS)})\b")
    found = []
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in ADDONS and place.name != "addons.py":
            found += [f"{place}: {m[0]}" for m in name.finditer(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.timeout(600)
def test_the_core_passes_its_tests(without):
    found = [path for name in CORE_TESTS for path in (ROOT / "tests").rglob(f"test_{name}.py")]
    tests = [str(path.relative_to(ROOT)) for path in found]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not short_road"]
    found = without(ADDONS, "-m", "pytest", *options, *tests)
    assert int(re.search(r"(\d+) passed", found)[1]) > 300


@pytest.mark.timeout(600)
def test_a_chapter_runs(without):
    found = without(ADDONS, "tests/tools/run_chapters.py", ".", "hybridize")
    assert "1 passed" in found


USES = {
    "cuda": "nd.zeros(2, ctx=gpu(0))",
    "distributed": "kvstore.create('dist_sync')",
    "onnx": "gluon.nn.Dense(2).export_onnx('x.onnx', nd.ones((1, 2)))",
    "compat": "sym.var('x').simple_bind(d2lmini.cpu(), x=(2,))",
}


@pytest.mark.parametrize("addon", sorted(ADDONS))
def test_what_is_missing_is_named(without, addon):
    """The error says which add-on is missing, and the library works on."""
    program = f"""
import d2lmini
from d2lmini import addons, gluon, gpu, kvstore, nd, sym
try:
    {USES[addon]}
except d2lmini.MXNetError as problem:
    print(problem)
for public in addons.names_of("d2lmini"):
    print(public, hasattr(d2lmini, public))
print((nd.ones(2) + 1).asnumpy().sum())
"""
    found = without({addon}, "-c", program)
    assert f"d2lmini.{addon}" in found and found.endswith("4.0\n")
    assert ("io False" in found) == (addon == "compat")
