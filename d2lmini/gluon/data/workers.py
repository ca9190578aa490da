"""Threads that load batches in the background.

They share the dataset and start at once, and NumPy releases the interpreter lock during heavy work.
The DataLoader keeps an `Answer` for each submitted batch, in order.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from d2lmini.engine.signals import held
from d2lmini.gluon.data.batchify import default_batchify_fn, gather
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


class Answer:
    """What a pool will give for a job. Ctrl-C may come at any instruction of the program: it waits
    while a method of the pool or of the future holds a lock, and interrupts the wait for `result`,
    which holds none."""

    def __init__(self, submit: Callable[..., Future], *job: Any):
        done = self._done = threading.Lock()
        done.acquire()
        with held():
            self._future = submit(*job)
            self._future.add_done_callback(lambda _: done.release())

    def result(self, timeout_s: float = threading.TIMEOUT_MAX) -> Any:
        """What the job returns or raises; `concurrent.futures.TimeoutError` after `timeout_s`."""
        if not self._done.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            raise concurrent.futures.TimeoutError
        with held():
            return self._future.result(0)

    @property
    def came(self) -> bool:
        return self._future.done()

    def cancel(self) -> None:
        with held():
            self._future.cancel()


class ThreadPool:
    """`n` daemon threads that load batches."""

    def __init__(self, n: int, dataset: Any, batchify: Callable):
        self._load = (dataset, batchify)
        self._n = n
        self._jobs: SimpleQueue = SimpleQueue()
        self.pid = os.getpid()
        for i in range(n):
            name = f"d2lmini-loader-{i}"
            threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()

    def submit(self, *job: Any) -> Future:
        future: Future = Future()
        self._jobs.put((future, (*self._load, *job)))
        return future

    def close(self) -> None:
        """End the threads after their current batches; does not wait."""
        for _ in range(self._n):
            self._jobs.put(None)


def _serve(jobs: SimpleQueue) -> None:
    """Main loop of a thread: load submitted batches that were not cancelled."""
    while (job := jobs.get()) is not None:
        future, arguments = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(load(*arguments))
            except BaseException as problem:
                future.set_exception(problem)
        # Release the batch before waiting for the next job.
        del job, future, arguments
