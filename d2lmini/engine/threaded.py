"""The engine that runs tasks on worker threads: ready tasks by priority, one pool per device.

A worker takes the ready task of highest priority, oldest first, runs it without any lock, and
passes its Vars on. An idle worker sleeps on a lock of its own, which whoever makes a task ready
releases. Workers start when first needed; importing the library starts none.
"""

from __future__ import annotations

import heapq
import os
import threading
from itertools import count
from typing import Any

from d2lmini import callsite, instrument
from d2lmini.context import Context, cpu
from d2lmini.engine.bulk import Segment
from d2lmini.engine.core import Gate, Task
from d2lmini.engine.engine import Engine, here


def default_workers() -> int:
    """Workers for the CPU: D2LMINI_CPU_WORKERS, else the cores this process may use."""
    asked = os.environ.get("D2LMINI_CPU_WORKERS")
    if asked:
        return max(1, int(asked))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


class _Worker:
    """A thread and the lock it sleeps on."""

    __slots__ = ("awake", "job", "name", "thread")

    def __init__(self, name: str):
        self.name = name
        self.awake = threading.Lock()
        self.awake.acquire()
        self.job: Any = None  # a share of another worker's big operation (device/parallel.py)
        self.thread: threading.Thread | None = None


class Pool:
    """The workers of one device: ready tasks, who sleeps, who works (engine's lock held)."""

    __slots__ = ("idle", "ready", "size", "workers")

    def __init__(self, size: int):
        self.size = size
        self.ready: list[tuple[int, int, Task]] = []  # heap of (-priority, seq, task)
        self.idle: list[_Worker] = []
        self.workers: list[_Worker] = []


class ThreadedEngine(Engine):
    """Asynchronous execution on `workers` threads for the CPU (default: one per core).

    `inline_below`: operations predicted to take fewer microseconds run on the caller's thread.
    """

    kind = "threaded"

    def __init__(
        self, workers: int | None = None, inline_below: float = 20.0, limit: int | None = None
    ):
        super().__init__(inline_below, limit)
        self._size = workers or default_workers()
        self._pools: dict[Any, Pool] = {}
        self._segments: dict[int, Segment] = {}  # open ones, by thread
        self._stopped = False

    @property
    def workers(self) -> int:
        return self._size

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        if here.task is None:
            if task.predicted_us < self.inline_below and self.run_inline(task):
                return
            if not self.budget.admits(task):
                self.pause(task)
            if here.bulk_size > 1:
                self._join_segment(task)
                return
        if self._segments:
            task.prepare()
            self._flush_touching((*task.shared, *task.writes))
        self._enter(task)

    def _join_segment(self, task: Task) -> None:
        task.site = callsite.find()
        with self.lock:
            task.prepare()
            self._flush_touching((*task.shared, *task.writes), but=here.segment)
            segment = here.segment
            if segment is not None and (segment.closed or not segment.fits(task)):
                self._flush()
                segment = None
            self._sequence += 1
            task.seq = self._sequence
            if segment is None:
                segment = here.segment = Segment(task)
                self._segments[threading.get_ident()] = segment
                self.pending.add(segment)
            try:
                self.pending.add(task)
                self.budget.pin(task)
                segment.add(task)
            except BaseException:
                # What the segment claimed too much does no harm; the task is in it or it is not.
                if task not in segment.tasks:
                    self.pending.discard(task)
                    self.budget.unpin(task)
                raise
            if instrument.listeners:
                instrument.emit("push", task)
            if len(segment.tasks) >= here.bulk_size:
                self._flush()

    def _flush(self, everywhere: bool = False) -> None:
        if not self._segments:
            return
        with self.lock:
            mine = threading.get_ident()
            for thread, segment in list(self._segments.items()):
                if everywhere or thread == mine:
                    self._close(thread, segment)

    def _flush_touching(self, variables: tuple, but: Segment | None = None) -> None:
        with self.lock:
            for thread, segment in list(self._segments.items()):
                if segment is not but and any(segment.touches(v) for v in variables):
                    self._close(thread, segment)

    def _close(self, thread: int, segment: Segment) -> None:
        if segment.close():
            self._dispatch([segment])
        self._segments.pop(thread, None)

    # -- workers ----------------------------------------------------------------------------------

    def _dispatch(self, ready: list[Task]) -> None:
        for task in ready:
            if isinstance(task, Gate):
                task.opened.release()
                continue
            if instrument.listeners:
                instrument.emit("ready", task)
            pool = self.pool(task.ctx)
            heapq.heappush(pool.ready, (-task.priority, task.seq, task))
            self._wake(pool)

    def _undispatch(self, task: Task) -> None:
        for pool in self._pools.values():
            if any(entry[2] is task for entry in pool.ready):
                pool.ready = [entry for entry in pool.ready if entry[2] is not task]
                heapq.heapify(pool.ready)

    def pool(self, ctx: Context) -> Pool:
        """The workers that serve `ctx`; all CPU contexts share the machine's cores."""
        key = "cpu" if ctx.is_cpu else ctx
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self._size)
        return pool

    def _wake(self, pool: Pool, job: Any = None) -> None:
        """Let an idle worker look for work, or start one if there may be more."""
        if pool.idle:
            worker = pool.idle.pop()
            worker.job = job
            worker.awake.release()
        elif len(pool.workers) < pool.size:
            worker = _Worker(f"d2lmini-worker-{next(_numbers)}")
            worker.job = job
            worker.thread = threading.Thread(
                target=self._work, args=(pool, worker), name=worker.name, daemon=True
            )
            pool.workers.append(worker)
            worker.thread.start()

    def _work(self, pool: Pool, worker: _Worker) -> None:
        while True:
            task = None
            with self.lock:
                if worker.job is None:
                    if pool.ready:
                        task = heapq.heappop(pool.ready)[2]
                        self._begin(task)
                    elif self._stopped:
                        return
                    else:
                        pool.idle.append(worker)
            if task is not None:
                self._run(task, worker.name)
            elif worker.job is not None:
                job, worker.job = worker.job, None
                job.work()
                del job
            else:
                worker.awake.acquire()

    def helpers(self, n: int, job: Any) -> int:
        with self.lock:
            pool = self.pool(cpu())
            if pool.ready or self._stopped:
                return 0
            called = min(n, len(pool.idle) + pool.size - len(pool.workers))
            for _ in range(called):
                self._wake(pool, job)
        return called

    def stop(self) -> None:
        """Let the workers end once nothing is ready; for engines made by `engine.use`."""
        with self.lock:
            self._stopped = True
            pools = list(self._pools.values())
            for pool in pools:
                while pool.idle:
                    pool.idle.pop().awake.release()
        for pool in pools:
            for worker in pool.workers:
                if worker.thread is not None:
                    worker.thread.join(timeout=10)


_numbers = count()
