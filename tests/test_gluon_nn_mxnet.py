"""Every row of the layers' table against the real MXNet 1.9.1, where one is at hand
(`make test-mxnet`): names, shapes, repr, outputs, gradients, running statistics, in each mode."""

from __future__ import annotations

import inspect
import json
import subprocess
from typing import Any

import pytest
from gluon_rows.nn import ROWS
from gluon_rows.runner import MXNET, ask_mxnet, compare, examine_here

from d2lmini.gluon import nn
from d2lmini.gluon.contrib import nn as contrib

if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)

COMPARED = [row for row in ROWS if row.mxnet]


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """What MXNet says to every row."""
    return ask_mxnet(COMPARED)


@pytest.mark.parametrize("i", range(len(COMPARED)), ids=[row.id for row in COMPARED])
def test_layer_equals_mxnet(i: int, answers: list[Any]):
    compare(COMPARED[i], examine_here(COMPARED[i]), answers[i])


ARGUMENTS = """
import inspect, json
from mxnet.gluon import nn
from mxnet.gluon.contrib import nn as contrib
print(json.dumps([
    {name: [p for p in inspect.signature(layer).parameters]
     for name, layer in vars(space).items() if inspect.isclass(layer)}
    for space in (nn, contrib)
]))
"""


def test_constructors_take_the_same_arguments():
    """Every layer of MXNet's is there, with arguments of the same names in the same order."""
    done = subprocess.run(
        [str(MXNET), "-c", ARGUMENTS], capture_output=True, text=True, timeout=120, check=True
    )
    for space, theirs in zip((nn, contrib), json.loads(done.stdout), strict=True):
        assert len(theirs) >= 8
        for name, arguments in theirs.items():
            if name in ("Block", "HybridBlock", "SymbolBlock"):
                assert hasattr(space, name)
                continue
            signature = inspect.signature(getattr(space, name))
            mine = list(signature.parameters)
            if mine == ["prefix", "params"] and arguments == ["kwargs"]:
                continue  # the same by other words
            assert mine == arguments, name
