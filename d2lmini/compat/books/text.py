"""Text of both editions: sequences of characters cut into batches, and a net that writes.

>>> from d2lmini import d2l
>>> X, Y = next(d2l.data_iter_consecutive(list(range(30)), batch_size=2, num_steps=6))
>>> X[0].asnumpy(), Y[0].asnumpy()                       # Y is X, one character later
(array([0., 1., 2., 3., 4., 5.], dtype=float32), array([1., 2., 3., 4., 5., 6.], dtype=float32))
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.context import Context


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
