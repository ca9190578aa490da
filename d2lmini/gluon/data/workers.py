"""Workers that load batches in the background: a few threads, or a few processes.

Both pools have `submit(indices, key, number)`, which returns a `concurrent.futures.Future`; the
DataLoader keeps the futures in order. Threads are the default: they share the dataset and start at
once, and NumPy releases the interpreter lock during heavy work. Processes cost a second or two to
start, and a copy of every batch; they pay off where slow Python code makes the elements.

Worker processes are never forked from the program, whose engine has threads. They start afresh
(`forkserver`, or `spawn` where there is no forkserver), import the main module again, and receive
the dataset and the batchify function by pickle. So a script with worker processes needs `if
__name__ == "__main__":`, and functions must be importable. In a worker process operations run
serially on one core.

A worker process watches its lifeline, a pipe that closes when the pool closes or the program dies.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import multiprocessing
import os
import pickle
import random
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from queue import SimpleQueue
from typing import Any

import numpy as np

from d2lmini.base.forks import living
from d2lmini.engine.signals import held
from d2lmini.gluon.data.batchify import default_batchify_fn, gather
from d2lmini.gluon.utils import as_default
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.exchange import from_array
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


# -- threads ---------------------------------------------------------------------------------------


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

    @staticmethod
    def unpack(batch: Any) -> Any:
        """The result of a future is the batch."""
        return batch

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


# -- processes: the program's side -----------------------------------------------------------------


class WorkerTraceback(Exception):
    """The traceback of a worker process, as text; the cause of the error raised here."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


_open_pools: weakref.WeakSet[ProcessPool] = weakref.WeakSet()
#: The threads of concurrent.futures that manage the workers.
_managers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def _close_pools() -> None:
    for pool in list(_open_pools):
        pool.close()
    # concurrent.futures wakes these threads next, and fails if one closes its pipe meanwhile.
    for thread in living(_managers):
        thread.join()


# At interpreter exit, before `atexit`, concurrent.futures would wait for every submitted batch.
# Functions that are registered later run first.
getattr(threading, "_register_atexit", atexit.register)(_close_pools)


def _after_fork_in_child() -> None:
    """Drop the ends of the lifelines: the workers are to end with the program, not with a child."""
    for pool in living(_open_pools):
        pool._ours.close()
        pool._theirs.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class ProcessPool:
    """`n` processes that load batches."""

    def __init__(self, n: int, dataset: Any, batchify: Callable):
        try:
            payload = pickle.dumps((dataset, batchify), protocol=5)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise TypeError(
                f"DataLoader: worker processes get the dataset and batchify_fn by pickle: {problem}"
                "; use functions of a module instead of lambdas and local ones, or threads "
                "(thread_pool=True)"
            ) from None
        known = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in known else "spawn")
        self.pid = os.getpid()
        # The workers hold the read end, and nothing is written: the pipe ends when the program
        # closes it.
        self._theirs, self._ours = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(n, context, _begin, (payload, self._theirs))
        _open_pools.add(self)

    def submit(self, *job: Any) -> Future:
        try:
            future = self._executor.submit(_work, *job)
            if thread := getattr(self._executor, "_executor_manager_thread", None):
                _managers.add(thread)
            return future
        except BrokenProcessPool as problem:
            future = Future()
            future.set_exception(problem)
            return future

    @staticmethod
    def unpack(result: tuple[bool, bytes, str]) -> Any:
        """The batch, or raise the worker's error with its traceback as cause."""
        succeeded, data, text = result
        if succeeded:
            return pickle.loads(data)
        raise pickle.loads(data) from WorkerTraceback(text)

    def close(self) -> None:
        """End the workers, even in the middle of a batch; does not wait."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._ours.close()
        self._theirs.close()


# -- processes: the worker's side ------------------------------------------------------------------


class _Worker:
    """The dataset and batchify function of this process, set once by `_begin`."""

    load: tuple[Any, Any] | None = None
    problem: tuple[bool, bytes, str] | None = None


def _begin(payload: bytes, lifeline: Any) -> None:
    """Set up a worker process."""
    import signal

    from threadpoolctl import threadpool_limits

    from d2lmini import engine

    # Ctrl-C is for the program; a worker ends with its lifeline.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    threadpool_limits(1)
    engine.use("naive").__enter__()
    try:
        _Worker.load = pickle.loads(payload)
    except Exception as problem:
        hint = "; functions and classes that a notebook or a shell defines are not there"
        wrapped = RuntimeError(
            f"a worker process cannot load the dataset or batchify_fn: {problem}"
            f"{hint if '__main__' in str(problem) else ''}; use threads (thread_pool=True)"
        )
        _Worker.problem = _to_sendable(wrapped)


def _end_with(lifeline: Any) -> None:
    """Exit when the pipe ends: the pool was closed, or the program has ended."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(0)


def _work(indices: list[Any], key: Key, number: int) -> tuple[bool, bytes, str]:
    """Load one batch: (succeeded, pickled batch or exception, text of the traceback)."""
    if _Worker.load is None:
        assert _Worker.problem is not None
        return _Worker.problem
    # Also seed NumPy's and Python's generators by the batch, independent of the worker.
    seeds = np.random.SeedSequence((*key, number)).generate_state(8)
    np.random.seed(seeds)
    random.seed(seeds.tobytes())
    try:
        return True, pack(load(*_Worker.load, indices, key, number)), ""
    except Exception as problem:
        return _to_sendable(problem)


def _to_sendable(problem: Exception) -> tuple[bool, bytes, str]:
    """Pickle an exception; an exception that cannot be pickled becomes a RuntimeError."""
    text = "".join(traceback.format_exception(*sys.exc_info())) if sys.exc_info()[0] else ""
    try:
        data = pickle.dumps(problem)
        pickle.loads(data)
    except Exception:
        data = pickle.dumps(RuntimeError(f"{type(problem).__name__}: {problem}"))
    return False, data, text


class _Packer(pickle.Pickler):
    """Pickles NDArrays as their memory; unpickling makes NDArrays again."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, NDArray) and value.context.is_cpu:
            return _receive, (value.asnumpy(), value.context)
        return NotImplemented


def _receive(array: np.ndarray, ctx: Any) -> NDArray:
    return as_default(from_array(array, ctx, adopt=True))


def pack(batch: Any) -> bytes:
    """Pickle a batch."""
    import io

    buffer = io.BytesIO()
    _Packer(buffer, protocol=5).dump(batch)
    return buffer.getvalue()
