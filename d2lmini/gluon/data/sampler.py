"""Samplers: the order of a dataset's elements, and their grouping into batches.

A sampler is an iterable of indices; each epoch iterates over it anew. `BatchSampler` cuts the
indices into lists.

>>> batches = BatchSampler(SequentialSampler(7), 3, "keep")
>>> list(batches), len(batches)
([[0, 1, 2], [3, 4, 5], [6]], 3)

`RandomSampler` shuffles with NumPy's global generator, as MXNet does: `numpy.random.seed` makes the
order repeatable. (`d2lmini.random.seed` controls the random numbers of operations: dropout,
initializers, random transforms.)

To resume an interrupted training, an epoch's order must be repeatable. `state_dict` returns what
determines the next iteration, apart from NumPy's generator, and `load_state_dict` makes the next
iteration repeat it. The DataLoader keeps NumPy's state and the position within an iteration.

`SplitSampler`: a data set split into parts, one for each process of a job.

>>> [list(SplitSampler(7, 2, part, shuffle=False)) for part in range(2)]
[[0, 2, 4, 6], [1, 3, 5, 0]]

    sampler = SplitSampler(len(dataset), kv.num_workers, kv.rank)
    for X, y in DataLoader(dataset, batch_size, sampler=sampler):
        ...
        trainer.step(X.shape[0])

Every process knows the order of the whole epoch, which depends only on the seed and the epoch's
number. Part r of k takes every k-th index of this order, starting at r. Therefore batch t of all
parts together is batch t of a single process with batches k times as large, for any k.

Processes that train together must take the same number of steps with batches of the same size,
because each process's `Trainer.step(n)` divides by its own n times the number of processes. So if
the length is no multiple of k, the last parts repeat the first indices of the order: fewer than k
elements count twice in the last step of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SplitSampler",
]  # fmt: skip


class Sampler:
    """Base class: `__iter__` yields indices (or lists of indices), `__len__` is their number."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def state_dict(self) -> dict[str, Any] | None:
        """What determines the next iteration, as numbers, strings, lists and dicts; None if the
        class does not support this, so the iteration cannot be repeated."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration the one of this state."""


class _OfLength(Sampler):
    """Base class of samplers whose next iteration depends at most on NumPy's generator."""

    def __init__(self, length: int):
        self._length = length

    def __len__(self) -> int:
        return self._length

    def state_dict(self) -> dict[str, Any]:
        return {}


class SequentialSampler(_OfLength):
    """start, start + 1, ..., start + length - 1."""

    def __init__(self, length: int, start: int = 0):
        super().__init__(length)
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))


class RandomSampler(_OfLength):
    """0 ... length - 1 in a new random order each time (`numpy.random.seed` repeats it)."""

    def __iter__(self) -> Iterator[Any]:
        indices = np.arange(self._length)
        np.random.shuffle(indices)
        return iter(indices.tolist())


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of `sampler`.

    last_batch: 'keep' returns a shorter last list, 'discard' drops it, 'rollover' puts it at the
    start of the next epoch. ValueError for another word, or a batch_size below 1.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep"):
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {last_batch}"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self._sampler: Sized = sampler
        self._batch_size = int(batch_size)
        self._last_batch = last_batch
        self._prev: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._prev = self._prev, []
        for i in self._sampler:  # type: ignore[attr-defined]
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._prev = batch

    def __len__(self) -> int:
        n = len(self._sampler)
        if self._last_batch == "keep":
            return -(-n // self._batch_size)
        return (len(self._prev) + n) // self._batch_size

    def state_dict(self) -> dict[str, Any] | None:
        inner = state_of(self._sampler)
        return None if inner is None else {"rest": list(self._prev), "sampler": inner}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._prev = list(state["rest"])
        if len(self._prev) >= self._batch_size or not all(type(i) is int for i in self._prev):
            raise ValueError(f"no rest of batches of {self._batch_size}: {self._prev!r:.100}")
        if hasattr(self._sampler, "load_state_dict"):
            self._sampler.load_state_dict(state["sampler"])


def state_of(sampler: Any) -> dict[str, Any] | None:
    """`state_dict` of a sampler; {} for lists and other iterables, whose iterations are equal."""
    if hasattr(sampler, "state_dict"):
        return sampler.state_dict()
    return {} if isinstance(sampler, (Sequence, np.ndarray)) else None


class SplitSampler(Sampler):
    """Part `part_index` of `num_parts` of the indices 0 ... length - 1; see this module.

    shuffle: use a new order in every iteration, the same in all parts; seed: selects the orders
    (use the same seed in all processes). All parts have ceil(length / num_parts) indices: the last
    ones repeat the first indices of the order. (gluonnlp's sampler of this name does so with
    even_size=True, PyTorch's DistributedSampler always.)

    Raises ValueError for a part outside the range or a negative length.
    """

    def __init__(
        self, length: int, num_parts: int = 1, part_index: int = 0, shuffle: bool = True,
        seed: int = 0,
    ):  # fmt: skip
        if length < 0 or not 0 <= part_index < num_parts:
            raise ValueError(
                "SplitSampler: expected length >= 0 and 0 <= part_index < num_parts, got length "
                f"{length}, part {part_index} of {num_parts}"
            )
        self._length, self._num_parts, self._part_index = length, num_parts, part_index
        self._shuffle, self._seed = shuffle, seed
        #: The number of the next iteration; each iteration adds 1. Set it if the processes may have
        #: begun different numbers of iterations.
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        order = np.arange(self._length)
        if self._shuffle:
            # Sorting the generator's raw output gives the same order with any NumPy on any machine.
            stream = np.random.SFC64(np.random.SeedSequence((self._seed % (1 << 63), self.epoch)))
            order = np.argsort(stream.random_raw(self._length), kind="stable")
        self.epoch += 1
        repeated = np.resize(order, self._num_parts * len(self))
        return iter(repeated[self._part_index :: self._num_parts].tolist())

    def __len__(self) -> int:
        return -(-self._length // self._num_parts)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = int(state["epoch"])
