"""Metrics: the quality of predictions, accumulated over batches.

metrics   `EvalMetric`: sum and count; `register`, `create`; Accuracy, TopKAccuracy, CrossEntropy,
          NegativeLogLikelihood, Perplexity; F1, MCC; MAE, MSE, RMSE, Loss; CompositeEvalMetric:
          several metrics; CustomMetric, `np`: user-defined functions

>>> from d2lmini import metric, nd
>>> accuracy = metric.create("acc")
>>> accuracy.update(nd.array([0, 1]), nd.array([[0.9, 0.1], [0.8, 0.2]]))
>>> accuracy.update(nd.array([1]), nd.array([[0.3, 0.7]]))
>>> accuracy.get()                                # 2 of 3
('accuracy', 0.6666666666666666)
"""

# isort: off
from typing import NoReturn

from d2lmini.base import missing_attribute
from d2lmini.metric.metrics import (
    F1, MAE, MCC, MSE, RMSE, Accuracy, CompositeEvalMetric, CrossEntropy, CustomMetric, EvalMetric,
    Loss, NegativeLogLikelihood, Perplexity, TopKAccuracy, alias, check_label_shapes, create, np,
    register,
)  # fmt: skip

__all__ = [
    "Accuracy", "CompositeEvalMetric", "CrossEntropy", "CustomMetric", "EvalMetric", "F1", "Loss",
    "MAE", "MCC", "MSE", "NegativeLogLikelihood", "Perplexity", "RMSE", "TopKAccuracy", "alias",
    "check_label_shapes", "create", "np", "register",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("metric", name, __all__)
