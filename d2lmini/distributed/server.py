"""The server of `dist_async`: a thread of rank 0; the others push to it and pull from it.

    rank 1, its thread for what travels             rank 0, the server's thread
    "push these keys", then the gradients    -->    takes them in, pushes the update to the engine
    "pull these keys"                        -->    waits for the updates before it
    writes them to its arrays                <--    the values

Requests are served one by one, in the order in which they come. The server sleeps while there are
none. It never waits for room in the engine's queue: what is queued there may wait, by way of
another rank, for the server. What it raises ends the job.

A push is done for who pushes as soon as the server has begun to take it in. From then until its
update is in the engine's queue the server holds `lock`: whoever on rank 0 takes that finds all that
was pushed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from d2lmini.distributed import throttle
from d2lmini.distributed.mpi import SLEEP_S, World, wait_until
from d2lmini.engine.core import Task
from d2lmini.engine.road import here

_REQUEST, _GRADS, _VALUES = range(3)  # the tags of messages

#: Of an array: its dtype and shape.
Spec = Any


class How(NamedTuple):
    """What a worker's optimizer says now; lr is None where a scheduler on the server does."""

    rescale_grad: float
    lr: float | None


class Request(NamedTuple):
    """A push or a pull of some keys of one store. half: floats travel as float16; ends: it is the
    last part of a push."""

    what: str
    store: int
    keys: tuple[Any, ...]
    how: How | None = None
    half: bool = False
    ends: bool = False


# -- who asks --------------------------------------------------------------------------------------


def push(job: World, request: Request, grads: Sequence[np.ndarray]) -> None:
    """Send gradients; until the server has begun to take them in."""
    sent = packed(job, grads, request.half)
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
    for copies, value in zip(targets, unpacked(buffer, [copies[0] for copies in targets], False)):
        for target in copies:
            np.copyto(target, value)


def packed(job: World, arrays: Sequence[np.ndarray], half: bool) -> np.ndarray:
    """Their bytes, one behind the other."""
    wires = [_wire(x, half) for x in arrays]
    sizes = [x.size * wire.itemsize for x, wire in zip(arrays, wires)]
    buffer, end = job.space(0, sum(sizes), np.dtype(np.uint8)), 0
    for x, wire, nbytes in zip(arrays, wires, sizes):
        with np.errstate(over="ignore"):
            buffer[end : end + nbytes] = x.reshape(-1).astype(wire, copy=False).view(np.uint8)
        end += nbytes
    return buffer


def unpacked(buffer: np.ndarray, like: Sequence[Spec], half: bool) -> Iterator[np.ndarray]:
    """The arrays whose bytes these are; views."""
    end = 0
    for spec in like:
        wire = _wire(spec, half)
        nbytes = spec.size * wire.itemsize
        yield np.frombuffer(buffer, wire, spec.size, end).reshape(spec.shape)
        end += nbytes


def _wire(spec: Spec, half: bool) -> np.dtype:
    """As which dtype an array travels."""
    dtype = np.dtype(spec.dtype)
    return np.dtype(np.float16) if half and dtype.kind == "f" else dtype


# -- who serves ------------------------------------------------------------------------------------


class Server:
    """Serves the stores of a job; see this module. stores: by their numbers, all that were made,
    for other ranks may use one that rank 0 has dropped."""

    def __init__(self, job: World):
        self._job = job
        self._over = threading.Event()
        self.lock = threading.RLock()
        self.stores: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._serve, name="d2lmini-server", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Serve what is on its way, then end; all others have sent their last by now."""
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
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]  # the job ends by it (`mpi`)

    def _answer(self, rank: int) -> None:
        comm = self._job.served
        with self.lock:
            request: Request = comm.recv(None, rank, _REQUEST)
            store = self.stores[request.store]
            specs = [store.spec(k) for k in request.keys]
            if request.what == "push":
                nbytes = sum(s.size * _wire(s, request.half).itemsize for s in specs)
                buffer = np.empty(nbytes, np.uint8)
                wait_until(comm.Irecv(buffer, rank, _GRADS).Test)
                grads = list(unpacked(buffer, specs, request.half))
                store.updated(request, grads, rank)
                return
        values = store.values(request, rank)
        sent = np.concatenate([x.reshape(-1).view(np.uint8) for x in values])
        throttle.current().hold(time.monotonic(), sent.nbytes)
        wait_until(comm.Isend(sent, rank, _VALUES).Test)


_SERVER = Task("update by the server of dist_async", (), ())


@contextmanager
def without_bound() -> Iterator[None]:
    """A scope in which this thread pushes like a task, which no bound on what is pending stops."""
    before, here.task = here.task, _SERVER
    try:
        yield
    finally:
        here.task = before
