"""Losses and metrics against the real MXNet 1.9.1, where one is at hand (`make test-mxnet`)."""

from __future__ import annotations

from typing import Any

import pytest
from gluon_rows.loss import ROWS
from gluon_rows.runner import MXNET, ask_mxnet, compare, examine_here

if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """What MXNet says to every row of the losses."""
    return ask_mxnet(ROWS)


@pytest.mark.parametrize("i", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_loss_equals_mxnet(i: int, answers: list[Any]):
    compare(ROWS[i], examine_here(ROWS[i]), answers[i])
