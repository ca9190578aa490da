"""The DataLoader with processes: what travels, what fails, and how they end.

Starting them costs a second or so, so there are few tests, and most of them do several things.
"""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import pickle
import random as python_random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import _base, process
from itertools import count
from multiprocessing import queues

import numpy as np
import psutil
import pytest
from interrupts import interrupt_at
from worlds import run_program, until

from d2lmini import nd, random
from d2lmini.engine import signals
from d2lmini.gluon import data as gdata
from d2lmini.gluon.data import workers
from d2lmini.gluon.data.vision import transforms


def loader(data, batch_size: int = 2, num_workers: int = 1, **options) -> gdata.DataLoader:
    return gdata.DataLoader(data, batch_size, num_workers=num_workers, thread_pool=False, **options)


alive = psutil.pid_exists
posix = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")


# What workers run must be importable: it lives here.


class Unpicklable(Exception):
    """Two arguments to make it, one that it remembers: unpickling calls it with one."""

    def __init__(self, a, b):
        super().__init__(a)


def act(x):
    """What each number makes the worker do."""
    if x == 5:
        raise KeyError(f"boo in {os.getpid()}")
    if x == 6:
        raise Unpicklable("only", "here")
    if x == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if x == 8:
        time.sleep(60)
    if x == 9:
        next(iter(()))
    return np.float32(x)


def drawn(x):
    return np.float64(x + np.random.rand()), python_random.random(), os.getpid()


def pad(rows):
    return nd.array(rows), {"n": len(rows), "double": nd.array(rows, dtype="int32") * 2}


def test_what_processes_give_is_what_threads_give():
    """Arrays, random transforms, a batchify_fn of one's own, in order; NumPy's and Python's
    generators are seeded for each batch."""
    X = nd.array(np.arange(10 * 12).reshape(10, 2, 2, 3), dtype="uint8")
    jitter = transforms.Compose([transforms.RandomColorJitter(0.5, 0.5), transforms.ToTensor()])
    data = gdata.ArrayDataset(X, nd.arange(10)).transform_first(jitter)

    def epochs(**options) -> list:
        np.random.seed(1)
        random.seed(2)
        batches = gdata.DataLoader(data, 3, shuffle=True, **options)
        return [[p.asnumpy().tolist() for p in b] for _ in range(2) for b in batches]

    assert epochs(num_workers=2, thread_pool=False) == epochs()

    own = list(loader([1, 2, 3], batchify_fn=pad))
    assert own[0][0].asnumpy().tolist() == [1, 2] and own[1][1]["n"] == 1
    double = own[1][1]["double"]
    assert double.asnumpy().tolist() == [6] and double.dtype == np.int32
    double += 1  # an array like any other
    assert double.asnumpy().tolist() == [7]

    def numbers(**options) -> list:
        random.seed(2)
        numbered = gdata.SimpleDataset([0] * 4).transform(drawn)
        return [[p.asnumpy().tolist() for p in b] for b in loader(numbered, 2, **options)]

    one, two = numbers(num_workers=1), numbers(num_workers=2)
    assert [batch[:2] for batch in one] == [batch[:2] for batch in two]
    assert one[0][0] != one[1][0] and one[0][1] != one[1][1]
    assert one[0][2] == one[1][2] != [os.getpid()] * 2


def test_errors_come_with_the_workers_traceback():
    batches = loader(gdata.SimpleDataset([1, 5, 6, 4]).transform(act), 1)
    epoch = iter(batches)
    assert next(epoch).asscalar() == 1
    with pytest.raises(KeyError, match="boo in") as caught:
        next(epoch)
    assert str(os.getpid()) not in str(caught.value)
    assert "in act" in str(caught.value.__cause__) and "boo" in str(caught.value.__cause__)
    with pytest.raises(StopIteration):
        next(epoch)
    # The workers go on: another epoch, up to the next error.
    batches._batch_sampler = [[0], [2]]
    epoch = iter(batches)
    assert next(epoch).asscalar() == 1
    with pytest.raises(RuntimeError, match="Unpicklable: only"):
        next(epoch)
    epoch = iter(loader(gdata.SimpleDataset([1, 9, 4]).transform(act), 1))
    assert next(epoch).asscalar() == 1
    with pytest.raises(RuntimeError, match="raised StopIteration in batch 1") as caught:
        next(epoch)
    assert "next(iter(()))" in str(caught.value.__cause__)


@posix
def test_a_killed_worker_is_an_error_and_the_next_epoch_has_new_ones():
    batches = loader(gdata.SimpleDataset([1, 2, 7, 3]).transform(act), 1, prefetch=2)
    epoch = iter(batches)
    assert next(epoch).asscalar() == 1
    with pytest.raises(RuntimeError, match=r"a worker process ended before it had loaded batch"):
        list(epoch)
    batches._batch_sampler = [[0], [3]]
    assert [b.asscalar() for b in batches] == [1, 3]
    # Killed from outside, between two epochs.
    for pid in list(batches._pool._executor._processes):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="it was killed"):
        until(lambda: list(batches) and False)
    assert [b.asscalar() for b in batches] == [1, 3]


def test_timeout_early_break_and_end_leave_no_process():
    batches = loader(gdata.SimpleDataset([1, 8, 2]).transform(act), 1)
    epoch = iter(batches)
    assert next(epoch).asscalar() == 1  # a loaded machine may take long to start the workers
    hanging = list(batches._pool._executor._processes)
    batches._timeout = 1
    with pytest.raises(TimeoutError, match="batch 1 did not come within 1 s"):
        next(epoch)
    until(lambda: not any(map(alive, hanging)), 20)
    batches._batch_sampler, batches._timeout = [[0], [2], [0], [2]], 120
    for batch in batches:
        assert batch.asscalar() == 1
        break
    working = list(batches._pool._executor._processes)
    assert all(map(alive, working)) and not set(working) & set(hanging)
    del batches, epoch
    gc.collect()
    until(lambda: not any(map(alive, working)), 20)
    until(lambda: not multiprocessing.active_children(), 20)


def test_what_cannot_travel_is_said_at_once():
    with pytest.raises(TypeError, match=r"by pickle: .*lambda.* or threads \(thread_pool=True\)"):
        iter(loader(gdata.SimpleDataset([1]).transform(lambda x: x)))


@posix
def test_a_main_module_of_ones_own():
    """A dataset class that the workers cannot find; workers still at work when the program ends;
    the program killed: its workers leave."""
    code, out, err = run_program(
        """
        import os
        from d2lmini.gluon.data import DataLoader
        class Hidden(list):
            pass
        def run():
            try:
                list(DataLoader(Hidden([1]), 1, num_workers=1, thread_pool=False))
            except RuntimeError as problem:
                assert "that a notebook or a shell defines are not there" in str(problem), problem
            loader = DataLoader([1, 2, 3], 1, num_workers=1, thread_pool=False)
            for batch in loader:
                print(*loader._pool._executor._processes, flush=True)
                break
        if __name__ == "__main__":
            run()
        """
    )
    assert (code, err) == (0, "")
    until(lambda: not alive(int(out)), 20)


@posix
def test_the_end_of_a_program_meets_no_manager_that_is_closing():
    """concurrent.futures asks whether the pipe of a pool's thread is open, and then writes: here
    slowly, so that the thread would have closed the pipe meanwhile."""
    code, _, err = run_program(
        """
        import concurrent.futures.process as process, time
        from d2lmini.gluon.data import DataLoader
        def wakeup(self):
            if not self._closed:
                time.sleep(0.3)
                self._writer.send_bytes(b"")
        process._ThreadWakeup.wakeup = wakeup
        if __name__ == "__main__":
            for batch in DataLoader([1, 2, 3], 1, num_workers=1, thread_pool=False):
                break
        """
    )
    assert (code, err) == (0, "")


@posix
def test_workers_end_with_a_killed_program_though_its_child_lives(tmp_path):
    """The child has a copy of all that the program had open."""
    file = tmp_path / "program.py"
    file.write_text(
        """
import os, sys, time
from d2lmini.gluon.data import DataLoader
if __name__ == "__main__":
    loader = DataLoader([1, 2, 3], 1, num_workers=1, thread_pool=False)
    for batch in loader:
        child = os.fork()
        if child == 0:
            time.sleep(60)
        print(child, *loader._pool._executor._processes, file=open(sys.argv[1], "w"), flush=True)
        os.kill(os.getpid(), 9)
"""
    )
    # No pipes: what is left of multiprocessing would keep them open as long as the child lives.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, str(file), str(tmp_path / "pids")]
    assert subprocess.run(command, timeout=60, **quiet).returncode == -signal.SIGKILL
    child, worker = map(int, (tmp_path / "pids").read_text().split())
    try:
        until(lambda: not alive(worker), 20)
    finally:
        os.kill(child, signal.SIGKILL)


POOL_FILES = tuple(
    inspect.getfile(module)
    for module in (gdata.dataloader, workers, signals, process, queues, _base, threading)
)


@pytest.mark.parametrize("thread_pool", [False, True], ids=["processes", "threads"])
def test_ctrl_c_at_any_instruction_of_an_epoch_leaves_the_loader_whole(thread_pool):
    """The program's side of the pool, with its locks and queues; the workers stay the same."""
    batches = gdata.DataLoader(
        np.arange(6.0), 2, num_workers=1, prefetch=2, thread_pool=thread_pool, timeout=20
    )
    for _ in range(2):
        assert len(list(batches)) == 3
    for k in count(step=1 if thread_pool else 3):  # processes take long
        with interrupt_at(k, POOL_FILES) as strike:
            list(batches)
        assert [b.asnumpy().tolist() for b in batches] == [[0, 1], [2, 3], [4, 5]], strike.where
        if not strike.done:
            break
    assert k > 50


def test_a_program_ends_though_its_workers_are_at_work():
    code, out, err = run_program(
        """
        import time
        from d2lmini.gluon.data import DataLoader, SimpleDataset
        if __name__ == "__main__":
            data = SimpleDataset([0, 60, 60, 60]).transform(time.sleep)
            for pool in (True, False):
                loader = DataLoader(data, 1, batchify_fn=len, num_workers=2, thread_pool=pool)
                epoch = iter(loader)
                print(next(epoch))
        """,
        timeout_s=40,
    )
    assert (code, out, err) == (0, "1\n1", "")


def test_the_workers_side():
    """In this process: the same functions, where coverage and debuggers see them."""
    key = workers.Key(1, 0, 0)
    payload = pickle.dumps(
        (gdata.SimpleDataset([1, 5]).transform(act), gdata.dataloader.default_batchify_fn)
    )
    workers._Worker.load = pickle.loads(payload)
    state = np.random.get_state(), python_random.getstate()
    try:
        succeeded, data, _ = workers._work([0], key, 0)
        batch = workers.ProcessPool.unpack((succeeded, data, ""))
        assert succeeded and batch.asscalar() == 1
        failed = workers._work([1], key, 0)
        with pytest.raises(KeyError) as caught:
            workers.ProcessPool.unpack(failed)
        assert "in act" in str(caught.value.__cause__)
    finally:
        workers._Worker.load = None
        np.random.set_state(state[0])
        python_random.setstate(state[1])
    assert workers.pack(nd.ones(3))  # an array alone
