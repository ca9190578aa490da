"""DataLoader: batches of a dataset in order, prefetched by workers.

>>> from d2lmini import nd
>>> from d2lmini.gluon.data import ArrayDataset, DataLoader
>>> data = ArrayDataset(nd.arange(10).reshape((5, 2)), nd.arange(5))
>>> for X, y in DataLoader(data, batch_size=2, num_workers=2):
...     print(X.shape, y.asnumpy())
(2, 2) [0. 1.]
(2, 2) [2. 3.]
(1, 2) [4.]

With `num_workers`, workers load the next batches while the program computes: at most `prefetch`
batches, in the sampler's order whichever worker finishes first. The engine does not load batches,
because user code may wait for arrays, which a task of the engine must not.

The batches do not depend on the number of workers. The sampler runs in the program's thread. Random
operations of a batch (random transforms) draw from a stream of that batch, fixed by
`d2lmini.random.seed`. `numpy.random.seed` fixes the order of shuffling.

A loader can resume in the middle of an epoch (`state_dict`). The loader keeps this state, because
only the loader knows which batches were returned: its sampler is ahead by the batches in flight.

Workers are threads: they share the dataset and start at once, and NumPy releases the interpreter
lock during heavy work. Each submitted batch has a queue for its answer; a batch whose queue is
gone, because the loop was left, is not loaded.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from d2lmini.context import cpu_pinned
from d2lmini.engine.signals import held
from d2lmini.gluon.data.dataset import default_batchify_fn, default_mp_batchify_fn, gather
from d2lmini.gluon.data.sampler import BatchSampler, RandomSampler, SequentialSampler, state_of
from d2lmini.ndarray import NDArray
from d2lmini.ops import random_state
from d2lmini.ops.random_state import Key


def load(dataset: Any, batchify: Callable, indices: list[Any], key: Key, number: int) -> Any:
    """Load batch `number` of an epoch; its random operations draw from its part of the key.
    RuntimeError in place of StopIteration, which would end the epoch as if it were complete."""
    with random_state.part_of(key, number):
        try:
            batch = gather(dataset, indices) if batchify is default_batchify_fn else None
            return batchify([dataset[i] for i in indices]) if batch is None else batch
        except StopIteration as problem:
            raise RuntimeError(
                f"DataLoader: the dataset or batchify_fn raised StopIteration in batch {number}: "
                "an iterator that it uses has ended before the sampler; let dataset[i] depend on "
                "i alone"
            ) from problem


def _serve(jobs: SimpleQueue) -> None:
    """Main loop of a worker: load the batches whose answers the program still holds."""
    while (job := jobs.get()) is not None:
        answer, arguments = job[0](), job[1]
        if answer is not None:
            try:
                answer.put((load(*arguments), None))
            except BaseException as problem:
                answer.put((None, problem))
        # Release the batch before waiting for the next job.
        del job, answer, arguments


def _end(jobs: SimpleQueue, n: int) -> None:
    """End the workers after their current batches; does not wait."""
    for _ in range(n):
        jobs.put(None)


__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]


@dataclass
class _Place:
    """The position in an epoch."""

    sampler: Any  # the sampler's state at the start; None if unknown
    numpy: Any  # the state of NumPy's generator at the start
    key: random_state.Key
    epoch: int  # the epoch's number
    given: int = 0  # batches returned
    over: bool = False


class DataLoader:
    """Iterates over a dataset in batches; each `for` loop over the loader is one epoch.

    dataset        anything with `len` and `[i]`: a Dataset, an array, a list
    batch_size     elements per batch; shuffle: a new order in each epoch
    sampler        the order of elements, instead of shuffle
    last_batch     for a shorter last batch: 'keep' (default), 'discard' or 'rollover'
    batch_sampler  lists of indices, instead of the four arguments above
    batchify_fn    makes a batch of a list of elements; default: `default_batchify_fn`
    num_workers    0: the program's thread loads each batch when the loop asks for the batch
    pin_memory     batches on cpu_pinned(pin_device_id)
    prefetch       largest number of batches in flight; default 2 * num_workers
    timeout        seconds to wait for a batch before TimeoutError

    Workers are threads, whatever `thread_pool` says, and each epoch is loaded when it begins,
    whatever `auto_reload` says: both are accepted as MXNet's. An exception in a worker is raised in
    place of the batch, with the worker's traceback, and ends the epoch. Leaving a loop early drops
    the prefetched batches. Workers start with the first epoch and end with the loader; an iterator
    keeps its loader alive.

    Raises ValueError for arguments that contradict each other, are missing, or are out of range.
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = None, shuffle: bool = False,
        sampler: Any = None, last_batch: str | None = None, batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None, num_workers: int = 0,
        pin_memory: bool = False, pin_device_id: int = 0, prefetch: int | None = None,
        thread_pool: bool | None = None, timeout: float = 120, auto_reload: bool = False,
    ):  # fmt: skip
        if timeout <= 0:
            raise ValueError(f"timeout must be positive, given {timeout}")
        if batch_sampler is None:
            if batch_size is None:
                raise ValueError("batch_size must be specified unless batch_sampler is specified")
            if sampler is None:
                make = RandomSampler if shuffle else SequentialSampler
                sampler = make(len(dataset))
            elif shuffle:
                raise ValueError("shuffle must not be specified if sampler is specified")
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "batch_size, shuffle, sampler and last_batch must not be specified if "
                "batch_sampler is specified."
            )
        self._dataset = dataset
        self._batch_sampler = batch_sampler
        self._batchify_fn = batchify_fn or default_batchify_fn
        self._num_workers = max(0, int(num_workers))
        self._pinned = cpu_pinned(pin_device_id) if pin_memory else None
        self._prefetch = max(0, 2 * self._num_workers if prefetch is None else int(prefetch))
        self._timeout = timeout
        self._jobs: tuple[int, SimpleQueue] | None = None  # of this process
        self._place: _Place | None = None  # of the epoch begun last
        self._resumed: list[Any] | None = None  # all batches of a resumed epoch, until it begins

    def __len__(self) -> int:
        """Number of batches in the next epoch."""
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._prefetched() if self._num_workers else self._serially()

    def _serially(self) -> Iterator[Any]:
        place, batches = self._begin()
        for number, indices in batches:
            batch = load(self._dataset, self._batchify_fn, indices, place.key, number)
            place.given += 1
            yield _move(batch, self._pinned)
        place.over = True

    def _prefetched(self) -> Iterator[Any]:
        """Submit the first batches at once, and one for each batch that the loop takes."""
        place, batches = self._begin()
        jobs = self._workers()
        answers: deque[SimpleQueue] = deque()  # of the submitted batches, in order

        def submit() -> None:
            for number, indices in islice(batches, 1):
                answer: SimpleQueue = SimpleQueue()
                answers.append(answer)
                job = self._dataset, self._batchify_fn, indices, place.key, number
                jobs.put((weakref.ref(answer), job))

        def collect() -> Iterator[Any]:
            while True:
                submit()
                if not answers:
                    break
                yield _move(self._wait(answers.popleft(), place), self._pinned)
            place.over = True

        for _ in range(self._prefetch):
            submit()
        return collect()

    def _wait(self, answer: SimpleQueue, place: _Place) -> Any:
        """What a worker loads, or raises."""
        try:
            batch, problem = answer.get(timeout=min(self._timeout, threading.TIMEOUT_MAX))
        except Empty:
            self._jobs = None  # the next epoch starts other workers
            self._finalizer()
            raise TimeoutError(
                f"DataLoader: batch {place.given} did not come within {self._timeout} s; "
                "a worker hangs or is slow: see what dataset[i] and batchify_fn do with "
                "num_workers=0, or raise timeout="
            ) from None
        if problem is not None:
            raise problem
        place.given += 1
        return batch

    def _begin(self) -> tuple[_Place, Iterator[tuple[int, Any]]]:
        """Begin an epoch, or resume one: its numbered lists of indices."""
        if self._resumed is None or self._place is None:
            state = state_of(self._batch_sampler), np.random.get_state(legacy=False)
            self._place = _Place(*state, random_state.next_key(), self.epoch)
        batches, self._resumed = self._resumed or self._batch_sampler, None
        return self._place, islice(enumerate(batches), self._place.given, None)

    @property
    def epoch(self) -> int:
        """The number, from 0, of the epoch that the next `for` loop runs or resumes."""
        return 0 if self._place is None else self._place.epoch + (self._resumed is None)

    # -- to go on later ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position in the epoch begun last, as numbers, strings, lists and dicts.

        The state holds which batches were returned, and what determines their order and their
        random transforms. The state omits the generators for later epochs: NumPy's, for shuffling,
        and `d2lmini.random`'s; `gluon.Checkpoint` saves all of them. Raises TypeError for a sampler
        without a `state_dict`.
        """
        place = self._place
        if place is None:
            return {}
        if place.sampler is None:
            odd = getattr(self._batch_sampler, "_sampler", self._batch_sampler)
            raise TypeError(
                f"state_dict: the order of a {type(odd).__name__} cannot be repeated; give it "
                "state_dict() and load_state_dict(state), as the samplers of gluon.data have them"
            )
        numpy = random_state.numpy_state_dict(place.numpy)
        return {**vars(place), "key": list(place.key), "numpy": numpy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`: the next `for` loop returns the rest of that epoch.

        The loop returns no batch if all batches were returned before, but the loop had not ended.
        `epoch` is the number of that epoch. The dataset and the arguments must be the same.
        """
        if not state:
            return  # saved before the first epoch
        place = _Place(**{**state, "key": random_state.Key(*state["key"])})
        numbers = (*place.key, place.epoch, place.given)
        if not all(type(n) is int and n >= 0 for n in numbers) or place.given >> 62:
            raise ValueError(f"the epoch's number, key and given batches are {numbers}")
        if hasattr(self._batch_sampler, "load_state_dict"):
            self._batch_sampler.load_state_dict(place.sampler)
        now = np.random.get_state()
        try:  # RandomSampler shuffles with NumPy's generator
            random_state.set_numpy_state(place.numpy)
            batches = list(self._batch_sampler)
        finally:
            np.random.set_state(now)
        self._place, self._resumed = place, None if place.over else batches

    def _workers(self) -> SimpleQueue:
        """The workers' queue of jobs; new workers at first, after a timeout, and in a forked
        child."""
        if self._jobs is None or self._jobs[0] != os.getpid():
            jobs: SimpleQueue = SimpleQueue()
            with held():
                for i in range(self._num_workers):
                    name = f"d2lmini-loader-{i}"
                    threading.Thread(target=_serve, args=(jobs,), name=name, daemon=True).start()
                self._jobs = os.getpid(), jobs
                self._finalizer = weakref.finalize(self, _end, jobs, self._num_workers)
        return self._jobs[1]


def _move(batch: Any, ctx: Any) -> Any:
    """Copy the NDArrays of a batch to another context; None: nowhere."""
    if ctx is not None and isinstance(batch, NDArray):
        return batch.as_in_context(ctx)
    if ctx is not None and isinstance(batch, (list, tuple)):
        return [_move(part, ctx) for part in batch]
    return batch
