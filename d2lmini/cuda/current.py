"""Which GPU is current on a thread, and who asks CUDA where no GPU of ours is.

A thread begins with GPU 0 as its current device. A call of CUDA's runtime that needs a context
makes one on the current device if it has none yet: several hundred megabytes, on a GPU that may
belong to another program where this one uses `gpu(1)` alone. `cudaSetDevice` does so, too, so a
thread cannot make another device current for a moment and then return to GPU 0.

So a thread whose current GPU is not `in_use` lets another thread ask, for which the right GPU is
current for ever, and run its tasks (`NaiveEngine`). There is one such thread for each GPU, started
when it is first needed. The threads of lanes never need it: they make their GPU the current one and
keep it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice

#: The numbers of the GPUs on which this process has made a stream, and so a context.
in_use: set[int] = set()

_askers: dict[int, _Asker] = {}
_door = threading.Lock()


def is_in_use(cuda: Any) -> bool:
    """Has this thread's current GPU a context of this process?"""
    return cuda.runtime.getDevice() in in_use


def ask(device: CudaDevice, question: Callable[[], Any]) -> Any:
    """The answer to a question, on a thread whose current GPU is that of `device`, or the
    question's error. It must wait for no other thread that asks."""
    with _door:
        asker = _askers.get(device.ordinal)
        if asker is None:
            asker = _askers[device.ordinal] = _Asker(device)
    if asker is threading.current_thread():
        return question()
    answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    asker.questions.put((question, answers))
    answer, problem = answers.get()
    if problem is not None:
        raise problem
    return answer


class _Asker(threading.Thread):
    """Answers questions about one GPU, one after the other."""

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
