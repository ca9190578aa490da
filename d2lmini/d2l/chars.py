"""Language models on characters: train a model, and let it write.

d2l.train_and_predict_rnn_gluon(model, num_hiddens, vocab_size, ctx, corpus_indices,
                                idx_to_char, char_to_idx, num_epochs, num_steps, lr,
                                clipping_theta, batch_size, pred_period, pred_len, prefixes)
epoch 50, perplexity 4.216831, time 0.52 sec
 - ...
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from d2lmini import autograd, gluon
from d2lmini import initializer as init
from d2lmini import ndarray as nd
from d2lmini.context import Context
from d2lmini.d2l.text import data_iter_consecutive, data_iter_random, to_onehot
from d2lmini.d2l.training import sgd


def grad_clipping(params: Sequence[Any], theta: float, ctx: Context | None = None) -> None:
    """Scale all gradients so that their joint norm is at most `theta`. Does not wait."""
    ctx = ctx or params[0].context
    norm = nd.sqrt(nd.add_n(*[(p.grad**2).sum().as_in_context(ctx) for p in params]))
    factor = nd.minimum(theta / nd.maximum(norm, 1e-30), 1.0)
    for param in params:
        param.grad[:] *= factor.as_in_context(param.context)


def _write(
    prefix: str,
    num_chars: int,
    next_scores: Callable[[int, Any], tuple[Any, Any]],
    state: Any,
    idx_to_char: Sequence[str],
    char_to_idx: dict[str, int],
) -> str:
    """`prefix` and `num_chars` more characters, each the one with the largest score."""
    output = [char_to_idx[prefix[0]]]
    for t in range(num_chars + len(prefix) - 1):
        scores, state = next_scores(output[-1], state)
        if t < len(prefix) - 1:
            output.append(char_to_idx[prefix[t + 1]])
        else:
            output.append(int(scores.argmax(axis=1).asscalar()))
    return "".join(idx_to_char[i] for i in output)


def predict_rnn(
    prefix: str,
    num_chars: int,
    rnn: Callable[..., Any],
    params: Any,
    init_rnn_state: Callable[..., Any],
    num_hiddens: int,
    vocab_size: int,
    ctx: Context,
    idx_to_char: Sequence[str],
    char_to_idx: dict[str, int],
) -> str:
    """Continue `prefix` by `num_chars` characters of `rnn(inputs, state, params)`."""

    def next_scores(last: int, state: Any) -> tuple[Any, Any]:
        (Y,), state = rnn(to_onehot(nd.array([[last]], ctx), vocab_size), state, params)
        return Y, state

    state = init_rnn_state(1, num_hiddens, ctx)
    return _write(prefix, num_chars, next_scores, state, idx_to_char, char_to_idx)


def predict_rnn_gluon(
    prefix: str,
    num_chars: int,
    model: Any,
    vocab_size: int,
    ctx: Context,
    idx_to_char: Sequence[str],
    char_to_idx: dict[str, int],
) -> str:
    """Continue `prefix` by `num_chars` characters of a Block such as `RNNModel`."""

    def next_scores(last: int, state: Any) -> tuple[Any, Any]:
        return model(nd.array([[last]], ctx), state)

    state = model.begin_state(batch_size=1, ctx=ctx)
    return _write(prefix, num_chars, next_scores, state, idx_to_char, char_to_idx)


def train_and_predict_rnn(
    rnn: Callable[..., Any],
    get_params: Callable[[], list[Any]],
    init_rnn_state: Callable[..., Any],
    num_hiddens: int,
    vocab_size: int,
    ctx: Context,
    corpus_indices: Sequence[int],
    idx_to_char: Sequence[str],
    char_to_idx: dict[str, int],
    is_random_iter: bool,
    num_epochs: int,
    num_steps: int,
    lr: float,
    clipping_theta: float,
    batch_size: int,
    pred_period: int,
    pred_len: int,
    prefixes: Iterable[str],
) -> None:
    """Train `rnn(inputs, state, params)` with `sgd`; every `pred_period` epochs print the
    perplexity and the text that it writes after each prefix."""
    params = get_params()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def forward(X: Any, state: Any) -> tuple[Any, Any]:
        outputs, state = rnn(to_onehot(X, vocab_size), state, params)
        return nd.concat(*outputs, dim=0), state  # (T * N, vocab_size)

    def step(n: int) -> None:
        grad_clipping(params, clipping_theta, ctx)
        sgd(params, lr, 1)  # the loss is a mean already

    _train(
        forward,
        lambda y_hat, y: loss(y_hat, y).mean(),
        step,
        lambda: init_rnn_state(batch_size, num_hiddens, ctx),
        data_iter_random if is_random_iter else data_iter_consecutive,
        (corpus_indices, batch_size, num_steps, ctx),
        (num_epochs, pred_period, prefixes),
        lambda prefix: predict_rnn(
            prefix, pred_len, rnn, params, init_rnn_state, num_hiddens, vocab_size, ctx,
            idx_to_char, char_to_idx,
        ),
    )  # fmt: skip


def train_and_predict_rnn_gluon(
    model: Any,
    num_hiddens: int,
    vocab_size: int,
    ctx: Context,
    corpus_indices: Sequence[int],
    idx_to_char: Sequence[str],
    char_to_idx: dict[str, int],
    num_epochs: int,
    num_steps: int,
    lr: float,
    clipping_theta: float,
    batch_size: int,
    pred_period: int,
    pred_len: int,
    prefixes: Iterable[str],
) -> None:
    """Train a Block such as `RNNModel` by a Trainer, on consecutive batches; else as above."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    model.initialize(ctx=ctx, force_reinit=True, init=init.Normal(0.01))
    trainer = gluon.Trainer(
        model.collect_params(), "sgd", {"learning_rate": lr, "momentum": 0, "wd": 0}
    )

    def step(n: int) -> None:
        grad_clipping([p.data() for p in model.collect_params().values()], clipping_theta, ctx)
        trainer.step(1)  # the loss is a mean already

    _train(
        model,
        lambda y_hat, y: loss(y_hat, y).mean(),
        step,
        lambda: model.begin_state(batch_size=batch_size, ctx=ctx),
        data_iter_consecutive,
        (corpus_indices, batch_size, num_steps, ctx),
        (num_epochs, pred_period, prefixes),
        lambda prefix: predict_rnn_gluon(
            prefix, pred_len, model, vocab_size, ctx, idx_to_char, char_to_idx
        ),
    )


def _train(
    forward: Callable[[Any, Any], tuple[Any, Any]],
    loss: Callable[[Any, Any], Any],
    step: Callable[[int], None],
    begin_state: Callable[[], Any],
    data_iter: Callable[..., Any],
    data: tuple[Any, ...],
    schedule: tuple[int, int, Iterable[str]],
    write: Callable[[str], str],
) -> None:
    """The loop of both functions. Perplexity is exp of the mean loss."""
    num_epochs, pred_period, prefixes = schedule
    for epoch in range(1, num_epochs + 1):
        start = time.time()
        loss_sum, n = nd.zeros(1), 0
        state = begin_state()
        for X, Y in data_iter(*data):
            if data_iter is data_iter_random:
                state = begin_state()
            else:  # the gradient stops at the beginning of the batch
                state = _detach(state)
            with autograd.record():
                y_hat, state = forward(X, state)
                y = Y.T.reshape((-1,))
                l = loss(y_hat, y)
            l.backward()
            step(y.size)
            loss_sum += l.as_in_context(loss_sum.context) * y.size
            n += y.size
        if epoch % pred_period == 0:
            perplexity = math.exp(loss_sum.asscalar() / n)
            print(f"epoch {epoch}, perplexity {perplexity:f}, time {time.time() - start:.2f} sec")
            for prefix in prefixes:
                print(" -", write(prefix))


def _detach(state: Any) -> Any:
    if isinstance(state, (list, tuple)):
        return [_detach(s) for s in state]
    return state.detach()
