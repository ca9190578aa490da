"""Losses and metrics against the real MXNet 1.9.1, where one is at hand (`make test-mxnet`)."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from gluon_rows.loss import ROWS
from gluon_rows.runner import MXNET, ask_mxnet, compare, examine_here

import d2lmini

if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """What MXNet says to every row of the losses."""
    return ask_mxnet(ROWS)


@pytest.mark.parametrize("i", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_loss_equals_mxnet(i: int, answers: list[Any]):
    compare(ROWS[i], examine_here(ROWS[i]), answers[i])


# -- metrics --------------------------------------------------------------------------------------

# Each metric sees random batches; what it says after each goes to `said`. Knows `mx`.
EXPERIMENT = """
import numpy as np
metric, nd = mx.metric, mx.nd

def hits(label, pred):
    return float((label == pred.argmax(1)).sum()), len(label)

def gap(label, pred):
    return abs(label - pred[:, 0]).max()

BATCHES = {
    "binary": lambda r: (r.integers(0, 2, 9), share(r.random((9, 2)))),
    "classes": lambda r: (r.integers(0, 4, 9), share(r.random((9, 4)))),
    "column": lambda r: (r.integers(0, 4, (9, 1)), share(r.random((9, 4)))),
    "deep": lambda r: (r.integers(0, 3, (2, 5)), r.random((2, 3, 5))),
    "named": lambda r: (r.integers(0, 4, 9), r.integers(0, 4, 9)),
    "words": lambda r: (r.integers(0, 4, (3, 2)), share(r.random((6, 4)))),
    "vector": lambda r: (r.random(7), r.random(7)),
    "turned": lambda r: (r.random(7), r.random((7, 1))),
    "matrix": lambda r: (r.random((7, 3)), r.random((7, 3))),
}
ROWS = [
    ("metric.create('acc')", "binary classes column deep named vector"),
    ("metric.Accuracy(axis=-1)", "classes"),
    ("metric.TopKAccuracy(2)", "classes column"),
    ("metric.create('top_k_acc', top_k=3)", "classes"),
    ("metric.create('ce')", "binary classes column"),
    ("metric.CrossEntropy(eps=0.1)", "classes"),
    ("metric.create('nll_loss')", "classes column"),
    ("metric.Perplexity(None)", "binary classes words"),
    ("metric.Perplexity(0)", "binary classes words"),
    ("metric.create('f1')", "binary"),
    ("metric.F1(average='micro')", "binary"),
    ("metric.create('mcc')", "binary"),
    ("metric.MCC(average='micro')", "binary"),
    ("metric.PCC()", "binary classes named"),
    ("metric.create('mae')", "vector turned matrix"),
    ("metric.create('mse')", "vector turned matrix"),
    ("metric.create('rmse')", "vector turned matrix"),
    ("metric.create('pearsonr')", "vector matrix"),
    ("metric.create('loss')", "vector turned matrix"),
    ("metric.create('torch')", "vector"),
    ("metric.create(['acc', 'ce', hits])", "classes"),
    ("metric.CompositeEvalMetric([metric.MAE(), 'mse'])", "vector"),
    ("metric.np(hits)", "binary classes"),
    ("metric.CustomMetric(gap, name='gap')", "binary classes"),
]

def share(p):
    return p / p.sum(-1, keepdims=True)

def numbers(value):
    return [float(v) for v in (value if isinstance(value, list) else [value])]

said = {}
for expression, kinds in ROWS:
    for kind in kinds.split():
        made = eval(expression)
        key = expression + " " + kind
        said[key + " about"] = [str(made), made.get()[0], made.get_global()[0]]
        values = []
        r = np.random.default_rng([3, len(kind)])
        for step in range(4):
            label, pred = [nd.array(a) for a in BATCHES[kind](r)]
            if step == 2:
                made.update_dict({"label": label}, {"out": pred})
            else:
                made.update([label], [pred])
            values += numbers(made.get()[1]) + numbers(made.get_global()[1])
            if step == 1:
                made.reset_local()
                values += numbers(made.get()[1]) + numbers(made.get_global()[1])
        said[key] = values
        try:
            said[key + " config"] = repr(sorted(made.get_config().items(), key=str))
        except NotImplementedError:
            said[key + " config"] = "none"
"""

PROGRAM = f"""
import json, os, warnings
warnings.simplefilter("ignore")
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import mxnet as mx
scope = {{"mx": mx}}
exec({EXPERIMENT!r}, scope)
json.dump(scope["said"], answers)
answers.flush()
"""


@pytest.fixture(scope="module")
def said() -> tuple[dict[str, Any], dict[str, Any]]:
    """What both libraries' metrics say."""
    result = subprocess.run(
        [str(MXNET), "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=300
    )
    scope: dict[str, Any] = {"mx": d2lmini}
    exec(EXPERIMENT, scope)
    return scope["said"], json.loads(result.stdout)


def test_metrics_equal_mxnet(said: tuple[dict[str, Any], dict[str, Any]]):
    mine, theirs = said
    assert mine.keys() == theirs.keys() and len(mine) > 90
    for key, value in mine.items():
        if isinstance(value, list) and not isinstance(value[0], str):
            expected = pytest.approx(theirs[key], rel=1e-5, abs=1e-6, nan_ok=True)
            assert value == expected, key
        else:
            assert value == theirs[key], key
