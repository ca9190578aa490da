"""Every row of the recurrent table against the real MXNet 1.9.1, where one is at hand
(`make test-mxnet`): names, shapes, repr, outputs, states, gradients, and files."""

from __future__ import annotations

import inspect
import json
import subprocess
from typing import Any

import numpy as np
import pytest
from gluon_rows.rnn import ROWS
from gluon_rows.runner import MXNET, ask_mxnet, compare, examine_here

from d2lmini import nd
from d2lmini.gluon import rnn

if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)

COMPARED = [row for row in ROWS if row.mxnet]


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """What MXNet says to every row."""
    return ask_mxnet(COMPARED)


@pytest.mark.parametrize("i", range(len(COMPARED)), ids=[row.id for row in COMPARED])
def test_equals_mxnet(i: int, answers: list[Any]):
    compare(COMPARED[i], examine_here(COMPARED[i]), answers[i])


FILES = """
import sys
from mxnet import nd
from mxnet.gluon import rnn
for name in sys.argv[2:]:
    net = eval(name)
    net.load_parameters(sys.argv[1] + "/" + str(len(name)) + ".ours")
    x = nd.ones((3, 2, 4))
    nd.save(sys.argv[1] + "/" + str(len(name)) + ".out", net(x))
    net.save_parameters(sys.argv[1] + "/" + str(len(name)) + ".theirs")
"""
LAYERS = ["rnn.RNN(5)", "rnn.LSTM(5, 2, bidirectional=True)", "rnn.GRU(3, 3, dropout=0.5)"]


def test_files_of_either_load_in_the_other(tmp_path):
    x = nd.ones((3, 2, 4))
    outputs = {}
    for build in LAYERS:
        net = eval(build, {"rnn": rnn})
        net.initialize()
        outputs[build] = net(x).asnumpy()
        net.save_parameters(str(tmp_path / f"{len(build)}.ours"))
    subprocess.run(
        [str(MXNET), "-c", FILES, str(tmp_path), *LAYERS], check=True, capture_output=True
    )
    for build in LAYERS:
        (theirs,) = nd.load(str(tmp_path / f"{len(build)}.out"))
        np.testing.assert_allclose(theirs.asnumpy(), outputs[build], rtol=1e-5, atol=1e-6)
        net = eval(build, {"rnn": rnn})
        net.load_parameters(str(tmp_path / f"{len(build)}.theirs"))
        assert net(x).asnumpy().tobytes() == outputs[build].tobytes()


ARGUMENTS = """
import inspect, json
from mxnet.gluon import rnn
print(json.dumps({
    name: {method: list(inspect.signature(getattr(each, method)).parameters)
           for method in ("__init__", "begin_state", "unroll", "state_info")
           if hasattr(each, method)}
    for name, each in vars(rnn).items() if inspect.isclass(each)
}))
"""


def test_the_same_names_with_the_same_arguments():
    done = subprocess.run(
        [str(MXNET), "-c", ARGUMENTS], capture_output=True, text=True, timeout=120, check=True
    )
    classes = json.loads(done.stdout)
    assert set(classes) == set(rnn.__all__)
    for name, methods in classes.items():
        for method, theirs in methods.items():
            mine = list(inspect.signature(getattr(getattr(rnn, name), method)).parameters)
            known = [each for each in theirs if each not in ("args", "kwargs")]
            assert [each for each in mine if each in known] == known, f"{name}.{method}"
