"""DataLoader: batches of a dataset, in order, made ahead by workers.

>>> from d2lmini import nd
>>> from d2lmini.gluon.data import ArrayDataset, DataLoader
>>> data = ArrayDataset(nd.arange(10).reshape((5, 2)), nd.arange(5))
>>> for X, y in DataLoader(data, batch_size=2, num_workers=2):
...     print(X.shape, y.asnumpy())
(2, 2) [0. 1.]
(2, 2) [2. 3.]
(1, 2) [4.]

With `num_workers` the batches after the one in use are loaded while the program computes:
`prefetch` of them at most, and they come in the sampler's order whoever is done first. That is not
left to the engine: user code may wait for arrays, which an engine's task must not.

What comes is the same with any number of workers: the sampler runs in the program's own thread, and
operations that draw random numbers for a batch (random transforms) do so from a stream of that
batch, fixed by `d2lmini.random.seed`. The order of shuffling is fixed by `numpy.random.seed`.

A loader can go on in the middle of an epoch (`state_dict`), for it alone knows which batches were
handed out: its sampler is ahead of that by those in flight.
"""

from __future__ import annotations

import concurrent.futures
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from typing import Any

from d2lmini import random_state
from d2lmini.context import cpu_pinned
from d2lmini.gluon.data.batchify import default_batchify_fn, default_mp_batchify_fn
from d2lmini.gluon.data.sampler import BatchSampler, RandomSampler, SequentialSampler, state_of
from d2lmini.gluon.data.workers import ProcessPool, ThreadPool, load
from d2lmini.ndarray import NDArray

__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]


@dataclass
class _Place:
    """How far an epoch has come."""

    sampler: Any  # what its walk began with; None if nobody knows
    key: random_state.Key
    epoch: int  # its number
    given: int = 0  # batches handed out
    over: bool = False


class DataLoader:
    """Walks a dataset in batches; each `for` loop over it is one epoch.

    dataset        anything with `len` and `[i]`: a Dataset, an array, a list
    batch_size     elements per batch; shuffle: in a new order each epoch
    sampler        the order, instead of shuffle
    last_batch     what becomes of a shorter last batch: 'keep' (default), 'discard', 'rollover'
    batch_sampler  lists of indices, instead of the four above
    batchify_fn    makes a batch of a list of elements; default: see `default_batchify_fn`
    num_workers    0: batches are loaded in the program's own thread, when they are asked for
    pin_memory     batches on cpu_pinned(pin_device_id)
    prefetch       batches in flight, at most; default 2 * num_workers
    thread_pool    None or True: workers are threads; False: processes. (In MXNet the default means
                   processes. What they need and cost is told in `workers.py`.)
    timeout        seconds to wait for a batch before TimeoutError
    auto_reload    begin to load the next epoch as soon as one has ended

    An exception in a worker is raised where its batch would come, with the worker's traceback; the
    epoch is over then. A worker process that dies is a RuntimeError, and the next epoch has new
    ones. Leaving a loop early drops what was loaded ahead. Workers start with the first epoch and
    go with the loader; an iterator keeps its loader alive.

    ValueError for arguments that contradict each other, are missing, or out of range.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool | None = None,
        timeout: float = 120,
        auto_reload: bool = False,
    ):
        if timeout <= 0:
            raise ValueError(f"timeout must be positive, given {timeout}")
        self._dataset = dataset
        self._batch_sampler = _batches(
            dataset, batch_size, shuffle, sampler, last_batch, batch_sampler
        )
        self._batchify_fn = batchify_fn or default_batchify_fn
        self._num_workers = max(0, int(num_workers))
        self._pinned = cpu_pinned(pin_device_id) if pin_memory else None
        self._prefetch = max(0, 2 * self._num_workers if prefetch is None else int(prefetch))
        self._thread_pool = thread_pool is None or bool(thread_pool)
        self._timeout = timeout
        self._pool: ThreadPool | ProcessPool | None = None
        self._release: Any = None
        self._place: _Place | None = None  # of the epoch that was begun last
        self._resumed = False  # it is yet to go on
        # The next epoch, on its way; it holds this loader only once it is handed out.
        self._ahead: _Epoch | None = None
        self.auto_reload = bool(auto_reload) and self._num_workers > 0
        if self.auto_reload:
            self._ahead = _Epoch(self)

    def __len__(self) -> int:
        """Number of batches in the coming epoch."""
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._num_workers == 0:
            return self._serially()
        epoch, self._ahead = self._ahead or _Epoch(self), None
        epoch.loader = self
        return epoch

    def _serially(self) -> Iterator[Any]:
        place, batches = self._begin()
        for number, indices in batches:
            batch = load(self._dataset, self._batchify_fn, indices, place.key, number)
            place.given = number + 1
            yield self._placed(batch)
        place.over = True

    def _begin(self) -> tuple[_Place, Iterator[tuple[int, Any]]]:
        """An epoch, or what is left of the one to go on with: its numbered lists of indices."""
        if not self._resumed or self._place is None:
            epoch = self.epoch
            key = random_state.next_key()
            self._place = _Place(state_of(self._batch_sampler), key, epoch)
        self._resumed = False
        place = self._place
        return place, islice(enumerate(self._batch_sampler), place.given, None)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `for` loop walks, or goes on with: from 0."""
        if self._place is None:
            return 0
        return self._place.epoch + (not self._resumed and self._ahead is None)

    # -- to go on later ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """How far the epoch that was begun last has come, in numbers, texts, lists and dicts: which
        batches it has handed out, and what their order and their random transforms depend on.

        Not in it are the generators that later epochs begin with: NumPy's, for shuffling, and
        `d2lmini.random`'s; `gluon.Checkpoint` keeps all of them. TypeError for a sampler that has
        no `state_dict` of its own.
        """
        place = self._place
        if place is None:
            return {}
        if place.sampler is None:
            odd = getattr(self._batch_sampler, "_sampler", self._batch_sampler)
            raise TypeError(
                f"state_dict: nobody knows how a {type(odd).__name__}'s walk comes again; give "
                "it state_dict() and load_state_dict(state), see gluon.data.Sampler, or use a "
                "sampler that has them: SplitSampler, RandomSampler, ..."
            )
        return {**vars(place), "key": list(place.key)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there: the next `for` loop gives the rest of that epoch, no batch if all had
        come but the loop had not ended, and the number of that epoch is `epoch`. The dataset and
        the arguments are to be the same."""
        if not state:
            return  # it was before the first epoch
        if self._ahead is not None:
            self._ahead._close()
            self._ahead = None
        if hasattr(self._batch_sampler, "load_state_dict"):
            self._batch_sampler.load_state_dict(state["sampler"])
        self._place = _Place(**{**state, "key": random_state.Key(*state["key"])})
        self._resumed = not self._place.over
        if self._place.over:
            deque(self._batch_sampler, maxlen=0)  # the next walk is the one after it
        elif self.auto_reload:
            self._ahead = _Epoch(self)

    def _placed(self, batch: Any) -> Any:
        return batch if self._pinned is None else _moved(batch, self._pinned)

    def _workers(self) -> ThreadPool | ProcessPool:
        """The pool; a new one at first, after a failure, and in a forked child."""
        if self._pool is None or self._pool.pid != os.getpid():
            kind = ThreadPool if self._thread_pool else ProcessPool
            self._pool = kind(self._num_workers, self._dataset, self._batchify_fn)
            self._release = weakref.finalize(self, self._pool.close)
        return self._pool

    def _drop_workers(self, pool: Any) -> None:
        """End this pool; the next epoch begins with another."""
        if self._pool is pool:
            self._pool = None
            self._release()


class _Epoch:
    """The batches of one epoch, some of them on their way; what `iter(loader)` gives."""

    def __init__(self, loader: DataLoader):
        self.loader: DataLoader | None = None
        self._pool = loader._workers()
        self._place, self._batches = loader._begin()
        self._number = self._place.given - 1
        self._coming: deque[Future] = deque()
        for _ in range(loader._prefetch):
            self._ask()

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        loader = self.loader
        assert loader is not None
        if not self._coming:  # the end, or prefetch is 0
            self._ask()
        if not self._coming:
            self._place.over = True
            if loader.auto_reload and loader._ahead is None and self._number >= 0:
                self._number = -1
                loader._ahead = _Epoch(loader)
            raise StopIteration
        self._number += 1
        try:
            future = self._coming.popleft()
            batch = self._result(loader, future)
            self._place.given = self._number + 1
            if loader._prefetch:
                self._ask()
        except BaseException:
            self._close()
            raise
        return loader._placed(batch)

    def _ask(self) -> None:
        """Have one more batch loaded, if there is one."""
        for number, indices in self._batches:
            try:
                self._coming.append(self._pool.submit(indices, self._place.key, number))
            except BrokenProcessPool:
                future: Future = Future()
                future.set_exception(BrokenProcessPool())
                self._coming.append(future)
            return

    def _result(self, loader: DataLoader, future: Future) -> Any:
        try:
            result = future.result(loader._timeout)
        except BrokenProcessPool:
            loader._drop_workers(self._pool)
            raise RuntimeError(
                f"DataLoader: a worker process ended before it had loaded batch {self._number}: it "
                "was killed (by hand, or for want of memory), or crashed, or could not start. "
                "What it printed may say more; a script that uses worker processes needs "
                'if __name__ == "__main__": around its main part'
            ) from None
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # the dataset's own
            loader._drop_workers(self._pool)
            raise TimeoutError(
                f"DataLoader: batch {self._number} did not come within {loader._timeout} s; "
                "a worker hangs or is slow: see what dataset[i] and batchify_fn do with "
                "num_workers=0, or raise timeout="
            ) from None
        return self._pool.unpack(result)

    def _close(self) -> None:
        """The epoch is over: take back what was asked for."""
        self._batches = iter(())
        while self._coming:
            self._coming.pop().cancel()

    def __del__(self) -> None:
        for future in self.__dict__.get("_coming", ()):
            future.cancel()


def _batches(
    dataset: Any, batch_size: Any, shuffle: Any, sampler: Any, last_batch: Any, batch_sampler: Any
) -> Any:
    """The sampler of batches that the arguments describe."""
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "batch_size, shuffle, sampler and last_batch must not be specified if "
                "batch_sampler is specified."
            )
        return batch_sampler
    if batch_size is None:
        raise ValueError("batch_size must be specified unless batch_sampler is specified")
    if sampler is None:
        sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
    elif shuffle:
        raise ValueError("shuffle must not be specified if sampler is specified")
    return BatchSampler(sampler, batch_size, last_batch or "keep")


def _moved(batch: Any, ctx: Any) -> Any:
    """The NDArrays of a batch on another context."""
    if isinstance(batch, NDArray):
        return batch.as_in_context(ctx)
    if isinstance(batch, (list, tuple)):
        return [_moved(part, ctx) for part in batch]
    return batch
