"""The command line: its words, what it prints, its exit status, and what it refuses to begin.

What `run` and `launch` do is in `test_run_programs.py`, `test_mxnet_alias.py` and `test_dist.py`.
"""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import d2lmini
from d2lmini import engine
from d2lmini.cli import COMMANDS, STATUS, files, info, lab, main

ROOT = Path(__file__).parents[2]


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
    assert left.value.code == 0 and said.endswith(STATUS) and len(COMMANDS) == 4
    assert re.findall(r"^    (\w+) +\w", said, re.M) == "lab run launch info assign".split()


def test_no_command_and_an_unknown_one_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/d2lmini"])
    said = refused(capsys)
    assert said.startswith("usage: d2lmini ") and "COMMAND" in said
    assert "invalid choice: 'bench'" in refused(capsys, "bench")


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


# --- info ---


def test_info_as_json_says_what_info_says(monkeypatch, capsys):
    monkeypatch.setenv("D2LMINI_EXIT_DEADLINE_S", "7")
    with d2lmini.virtual_gpus(2, memory=64 << 20):
        assert main(["info", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["info"]) == 0
        assert found["engine"]["workers"] == engine.stats().workers
    text = capsys.readouterr().out
    assert found["d2lmini"] == d2lmini.__version__ and found["python"] in text
    assert found["packages"]["numpy"] == np.__version__ and f"numpy {np.__version__}" in text
    assert found["memory"]["total"] > found["memory"]["resident"] > 1 << 20
    assert [gpu["context"] for gpu in found["gpus"]] == ["gpu(0)", "gpu(1)"]
    assert found["gpus"][0]["total"] == 64 << 20 and "total 0.0625 GiB; context gpu(1)" in text
    assert found["environment"]["D2LMINI_EXIT_DEADLINE_S"] == "7" and "DEADLINE_S 7" in text


def test_info_for_programs(tmp_path, monkeypatch, capsys):
    """How names are found is in `test_examine.py`."""
    monkeypatch.chdir(tmp_path)
    lines = "image.imread('a')\n" * 2 + "gluon.nn.BatchNorm()\n"
    Path("old.py").write_text(f"from mxnet import gluon, image\n{lines}")
    Path("whole.py").write_text("from mxnet import nd\nnd.ones(1)\n")
    assert main(["info", "--for", "whole.py"]) == 0
    assert capsys.readouterr().out == "whole.py: 0 of 1 names of MXNet are missing\n"
    assert main(["info", "--for", "whole.py", "old.py"]) == 1
    said = capsys.readouterr().out.split("\n", 1)[1]
    pattern = r"""old\.py: 1 of 2 names of MXNet are missing
  mxnet\.image\.imread \(line 2; line 3\): left out, .*
"""
    assert re.fullmatch(pattern, said)
    assert main(["info", "--for", "old.py", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert found["file"] == "old.py" and found["missing"][0]["places"] == ["line 2", "line 3"]


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
    assert main(["lab", "--copy", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 chapters copied")
    assert f"{len(chapters) - 1} were there, and are as you left them" in said
    assert mine.read_text() == "what I wrote"


def test_a_copied_chapter_has_what_it_links_to_and_tells_no_answer(tmp_path):
    """And it names the kernel of this Python: JupyterLab calls a notebook unsaved that names
    another."""
    pytest.importorskip("ipykernel")
    files.copy(tmp_path)
    for path in (tmp_path / "chapters").glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        for link in set(re.findall(r'(?:src=\\"|\]\()(\.\./[\w/.-]+|[\w-]+\.ipynb)', text)):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
        assert "<summary>What happened</summary>" in text and "**What happened.**" not in text
        copied = json.loads(text)
        original = json.loads((ROOT / "chapters" / path.name).read_text(encoding="utf-8"))
        for cell in original["cells"]:  # an output would answer a prediction
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
            else:
                folded = files.fold_explanation("".join(cell["source"]))
                cell["source"] = folded.splitlines(keepends=True)
        assert copied["cells"] == original["cells"]
        assert copied["metadata"]["language_info"]["version"] == platform.python_version()
        assert copied["metadata"]["kernelspec"]["display_name"]


def test_lab_refuses(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "folder"):
        assert "no folder to write to: Not a dir" in refused(capsys, "lab", "--copy", str(folder))
    monkeypatch.setattr(files, "originals", lambda: tmp_path)
    assert "install d2lmini anew" in refused(capsys, "lab", "--copy", str(tmp_path / "new"))
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'd2lmini[lab]'" in refused(capsys, "lab")


def test_what_lab_starts(tmp_path, monkeypatch):
    """JupyterLab on the folder, with its options and no setting that would open it to others."""
    started = []
    monkeypatch.setattr(lab, "_run", lambda *command: started.append(command) or 5)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: "there")
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "mine", "--", "--no-browser", "--port", "9999"]) == 5
    assert main(["lab"]) == 5
    assert main(["lab", "--", "--no-browser", "--port", "9999"]) == 5
    (command, _), (here, environment), (optioned, _) = started
    assert optioned == [*here, "--no-browser", "--port", "9999"]
    assert {path.name for path in tmp_path.iterdir()} == {"mine", lab.DEFAULT_FOLDER}
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert command[-3:] == ["--no-browser", "--port", "9999"]
    assert f"--ServerApp.root_dir={(tmp_path / 'mine').resolve()}" in command
    assert f"--ServerApp.root_dir={(tmp_path / lab.DEFAULT_FOLDER).resolve()}" in here
    assert str(ROOT) in environment["PYTHONPATH"].split(os.pathsep)
    settings = {word.split("=")[0] for word in here[3:]} - {"--allow-root"}
    assert settings == {"--ServerApp.root_dir", "--LabApp.default_url"}
