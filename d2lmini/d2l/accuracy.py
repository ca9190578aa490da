"""How good a classifier is, on one device or several.

>>> from d2lmini import d2l, nd
>>> scores, labels = nd.array([[0.1, 0.9], [0.8, 0.2]]), nd.array([1, 1])
>>> d2l.evaluate_accuracy([(scores, labels)], net=lambda X: X)
0.5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from d2lmini import gluon
from d2lmini.context import Context, cpu

Parts = tuple[list[Any], list[Any]]
Split = Callable[[Any, Any, list[Context]], Parts]


def split_batch(X: Any, y: Any, devices: list[Context]) -> Parts:
    """Split features and labels into a part for each device, the first parts longer by one if need
    be. ValueError unless there are as many labels as features."""
    if X.shape[0] != y.shape[0]:
        raise ValueError(f"split_batch: {X.shape[0]} features and {y.shape[0]} labels")
    load = gluon.utils.split_and_load
    return load(X, devices, even_split=False), load(y, devices, even_split=False)


def evaluate_accuracy(
    data_iter: Iterable[Any],
    net: Callable[..., Any],
    ctx: Context | list[Context] | None = None,
    split: Split = split_batch,
) -> float:
    """The fraction of examples whose largest score is the right class; each batch is split over the
    contexts (None: the CPU). Waits once, at the end."""
    contexts = [ctx] if isinstance(ctx, Context) else ctx or [cpu()]
    hits, n = 0, 0
    for X, y in data_iter:
        Xs, ys = split(X, y, contexts)
        hits += count_hits([net(part) for part in Xs], ys)
        n += sum(part.size for part in ys)
    return float(hits) / n


def count_hits(scores: list[Any], labels: list[Any]) -> Any:
    """How many rows of scores, over all devices, are largest at their label: an array of one number
    on the CPU."""
    first, *rest = (
        (s.argmax(axis=1).astype(y.dtype) == y).sum().as_in_context(cpu())
        for s, y in zip(scores, labels)
    )
    return sum(rest, first)
