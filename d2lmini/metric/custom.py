"""Composite metrics, and metrics from functions.

>>> from d2lmini import metric, nd
>>> def worst(label, pred):
...     return abs(label - pred).max()            # label and pred are NumPy arrays
>>> both = metric.create(["mae", worst])
>>> both.update(nd.array([1, 2]), nd.array([1, 5]))
>>> both.get()
(['mae', 'worst'], [1.5, 3.0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from d2lmini.metric.base import (
    EvalMetric,
    Names,
    alias,
    as_numpy,
    check_label_shapes,
    create,
    register,
)


@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics together; `get` returns lists of their names and values."""

    def __init__(
        self, metrics: Sequence[Any] | None = None, name: str = "composite",
        output_names: Names = None, label_names: Names = None,
    ):  # fmt: skip
        self.metrics: list[EvalMetric] = [create(m) for m in metrics or ()]
        super().__init__(name, output_names, label_names)

    def add(self, metric: Any) -> None:
        """Add a metric: anything that `create` accepts."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric at `index`. ValueError if there is none."""
        if not -len(self.metrics) <= index < len(self.metrics):
            raise ValueError(f"Metric index {index} is out of range 0 and {len(self.metrics)}")
        return self.metrics[index]

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        if self.label_names is not None:
            label = {name: a for name, a in label.items() if name in self.label_names}
        if self.output_names is not None:
            pred = {name: a for name, a in pred.items() if name in self.output_names}
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def reset(self) -> None:
        super().reset()
        for metric in self.metrics:
            metric.reset()

    def get(self) -> tuple[list[str], list[Any]]:
        pairs = [pair for metric in self.metrics for pair in metric.get_name_value()]
        return [name for name, _ in pairs], [value for _, value in pairs]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [m.get_config() for m in self.metrics]}


@register
class CustomMetric(EvalMetric):
    """A function of (label, pred), NumPy arrays, that returns a number, or a sum and a count.

    The metric is the mean of the numbers. allow_extra_outputs: there may be more predictions than
    labels; arrays that are in no list are then lists of their rows, as in MXNet. Waits.
    """

    def __init__(
        self, feval: Callable[[Any, Any], Any], name: str | None = None,
        allow_extra_outputs: bool = False, output_names: Names = None, label_names: Names = None,
    ):  # fmt: skip
        if name is None:
            name = getattr(feval, "__name__", type(feval).__name__)
            name = f"custom({name})" if "<" in name else name
        super().__init__(
            name, output_names, label_names, feval=feval, allow_extra_outputs=allow_extra_outputs,
        )  # fmt: skip
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=False):
            result = self._feval(as_numpy(label), as_numpy(pred))
            total, count = result if isinstance(result, tuple) else (result, 1)
            self._add(total, count)

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(
            "a CustomMetric holds a function, which get_config cannot describe"
        )


def np(
    numpy_feval: Callable[[Any, Any], Any], name: str | None = None,
    allow_extra_outputs: bool = False,
) -> CustomMetric:  # fmt: skip
    """Make a metric of a function of NumPy arrays; see `CustomMetric`."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)
