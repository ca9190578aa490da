"""Metrics: a sum and a count; the metric is their quotient.

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

Most add something for each predicted class or number. Some are computed from the confusion table,
which counts how many examples of class i were predicted as class j. Accuracy uses only the diagonal
of the table. If a class is rare, a model that always predicts the other class is accurate but
useless; the other metrics of the table give such a model 0.

>>> label, pred = nd.array([0, 0, 0, 1]), nd.array([[1, 0], [1, 0], [1, 0], [1, 0]])
>>> for m in metric.Accuracy(), metric.F1(), metric.MCC():
...     m.update(label, pred)
...     print(m.get())
('accuracy', 0.75)
('f1', 0.0)
('mcc', 0.0)

Metrics may be functions, and several together:

>>> def worst(label, pred):
...     return abs(label - pred).max()            # label and pred are NumPy arrays
>>> both = metric.create(["mae", worst])
>>> both.update(nd.array([1, 2]), nd.array([1, 5]))
>>> both.get()
(['mae', 'worst'], [1.5, 3.0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, sqrt
from typing import Any, ClassVar

import numpy

from d2lmini import ndarray as nd
from d2lmini.base import families
from d2lmini.base.families import REQUIRED, Family
from d2lmini.ndarray import NDArray

#: The names of arrays that MXNet's Module chooses.
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

    name: the name that `get` returns with the value. output_names, label_names: for MXNet's Module,
    accepted. sum_metric, num_inst: sum and count (to read,
    or for a subclass to change). MXNet's second pair, global_sum_metric and global_num_inst, is
    there for subclasses that add to it; no metric of d2lmini does. has_global_stats is accepted.
    """

    def __init__(
        self, name: str, output_names: Names = None, label_names: Names = None, **kwargs: Any
    ):
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._pending: list[tuple[Any, Any]] = []
        EvalMetric.reset(self)
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: labels and predictions, NDArrays or lists of equally many NDArrays."""
        raise NotImplementedError(
            f"{type(self).__name__} must say what it measures: define update(labels, preds)"
        )

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
    """Base class of metrics with declared parameters. A subclass defines `measure` of a pair
    (label, pred), which returns what to add to sum and count."""

    _places = dict(name=1, output_names=1, label_names=1, average=2)

    name: str = ""
    output_names: Names = None
    label_names: Names = None

    def __init__(self, *args: Any, **kwargs: Any):
        self._take(args, kwargs)
        EvalMetric.__init__(self, self.name, self.output_names, self.label_names)
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
    """Make a metric from a name, a metric, a class, a function of (label, pred), a list, settings
    `{"metric": "name", ...}`, or JSON of these, also `["name", {settings}]`.

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


# -- predicted classes -----------------------------------------------------------------------------


@alias("acc")
class Accuracy(Measured):
    """Share of correct classes. pred holds classes in label's shape, or scores, whose largest entry
    along `axis` is the class. `update` does not wait."""

    axis: int = 1
    name: str = "accuracy"

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_arrays(label, pred)
        if pred.shape != label.shape:
            pred = pred.argmax(axis=self.axis)
        label, pred = (x.reshape((-1,)) if x.ndim != 1 else x for x in (label, pred))
        check_label_shapes(label, pred)
        matches: Any = pred.astype("int32") == label.astype("int32")
        return matches.sum(), label.size


@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(Measured):
    """Share of labels (N,) that are among the top_k largest scores (N, C). Waits.

    ValueError for a top_k below 2, and in `update` for scores with another number of axes.
    """

    top_k: int = 1
    name: str = "top_k_accuracy"

    def _check(self) -> None:
        if self.top_k <= 1:
            raise ValueError(f"top_k must be at least 2, got {self.top_k}; for 1 there is Accuracy")
        self.name += f"_{self.top_k}"

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_scores(label, pred)
        if pred.ndim != 2:
            raise ValueError(f"scores must be (N, C), got {pred.shape}")
        k = min(self.top_k, pred.shape[1])
        best = numpy.argpartition(pred.astype("float32"), -k)[:, -k:]
        return int((best == label[:, None]).sum()), len(label)


@alias("ce")
class CrossEntropy(Measured):
    """Mean of -log(pred[label] + eps) over the examples: probabilities (N, C), N labels. Waits.

    IndexError for a label outside the classes.
    """

    eps: float = 1e-12
    name: str = "cross-entropy"

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_scores(label, pred)
        probability = pred[numpy.arange(len(label)), label]
        return float((-numpy.log(probability + self.eps)).sum()), len(label)


@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """CrossEntropy under another name."""

    name: str = "nll-loss"


@register
class Perplexity(Measured):
    """exp of the mean of -log pred[label]: the effective number of classes of an unsure model.

    pred (..., C) with probabilities along `axis`, label with as many elements as pred has
    distributions. Labels equal to ignore_label do not count (None: all labels count). Probabilities
    below 1e-10 count as 1e-10. `update` does not wait. ValueError when the numbers of elements do
    not match.
    """

    ignore_label: int | None = REQUIRED  # type: ignore[assignment]
    axis: int = -1
    name: str = "perplexity"

    def update(self, labels: Any, preds: Any) -> None:
        total: Any = 0.0
        count: Any = 0
        for label, pred in batches(labels, preds):
            label, pred = as_arrays(label, pred)
            axis = -1 if self.axis == pred.ndim - 1 else self.axis
            if axis == -1:
                pred = pred.reshape((-1, pred.shape[-1]))
            if label.size * pred.shape[axis] != pred.size:
                raise ValueError(
                    f"predictions {pred.shape} need {pred.size // pred.shape[axis]} labels, "
                    f"got {label.shape}"
                )
            label = label.astype(pred.dtype).reshape((-1,))
            loss = -nd.log(nd.maximum(nd.pick(pred, label, axis=axis), 1e-10))
            if self.ignore_label is None:
                count = count + loss.size
            else:
                counts = nd.not_equal(label, self.ignore_label)
                count, loss = counts.sum() + count, loss * counts
            total = loss.sum() + total
        self._add(total, count)

    def _value(self, total: float, count: float) -> float:
        return exp(total / count) if count else float("nan")


# -- the confusion table ---------------------------------------------------------------------------


class _Binary(Measured):
    """Base class: a score of the four counts of two classes. `average` says whether the scores of
    updates are averaged ("macro") or one score is computed from all updates together ("micro")."""

    _score: Any  #: the score of a table

    average: str = "macro"

    def _check(self) -> None:
        if self.average not in ("macro", "micro"):
            raise ValueError(f"average is 'macro' or 'micro', got {self.average!r}")

    def reset(self) -> None:
        super().reset()
        self._table = numpy.zeros((2, 2), int)

    def update(self, labels: Any, preds: Any) -> None:
        table = numpy.zeros((2, 2), int)
        for label, pred in batches(labels, preds):
            label, pred = as_numpy(label).astype("int64").ravel(), as_numpy(pred)
            if pred.ndim < 2:
                raise ValueError(
                    f"{type(self).__name__}: predictions must be scores (N, classes), got "
                    f"{pred.shape}; of predicted classes y make scores with nd.one_hot(y, 2)"
                )
            pred = pred.argmax(axis=1).ravel()
            check_label_shapes(label, pred)
            found = numpy.unique(label)
            if len(found) > 2:
                raise ValueError(
                    f"{type(self).__name__} is for two classes, got labels {found.tolist()}"
                )
            table += numpy.bincount(2 * (label == 1) + (pred == 1), minlength=4).reshape(2, 2)
        if self.average == "macro":
            self._add(self._score(table), 1)
        else:
            self._table += table
            self.num_inst += int(table.sum())
            self.sum_metric = self._score(self._table) * self.num_inst


@register
class F1(_Binary):
    """2 p r / (p + r) for class 1, with precision p and recall r.

    p is the share of correct predictions among predictions of class 1, r the share of examples of
    class 1 that are predicted as 1. Other classes count as 0. ValueError in `update` for labels of
    three classes, and for predictions that are not scores (N, classes). average: "macro", the mean
    over updates, or "micro", from all counts together. Waits.
    """

    name: str = "f1"

    @staticmethod
    def _score(table: numpy.ndarray) -> float:
        (_, false_positives), (false_negatives, true_positives) = table.tolist()
        # 2 p r / (p + r), simplified.
        wrong = false_positives + false_negatives
        return 2 * true_positives / (2 * true_positives + wrong) if true_positives else 0.0


@register
class MCC(_Binary):
    """Matthews' correlation of label and prediction, from -1 to 1.

    (tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn)), without factors that are 0.
    Arguments and ValueError as for F1. Waits.
    """

    name: str = "mcc"

    @staticmethod
    def _score(table: numpy.ndarray) -> float:
        (tn, fp), (fn, tp) = table.tolist()
        below = 1.0
        for factor in (tp + fp, tp + fn, tn + fp, tn + fn):
            below *= factor or 1
        return (tp * tn - fp * fn) / sqrt(below)


# -- predicted numbers -----------------------------------------------------------------------------


class _Difference(Measured):
    """Base class: one number per update from label - pred, averaged over updates."""

    #: The methods that compute the number from the differences, in order.
    _methods: ClassVar[tuple[str, ...]] = ()

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_arrays(label, pred)
        # Differences and means of integers are float64, as in NumPy.
        dtype = numpy.result_type(label.dtype, pred.dtype)
        dtype = dtype if dtype.kind == "f" else numpy.dtype("float64")
        label, pred = (x.astype(dtype, copy=False) for x in (label, pred))
        # (N,) and (N, 1) are equivalent.
        label, pred = (x.expand_dims(1) if x.ndim == 1 else x for x in (label, pred))
        number = nd.broadcast_sub(label, pred)
        for method in self._methods:
            number = getattr(number, method)()
        return number, 1


@register
class MAE(_Difference):
    """Mean of |label - pred| of each update, averaged over updates. Does not wait."""

    _methods = ("abs", "mean")

    name: str = "mae"


@register
class MSE(_Difference):
    """Mean of (label - pred)^2 of each update, averaged over updates. Does not wait."""

    _methods = ("square", "mean")

    name: str = "mse"


@register
class RMSE(_Difference):
    """Root of the mean of (label - pred)^2 of each update, averaged over updates."""

    _methods = ("square", "mean", "sqrt")

    name: str = "rmse"


@register
class Loss(Measured):
    """Mean of the elements of the predictions, which are losses; labels are ignored."""

    name: str = "loss"

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            _, pred = as_arrays(pred, pred)
            self._add(pred.sum(), pred.size)


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

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        super().reset()
        for metric in self.metrics:
            metric.reset()

    def get(self) -> tuple[list[str], list[Any]]:
        pairs = [pair for metric in self.metrics for pair in metric.get_name_value()]
        return [name for name, _ in pairs], [value for _, value in pairs]


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
        super().__init__(name, output_names, label_names)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=False):
            result = self._feval(as_numpy(label), as_numpy(pred))
            total, count = result if isinstance(result, tuple) else (result, 1)
            self._add(total, count)


def np(
    numpy_feval: Callable[[Any, Any], Any], name: str | None = None,
    allow_extra_outputs: bool = False,
) -> CustomMetric:  # fmt: skip
    """Make a metric of a function of NumPy arrays; see `CustomMetric`."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)
