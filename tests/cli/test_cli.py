"""The command line: its words, what it prints, its exit status, and what it refuses to begin.

`run` and `launch` do what `test_mxnet_alias.py` and `test_dist.py` look at.
"""

import argparse
import io
import json
import os
import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from repository import PYPROJECT, requirements

import d2lmini
from d2lmini import engine, nd
from d2lmini.cli import (
    STATUS,
    bench,
    checks,
    external_checks,
    files,
    info,
    lab,
    main,
    selftest,
    workloads,
)
from d2lmini.cli.check import Check, CheckSkipped, Outcome
from d2lmini.cli.progress import Progress

ROOT = Path(__file__).parents[2]
COMMANDS = "lab test bench run launch info".split()


def refused(capsys, *words: str) -> str:
    """What the command line says where it cannot begin, which is status 2."""
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    return capsys.readouterr().err


# --- words ---


def test_help_names_the_commands_and_what_the_status_means(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0 and said.endswith(STATUS)
    for command in COMMANDS:
        assert re.search(rf"^    {command} +\w", said, re.M), command


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_of_its_own(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m d2lmini {command} ")


def test_no_command_and_an_unknown_one_are_refused(capsys):
    assert "COMMAND" in refused(capsys)
    assert "invalid choice: 'train'" in refused(capsys, "train")


def test_the_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"d2lmini {d2lmini.__version__}\n"


def test_the_program_is_called_as_it_was_started(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/d2lmini"])
    assert refused(capsys).startswith("usage: d2lmini ")


def test_ctrl_c_is_130(monkeypatch, capsys):
    def stopped(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "show", stopped)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "info: stopped by Ctrl-C\n"


@pytest.mark.skipif(os.name == "nt", reason="no pipe that breaks")
def test_a_reader_that_has_had_enough_sees_no_traceback():
    code = "import sys; from d2lmini.cli import main; sys.exit(main(['info', '--json']))"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_console_script_is_this_function():
    module, _, name = PYPROJECT["project"]["scripts"]["d2lmini"].partition(":")
    __import__(module)
    assert getattr(sys.modules[module], name) is main


# --- info ---


def test_info_as_json_says_what_info_says(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["d2lmini"] == d2lmini.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert found["engine"]["workers"] == engine.stats().workers
    assert found["memory"]["total"] > found["memory"]["resident"] > 1 << 20
    assert found["gpus"] == []
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert found["python"] in text and f"numpy {np.__version__}".split()[1] in text
    assert "GPUs" in text and "none" in text


def test_info_names_the_gpus_and_what_is_set(monkeypatch):
    monkeypatch.setenv("D2LMINI_EXIT_DEADLINE_S", "7")
    with d2lmini.virtual_gpus(2, memory=64 << 20):
        found = info.facts()
    assert [gpu["context"] for gpu in found["gpus"]] == ["gpu(0)", "gpu(1)"]
    assert found["gpus"][0]["total"] == 64 << 20
    assert found["environment"]["D2LMINI_EXIT_DEADLINE_S"] == "7"
    assert "64 MiB free" in info.as_text(found) and "DEADLINE_S=7" in info.as_text(found)


def test_info_knows_the_packages_of_each_extra():
    """All that pyproject.toml names, but what only brings or only reads one of them."""
    project = PYPROJECT["project"]
    named = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, packages in info.PACKAGES.items():
        assert set(packages.split()) == requirements(named[extra]).keys() - {"mpich"}
    assert named.keys() - info.PACKAGES.keys() == {"test"}


def test_limits_of_a_container(monkeypatch):
    said = {"memory.max": str(1 << 20), "cpu.max": "150000 100000"}
    monkeypatch.setattr(info, "_cgroup", lambda file: said.get(file, ""))
    found = info.facts()
    assert found["memory"]["limit"] == 1 << 20 and found["cores"]["quota"] == 1.5
    assert "limit 1 MiB" in info.as_text(found) and "1.5 at a time" in info.as_text(found)
    said.update({"memory.max": "max", "cpu.max": "max 100000"})
    found = info.facts()
    assert found["cores"]["quota"] is None
    assert "at a time" not in info.as_text(found)


# --- test ---


def options(**given) -> argparse.Namespace:
    return argparse.Namespace(**{"words": [], "all": False, "list": False, **given})


def test_every_check_holds_here(capsys):
    """In one process with the other tests; those that start processes are others' tests."""
    alone = ("old programs", "processes")
    quick = [check for check in checks.CHECKS if check.name not in alone]
    outcomes = selftest.run(quick)
    failed = [o for o in outcomes if o.result == "FAILED"]
    assert not failed, failed[0].said
    may_lack = {"files", "versions", "GPUs"}
    for name, package in [("widgets", "anywidget"), ("figures", "matplotlib"), ("ONNX", "onnx")]:
        may_lack |= {name} if find_spec(package) is None else set()
    assert {o.name for o in outcomes if o.result == "not run"} <= may_lack
    assert capsys.readouterr().out.count("\n") == len(quick)


def test_a_check_that_fails_is_told_and_is_the_status(monkeypatch, capsys):
    def broken() -> str:
        (nd.random.normal(0, -1, shape=(2, 2)) + 1).asnumpy()
        raise AssertionError

    def missing() -> str:
        raise CheckSkipped("no moon")

    planted = [Check("sound", lambda: "fine"), Check("broken", broken), Check("moon", missing)]
    monkeypatch.setattr(checks, "CHECKS", planted)
    before = os.getcwd()
    assert main(["test"]) == 1
    said = capsys.readouterr().out
    assert "ok       sound              fine\n" in said
    assert "FAILED   broken\nTraceback" in said and "scale must be 0 or more" in said
    assert "not run  moon               no moon\n" in said
    assert "1 passed, 1 failed, 1 not run, in " in said.splitlines()[-1]
    assert main(["test", "sound", "moon"]) == 0
    assert os.getcwd() == before and engine.stats().pending == 0


def test_an_error_that_nobody_waited_for_fails_its_check_and_no_other(monkeypatch, capsys):
    def careless() -> str:
        nd.random.normal(0, -1, shape=(2, 2))
        return "fine?"

    planted = [Check("careless", careless), Check("next", lambda: "fine")]
    monkeypatch.setattr(checks, "CHECKS", planted)
    assert [o.result for o in selftest.run(planted)] == ["FAILED", "ok"]


def test_words_choose_checks(capsys):
    assert main(["test", "--list", "engine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "engine: schedules", "engine: orders", "engine: errors",
    ]  # fmt: skip
    assert main(["test", "--list", "files"]) == 0  # a whole name: not "files of nets", too
    assert capsys.readouterr().out == "files\n"
    assert "no check is named so: moon" in refused(capsys, "test", "moon")


def test_all_has_the_examples_of_every_module(capsys):
    assert main(["test", "--all", "d2lmini.engine.core", "d2lmini.context"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"ok       examples d2lmini.context +[1-9]\d* examples\n", said)
    names = {check.name.split()[-1] for check in selftest.examples()}
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "d2lmini").rglob("*.py")
    }
    assert modules - names == {"d2lmini", "d2lmini.__main__"}


def test_an_example_that_is_wrong_fails_and_one_without_its_extra_is_not_run(monkeypatch):
    module = sys.modules["d2lmini.context"]
    monkeypatch.setattr(module, "__doc__", ">>> 1 + 1\n3\n")
    with pytest.raises(AssertionError, match=r"Expected:\n    3\nGot:\n    2"):
        selftest._examples_of("d2lmini.context")
    monkeypatch.setattr(module, "__doc__", ">>> import no_such_package\n")
    with pytest.raises(CheckSkipped, match="no_such_package"):
        selftest._examples_of("d2lmini.context")


def test_versions_outside_their_bounds_are_found(monkeypatch):
    assert checks._holds("2.4.6", ">=2.0") and checks._holds("2", ">=2.0.0")
    assert not checks._holds("3.0rc1", "<3") and not checks._holds("1.26.4", ">=2.0")
    needed = ["numpy<3,>=2.0", "psutil", "threadpoolctl", "moon>=1; extra == 'lab'"]
    monkeypatch.setattr(checks.importlib.metadata, "requires", lambda name: needed)
    assert f"numpy {np.__version__}" in checks.versions()
    needed[0] = "numpy<2,>=1.20"
    with pytest.raises(AssertionError, match=r"numpy 2\S+ is installed, needed is numpy<2"):
        checks.versions()
    needed[:] = ["moon>=1"]
    with pytest.raises(AssertionError, match="moon>=1 is not installed"):
        checks.versions()


def test_what_an_extra_brings_is_named_where_it_is_missing():
    with pytest.raises(
        CheckSkipped, match=r"no_moon is not installed: pip install 'd2lmini\[lab\]'"
    ):
        external_checks.needs("no_moon", "lab")


def test_the_closing_line():
    ended = [Outcome("a", "ok", "", 1.0), Outcome("b", "FAILED", "", 0.25)]
    assert selftest.closing(ended) == "1 passed, 1 failed, 0 not run, in 1.2 s"


# --- progress ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_and_nothing_in_a_file(capsys):
    with Progress(4, Terminal()) as bar:
        bar.step("first")
        bar.print("a line")
        bar.step("second")
    drawn = bar.stream.getvalue()
    assert "[........................] 1/4 first" in drawn
    assert "[######..................] 2/4 second" in drawn and drawn.endswith("\r\x1b[K")
    assert capsys.readouterr().out == "a line\n"
    with Progress(4, io.StringIO()) as silent:
        silent.step("first")
    assert silent.stream.getvalue() == ""


# --- bench ---


def test_a_workload_is_timed_and_a_wrong_one_is_not(monkeypatch, capsys):
    wrong = workloads.Workload("wrong", "", lambda: (lambda: np.ones(2), lambda: nd.zeros((2,))))
    short = workloads.Workload("short", "", lambda: (lambda: np.ones(2), lambda: nd.ones((3,))))
    chosen = [workloads.WORKLOADS[0], wrong, short]
    monkeypatch.setattr(workloads, "WORKLOADS", chosen)
    assert main(["bench", "--rounds", "5", "--json"]) == 1
    timed, *others = json.loads(capsys.readouterr().out)["workloads"]
    assert timed["problem"] is None and [len(s) for s in timed["seconds"].values()] == [5, 5]
    assert timed["interval"][0] <= timed["ratio"] <= timed["interval"][1]
    assert [other["problem"] for other in others] == [
        "values differ by up to 1: not timed", "shapes differ: (3,), NumPy's is (2,)",
    ]  # fmt: skip
    assert re.search(r"a small sum +\d.*s +\d.*s", bench._line(timed))


def test_the_workloads_compute_the_same():
    twins = {"a small sum", "a chain", "a training step"}  # the same functions in another scope
    for workload in workloads.WORKLOADS:
        if workload.name in twins:
            continue
        with workload.setting():
            numpy, ours = workload.make()
            assert bench._difference(numpy(), ours()) is None, workload.name
            if "step" in workload.name:  # the second finds what the first has left
                assert bench._difference(numpy(), ours()) is None, workload.name


def test_bench_refuses(capsys):
    assert "there are a small sum; " in refused(capsys, "bench", "moon")
    assert "--rounds is 5 or more" in refused(capsys, "bench", "--rounds", "4")


# --- lab ---


def test_a_copy_of_the_chapters_belongs_to_the_reader(tmp_path, capsys):
    folder = tmp_path / "mine"
    assert main(["lab", "--copy", str(folder)]) == 0
    chapters = {p.name for p in (ROOT / "chapters").glob("*.ipynb")}
    assert f"{len(chapters)} chapters copied" in capsys.readouterr().out
    assert {p.name for p in (folder / "chapters").glob("*.ipynb")} == chapters

    mine = folder / "chapters" / "00-start-here.ipynb"
    mine.write_text("what I wrote")
    (folder / "chapters" / "01-hybridize.ipynb").unlink()
    (folder / files.NOTE).write_text("0.0.1 0123\n")
    assert main(["lab", "--copy", str(folder)]) == 0
    said = capsys.readouterr().out
    assert (
        said.startswith("1 chapters copied")
        and f"{len(chapters) - 1} were there, and are as" in said
    )
    assert f"of d2lmini 0.0.1, this is {d2lmini.__version__}: name another" in said
    assert mine.read_text() == "what I wrote"
    (folder / files.NOTE).write_text(f"{d2lmini.__version__} 0123\n")
    assert main(["lab", "--copy", str(folder)]) == 0
    assert "newer ones exist: name another folder" in capsys.readouterr().out


def test_what_chapters_show_and_link_to_is_in_the_copy(tmp_path):
    files.copy(tmp_path)
    for path in (tmp_path / "chapters").glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        for link in set(re.findall(r'(?:src=\\"|\]\()(\.\./[\w/.-]+|[\w-]+\.ipynb)', text)):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_a_copy_names_the_kernel_of_this_python(tmp_path):
    """JupyterLab calls a notebook unsaved that names another."""
    pytest.importorskip("ipykernel")
    files.copy(tmp_path)
    for path in (tmp_path / "chapters").glob("*.ipynb"):
        copied, original = (
            json.loads((folder / "chapters" / path.name).read_text(encoding="utf-8"))
            for folder in (tmp_path, files.originals())
        )
        for cell in original["cells"]:  # an output would answer a prediction
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
            else:
                text = files.fold_explanation("".join(cell["source"]))
                cell["source"] = text.splitlines(keepends=True)
        assert copied["cells"] == original["cells"]
        assert copied["metadata"]["language_info"]["version"] == platform.python_version()
        assert copied["metadata"]["kernelspec"]["display_name"]


FOLDED = "<details><summary>What happened</summary>\n\n{}\n\n</details>"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("**Your prediction.** How many?", "**Your prediction.** How many?"),
        ("**What happened.** Two.", FOLDED.format("Two.")),
        (
            "*A.*\n\n**What happened.** Two:\n\n- both\n\n**Keep.** Count.\n\n**Exercise.** Why?",
            "*A.*\n\n"
            + FOLDED.format("Two:\n\n- both\n\n**Keep.** Count.")
            + "\n\n**Exercise.** Why?",
        ),
        (
            "**What happened.** Two.\n\nAgain:\n\n**Your prediction.** And?\n\n**Keep.** Count.",
            FOLDED.format("Two.") + "\n\nAgain:\n\n**Your prediction.** And?\n\n**Keep.** Count.",
        ),
    ],
)
def test_in_a_copy_what_happened_is_folded_until_the_exercise_or_the_next_prediction(text, seen):
    assert files.fold_explanation(text) == seen


def test_no_explanation_of_a_chapter_is_in_sight(tmp_path):
    files.copy(tmp_path)
    for path in (tmp_path / "chapters").glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        assert "<summary>What happened</summary>" in text, path.name
        assert "**What happened.**" not in text, path.name


def test_where_links_are_not_allowed_the_library_is_copied(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise OSError("a privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    files.copy(tmp_path)
    assert (tmp_path / "d2lmini/engine/core.py").is_file()
    assert not (tmp_path / "d2lmini").is_symlink()


def test_lab_refuses(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in refused(capsys, "lab", "--copy", str(tmp_path / "file"))
    below = str(tmp_path / "file" / "folder")
    assert "cannot be written" in refused(capsys, "lab", "--copy", below)
    monkeypatch.setattr(files, "originals", lambda: tmp_path)
    assert "install d2lmini anew" in refused(capsys, "lab", "--copy", str(tmp_path / "new"))
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'd2lmini[lab]'" in refused(capsys, "lab")


def test_what_lab_starts(tmp_path, monkeypatch, capsys):
    """JupyterLab on the folder, with its options and no setting that would open it to others."""
    started = []
    monkeypatch.setattr(lab, "_run", lambda *command: started.append(command) or 5)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: "there")
    assert main(["lab", str(tmp_path / "mine"), "--", "--no-browser", "--port", "9999"]) == 5
    monkeypatch.chdir(tmp_path)
    assert main(["lab"]) == 5
    assert main(["lab", "--", "--no-browser", "--port", "9999"]) == 5
    (command, _), (here, environment), (optioned, _) = started
    assert optioned == [*here, "--no-browser", "--port", "9999"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("-")] == []
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert command[-3:] == ["--no-browser", "--port", "9999"]
    assert f"--ServerApp.root_dir={(tmp_path / 'mine').resolve()}" in command
    assert f"--ServerApp.root_dir={(tmp_path / lab.DEFAULT_FOLDER).resolve()}" in here
    assert str(ROOT) in environment["PYTHONPATH"].split(os.pathsep)
    settings = {word.split("=")[0] for word in here[3:]}
    root = {"--allow-root"} if getattr(os, "geteuid", lambda: 1)() == 0 else set()
    assert settings == {"--ServerApp.root_dir", "--LabApp.default_url"} | root


def test_what_lab_runs_gets_the_signals_and_gives_its_status():
    program = "import os, sys; print(os.getpid(), os.environ['X'], flush=True); sys.exit(7)"
    code = (
        "import os, sys; from d2lmini.cli import lab; print(os.getpid())\n"
        f"sys.exit(lab._run([sys.executable, '-c', {program!r}], {{**os.environ, 'X': 'x'}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    asked, ran, x = done.stdout.split()
    assert (done.returncode, x, done.stderr) == (7, "x", "")
    assert (asked == ran) == (os.name == "posix")
