"""The server of `dist_async`: a thread of rank 0; the others push to it and pull from it.

    rank 1, its exchange thread                     rank 0, the server's thread
    "push these keys", then the gradients    -->    receives them, pushes the update to the engine
    "pull these keys"                        -->    waits for the updates before it
    writes them to its arrays                <--    the values

Requests are served one by one, in order of arrival. The server sleeps while there are none. The
server never waits for room in the engine's queue: tasks there may wait, through another rank, for
the server. An exception in the server ends the job.

A push is done for the pushing rank as soon as the server begins to receive it. From then until its
update is in the engine's queue the server holds `lock`: a thread of rank 0 that takes this lock
finds all earlier pushes in the queue.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini.distributed import throttle
from d2lmini.distributed.mpi import SLEEP_S, World, dtype_on_wire, wait_until
from d2lmini.engine.core import Task
from d2lmini.engine.scheduler import thread_state
from d2lmini.scopes import Undo, scope, swap

_REQUEST, _GRADS, _VALUES = range(3)  # the tags of messages

#: Dtype and shape of an array.
Spec = Any


class OptimizerSettings(NamedTuple):
    """The settings of a worker's optimizer; lr is None if the server has a scheduler."""

    rescale_grad: float
    lr: float | None


class Request(NamedTuple):
    """A push or a pull of some keys of one store. half: floats travel as float16; ends: this is the
    last part of a push."""

    what: str
    store: int
    keys: tuple[Any, ...]
    how: OptimizerSettings | None = None
    half: bool = False
    ends: bool = False


# -- clients ---------------------------------------------------------------------------------------


def push(job: World, request: Request, grads: Sequence[np.ndarray]) -> None:
    """Send gradients; returns when the server has begun to receive them."""
    sent = pack(job, grads, request.half)
    throttle.current().hold(time.monotonic(), sent.nbytes)
    asked = job.served.isend(request, 0, _REQUEST)
    job.until(job.served.Issend(sent, 0, _GRADS))
    job.until(asked)


def pull(job: World, request: Request, targets: Sequence[Sequence[np.ndarray]]) -> None:
    """Fetch values, each into all of its targets."""
    throttle.current().hold(time.monotonic(), 0)
    buffer = job.space(1, sum(copies[0].nbytes for copies in targets), np.dtype(np.uint8))
    asked = job.served.isend(request, 0, _REQUEST)
    job.until(job.served.Irecv(buffer, 0, _VALUES))
    job.until(asked)
    for copies, value in zip(targets, unpack(buffer, [copies[0] for copies in targets], False)):
        for target in copies:
            np.copyto(target, value)


def pack(job: World, arrays: Sequence[np.ndarray], half: bool) -> np.ndarray:
    """The bytes of the arrays, one array after the other."""
    wires = [dtype_on_wire(x.dtype, half) for x in arrays]
    sizes = [x.size * wire.itemsize for x, wire in zip(arrays, wires)]
    buffer, end = job.space(0, sum(sizes), np.dtype(np.uint8)), 0
    for x, wire, nbytes in zip(arrays, wires, sizes):
        with np.errstate(over="ignore"):
            buffer[end : end + nbytes] = x.reshape(-1).astype(wire, copy=False).view(np.uint8)
        end += nbytes
    return buffer


def unpack(buffer: np.ndarray, like: Sequence[Spec], half: bool) -> Iterator[np.ndarray]:
    """The arrays in `buffer`; views."""
    end = 0
    for spec in like:
        wire = dtype_on_wire(spec.dtype, half)
        nbytes = spec.size * wire.itemsize
        yield np.frombuffer(buffer, wire, spec.size, end).reshape(spec.shape)
        end += nbytes


# -- the server ------------------------------------------------------------------------------------


class Server:
    """Serves the stores of a job; see this module. stores: all that were made, by number, because
    other ranks may use a store that rank 0 has dropped."""

    def __init__(self, job: World):
        self._job = job
        self._over = threading.Event()
        self.lock = threading.RLock()
        self.stores: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._serve, name="d2lmini-server", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Serve the remaining requests, then end; all other ranks have sent their last one."""
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        comm, status = self._job.served, self._job.status()

        def asked() -> bool:
            return comm.Iprobe(tag=_REQUEST, status=status) or self._over.is_set()

        try:
            while True:
                wait_until(asked, SLEEP_S)
                if not comm.Iprobe(tag=_REQUEST, status=status):
                    return
                self._answer(status.source)
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]  # this ends the job (`mpi`)

    def _answer(self, rank: int) -> None:
        comm = self._job.served
        with self.lock:
            request: Request = comm.recv(None, rank, _REQUEST)
            store = self.stores[request.store]
            specs = [store.spec(k) for k in request.keys]
            if request.what == "push":
                nbytes = sum(s.size * dtype_on_wire(s.dtype, request.half).itemsize for s in specs)
                buffer = np.empty(nbytes, np.uint8)
                wait_until(comm.Irecv(buffer, rank, _GRADS).Test)
                grads = list(unpack(buffer, specs, request.half))
                store.push_update(request, grads, rank)
                return
        values = store.values(request, rank)
        sent = np.concatenate([x.reshape(-1).view(np.uint8) for x in values])
        throttle.current().hold(time.monotonic(), sent.nbytes)
        wait_until(comm.Isend(sent, rank, _VALUES).Test)


_SERVER = Task("update by the server of dist_async", (), ())


@scope
def suspend_bound(undo: Undo) -> None:
    """A scope in which this thread pushes like a task: the bound on pending bytes is off."""
    swap(undo, thread_state, "task", _SERVER)
