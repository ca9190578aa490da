"""The first edition's helpers: data, training, optimizers, and nets that write.

    train_iter, test_iter = d2l.load_data_fashion_mnist(256)
    d2l.train_ch3(net, train_iter, test_iter, loss, num_epochs, batch_size, trainer=trainer)
    epoch 1, loss 0.7882, train acc 0.749, test acc 0.800

Without a network: `d2l.load_data_digits()` needs none. Language models are on characters:

>>> from d2lmini import d2l
>>> X, Y = next(d2l.data_iter_consecutive(list(range(30)), batch_size=2, num_steps=6))
>>> X[0].asnumpy(), Y[0].asnumpy()                       # Y is X, one character later
(array([0., 1., 2., 3., 4., 5.], dtype=float32), array([1., 2., 3., 4., 5., 6.], dtype=float32))

    d2l.train_and_predict_rnn_gluon(model, num_hiddens, vocab_size, ctx, corpus_indices,
                                    idx_to_char, char_to_idx, num_epochs, num_steps, lr,
                                    clipping_theta, batch_size, pred_period, pred_len, prefixes)
    epoch 50, perplexity 4.216831, time 0.52 sec
     - ...
"""

from __future__ import annotations

import io
import math
import os
import random
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from d2lmini import autograd, gluon, init
from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.compat.books import shared
from d2lmini.compat.books.shared import Batches, Net, grad_clipping, linreg, sgd, squared_loss
from d2lmini.context import Context, cpu
from d2lmini.d2l.helpers import Split, split_batch
from d2lmini.gluon import nn
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
    path = shared.find_file("airfoil_self_noise.dat", source)
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
    path = shared.find_file("jaychou_lyrics.txt.zip", source)
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
    shared.use_svg_display()
    pictures = [shared.as_numpy(image).reshape((28, 28)) for image in images]
    names = [x if isinstance(x, str) else get_fashion_mnist_labels([x])[0] for x in labels]
    shared.show_images(pictures, 1, len(pictures), 12 / len(pictures), names)


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
            sgd(params, lr, batch_size)

    _train(net, train_iter, test_iter, loss, step, num_epochs, [cpu()], shared.keep_whole, _EPOCH)


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
    """Train, and print the line for each epoch."""
    epochs = shared.train_epochs(
        net, train_iter, test_iter, loss, step, num_epochs, devices, split_f
    )
    for number, epoch in enumerate(epochs, start=1):
        print(line.format(epoch=number, **epoch._asdict()))


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
    batches = shared.load_array((features, labels), batch_size)
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
    shared.plot_losses(values, num_epochs)


# -- nets that write -------------------------------------------------------------------------------

Chars = Sequence[str]
Indices = dict[str, int]


def data_iter_random(
    corpus_indices: Sequence[int], batch_size: int, num_steps: int, ctx: Context | None = None
) -> Iterator[tuple[Any, Any]]:
    """Batches (X, Y) of shape (batch_size, num_steps) from random, non-overlapping places. Each
    batch is independent: the state of a recurrent net does not carry over."""
    # One less: Y needs a character after the last of X.
    starts = [i * num_steps for i in range((len(corpus_indices) - 1) // num_steps)]
    random.shuffle(starts)
    for first in range(0, len(starts) - batch_size + 1, batch_size):
        chosen = starts[first : first + batch_size]
        X = [corpus_indices[i : i + num_steps] for i in chosen]
        Y = [corpus_indices[i + 1 : i + 1 + num_steps] for i in chosen]
        yield nd.array(X, ctx), nd.array(Y, ctx)


def data_iter_consecutive(
    corpus_indices: Sequence[int], batch_size: int, num_steps: int, ctx: Context | None = None
) -> Iterator[tuple[Any, Any]]:
    """Batches (X, Y) of shape (batch_size, num_steps); each goes on where the one before ended, so
    that a recurrent net's state carries over."""
    corpus = nd.array(corpus_indices, ctx)
    length = len(corpus) // batch_size
    rows = corpus[: batch_size * length].reshape((batch_size, length))
    for first in range(0, (length - 1) // num_steps * num_steps, num_steps):
        X = rows[:, first : first + num_steps]
        yield X, rows[:, first + 1 : first + 1 + num_steps]


def to_onehot(X: Any, size: int) -> list[Any]:
    """A batch (N, T) of indices as T one-hot matrices (N, size)."""
    return [nd.one_hot(x, size) for x in X.T]


class RNNModel(nn.Block):
    """A recurrent layer on one-hot characters, and a dense layer that scores the next character.

    forward(inputs (N, T), state) -> (scores (T * N, vocab_size), state).
    """

    def __init__(self, rnn_layer: Any, vocab_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.rnn = rnn_layer
        self.vocab_size = vocab_size
        self.dense = nn.Dense(vocab_size)

    def forward(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        X = nd.one_hot(inputs.T, self.vocab_size)  # (T, N, vocab_size)
        Y, state = self.rnn(X, state)
        return self.dense(Y.reshape((-1, Y.shape[-1]))), state

    def begin_state(self, *args: Any, **kwargs: Any) -> Any:
        """The state before the first character."""
        return self.rnn.begin_state(*args, **kwargs)


class _ByHand:
    """`rnn(inputs, state, params)`, to be called as an `RNNModel`."""

    def __init__(self, rnn: Net, params: Any, init_state: Net, num_hiddens: int, vocab_size: int):
        self.rnn, self.params, self.vocab_size = rnn, params, vocab_size
        self.begin_state = lambda batch_size, ctx: init_state(batch_size, num_hiddens, ctx)

    def __call__(self, X: Any, state: Any) -> tuple[Any, Any]:
        outputs, state = self.rnn(to_onehot(X, self.vocab_size), state, self.params)
        return nd.concat(*outputs, dim=0), state  # (T * N, vocab_size)


def predict_rnn(
    prefix: str, num_chars: int, rnn: Net, params: Any, init_rnn_state: Net, num_hiddens: int,
    vocab_size: int, ctx: Context, idx_to_char: Chars, char_to_idx: Indices,
) -> str:  # fmt: skip
    """Continue `prefix` by `num_chars` characters of `rnn(inputs, state, params)`."""
    model = _ByHand(rnn, params, init_rnn_state, num_hiddens, vocab_size)
    return predict_rnn_gluon(prefix, num_chars, model, vocab_size, ctx, idx_to_char, char_to_idx)


def predict_rnn_gluon(
    prefix: str, num_chars: int, model: Any, vocab_size: int, ctx: Context, idx_to_char: Chars,
    char_to_idx: Indices,
) -> str:  # fmt: skip
    """Continue `prefix` by `num_chars` characters of a Block such as `RNNModel`."""
    given = [char_to_idx[char] for char in prefix]
    indices, state = given[:1], model.begin_state(batch_size=1, ctx=ctx)
    for t in range(1, len(given) + num_chars):
        scores, state = model(nd.array([[indices[-1]]], ctx), state)
        likeliest = scores.reshape((-1,)).argmax(axis=0)
        indices.append(given[t] if t < len(given) else int(likeliest.asscalar()))
    return "".join(idx_to_char[i] for i in indices)


def train_and_predict_rnn(
    rnn: Net, get_params: Callable[[], list[Any]], init_rnn_state: Net, num_hiddens: int,
    vocab_size: int, ctx: Context, corpus_indices: Sequence[int], idx_to_char: Chars,
    char_to_idx: Indices, is_random_iter: bool, num_epochs: int, num_steps: int, lr: float,
    clipping_theta: float, batch_size: int, pred_period: int, pred_len: int,
    prefixes: Iterable[str],
) -> None:  # fmt: skip
    """Train `rnn(inputs, state, params)` with `sgd`; every `pred_period` epochs print the
    perplexity and the text that it writes after each prefix."""
    params = get_params()
    model = _ByHand(rnn, params, init_rnn_state, num_hiddens, vocab_size)
    update = partial(sgd, params, lr, 1)  # the loss is a mean already
    _train_writer(
        model, lambda: params, update, clipping_theta, num_epochs,
        data_iter_random if is_random_iter else data_iter_consecutive,
        (corpus_indices, batch_size, num_steps, ctx),
        (pred_period, prefixes, pred_len, vocab_size, ctx, idx_to_char, char_to_idx),
    )  # fmt: skip


def train_and_predict_rnn_gluon(
    model: Any, num_hiddens: int, vocab_size: int, ctx: Context, corpus_indices: Sequence[int],
    idx_to_char: Chars, char_to_idx: Indices, num_epochs: int, num_steps: int, lr: float,
    clipping_theta: float, batch_size: int, pred_period: int, pred_len: int,
    prefixes: Iterable[str],
) -> None:  # fmt: skip
    """Train a Block such as `RNNModel` by a Trainer, on consecutive batches; else as above."""
    model.initialize(ctx=ctx, force_reinit=True, init=init.Normal(0.01))
    params = model.collect_params()
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": lr, "momentum": 0, "wd": 0})
    update = partial(trainer.step, 1)  # the loss is a mean already
    _train_writer(
        model, lambda: [p.data() for p in params.values()], update, clipping_theta, num_epochs,
        data_iter_consecutive, (corpus_indices, batch_size, num_steps, ctx),
        (pred_period, prefixes, pred_len, vocab_size, ctx, idx_to_char, char_to_idx),
    )  # fmt: skip


def _train_writer(
    model: Any, get_params: Callable[[], list[Any]], update: Callable[[], None], theta: float,
    num_epochs: int, data_iter: Net, data: tuple[Any, ...], writing: tuple[Any, ...],
) -> None:  # fmt: skip
    """The loop of both functions. Perplexity is exp of the mean loss."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    _, batch_size, _, ctx = data
    pred_period, prefixes, pred_len, *vocabulary = writing
    for epoch in range(1, num_epochs + 1):
        start = time.time()
        loss_sum, n = nd.zeros(1), 0
        state = model.begin_state(batch_size=batch_size, ctx=ctx)
        for X, Y in data_iter(*data):
            if data_iter is data_iter_random:
                state = model.begin_state(batch_size=batch_size, ctx=ctx)
            else:  # the gradient stops at the beginning of the batch
                state = _detach(state)
            with autograd.record():
                y_hat, state = model(X, state)
                y = Y.T.reshape((-1,))
                l = loss(y_hat, y).mean()
            l.backward()
            grad_clipping(get_params(), theta, ctx)
            update()
            loss_sum += l.as_in_context(loss_sum.context) * y.size
            n += y.size
        if epoch % pred_period == 0:
            perplexity = math.exp(loss_sum.asscalar() / n)
            print(f"epoch {epoch}, perplexity {perplexity:f}, time {time.time() - start:.2f} sec")
            for prefix in prefixes:
                print(" -", predict_rnn_gluon(prefix, pred_len, model, *vocabulary))


def _detach(state: Any) -> Any:
    if isinstance(state, (list, tuple)):
        return [_detach(s) for s in state]
    return state.detach()
