"""The core works without its add-ons: each in turn is made impossible to import, and the core's own
tests and a chapter run.

A `sitecustomize.py` on the path of the child processes refuses the add-on: its name, and all below.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_layout import ADDONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "d2lmini"

#: Tests that belong to the core.
CORE_TESTS = """
    tour engine_rules storage ndarray autograd symbol cached_op hybridize gluon_block trainer
    optimizer initializer metric""".split()

REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith("d2lmini.ADDON."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(params=sorted(ADDONS))
def without(request, tmp_path):
    """Runs Python in a child process that cannot import one add-on, `without.addon`."""

    def run(*words: str, timeout_s: float = 300) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    (str(tmp_path), str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/tools"))
                ),
                "D2LMINI_TEST_GPUS": "virtual",
            },
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    run.addon = request.param  # type: ignore[attr-defined]
    (tmp_path / "sitecustomize.py").write_text(REFUSE.replace("ADDON", request.param))
    return run


def test_importing_the_library_imports_no_add_on():
    program = "import d2lmini, sys; print(*[n for n in sys.modules if n.startswith('d2lmini.')])"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "d2lmini.engine" in found
    assert [name for name in found if name.split(".")[1] in ADDONS] == []


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
    tests = [str(path) for name in CORE_TESTS for path in (ROOT / "tests").rglob(f"test_{name}.py")]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not short_road"]
    found = without("-m", "pytest", *options, *tests)
    assert int(re.search(r"(\d+) passed", found)[1]) > 500


@pytest.mark.timeout(600)
def test_a_chapter_runs(without):
    # The compiler's chapter where a device adds to the compiler; a shorter one else.
    chapter = "hybridize" if without.addon == "cuda" else "inside-the-engine"
    assert "1 passed" in without("tests/tools/run_chapters.py", ".", chapter)


def test_what_is_missing_is_named(without):
    """The error says which add-on is missing, and the library works on."""
    program = f"""
import d2lmini
from d2lmini import addons, gluon, gpu, kvstore, nd, sym
uses = {{
    "cuda": lambda: nd.zeros(2, ctx=gpu(0)),
    "distributed": lambda: kvstore.create("dist_sync"),
    "onnx": lambda: gluon.nn.Dense(2).export_onnx("x.onnx", nd.ones((1, 2))),
    "compat": lambda: sym.var("x").simple_bind(d2lmini.cpu(), x=(2,)),
}}
try:
    uses[{without.addon!r}]()
except d2lmini.MXNetError as problem:
    print(problem)
for public in addons.names_of("d2lmini"):
    print(public, hasattr(d2lmini, public))
print((nd.ones(2) + 1).asnumpy().sum())
"""
    found = without("-c", program)
    assert f"d2lmini.{without.addon}" in found and found.endswith("4.0\n")
    assert ("io False" in found) == (without.addon == "compat")


def test_second_names_are_the_same_modules():
    import d2lmini.compat.mxnet_alias.runner as real
    import d2lmini.mxnet_alias.runner as second

    assert second is real and sys.modules["d2lmini.mxnet_alias.runner"] is real
