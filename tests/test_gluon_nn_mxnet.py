"""Every row of the layers' table against the real MXNet 1.9.1, where one is at hand
(`make test-mxnet`): names, shapes, repr, outputs, gradients, running statistics, in each mode."""

from __future__ import annotations

from typing import Any

import pytest
from gluon_rows.nn import ROWS
from gluon_rows.runner import MXNET, ask_mxnet, compare, examine_here

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
