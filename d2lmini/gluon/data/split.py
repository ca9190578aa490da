"""A data set split into parts, one for each process of a job.

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

from collections.abc import Iterator
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.gluon.data.sampler import Sampler
from d2lmini.ndarray import NDArray

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
