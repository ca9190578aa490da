"""Language models on characters: batches of a text, and nets that write; then the first edition's.

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

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from d2lmini import autograd, gluon, init
from d2lmini import ndarray as nd
from d2lmini.compat.books.loops import Net, grad_clipping, sgd
from d2lmini.context import Context
from d2lmini.gluon import nn

Chars = Sequence[str]
Indices = dict[str, int]

# -- both editions ---------------------------------------------------------------------------------


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


def write(
    prefix: list[int], count: int, next_scores: Callable[[int, Any], tuple[Any, Any]], state: Any
) -> list[int]:
    """The indices of the prefix and of `count` more characters, each the one with the largest of
    the scores; `next_scores(character, state)` returns them and the next state."""
    output = prefix[:1]
    for t in range(1, len(prefix) + count):
        scores, state = next_scores(output[-1], state)
        output.append(prefix[t] if t < len(prefix) else int(scores.reshape((-1,)).argmax(axis=0)))
    return output


# -- the first edition -----------------------------------------------------------------------------


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
    next_scores = lambda last, state: model(nd.array([[last]], ctx), state)  # noqa: E731
    state = model.begin_state(batch_size=1, ctx=ctx)
    indices = write([char_to_idx[char] for char in prefix], num_chars, next_scores, state)
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
    _train(
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
    _train(
        model, lambda: [p.data() for p in params.values()], update, clipping_theta, num_epochs,
        data_iter_consecutive, (corpus_indices, batch_size, num_steps, ctx),
        (pred_period, prefixes, pred_len, vocab_size, ctx, idx_to_char, char_to_idx),
    )  # fmt: skip


def _train(
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
