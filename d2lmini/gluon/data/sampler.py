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
determines the next iteration, and `load_state_dict` makes the next iteration repeat it. The
DataLoader keeps the position within an iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from d2lmini.ops import random_state

__all__ = [
    "BatchSampler", "FilterSampler", "RandomSampler", "Sampler",
    "SequentialSampler",
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


class _Fixed(Sampler):
    """A sampler whose iterations are all equal."""

    def state_dict(self) -> dict[str, Any]:
        return {}


class SequentialSampler(_Fixed):
    """start, start + 1, ..., start + length - 1."""

    def __init__(self, length: int, start: int = 0):
        self._length = length
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """0 ... length - 1 in a new random order each time (`numpy.random.seed` repeats it)."""

    def __init__(self, length: int):
        self._length = length
        self._again: Any = None  # a generator for the next iteration in place of NumPy's global one

    def __iter__(self) -> Iterator[Any]:
        indices = np.arange(self._length)
        generator, self._again = self._again or np.random, None
        generator.shuffle(indices)
        return iter(indices.tolist())

    def __len__(self) -> int:
        return self._length

    def state_dict(self) -> dict[str, Any]:
        return {"numpy": random_state.numpy_state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration the one of this state; keeps NumPy's global generator."""
        again = np.random.RandomState()
        again.set_state(random_state.numpy_state_of(state["numpy"]))
        self._again = again


class FilterSampler(_Fixed):
    """Indices of the elements for which `fn(element)` is true, computed by the constructor."""

    def __init__(self, fn: Callable[[Any], Any], dataset: Any):
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


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
        if len(self._prev) >= self._batch_size:
            raise ValueError(f"a rest of {len(self._prev)} of batches of {self._batch_size}")
        if hasattr(self._sampler, "load_state_dict"):
            self._sampler.load_state_dict(state["sampler"])


def state_of(sampler: Any) -> dict[str, Any] | None:
    """`state_dict` of a sampler; {} for lists and other iterables, whose iterations are equal."""
    if hasattr(sampler, "state_dict"):
        return sampler.state_dict()
    return {} if isinstance(sampler, (Sequence, np.ndarray)) else None
