"""Text as numbers: sequences of characters cut into batches for recurrent networks.

>>> from d2lmini import d2l
>>> X, Y = next(d2l.data_iter_consecutive(list(range(30)), batch_size=2, num_steps=6))
>>> X[0].asnumpy(), Y[0].asnumpy()                       # Y is X, one character later
(array([0., 1., 2., 3., 4., 5.], dtype=float32), array([1., 2., 3., 4., 5., 6.], dtype=float32))
"""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from collections.abc import Iterator, Sequence

from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.d2l.data import data_file
from d2lmini.ndarray import NDArray

#: Errors of `zipfile` for damaged and encrypted archives and unsupported compression methods.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, OSError, RuntimeError,
    ValueError,
)  # fmt: skip


def _plain(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The text in the archive. Other compression methods take the memory that their header asks
    for."""
    info = archive.getinfo("jaychou_lyrics.txt")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"packed in way {info.compress_type}, expected 0 or 8")
    return info


def load_data_jay_lyrics() -> tuple[list[int], dict[str, int], list[str], int]:
    """The first 10 000 characters of Jay Chou's lyrics: (corpus_indices, char_to_idx, idx_to_char,
    vocab_size). Read from `jaychou_lyrics.txt.zip` (see `data_file`), of which nothing is unpacked
    to the disk; MXNetError if the file is no such archive."""
    path = data_file("jaychou_lyrics.txt.zip")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(_plain(archive)) as file:
            # Read no more than is wanted, whatever the unpacked size.
            text = io.TextIOWrapper(file, "utf-8", newline="").read(10_000)
    except _DAMAGED as problem:
        raise MXNetError(f"{path}: the archive cannot be read: {problem!r:.300}") from None
    text = text.replace("\n", " ").replace("\r", " ")
    idx_to_char = sorted(set(text))
    char_to_idx = {char: i for i, char in enumerate(idx_to_char)}
    return [char_to_idx[char] for char in text], char_to_idx, idx_to_char, len(idx_to_char)


def data_iter_random(
    corpus_indices: Sequence[int], batch_size: int, num_steps: int, ctx: Context | None = None
) -> Iterator[tuple[NDArray, NDArray]]:
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
) -> Iterator[tuple[NDArray, NDArray]]:
    """Batches (X, Y) of shape (batch_size, num_steps); each goes on where the one before ended, so
    that a recurrent net's state carries over."""
    corpus = nd.array(corpus_indices, ctx)
    length = len(corpus) // batch_size
    rows = corpus[: batch_size * length].reshape((batch_size, length))
    for first in range(0, (length - 1) // num_steps * num_steps, num_steps):
        X = rows[:, first : first + num_steps]
        yield X, rows[:, first + 1 : first + 1 + num_steps]


def to_onehot(X: NDArray, size: int) -> list[NDArray]:
    """A batch (N, T) of indices as T one-hot matrices (N, size)."""
    return [nd.one_hot(x, size) for x in X.T]
