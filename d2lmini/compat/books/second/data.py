"""Data by the second edition's names.

>>> from d2lmini import np
>>> from d2lmini.compat.books.second.data import SyntheticRegressionData
>>> data = SyntheticRegressionData(w=np.array([2, -3.4]), b=4.2)
>>> X, y = next(iter(data.train_dataloader()))
>>> X.shape, y.shape
((32, 2), (32, 1))

`FashionMNIST` reads its files where they are (~/.mxnet/datasets/fashion-mnist) or can be fetched;
otherwise it warns and takes the handwritten digits that come with scikit-learn, resized.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from d2lmini import gluon, np
from d2lmini.compat.books import first
from d2lmini.compat.books.second.oop import DataModule
from d2lmini.compat.books.second.plots import show_images
from d2lmini.d2l.helpers import digits as read_digits


def get_dataloader_workers() -> int:
    """The number of workers for a DataLoader: none, since its threads need none."""
    return 0


def synthetic_data(w: Any, b: Any, num_examples: int, noise: float = 0.01) -> tuple[Any, Any]:
    """X and y = X w + b + noise, y as a column."""
    X = np.random.randn(num_examples, len(w))
    return X, np.dot(X, w.reshape((-1, 1))) + b + np.random.randn(num_examples, 1) * noise


class SyntheticRegressionData(DataModule):
    """Examples of a linear model with noise."""

    def __init__(
        self, w: Any, b: Any, noise: float = 0.01, num_train: int = 1000, num_val: int = 1000,
        batch_size: int = 32,
    ):  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.X, self.y = synthetic_data(w, b, num_train + num_val, noise)

    def get_dataloader(self, train: bool) -> Any:
        """Batches of the first `num_train` examples, or of the others."""
        return self._part((self.X, self.y), train)


def _pictures(train: bool, resize: Any) -> Any:
    """A data set of Fashion-MNIST, or of digits if its files can't be had."""
    try:
        return first.read_fashion_mnist(train, resize)
    except ConnectionError as problem:
        warnings.warn(
            f"Fashion-MNIST is replaced by scikit-learn's handwritten digits. {problem}",
            stacklevel=4,
        )
    X_train, y_train, X_test, y_test = read_digits(resize[0])
    X, y = (X_train, y_train) if train else (X_test, y_test)
    return gluon.data.ArrayDataset(np.array(X), y.astype("int32"))


class FashionMNIST(DataModule):
    """Pictures of ten kinds of clothes, (N, 1, H, W) between 0 and 1, and their classes."""

    def __init__(self, batch_size: int = 64, resize: tuple[int, int] = (28, 28)):
        super().__init__()
        self.save_hyperparameters()
        self.train = _pictures(True, resize)
        self.val = _pictures(False, resize)

    def text_labels(self, indices: Iterable[Any]) -> list[str]:
        """The names of the classes."""
        return first.get_fashion_mnist_labels(indices)

    def get_dataloader(self, train: bool) -> Any:
        """Batches; shuffled for training."""
        data = self.train if train else self.val
        return gluon.data.DataLoader(data, self.batch_size, shuffle=train)

    def visualize(self, batch: Any, nrows: int = 1, ncols: int = 8, labels: Any = ()) -> None:
        """Draw the first pictures of a batch."""
        X, y = batch
        show_images(X.squeeze(1), nrows, ncols, titles=labels or self.text_labels(y))


def load_data_fashion_mnist(batch_size: int, resize: Any = None) -> tuple[Any, Any]:
    """Loaders for training and test; resize: the side length of the pictures, if another is
    wanted."""
    size = (resize, resize) if isinstance(resize, int) else tuple(resize or (28, 28))
    data = FashionMNIST(batch_size, size)
    return data.train_dataloader(), data.val_dataloader()
