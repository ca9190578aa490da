"""Real handwritten digits without a network: scikit-learn's bundled copy of a UCI data set.

1797 grey pictures of 8 x 8 pixels, written by 43 people (E. Alpaydin, C. Kaynak, 1998: Optical
Recognition of Handwritten Digits). The data set is small but real.

>>> from d2lmini import d2l
>>> train_iter, test_iter = d2l.load_data_digits(256, resize=28)      # doctest: +SKIP
>>> X, y = next(iter(test_iter))                                      # doctest: +SKIP
>>> X.shape, y.shape                                                  # doctest: +SKIP
((256, 1, 28, 28), (256,))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from d2lmini.gluon.data import DataLoader

#: Pictures kept for tests; the other 1437 are for training.
N_TEST = 360


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
    from d2lmini.gluon.data.vision.image_ops import resize as resized

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
    from d2lmini import ndarray as nd
    from d2lmini.gluon.data import ArrayDataset, DataLoader

    X_train, y_train, X_test, y_test = digits(resize, seed)
    train = ArrayDataset(nd.array(X_train), nd.array(y_train))
    test = ArrayDataset(nd.array(X_test), nd.array(y_test))
    return (
        DataLoader(train, batch_size, shuffle=True, num_workers=num_workers),
        DataLoader(test, batch_size, num_workers=num_workers),
    )
