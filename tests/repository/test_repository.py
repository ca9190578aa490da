"""The repository keeps its promises to people who clone it.

Importing is light and starts nothing, the two lists of dependencies agree, chapters are committed
as readers should find them, and no file names the machine it was written on.
"""

import json
import re
import subprocess
import sys

import pytest
import yaml
from repository import PYPROJECT, ROOT, requirements, tracked_files

CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
# Cells whose output is not compared, per chapter: more than these would hide what a chapter shows.
MAX_UNCHECKED_CELLS = 3


# --- import ---

AFTER_IMPORT = """
import sys, threading
import d2lmini
heavy = "IPython jupyterlab ipywidgets anywidget matplotlib cupy psutil threadpoolctl".split()
print([name for name in heavy if name in sys.modules], threading.active_count())
"""


def test_import_pulls_in_no_extra_and_starts_no_thread():
    out = subprocess.run(
        [sys.executable, "-c", AFTER_IMPORT], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (out.stdout.strip(), out.stderr) == ("[] 1", "")


def test_the_version_is_one():
    import d2lmini

    version = PYPROJECT["project"]["version"]
    assert d2lmini.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# --- dependencies ---


def test_the_conda_environment_agrees_with_pyproject():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    (pip,) = [entry["pip"] for entry in listed if isinstance(entry, dict)]
    conda = requirements([entry for entry in listed if isinstance(entry, str)])
    named = conda | requirements([line for line in pip if not line.startswith("-")])
    assert "-e ." in pip
    six = {"jupyterlab", "numpy", "cupy-cuda12x", "ipywidgets", "matplotlib", "nbval"}
    assert six <= named.keys()

    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    read_and_run = requirements(project["dependencies"] + extras["lab"])
    assert read_and_run.keys() <= named.keys()
    bounds = requirements(extras["test"] + extras["gpu"]) | read_and_run
    bounds |= {"python": project["requires-python"], "pip": ""}
    assert named == {name: bounds[name] for name in named}


def test_the_oldest_versions_are_the_lower_bounds():
    pins = (ROOT / "tests/oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(line.split("==") for line in pins if not line.startswith("#"))
    bounds = requirements(PYPROJECT["project"]["dependencies"])
    lowest = {name: re.search(r">=([\d.]+)", bound)[1] for name, bound in bounds.items()}
    assert oldest == {name: version + ".0" for name, version in lowest.items()}


TOP = """
.ci .gitattributes .github .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md
chapters d2lmini docs environment.yml img noxfile.py pyproject.toml tests
""".split()


def test_nothing_that_a_program_left_is_committed():
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} == {*TOP}


# --- chapters ---


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
class TestChapter:
    def test_is_committed_as_run_from_top_to_bottom(self, path):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        counts = [c["execution_count"] for c in cells if c["cell_type"] == "code" and c["source"]]
        assert counts == list(range(1, len(counts) + 1))
        assert any(cell.get("outputs") for cell in cells)

    def test_holds_no_widget_state(self, path):
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        assert "widgets" not in metadata
        assert metadata["kernelspec"]["name"] == "python3"

    def test_compares_nearly_all_of_its_cells(self, path):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        unchecked = [
            "".join(cell["source"])
            for cell in cells
            if {"nbval-ignore-output", "nbval-skip"} & set(cell["metadata"].get("tags", ()))
            or re.search(r"#\s*(NBVAL_IGNORE_OUTPUT|NBVAL_SKIP)", "".join(cell["source"]))
        ]
        assert len(unchecked) <= MAX_UNCHECKED_CELLS, unchecked

    def test_has_only_the_errors_it_announces(self, path):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            errors = [o for o in cell.get("outputs", ()) if o["output_type"] == "error"]
            assert bool(errors) == ("raises-exception" in cell["metadata"].get("tags", ()))
            assert not [o for o in cell.get("outputs", ()) if o.get("name") == "stderr"]


# --- files ---


def test_no_file_names_the_machine_it_was_written_on():
    # Put together here, so that this file does not match itself.
    places = ["/" + place for place in ("work/", "opt/envs", "root/", "home/", "tmp/bash_jobs")]
    places += [".py" + "env/", ":\\" + "Users\\"]
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            # The user in the images of Kubernetes' MPI operator, of no machine of ours.
            if any(place in line.replace("/home/mpiuser/", "") for place in places)
        ]
    assert not found, "\n".join(found)


def test_ci_is_executable_and_runs_make_test():
    script = ROOT / ".ci" / "run"
    commands = [
        line
        for line in script.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert commands[-1].startswith("exec make test")
    if sys.platform != "win32":
        assert script.stat().st_mode & 0o111
