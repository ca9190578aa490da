"""The engine that runs tasks on worker threads: ready tasks by priority, one pool per lane.

A worker takes the ready task of highest priority, oldest first, runs it without any lock, and
releases its Vars. An idle worker sleeps on a lock of its own; the thread that makes a task ready
releases that lock. A needless wake-up does no harm: the worker looks and sleeps again. Workers
start when first needed; importing the library starts none.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Iterable
from itertools import count
from typing import Any

from d2lmini.base import callsite, environment, instrument
from d2lmini.engine import pending, signals, worker_pools
from d2lmini.engine.core import Task, Var
from d2lmini.engine.engine import Engine
from d2lmini.engine.scheduler import thread_state

#: A push waits at most so long for workers to issue what it depends on.
CATCH_UP_S = 1e-3


def default_workers() -> int:
    """Workers for the CPU: D2LMINI_CPU_WORKERS, else the cores this process may use."""
    return environment.read("D2LMINI_CPU_WORKERS") or count_cores()


def count_cores() -> int:
    """The number of cores that this process may use."""
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
        self.job: Any = None  # a large operation to share in (device/parallel.py)
        self.thread: Any = None

    def wake(self) -> None:
        """Let the worker look for work; harmless if it is awake."""
        if self.awake.locked():
            self.awake.release()


class WorkerPool:
    """The workers of one lane and their ready tasks (engine's lock held)."""

    __slots__ = ("idle", "jobs", "name", "ready", "size", "workers")

    def __init__(self, size: int, name: str):
        self.size = size
        self.name = name
        self.ready: list[tuple[int, int, Task]] = []  # heap of (-priority, seq, task)
        self.idle: list[_Worker] = []
        self.workers: list[_Worker] = []
        self.jobs: list[Any] = []  # operations whose pieces are being shared now


class ThreadedEngine(Engine):
    """Asynchronous execution on `workers` threads for the CPU (default: one per core).

    `inline_below`: operations predicted to take fewer microseconds run on the caller's thread.
    """

    issues = True

    kind = "threaded"

    def __init__(
        self, workers: int | None = None, inline_below: float = 20.0, limit: int | None = None
    ):
        self._size = workers or default_workers()
        self._asked = workers is not None
        super().__init__(inline_below, limit)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._pools: dict[Any, WorkerPool] = {}
        self._replaced: set[Task] = set()  # running tasks whose workers `cancel_pending` replaced
        self._stopped = self._ended = False

    @property
    def workers(self) -> int:
        most = worker_pools.most_for_cpu
        return self._size if self._asked or most is None else min(self._size, most)

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        if (
            self.lock._is_owned()  # type: ignore[attr-defined]
            or signals.noted
            or self._deferred
            or self.recorder is not None
        ) and self._is_for_later(task):
            return
        user = thread_state.task is None
        if user:
            if task.ctx.is_cpu:
                if task.predicted_us < self.inline_below and self.run_inline(task):
                    return
            elif task.callee is not None and self.issue(task):
                return
        task.site = task.site or callsite.find()
        task.priority += thread_state.priority
        task.prepare()
        while not self._enter(task, user):
            self.pause(task)
        if self._ended and user:
            self._run_ready()

    def issue(self, task: Task) -> bool:
        """Issue a task of a device that works asynchronously to the host, here and now, if all that
        it depends on is issued; else return False. A launch waits for nothing, so launches that are
        prepared are put on the device with the lock held, as in `run_inline`."""
        runner: Any = self.runners.get((task.ctx, task.lane))
        if runner is None or instrument.listeners:
            return False
        for var in task.reads:
            if var.writer is not None and not self._catch_up(var):
                return False
        with self.lock:
            work = runner.take(task)
            if work is None:
                return False
            try:
                return self._run_now(task, work)
            finally:
                runner.give_back()

    def _catch_up(self, var: Var) -> bool:
        """Let a worker issue the task of a device that writes `var`, and that nothing holds back,
        for at most `CATCH_UP_S`; False if it does not. Else all that is pushed after it would go to
        the worker, too."""
        until = 0.0
        while True:
            writer = var.writer
            if writer is None:
                return True
            if writer.waits or writer.ctx.is_cpu:
                return False
            now = time.perf_counter()
            until = until or now + CATCH_UP_S
            if now > until:
                return False
            time.sleep(0)

    # -- workers ----------------------------------------------------------------------------------

    def _hand_out(self, task: Task) -> None:
        pool = self.pool(worker_pools.key_of(task))
        heapq.heappush(pool.ready, (-task.priority, task.seq, task))
        self._wake(pool)

    def _dispatched(self) -> set[Task]:
        known: set[Task] = set()
        for pool in self._pools.values():
            known.update(entry[2] for entry in pool.ready)
            # A worker that was just being started or woken may have missed it: wake them all.
            pool.workers = [worker for worker in pool.workers if worker.thread.is_alive()]
            pool.idle.clear()
            for worker in pool.workers:
                worker.wake()
            if pool.ready:
                self._wake(pool)
        return known

    def pool(self, key: Any) -> WorkerPool:
        """The workers of a lane."""
        pool = self._pools.get(key)
        if pool is None:
            name = "worker" if key == "cpu" else "{}-{}".format(*key)
            pool = self._pools[key] = WorkerPool(worker_pools.threads.get(key, self.workers), name)
        return pool

    def reset_lanes(self) -> None:
        with self.lock:
            pools, self._pools = self._pools, {}
            self._retire(pools.values())

    def _retire(self, pools: Iterable[WorkerPool]) -> None:
        for pool in pools:
            pool.size = 0
            pool.idle.clear()
            for worker in pool.workers:
                worker.wake()

    def _wake(self, pool: WorkerPool, job: Any = None) -> None:
        """Wake an idle worker to look for work, or start one if the pool has room."""
        if self._ended:
            return
        if pool.idle:
            worker = pool.idle.pop()
            worker.job = job
            worker.wake()
        elif len(pool.workers) < pool.size:
            worker = _Worker(f"d2lmini-{pool.name}-{next(_numbers)}")
            worker.job = job
            worker.thread = threading.Thread(
                target=self._work, args=(pool, worker), name=worker.name, daemon=True
            )
            pool.workers.append(worker)
            try:
                worker.thread.start()
            except RuntimeError:  # no more threads are allowed, or the interpreter is ending
                pool.workers.remove(worker)

    def _work(self, pool: WorkerPool, worker: _Worker) -> None:
        thread_state.task = worker
        thread_state.pool = pool
        while True:
            task = job = None
            with self.lock:
                if worker.job is not None:
                    job, worker.job = worker.job, None
                elif pool.ready:
                    task = heapq.heappop(pool.ready)[2]
                    self.running.add(task)
                elif pool.jobs and (job := _find_unfinished(pool.jobs)) is not None:
                    pass  # the job began while this worker was busy
                elif self._stopped or not pool.size:
                    if worker in pool.workers:
                        pool.workers.remove(worker)
                    return
                elif worker not in pool.idle:
                    pool.idle.append(worker)
            if task is not None:
                self._run(task, worker.name)
                if self._replaced and self._leave(task, pool, worker):
                    return
            elif job is not None:
                job.work()
            else:
                worker.awake.acquire()
            if self._deferred:
                self._push_deferred()

    # -- cancelling -------------------------------------------------------------------------------

    def cancel_pending(self) -> int:
        with signals.held(), self.lock:
            count = super().cancel_pending()
            self._drop_cancelled()
        return count

    def _drop_cancelled(self) -> None:
        """Drop the tasks that were cancelled, and let others take over from the workers that run a
        function which may never end."""
        ready = pending.drop_cancelled(self)
        for pool in self._pools.values():
            pool.ready = [entry for entry in pool.ready if entry[2] in self.pending]
            heapq.heapify(pool.ready)
        for task in self.running - self._replaced:
            pool = self.pool(worker_pools.key_of(task))
            if not task.defers and pool.workers and (task.ctx, task.lane) not in self.runners:
                self._replaced.add(task)
                pool.size += 1
        self._dispatch(ready)
        self._wake_waiting()

    def _leave(self, task: Task, pool: WorkerPool, worker: _Worker) -> bool:
        """Remove `worker`, which has ended `task`, if another worker has taken its place."""
        with self.lock:
            if task not in self._replaced:
                return False
            self._replaced.discard(task)
            pool.size = max(0, pool.size - 1)
            if worker in pool.workers:
                pool.workers.remove(worker)
        return True

    def _run_ready(self) -> None:
        """Run the ready tasks of pools that have no workers: none could start, or all ended."""
        for pool in list(self._pools.values()):
            while (task := self._left_over(pool)) is not None:
                self._run_here(task)

    def _left_over(self, pool: WorkerPool) -> Task | None:
        """The next task that no worker will take."""
        with self.lock:
            alone = self._ended or not pool.workers
            return heapq.heappop(pool.ready)[2] if alone and pool.ready else None

    def helpers(self, n: int, job: Any, late: bool = False) -> int | None:
        if self.lock._is_owned():  # type: ignore[attr-defined]
            return None  # the operation runs inline: a helper would need the lock to begin
        with self.lock:
            pool = thread_state.pool or self.pool("cpu")
            if self._stopped or pool.size < 2:
                return None
            free = 0 if pool.ready else len(pool.idle) + max(0, pool.size - len(pool.workers))
            called = self._call(pool, min(n, free), job)
            if called or late:
                pool.jobs.append(job)
        return called

    def end_sharing(self, job: Any) -> None:
        with self.lock:
            (thread_state.pool or self.pool("cpu")).jobs.remove(job)

    def _call(self, pool: WorkerPool, n: int, job: Any) -> int:
        for _ in range(n):
            self._wake(pool, job)
        return n

    def stop(self) -> None:
        with self.lock:
            self._stopped = True
            workers = self._wake_all()
            finished = not self.pending
        for worker in workers:
            if finished and worker.thread is not threading.current_thread():
                worker.thread.join(timeout=10)

    def end(self) -> None:
        self.stop()
        with self.lock:
            self._ended = True
        self._run_ready()

    def unwind(self, patience_s: float = 1.0) -> None:
        """The process ends with tasks pending: stop those that run.

        One process in sixty that ended while a worker was inside a matrix product was seen to hang
        at the end of the C library (OpenBLAS ends its threads there, perhaps while another thread
        computes with them). So an exception is raised in the workers, and this call waits up to
        `patience_s` for it to arrive. The exception does not reach a worker that blocks, which is
        harmless, or one that spends longer than that in one call.

        CPython finds a thread by its number, and a thread that is just being started still has the
        number of the worker that starts it: the exception would end the new thread before it has
        begun, and the worker would wait for it for ever, with the lock held. So this is done with
        the lock, under which workers are started.
        """
        try:
            from ctypes import c_ulong, py_object, pythonapi
        except ImportError:  # not CPython
            return
        deadline = time.monotonic() + patience_s
        if not self.lock.acquire(timeout=patience_s):
            return
        try:
            for pool in self._pools.values():
                for worker in pool.workers:
                    if worker not in pool.idle and worker.thread.ident is not None:
                        pythonapi.PyThreadState_SetAsyncExc(
                            c_ulong(worker.thread.ident), py_object(SystemExit)
                        )
        finally:
            self.lock.release()
        while self.running and time.monotonic() < deadline:
            time.sleep(0.001)

    def _wake_all(self) -> list[_Worker]:
        workers = [worker for pool in self._pools.values() for worker in pool.workers]
        for worker in workers:
            worker.wake()
        return workers


_numbers = count()


def _find_unfinished(jobs: list[Any]) -> Any:
    """The first job with pieces left to take; None if there is none."""
    return next((job for job in jobs if not job.taken), None)
