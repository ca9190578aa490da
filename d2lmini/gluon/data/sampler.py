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

**The rest.** Processes that train together must take the same number of steps with batches of the
same size, because each process's `Trainer.step(n)` divides by its own n times the number of
processes. So if the length is no multiple of k, the last parts repeat the first indices of the
order: fewer than k elements count twice in the last step of an epoch. To avoid this, use `weigh`,
which gives weight 0 to repeated elements and the number to divide by; the step then equals that of
one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.ndarray import NDArray
from d2lmini.ops import random_state

__all__ = [
    "BatchSampler", "FilterSampler", "RandomSampler", "Sampler", "SequentialSampler",
    "SplitSampler",
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


_RESTS = ("pad", "discard", "keep")


class SplitSampler(Sampler):
    """Part `part_index` of `num_parts` of the indices 0 ... length - 1; see this module.

    shuffle: use a new order in every iteration, the same in all parts; seed: selects the orders
    (use the same seed in all processes). rest: the treatment of the last length % num_parts
    indices. 'pad' gives all parts ceil(length / num_parts) indices, by repeating the first indices;
    'discard' leaves the rest out, different indices in each epoch; 'keep' gives every index once,
    so some parts have one index more: for evaluation, where processes take no steps together.

    Raises ValueError for a part outside the range, a negative length, or another word. (gluonnlp's
    sampler of this name calls 'pad' even_size=True and 'keep' even_size=False; PyTorch's
    DistributedSampler calls 'discard' drop_last=True.)
    """

    def __init__(
        self,
        length: int,
        num_parts: int = 1,
        part_index: int = 0,
        shuffle: bool = True,
        seed: int = 0,
        rest: str = "pad",
    ):
        if length < 0 or not 0 <= part_index < num_parts:
            raise ValueError(
                "SplitSampler: expected length >= 0 and 0 <= part_index < num_parts, got length "
                f"{length}, part {part_index} of {num_parts}"
            )
        if rest not in _RESTS:
            raise ValueError(f"SplitSampler: rest is one of {', '.join(_RESTS)}; got {rest!r}")
        self._length, self._num_parts, self._part_index = length, num_parts, part_index
        self._shuffle, self._seed, self._rest = shuffle, seed, rest
        #: The number of the next iteration; each iteration adds 1.
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration that of this epoch. Needed only if the processes may have begun
        different numbers of iterations."""
        self.epoch = int(epoch)

    def __iter__(self) -> Iterator[int]:
        order = self._order(self.epoch)
        self.epoch += 1
        if self._rest == "pad":
            order = np.resize(order, self._num_parts * len(self))  # repeats from the start
        return iter(order[self._part_index :: self._num_parts][: len(self)].tolist())

    def __len__(self) -> int:
        if self._rest == "discard":
            return self._length // self._num_parts
        first = self._part_index if self._rest == "keep" else 0
        return -((first - self._length) // self._num_parts)

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(self._length)
        # Sorting the generator's raw output gives the same order with any NumPy on any machine.
        stream = np.random.SFC64(np.random.SeedSequence((self._seed % (1 << 63), epoch)))
        return np.argsort(stream.random_raw(self._length), kind="stable")

    def weigh(self, batch: int, batch_size: int) -> tuple[NDArray, float]:
        """The weights of a batch's elements, and the divisor of the step.

        Returns weights of shape (n,), 0 for a repeated element and else 1, and the mean number of
        counted elements in the batches of all parts, the same in all parts, for `Trainer.step`.
        batch: number of the batch in the epoch, from 0; batch_size: that of the DataLoader.
        IndexError beyond the last batch.

        >>> last = SplitSampler(7, 2, 1).weigh(1, batch_size=2)
        >>> last[0].asnumpy().tolist(), last[1]
        ([1.0, 0.0], 1.5)

            weight, size = sampler.weigh(step % len(loader), batch_size)
            with autograd.record():
                l = loss(net(X), y) * weight
            l.backward()
            trainer.step(size)
        """
        k, longest = self._num_parts, -(-self._length // self._num_parts)
        begin, end = batch * batch_size, min((batch + 1) * batch_size, len(self))
        if not 0 <= begin < longest:
            raise IndexError(f"weigh: there is no batch {batch} of {batch_size} in {len(self)}")
        places = np.arange(begin, end) * k + self._part_index
        whole = k * len(self) if self._rest == "discard" else self._length
        size = (min(k * (begin + batch_size), whole) - k * begin) / k
        return nd.array(places < whole), size

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.set_epoch(state["epoch"])
