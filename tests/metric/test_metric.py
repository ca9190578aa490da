"""Metrics: what they give, names, and that most of them do not wait."""

from __future__ import annotations

from math import isnan, log, sqrt

import numpy as np
import pytest

from d2lmini import engine, metric, nd
from d2lmini.base import instrument

#: (metric, updates of (label, pred), value)
TABLE = [
    ("acc", [([0, 1, 1], [[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])], 2 / 3),
    ("acc", [([0, 1], [[0.9, 0.1], [0.9, 0.1]]), ([0], [[0.9, 0.1]])], 2 / 3),
    ("acc", [([0, 1, 2], [0, 1, 1])], 2 / 3),
    ("acc", [([1, 2], [1.7, 2.0])], 1.0),
    ("acc", [([[0], [1]], [[0.9, 0.1], [0.9, 0.1]])], 0.5),
    ("acc", [([[0, 1], [1, 1]], [[[1, 0], [0, 1]], [[0, 3], [4, 2]]])], 0.75),
    (metric.Accuracy(axis=2), [([[0, 2]], [[[3, 1, 2], [0, 1, 2]]])], 1.0),
    (metric.TopKAccuracy(2), [([2, 2], [[0.1, 0.6, 0.3], [0.5, 0.4, 0.1]])], 0.5),
    (metric.TopKAccuracy(9), [([2, 2], [[0.1, 0.6, 0.3], [0.5, 0.4, 0.1]])], 1.0),
    ("ce", [([0, 1], [[0.2, 0.8], [0.3, 0.7]])], -(log(0.2) + log(0.7)) / 2),
    ("ce", [([0, 1], [[0.2, 0.8]] * 2), ([1], [[0.5, 0.5]])], -log(0.2 * 0.8 * 0.5) / 3),
    (metric.CrossEntropy(eps=0.1), [([0], [[0, 1]])], -log(0.1)),
    ("nll_loss", [([0, 1], [[0.2, 0.8], [0.3, 0.7]])], -(log(0.2) + log(0.7)) / 2),
    (metric.Perplexity(None), [([0, 1], [[0.25, 0.75], [0.75, 0.25]])], 4.0),
    (metric.Perplexity(None), [([[0, 1]], [[[0.25, 0.75], [0.75, 0.25]]])], 4.0),
    (metric.Perplexity(1), [([0, 1, 0], [[0.5, 0.5]] * 3)], 2.0),
    (metric.Perplexity(None, axis=0), [([0, 1], [[0.5, 0.1], [0.3, 0.5]])], 2.0),
    (metric.Perplexity(None), [([0], [[0, 1]])], 1e10),
    ("f1", [([0, 1, 1, 1], [[1, 0], [0, 1], [0, 1], [1, 0]])], 0.8),
    ("f1", [([1], [[0, 1]]), ([0], [[1, 0]])], 0.5),
    (metric.F1(average="micro"), [([1], [[0, 1]]), ([0], [[1, 0]])], 1.0),
    ("f1", [([0, 0], [[0, 1], [1, 0]])], 0.0),
    ("mcc", [([0, 1, 1, 1], [[1, 0], [0, 1], [0, 1], [1, 0]])], 2 / sqrt(2 * 3 * 2)),
    ("mcc", [([0, 1], [[1, 0], [0, 1]]), ([0, 1], [[0, 1], [1, 0]])], 0.0),
    ("mcc", [([0, 0], [[0, 1], [1, 0]])], 0.0),
    ("mae", [([1, 2], [2, 4]), ([0], [3])], (1.5 + 3) / 2),
    ("mae", [([1, 2], [[2], [4]])], 1.5),
    ("mse", [([1, 2], [2, 4]), ([0], [3])], (2.5 + 9) / 2),
    ("rmse", [([1, 2], [2, 4]), ([0], [3])], (sqrt(2.5) + 3) / 2),
    ("loss", [(None, [1, 2, 6]), (None, [3])], 3.0),
]


def arrays(values):
    return None if values is None else nd.array(values)


@pytest.mark.parametrize(
    ("made", "updates", "value"), TABLE, ids=[f"{i}-{row[0]}"[:20] for i, row in enumerate(TABLE)]
)
def test_value(made, updates, value):
    made = metric.create(made)
    made.reset()
    assert isnan(made.get()[1])
    for label, pred in updates:
        made.update(arrays(label), arrays(pred))
    name, got = made.get()
    assert name == made.name and type(got) is float
    assert got == pytest.approx(value, rel=1e-5, abs=1e-6)
    # Lists of arrays are the same.
    made.reset()
    for label, pred in updates:
        made.update([arrays(label)], [arrays(pred)])
    assert made.get()[1] == got


# -- making them ----------------------------------------------------------------------------------


def test_create():
    assert type(metric.create("acc")) is metric.Accuracy
    assert type(metric.create("Accuracy")) is metric.Accuracy
    assert metric.create("acc", name="mine").name == "mine"
    assert metric.create("top_k_accuracy", top_k=3).name == "top_k_accuracy_3"
    assert metric.create(metric.MAE).name == "mae"
    made = metric.MAE()
    assert metric.create(made) is made
    assert type(metric.create('["crossentropy", {"eps": 0.5}]')) is metric.CrossEntropy
    for described in ({"metric": "acc", "name": "mine"}, '{"metric": "acc", "name": "mine"}'):
        assert metric.create(described).name == "mine"
    several = metric.create(["acc", "mae", made, lambda label, pred: 1.0])
    assert [m.name for m in several.metrics] == ["accuracy", "mae", "mae", "custom(<lambda>)"]
    with pytest.raises(ValueError, match=r"'foo'; there are.*accuracy"):
        metric.create("foo")
    with pytest.raises(ValueError, match=r"metric\.caffe is left out of d2lmini, metric.Loss does"):
        metric.create("caffe")
    with pytest.raises(TypeError, match="its name"):
        metric.create(3)
    with pytest.raises(ValueError, match="Accuracy"):
        metric.TopKAccuracy()


# -- several, and functions -----------------------------------------------------------------------


def test_composite():
    both = metric.CompositeEvalMetric(["acc"])
    both.add(metric.MAE())
    assert both.get()[0] == ["accuracy", "mae"]
    both.update([nd.array([0, 1])], [nd.array([0, 3])])
    assert both.get() == (["accuracy", "mae"], [0.5, 1.0])
    assert both.get_name_value() == [("accuracy", 0.5), ("mae", 1.0)]
    assert str(both) == "EvalMetric: {'accuracy': 0.5, 'mae': 1.0}"
    both.reset()
    assert isnan(both.get()[1][1])


def test_functions():
    def wrong(label, pred):
        assert isinstance(label, np.ndarray)
        return (label != pred).sum()

    made = metric.np(wrong)
    for _ in range(2):
        made.update(nd.array([1, 2]), nd.array([1, 3]))
    assert made.get() == ("wrong", 1.0)
    pairs = metric.CustomMetric(lambda label, pred: (2.0, 4), name="half")
    pairs.update([nd.ones(1)] * 2, [nd.ones(1)] * 2)
    assert (pairs.get(), pairs.num_inst) == (("half", 0.5), 8)
    with pytest.raises(ValueError, match=r"labels 1 .* predictions 2"):
        made.update([nd.ones(1)], [nd.ones(1)] * 2)
    more = metric.CustomMetric(wrong, allow_extra_outputs=True)
    more.update([nd.ones(1)], [nd.ones(1)] * 2)
    assert more.get()[1] == 0.0


# -- what does not fit ----------------------------------------------------------------------------


def test_other_errors():
    with pytest.raises(IndexError):
        metric.CrossEntropy().update(nd.array([5]), nd.array([[0.5, 0.5]]))
    with pytest.raises(ValueError, match="two classes"):
        metric.F1().update(nd.array([0, 1, 2]), nd.array([[1, 0], [0, 1], [1, 0]]))
    with pytest.raises(ValueError, match=r"scores \(N, classes\), got \(2,\)"):
        metric.F1().update(nd.array([0, 1]), nd.array([0, 1]))
    three = metric.F1()  # class 2 counts as 0
    three.update(nd.array([1, 1]), nd.array([[0, 1, 0], [0, 0, 1]]))
    assert three.get()[1] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="average"):
        metric.MCC(average="median")
    with pytest.raises(ValueError, match="labels 2 does not match"):
        metric.Perplexity(None).update(nd.array([0, 1]), nd.array([[0.5, 0.5]] * 3))
    with pytest.raises(ValueError, match=r"predictions \(3, 2\) need 3 labels, got \(2,\)"):
        metric.Perplexity(None).update([nd.array([0, 1])], [nd.array([[0.5, 0.5]] * 3)])
    with pytest.raises(ValueError, match=r"\(N, C\)"):
        metric.TopKAccuracy(2).update(nd.array([0, 1]), nd.array([0, 1]))


# -- waiting --------------------------------------------------------------------------------------


class Waits(instrument.Instrument):
    """Counts waits."""

    count = 0

    def wait(self, kind, target, site, begin_ns, end_ns):
        self.count += 1


@pytest.mark.parametrize(
    "made",
    [metric.Accuracy(), metric.Loss(), metric.Perplexity(0), metric.MAE(), metric.MSE(),
     metric.RMSE(), metric.CompositeEvalMetric(["acc", "loss"])],
    ids=lambda made: made.name,
)  # fmt: skip
def test_update_does_not_wait(made):
    with engine.use("threaded", inline_below=0.0, workers=1):
        n = made.name
        label = nd.array([[1], [0]] if n in ("mae", "mse", "rmse") else [1, 0])
        pred = nd.array([[1], [4]] if n in ("mae", "mse", "rmse") else [[0.5, 0.5], [0.5, 0.5]])
        with instrument.listening(Waits()) as waits:
            for _ in range(5):
                made.update(label, pred)
            assert waits.count == 0
            made.get()
        assert waits.count > 0


def test_a_metric_of_ones_own_may_add_to_mxnets_second_pair():
    class Wins(metric.EvalMetric):
        def update(self, labels, preds):
            wins = float((labels == preds).sum().asscalar())
            self.sum_metric += wins
            self.global_sum_metric += wins
            self.num_inst += labels.size
            self.global_num_inst += labels.size

    wins = Wins("wins")
    wins.update(nd.array([1, 2]), nd.array([1, 3]))
    assert wins.get() == ("wins", 0.5)
    assert (wins.global_sum_metric, wins.global_num_inst) == (1, 2)
    wins.reset()
    assert (wins.global_sum_metric, wins.global_num_inst) == (0, 0)
