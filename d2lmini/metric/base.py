"""Base class of metrics: a sum and a count; the metric is their quotient.

`update` adds a batch to sum and count, `get` divides. There are two pairs of sum and count:
`reset_local` resets the local pair, for example after each report; only `reset` resets the global
pair.

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

import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy

from d2lmini import ndarray as nd
from d2lmini.base import explain_left_out
from d2lmini.ndarray import NDArray

#: The named arrays that an update uses; None: all.
Names = list[str] | None

#: Metric classes by each of their names, in lower case.
_registry: dict[str, Callable[..., EvalMetric]] = {}

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
    `update_dict` uses from its dicts; None means all. sum_metric, num_inst: the local sum and count
    (to read, or for a subclass to change); global_sum_metric, global_num_inst: the global ones, if
    has_global_stats is set.
    """

    def __init__(
        self, name: str, output_names: list[str] | None = None,
        label_names: list[str] | None = None, **kwargs: Any,
    ):  # fmt: skip
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", False)
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
        """Reset the local and the global sums."""
        self._pending.clear()
        self._sum, self._count = 0.0, 0
        self._global_sum, self._global_count = 0.0, 0

    def reset_local(self) -> None:
        """Reset the local sum; keep the global sum."""
        self._settle()
        self._sum, self._count = 0.0, 0

    def get(self) -> tuple[Any, Any]:
        """Name and local value; nan before the first update. Waits for pending results."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """Name and global value; without a global sum, the local value."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def get_name_value(self) -> list[tuple[str, Any]]:
        """`get` as a list of pairs, also for composite metrics."""
        return _pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        """`get_global` as a list of pairs."""
        return _pairs(*self.get_global())

    def _value(self, total: float, count: float) -> float:
        return total / count if count else float("nan")

    def _add(self, total: Any, count: Any) -> None:
        """Add numbers, or NDArrays of one element, to both sums, without waiting."""
        self._pending.append((total, count))
        if len(self._pending) >= _MOST_PENDING:
            self._settle()

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for total, count in pending:
            total, count = _number(total), _number(count)
            self._sum += total
            self._count += count
            self._global_sum += total
            self._global_count += count

    sum_metric = _sums("_sum", "The local sum")
    num_inst = _sums("_count", "The local count")
    global_sum_metric = _sums("_global_sum", "The global sum")
    global_num_inst = _sums("_global_count", "The global count")


class Averaged(EvalMetric):
    """Base class: `average` says whether scores of updates are averaged ("macro") or one score is
    computed from all updates together ("micro"); ValueError for another word."""

    def __init__(
        self, name: str, output_names: Names = None, label_names: Names = None,
        average: str = "macro",
    ):  # fmt: skip
        if average not in ("macro", "micro"):
            raise ValueError(f"average is 'macro' or 'micro', got {average!r}")
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)


def _number(x: Any) -> Any:
    if isinstance(x, NDArray):
        x = x.asscalar()
    return x.item() if isinstance(x, numpy.generic) else x


def _choose(arrays: dict[str, Any], names: Names) -> list[Any]:
    return list(arrays.values()) if names is None else [arrays[name] for name in names]


def _pairs(names: Any, values: Any) -> list[tuple[str, Any]]:
    if not isinstance(names, list):
        names, values = [names], [values]
    return list(zip(names, values, strict=True))


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


def as_array(x: Any) -> NDArray:
    """`x` as an NDArray; converts anything else."""
    return x if isinstance(x, NDArray) else nd.array(x)


def as_numpy(x: Any) -> numpy.ndarray:
    """`x` as a NumPy array; waits for an NDArray."""
    return x.asnumpy() if isinstance(x, NDArray) else numpy.asarray(x)


Class = TypeVar("Class", bound=type)


def register(klass: Class) -> Class:
    """Class decorator: register the class for `create` under its lower-case name."""
    return alias()(klass)


def alias(*names: str) -> Callable[[Class], Class]:
    """Class decorator: register the class for `create` under its own name and these names."""

    def enter(klass: Class) -> Class:
        if not (isinstance(klass, type) and issubclass(klass, EvalMetric)):
            raise TypeError(f"only subclasses of EvalMetric can be registered, got {klass!r}")
        for name in (klass.__name__, *names):
            _registry[name.lower()] = klass
        return klass

    return enter


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
        composite = _registry["composite"]()
        for part in metric:
            composite.add(create(part, *args, **kwargs))  # type: ignore[attr-defined]
        return composite
    if callable(metric):
        return _registry["custommetric"](metric, *args, **kwargs)
    if isinstance(metric, dict) and isinstance(metric.get("metric"), str):
        settings = {name: value for name, value in metric.items() if name != "metric"}
        return create(metric["metric"], *args, **{**settings, **kwargs})
    if not isinstance(metric, str):
        raise TypeError(
            f"expected a metric, its name, a function or a list of those, got {metric!r}"
        )
    if metric.startswith(("[", "{")):
        try:
            read = json.loads(metric)
            if isinstance(read, dict):
                return create(read, *args, **kwargs)
            metric, kwargs = read
            return create(metric, *args, **kwargs)
        except (ValueError, TypeError, AssertionError, RecursionError) as why:
            raise ValueError(
                f'a metric as JSON is ["name", {{settings}}]; in {str(metric)[:200]!r}: '
                f"{str(why)[:300]}"
            ) from None
    if metric.lower() not in _registry:
        raise ValueError(
            explain_left_out(f"metric.{metric}")
            or f"no metric is registered as {metric[:100]!r}; there are "
            f"{', '.join(sorted(_registry))}"
        )
    return _registry[metric.lower()](*args, **kwargs)
