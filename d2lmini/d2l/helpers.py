"""Data, devices and accuracy, for the loops of chapters and of the books.

>>> from d2lmini import d2l, nd
>>> d2l.try_gpu() in d2l.try_all_gpus()
True
>>> scores, labels = nd.array([[0.1, 0.9], [0.8, 0.2]]), nd.array([1, 1])
>>> d2l.evaluate_accuracy([(scores, labels)], net=lambda X: X)
0.5

The pictures are real handwritten digits without a network: scikit-learn's bundled copy of a UCI
data set, 1797 grey pictures of 8 x 8 pixels, written by 43 people (E. Alpaydin, C. Kaynak, 1998:
Optical Recognition of Handwritten Digits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from d2lmini import gluon
from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu, gpu, num_gpus
from d2lmini.gluon.data import ArrayDataset, DataLoader

Parts = tuple[list[Any], list[Any]]
Split = Callable[[Any, Any, list[Context]], Parts]

#: Pictures kept for tests; the other 1437 are for training.
N_TEST = 360


def try_gpu(i: int = 0) -> Context:
    """`gpu(i)` if an array can be made there, else `cpu()`."""
    try:
        nd.zeros((1,), ctx=gpu(i))
    except MXNetError:
        return cpu()
    return gpu(i)


def try_all_gpus() -> list[Context]:
    """All available GPUs; `[cpu()]` if there is none."""
    return [gpu(i) for i in range(num_gpus())] or [cpu()]


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


def digits(resize: int | None = None, seed: int = 0) -> tuple[np.ndarray, ...]:
    """The pictures as arrays: X_train (1437, 1, H, W), y_train (1437,), X_test (360, 1, H, W),
    y_test (360,), all float32, pixels in [0, 1], H = W = `resize` or 8 (bilinear).

    `seed` fixes which pictures are for tests; each digit has the same share on both sides.
    ImportError without scikit-learn.
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise ImportError(
            "load_data_digits needs scikit-learn, which brings the pictures: "
            "pip install 'd2lmini[lab]', or pip install scikit-learn"
        ) from None
    from d2lmini.gluon.data.vision.transforms import resize as resized

    bunch = load_digits()
    X = (bunch.images[..., None] / 16).astype(np.float32)  # (N, 8, 8, 1)
    if resize is not None:
        X = resized(np, X, resize, resize)
    X = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    y = bunch.target.astype(np.float32)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=N_TEST, stratify=y, random_state=seed
    )
    return X_train, y_train, X_test, y_test


def load_data_digits(
    batch_size: int, resize: int | None = None, seed: int = 0, num_workers: int = 0
) -> tuple[DataLoader, DataLoader]:
    """Loaders of the training (1437 pictures, shuffled) and the test part (360) of `digits`.

    Batches are X (N, 1, H, W) and y (N,), float32. `numpy.random.seed` repeats the shuffling.
    """
    X_train, y_train, X_test, y_test = digits(resize, seed)
    train = ArrayDataset(nd.array(X_train), nd.array(y_train))
    test = ArrayDataset(nd.array(X_test), nd.array(y_test))
    return (
        DataLoader(train, batch_size, shuffle=True, num_workers=num_workers),
        DataLoader(test, batch_size, num_workers=num_workers),
    )
