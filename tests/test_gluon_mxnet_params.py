"""Files of parameters and nets between d2lmini and the real MXNet, in both directions, and the
names, reprs and error texts of Gluon's core side by side.

Runs where D2LMINI_MXNET_PYTHON names an interpreter with MXNet 1.9 (`make test-mxnet`): one process
there does what `experiment` says, this one does the same with d2lmini.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gluon_rows.core import experiment, read

PYTHON = os.environ.get("D2LMINI_MXNET_PYTHON")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="D2LMINI_MXNET_PYTHON does not name an interpreter with MXNet"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(what d2lmini wrote, what MXNet wrote after it)"""
    import d2lmini as mx

    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    experiment(mx, str(here), None)
    done = subprocess.run(
        [PYTHON, str(Path(__file__).parent / "gluon_rows" / "core.py"), str(there), str(here)],
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return here, there


def test_mxnet_reads_ours(folders):
    here, there = folders
    expected = np.load(here / "output.npy")
    with np.load(there / "read.npz") as outputs:
        assert len(outputs.files) == 12
        half = [name for name in outputs.files if name.startswith("half")]
        for name in set(outputs.files) - set(half):
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, err_msg=name)
        assert half and all(outputs[name].shape == expected.shape for name in half)


def test_we_read_mxnets(folders):
    import d2lmini as mx

    here, there = folders
    expected = np.load(there / "output.npy")
    np.testing.assert_allclose(np.load(here / "output.npy"), expected, rtol=1e-4)
    outputs = read(mx, str(there))
    with np.load(there / "read.npz") as theirs:
        for name, output in outputs.items():
            np.testing.assert_allclose(output, theirs[name], rtol=2e-3, err_msg=name)
            if not name.startswith("half"):
                np.testing.assert_allclose(output, expected, rtol=1e-4, err_msg=name)


def test_same_keys_in_the_files(folders):
    from d2lmini import nd

    for kind in ("structural", "deduplicated", "full", "stripped", "half", "whole-model"):
        ours, theirs = (nd.load(folder / f"{kind}.params") for folder in folders)
        assert list(ours) == list(theirs), kind
        assert [x.dtype for x in ours.values()] == [x.dtype for x in theirs.values()]
    ours, theirs = (json.loads((f / "whole-model.json").read_text()) for f in folders)
    assert structure(ours) == structure(theirs)


def structure(entries):
    """Without the graph, which MXNet also writes for what it has traced (and calls hybridized)."""
    graph = ("in_format", "out_format", "inputs", "symbol", "hybridized")
    return {
        name: structure(entry) if isinstance(entry, dict) else entry
        for name, entry in entries.items()
        if name not in graph
    }


def test_same_names_reprs_and_errors(folders):
    ours, theirs = (json.loads((folder / "core.json").read_text()) for folder in folders)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        assert plain(mine) == plain(other)


def plain(text):
    """Without what differs on purpose: where in the net a parameter is, pages on the web, the name
    of library and module, a missing blank, what pytest adds to an assertion of ours."""
    text = text.split("\nassert ")[0]
    text = re.sub(r" \([\w.]+ of \w+\)", "", text)
    text = re.sub(r"\s*For more info on naming, please see \S+", "", text)
    text = re.sub(r"(mxnet|d2lmini)\.[\w.]+\.", "", text)
    return text.replace(" is not allowed", "is not allowed")
