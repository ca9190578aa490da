"""Base class of metrics: a sum and a count; the metric is their quotient.

`update` adds a batch to sum and count, `get` divides, `reset` begins anew.

A program that waits for a number after each batch keeps the engine from working ahead. So in most
metrics `update` leaves its results on the device, as an NDArray that is still being computed, and
`get` waits for them:

>>> from d2lmini import metric, nd
>>> error = metric.MAE()
>>> for _ in range(3):
...     error.update(nd.zeros(4), nd.ones(4))     # returns at once
>>> error.get()                                   # waits
('mae', 1.0)

After MXNet's `metric` module.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy

from d2lmini import ndarray as nd
from d2lmini.base import families
from d2lmini.base.families import Family
from d2lmini.ndarray import NDArray

#: The named arrays that an update uses; None: all.
Names = list[str] | None

#: Largest number of batches whose results stay on the device.
_MOST_PENDING = 512


def _sums(name: str, what: str) -> Any:
    """A property for a sum; reading it waits for pending results."""

    def get(self: EvalMetric) -> Any:
        self._settle()
        return getattr(self, name)

    def set(self: EvalMetric, value: Any) -> None:
        self._settle()
        setattr(self, name, value)

    return property(get, set, doc=f"{what}; reading it waits for what is pending.")


class EvalMetric:
    """Base class; a subclass defines `update`, which calls `_add(sum, count)`.

    name: the name that `get` returns with the value. output_names, label_names: the arrays that
    `update_dict` uses from its dicts; None means all. sum_metric, num_inst: sum and count (to read,
    or for a subclass to change). MXNet's second pair, global_sum_metric and global_num_inst, is
    there for subclasses that add to it; no metric of d2lmini does. has_global_stats is accepted.
    """

    def __init__(
        self, name: str, output_names: Names = None, label_names: Names = None, **kwargs: Any
    ):
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        kwargs.pop("has_global_stats", None)
        self._kwargs = kwargs
        self._pending: list[tuple[Any, Any]] = []
        EvalMetric.reset(self)
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """The settings of this metric."""
        return {
            **self._kwargs, "metric": type(self).__name__, "name": self.name,
            "output_names": self.output_names, "label_names": self.label_names,
        }  # fmt: skip

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: labels and predictions, NDArrays or lists of equally many NDArrays."""
        raise NotImplementedError(
            f"{type(self).__name__} must say what it measures: define update(labels, preds)"
        )

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """`update` with the named arrays in label_names and output_names."""
        self.update(_choose(label, self.label_names), _choose(pred, self.output_names))

    def reset(self) -> None:
        """Reset sum and count."""
        self._pending.clear()
        self._sum, self._count = 0.0, 0
        self.global_sum_metric, self.global_num_inst = 0.0, 0

    def get(self) -> tuple[Any, Any]:
        """Name and value; nan before the first update. Waits for pending results."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_name_value(self) -> list[tuple[str, Any]]:
        """`get` as a list of pairs, also for composite metrics."""
        names, values = self.get()
        if not isinstance(names, list):
            names, values = [names], [values]
        return list(zip(names, values, strict=True))

    def _value(self, total: float, count: float) -> float:
        return total / count if count else float("nan")

    def _add(self, total: Any, count: Any) -> None:
        """Add numbers, or NDArrays of one element, to sum and count, without waiting."""
        self._pending.append((total, count))
        if len(self._pending) >= _MOST_PENDING:
            self._settle()

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for total, count in pending:
            self._sum += _number(total)
            self._count += _number(count)

    sum_metric = _sums("_sum", "The sum")
    num_inst = _sums("_count", "The count")


class Measured(families.Declared, EvalMetric):
    """Base class of metrics with declared parameters, which `get_config` contains, but for those in
    `_omitted`. A subclass defines `measure` of a pair (label, pred), which returns what to add to
    sum and count."""

    _places = dict(name=1, output_names=1, label_names=1, average=2)

    _omitted: ClassVar[tuple[str, ...]] = ("average",)

    name: str = ""
    output_names: Names = None
    label_names: Names = None

    def __init__(self, *args: Any, **kwargs: Any):
        own, _ = self._take(args, kwargs)
        said = {name: value for name, value in own.items() if name not in self._omitted}
        EvalMetric.__init__(self, **said)
        self._check()

    def _check(self) -> None:
        """Raise ValueError for parameters that do not fit."""

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            self._add(*self.measure(label, pred))

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        """The sum and the count of one pair: numbers, or NDArrays of one element."""
        raise NotImplementedError


def _number(x: Any) -> Any:
    if isinstance(x, NDArray):
        x = x.asscalar()
    return x.item() if isinstance(x, numpy.generic) else x


def _choose(arrays: dict[str, Any], names: Names) -> list[Any]:
    return list(arrays.values()) if names is None else [arrays[name] for name in names]


def check_label_shapes(
    labels: Any, preds: Any, wrap: bool = False, shape: bool = False
) -> tuple[Any, Any]:
    """Check labels and predictions and return both: equal lengths, or with `shape` equal shapes.

    wrap: return a single NDArray in a list. ValueError if lengths or shapes differ.
    """
    mine, theirs = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if mine != theirs:
        raise ValueError(f"Shape of labels {mine} does not match shape of predictions {theirs}")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


def batches(labels: Any, preds: Any) -> list[tuple[Any, Any]]:
    """The pairs of label and prediction in the arguments of `update`."""
    labels, preds = check_label_shapes(labels, preds, wrap=True)
    return list(zip(labels, preds, strict=True))


def as_arrays(label: Any, pred: Any) -> tuple[NDArray, NDArray]:
    """Both as NDArrays in the context of `pred`."""
    label, pred = (x if isinstance(x, NDArray) else nd.array(x) for x in (label, pred))
    return label.as_in_context(pred.context), pred


def as_numpy(x: Any) -> numpy.ndarray:
    """`x` as a NumPy array; waits for an NDArray."""
    return x.asnumpy() if isinstance(x, NDArray) else numpy.asarray(x)


def as_scores(label: Any, pred: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Class numbers and one row of scores for each, as NumPy arrays; waits."""
    label, pred = as_numpy(label).astype("int64").ravel(), as_numpy(pred)
    return check_label_shapes(label, pred)


family = Family(EvalMetric, "metric")
register, alias = family.register, family.alias


def create(metric: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a metric from a name, a metric, a class, a function of (label, pred), a list, or what
    `get_config` gives; the last two also as JSON, `["name", {settings}]` or `{"metric": "name"}`.

    A list gives a composite metric. ValueError for an unknown name (the message lists the known
    names), TypeError for anything else.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, type) and issubclass(metric, EvalMetric):
        return metric(*args, **kwargs)
    if isinstance(metric, list):
        return family["composite"]([create(part, *args, **kwargs) for part in metric])
    if callable(metric):
        return family["custommetric"](metric, *args, **kwargs)
    if not isinstance(metric, str) and not (isinstance(metric, dict) and "metric" in metric):
        raise TypeError(
            f"expected a metric, its name, a function or a list of those, got {metric!r}"
        )
    return family.create(metric, *args, **kwargs)
