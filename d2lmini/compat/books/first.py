"""The first edition's data and training loops, by the book's names.

    train_iter, test_iter = d2l.load_data_fashion_mnist(256)
    d2l.train_ch3(net, train_iter, test_iter, loss, num_epochs, batch_size, trainer=trainer)
    epoch 1, loss 0.7882, train acc 0.749, test acc 0.800

Without a network: `d2l.load_data_digits()` needs none.
"""

from __future__ import annotations

import io
import os
import random
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from d2lmini import autograd, gluon, init
from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.compat.books import loops
from d2lmini.compat.books.figures import as_numpy, plot_losses, show_images, use_svg_display
from d2lmini.compat.books.files import find_file
from d2lmini.compat.books.loops import Batches, Net
from d2lmini.compat.books.models import linreg, squared_loss
from d2lmini.context import Context, cpu
from d2lmini.d2l.helpers import Split, evaluate_accuracy, split_batch
from d2lmini.gluon.data.vision import transforms

# -- data ------------------------------------------------------------------------------------------

_FASHION_MNIST = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip


def data_iter(batch_size: int, features: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    """Batches of examples in random order (Python's `random`); the last may be smaller."""
    order = list(range(len(features)))
    random.shuffle(order)
    for start in range(0, len(order), batch_size):
        chosen = nd.array(order[start : start + batch_size])
        yield features.take(chosen), labels.take(chosen)


def get_data_ch7() -> tuple[Any, Any]:
    """1500 measurements of airfoil noise: features (1500, 5), labels (1500,), each column with mean
    0 and standard deviation 1. Read from `airfoil_self_noise.dat` (see `find_file`); MXNetError if
    the file does not hold rows of equally many numbers."""
    source = "Take the NASA data set 'Airfoil Self-Noise' (UCI repository, number 291)"
    path = find_file("airfoil_self_noise.dat", source)
    try:
        data = np.loadtxt(path, delimiter="\t", ndmin=2)
    except (ValueError, OverflowError) as problem:
        raise MXNetError(f"{path}: {str(problem)[:300]}") from None
    if len(data) < 2:
        raise MXNetError(f"{path}: expected rows of numbers between tabs, got {len(data)} of them")
    data = (data - data.mean(axis=0)) / data.std(axis=0)
    return nd.array(data[:1500, :-1]), nd.array(data[:1500, -1])


def load_data_jay_lyrics() -> tuple[list[int], dict[str, int], list[str], int]:
    """The first 10 000 characters of Jay Chou's lyrics: (corpus_indices, char_to_idx, idx_to_char,
    vocab_size). Read from `jaychou_lyrics.txt.zip` (see `find_file`), of which nothing is unpacked
    to the disk; MXNetError if the file is no such archive."""
    source = "Take it from the folder `data` of the book's repository"
    path = find_file("jaychou_lyrics.txt.zip", source)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_plain(archive)) as file:
            # Read no more than is wanted, whatever the unpacked size.
            text = io.TextIOWrapper(file, "utf-8", newline="").read(10_000)
    except Exception as problem:  # `zipfile` has eight kinds of errors for damaged archives
        raise MXNetError(f"{path}: the archive cannot be read: {problem!r:.300}") from None
    text = text.replace("\n", " ").replace("\r", " ")
    idx_to_char = sorted(set(text))
    char_to_idx = {char: i for i, char in enumerate(idx_to_char)}
    return [char_to_idx[char] for char in text], char_to_idx, idx_to_char, len(idx_to_char)


def _plain(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The text in the archive. Other compression methods take the memory that their header asks
    for."""
    info = archive.getinfo("jaychou_lyrics.txt")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"packed in way {info.compress_type}, expected 0 or 8")
    return info


def get_fashion_mnist_labels(labels: Iterable[Any]) -> list[str]:
    """The names of the classes 0 to 9."""
    return [_FASHION_MNIST[int(i)] for i in labels]


def show_fashion_mnist(images: Iterable[Any], labels: Iterable[Any]) -> None:
    """Images (28 x 28 numbers each) in a row, under their labels (names or numbers)."""
    use_svg_display()
    pictures = [as_numpy(image).reshape((28, 28)) for image in images]
    names = [x if isinstance(x, str) else get_fashion_mnist_labels([x])[0] for x in labels]
    show_images(pictures, 1, len(pictures), 12 / len(pictures), names)


def read_fashion_mnist(train: bool, resize: Any = None, **options: Any) -> Any:
    """The data set, pictures (1, H, W) between 0 and 1; resize: another side length, or two."""
    steps = [transforms.Resize(resize)] if resize else []
    images = gluon.data.vision.FashionMNIST(train=train, **options)
    return images.transform_first(transforms.Compose([*steps, transforms.ToTensor()]))


def load_data_fashion_mnist(
    batch_size: int, resize: int | None = None, root: str = "~/.mxnet/datasets/fashion-mnist"
) -> tuple[Any, ...]:
    """Training and test DataLoader of Fashion-MNIST: batches (N, 1, 28, 28) between 0 and 1.

    resize: side length of the images, if another is wanted. root: the folder with the four `.gz`
    files; missing files are downloaded, and an error offline names the files.
    """
    workers = 0 if sys.platform.startswith("win32") else 4
    folder = os.path.expanduser(root)
    return tuple(
        gluon.data.DataLoader(
            read_fashion_mnist(train, resize, root=folder), batch_size, train, num_workers=workers
        )
        for train in (True, False)
    )


# -- classifiers -----------------------------------------------------------------------------------

_EPOCH = "epoch {epoch}, loss {loss:.4f}, train acc {acc:.3f}, test acc {test_acc:.3f}"


def train_ch3(
    net: Net, train_iter: Batches, test_iter: Batches, loss: Net, num_epochs: int, batch_size: int,
    params: list[Any] | None = None, lr: float | None = None, trainer: Any = None,
) -> None:  # fmt: skip
    """Train a classifier on the CPU, with `sgd` on `params` at rate `lr`, or with a Trainer."""

    def step(n: int) -> None:
        if trainer is not None:
            trainer.step(batch_size)
        else:
            assert params is not None and lr is not None, "train_ch3: give params and lr"
            loops.sgd(params, lr, batch_size)

    _train(net, train_iter, test_iter, loss, step, num_epochs, [cpu()], loops.keep_whole, _EPOCH)


def train(
    train_iter: Batches, test_iter: Batches, net: Net, loss: Net, trainer: Any,
    ctx: Context | list[Context], num_epochs: int,
) -> None:  # fmt: skip
    """Train a classifier on one or several contexts; the loss is the mean over examples."""
    print("training on", ctx)
    contexts = [ctx] if isinstance(ctx, Context) else ctx
    line = _EPOCH + ", time {seconds:.1f} sec"
    _train(net, train_iter, test_iter, loss, trainer.step, num_epochs, contexts, split_batch, line)


def train_ch5(
    net: Net, train_iter: Batches, test_iter: Batches, batch_size: int, trainer: Any, ctx: Context,
    num_epochs: int,
) -> None:  # fmt: skip
    """Train a classifier with softmax cross-entropy on one context."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    train(train_iter, test_iter, net, loss, trainer, ctx, num_epochs)


def _train(
    net: Net, train_iter: Batches, test_iter: Batches, loss: Net, step: Callable[[int], Any],
    num_epochs: int, devices: list[Context], split_f: Split, line: str,
) -> None:  # fmt: skip
    """The loop of all these functions; prints the line for each epoch."""
    for epoch in range(1, num_epochs + 1):
        start = time.time()
        mean_loss, acc, n = loops.train_epoch(net, train_iter, loss, step, devices, split_f)
        test_acc = evaluate_accuracy(test_iter, net, devices, split_f)
        seconds = time.time() - start
        print(
            line.format(
                epoch=epoch, loss=mean_loss, acc=acc, test_acc=test_acc, seconds=seconds,
                speed=n / seconds, devices=devices,
            )
        )  # fmt: skip


# -- optimizers ------------------------------------------------------------------------------------


def train_2d(trainer: Net) -> list[tuple[Any, Any]]:
    """20 steps of an optimizer on two numbers, from (-5, -2); returns all visited points.

    trainer(x1, x2, s1, s2) returns the next values of all four; the states s1 and s2 are 0 at
    first.
    """
    x1, x2, s1, s2 = -5, -2, 0, 0
    results = [(x1, x2)]
    for _ in range(20):
        x1, x2, s1, s2 = trainer(x1, x2, s1, s2)
        results.append((x1, x2))
    print(f"epoch 20, x1 {float(x1):f}, x2 {float(x2):f}")
    return results


def train_ch7(
    trainer_fn: Net, states: Any, hyperparams: dict[str, Any], features: Any, labels: Any,
    batch_size: int = 10, num_epochs: int = 2,
) -> None:  # fmt: skip
    """Linear regression by an optimizer written by hand, `trainer_fn(params, states, hyperparams)`;
    draws the loss over the epochs. Each gradient is that of the batch's mean loss."""
    w, b = nd.random.normal(scale=0.01, shape=(features.shape[1], 1)), nd.zeros(1)
    for param in (w, b):
        param.attach_grad()
    step = lambda: trainer_fn([w, b], states, hyperparams)  # noqa: E731
    net = lambda X: linreg(X, w, b)  # noqa: E731
    _regress(net, squared_loss, step, features, labels, batch_size, num_epochs)


def train_gluon_ch7(
    trainer_name: str, trainer_hyperparams: dict[str, Any], features: Any, labels: Any,
    batch_size: int = 10, num_epochs: int = 2,
) -> None:  # fmt: skip
    """Linear regression by one of Gluon's optimizers, given by name; draws the loss as above."""
    net = gluon.nn.Dense(1)
    net.initialize(init.Normal(sigma=0.01))
    trainer = gluon.Trainer(net.collect_params(), trainer_name, trainer_hyperparams)
    loss, step = gluon.loss.L2Loss(), lambda: trainer.step(1)
    _regress(net, loss, step, features, labels, batch_size, num_epochs)


def _regress(
    net: Net, loss: Net, step: Net, features: Any, labels: Any, batch_size: int, num_epochs: int
) -> None:
    """The loop of both functions, with steps on the mean loss of each batch. The loss over all
    examples is taken every 100 examples."""
    losses = [loss(net(features), labels).mean()]
    start = time.time()
    batches = loops.load_array((features, labels), batch_size)
    for _ in range(num_epochs):
        for i, (X, y) in enumerate(batches, start=1):
            with autograd.record():
                l = loss(net(X), y).mean()
            l.backward()
            step()
            if i * batch_size % 100 == 0:
                losses.append(loss(net(features), labels).mean())
    values = [float(l) for l in losses]
    seconds = (time.time() - start) / num_epochs
    print(f"loss: {values[-1]:f}, {seconds:f} sec per epoch")
    plot_losses(values, num_epochs)
