"""Which GPU is current on a thread, and which thread calls CUDA for a GPU that is not in use.

A thread begins with GPU 0 as its current device. A CUDA runtime call that needs a context creates
one on the current device if there is none: several hundred megabytes, on a GPU that may belong to
another program where this one uses only `gpu(1)`. `cudaSetDevice` creates a context, too, so a
thread cannot make another device current for a moment and then return to GPU 0.

So a thread whose current GPU is not `in_use` passes its CUDA calls, and its tasks (`NaiveEngine`),
to a helper thread on which the right GPU is always current. Each GPU has one helper thread, started
at first use. Lane threads never need a helper: they make their GPU current and keep it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice
    from d2lmini.cuda.stream_worker import StreamWorker


class _ThreadState(threading.local):
    """Per thread: the lane whose device and stream are current, and the scope that restores the
    previous ones. A worker's scope is dropped with its thread and on this thread only: on another
    thread it would change what is current there."""

    lane: StreamWorker | None = None
    stack: ExitStack | None = None


thread_state = _ThreadState()


def with_memory(call: Callable[[], Any]) -> Any:
    """Return `call()`; on a lane's thread, with a second try (`CudaDevice.retry`)."""
    lane = thread_state.lane
    return call() if lane is None else lane.device.retry(call)


#: Ordinals of the GPUs on which this process has made a stream, and so a context.
in_use: set[int] = set()

_askers: dict[int, _QueryThread] = {}
_lock = threading.Lock()


def is_in_use(cuda: Any) -> bool:
    """True if this thread's current GPU has a context of this process."""
    return cuda.runtime.getDevice() in in_use


def ask(device: CudaDevice, question: Callable[[], Any]) -> Any:
    """Call `question()` on a thread whose current GPU is that of `device`; return its result or
    raise its error. `question` must not wait for another thread that calls `ask`."""
    with _lock:
        asker = _askers.get(device.ordinal)
        if asker is None:
            asker = _askers[device.ordinal] = _QueryThread(device)
    if asker is threading.current_thread():
        return question()
    answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    asker.questions.put((question, answers))
    answer, problem = answers.get()
    if problem is not None:
        raise problem
    return answer


class _QueryThread(threading.Thread):
    """Helper thread: runs the CUDA calls for one GPU, one after the other."""

    def __init__(self, device: CudaDevice):
        super().__init__(name=f"d2lmini-asks-gpu-{device.ordinal}", daemon=True)
        self.questions: SimpleQueue[Any] = SimpleQueue()
        self._handle = device.xp.cuda.Device(device.ordinal)
        self.start()

    def run(self) -> None:
        while True:
            question, answers = self.questions.get()
            try:
                self._handle.use()
                answers.put((question(), None))
            except Exception as problem:
                answers.put((None, problem))
