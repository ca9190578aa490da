"""Files of parameters and nets between d2lmini and the real MXNet, in both directions, and the
names, reprs and error texts of Gluon's core side by side (`make test-mxnet`)."""

import re

import numpy as np
import pytest
from gluon_rows.core import core, read, write
from oracle import Oracle

import d2lmini as mx
from d2lmini import nd


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(where d2lmini writes, where MXNet writes)"""
    return tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")


@pytest.fixture(scope="module")
def outputs(folders, mxnet: Oracle):
    """Of the nets that were written, ours and MXNet's."""
    here, there = map(str, folders)
    return write(mx, here), mxnet.ask(write, there)


def test_mxnet_reads_ours(folders, outputs, mxnet: Oracle):
    found = mxnet.ask(read, str(folders[0]))
    assert len(found) == 10
    for name, output in found.items():
        if name.startswith("half"):
            assert output.shape == outputs[0].shape
        else:
            np.testing.assert_allclose(output, outputs[0], rtol=1e-4, err_msg=name)


def test_we_read_mxnets(folders, outputs, mxnet: Oracle):
    np.testing.assert_allclose(*outputs, rtol=1e-4)
    theirs = mxnet.ask(read, str(folders[0]))
    for name, output in read(mx, str(folders[1])).items():
        np.testing.assert_allclose(output, theirs[name], rtol=2e-3, err_msg=name)
        if not name.startswith("half"):
            np.testing.assert_allclose(output, outputs[1], rtol=1e-4, err_msg=name)


def test_same_keys_in_the_files(folders, outputs):
    for kind in ("structural", "deduplicated", "full", "stripped", "half"):
        ours, theirs = (nd.load(folder / f"{kind}.params") for folder in folders)
        assert list(ours) == list(theirs), kind
        assert [x.dtype for x in ours.values()] == [x.dtype for x in theirs.values()]


def test_same_names_reprs_and_errors(mxnet: Oracle):
    ours, theirs = core(mx), mxnet.ask(core)
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
