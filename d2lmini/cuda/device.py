"""A GPU through CuPy, as a `Device`.

    from d2lmini import gpu, nd
    x = nd.ones((1000, 1000), ctx=gpu(0))       # a worker launches the work and goes on
    y = nd.dot(x, x)
    y.wait_to_read()                            # here the host waits for the GPU

`gpu(i)` is CUDA's device i. On a machine with one GPU, D2LMINI_LOGICAL_GPUS=n makes n devices on
it, each with its own streams and memory pool, for programs that need several devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError, environment, forks
from d2lmini.context import Context, gpu
from d2lmini.cuda import module, products
from d2lmini.cuda.kernels import random_numbers, rows, steps, windows
from d2lmini.cuda.launches import CapturedGraphs, capture_lock
from d2lmini.cuda.memory import CudaPool, Pinned, is_pinned, is_short_of_memory
from d2lmini.cuda.nccl import NcclWorker
from d2lmini.cuda.stream_worker import StreamWorker, push_program, thread_state
from d2lmini.device.interface import Device
from d2lmini.engine.core import FunctionTask, Var

#: These modules register what a GPU computes by better algorithms than NumPy's formulas.
KERNELS = products, random_numbers, rows, steps, windows
_LANES = ("compute", "in", "out")

#: After these errors the device is unusable: unavailable devices, uncorrectable memory and link
#: errors, illegal addresses, timeouts, lost contexts, failed asserts, illegal instructions, failed
#: launches, unknown errors. Other errors concern one call only.
_FATAL = {46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999}

_all: weakref.WeakSet[CudaDevice] = weakref.WeakSet()


class CudaDevice(Device):
    """GPU number `ordinal` of CUDA under the name `ctx`.

    allocator  CuPy's memory pool for this GPU
    sums       the lane that sums over this GPU and others; the GPUs of a sum share one lane
    dead       why the device is unusable; None while it works
    """

    kind = "cuda"

    def __init__(self, ctx: Context, ordinal: int, memory: int | None = None):
        found = module.look()
        if found.cupy is None:
            raise MXNetError(f"{ctx}: {found.missing}")
        self.xp = found.cupy
        properties = self.xp.cuda.runtime.getDeviceProperties(ordinal)
        super().__init__(ctx, 1, memory or int(properties["totalGlobalMem"]))
        self.ordinal = ordinal
        self.dead: str | None = None
        self.allocator = self.xp.cuda.MemoryPool()
        self.pool: CudaPool = CudaPool(self)
        self._lanes = {name: StreamWorker(self, name) for name in _LANES}
        _all.add(self)

    def runners(self) -> dict[tuple[Context, str], Any]:
        runners: dict[str, Any] = {**self._lanes}
        if self.sums is not None and self.sums.ctx == self.ctx:
            runners["sum"] = self.sums
        return {(self.ctx, name): runner for name, runner in runners.items()}

    def lane_here(self) -> StreamWorker:
        """The lane whose task this thread runs."""
        lane = thread_state.lane
        assert lane is not None and lane.device is self, "only tasks of a GPU allocate its memory"
        return lane

    def launcher(self, program: Any, static: bool) -> Callable[..., Any] | None:
        if static:
            program.replays = CapturedGraphs(program.name)
        return push_program

    # -- copies ------------------------------------------------------------------------------------

    def copy(self, target: Any, source: Any) -> None:
        """Put a copy on the stream of this lane. On return, a copy from the host is complete on the
        host's side, a copy to the host on both sides."""
        stream = self.lane_here().stream
        if not source.size:
            return
        if isinstance(source, np.ndarray):
            flat = np.ascontiguousarray(source).reshape(-1)
            target.reshape(-1).set(flat, stream=stream.handle)
            if is_pinned(source):  # CUDA copies other memory to its own at once
                stream.mark().wait()  # after this, other tasks may write to the source
        elif isinstance(target, np.ndarray):
            assert target.flags.c_contiguous
            source.reshape(-1).get(stream=stream.handle, out=target.reshape(-1), blocking=False)
            stream.mark().wait()
        else:
            target.data.copy_from_device_async(source.data, source.nbytes, stream.handle)

    def alloc_pinned(self, nbytes: int) -> np.ndarray | None:
        if self.dead is not None:
            return None
        with self.xp.cuda.Device(self.ordinal):
            memory = self.xp.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes).view(Pinned)

    # -- other libraries ---------------------------------------------------------------------------

    def lend(self, array: Any, owner: Any, **options: Any) -> Any:
        # No work on the array is pending, so no stream has to wait.
        return self.pool.make_lease(array, owner).__dlpack__(**{**options, "stream": -1})

    def borrow(self, source: Any, take: Callable[[Any], Any]) -> Any:
        # Call __dlpack__ on this thread, on whose current stream the other library has pending
        # work; the library lets our stream wait for that work.
        stream = self.ask(lambda: self.lane_here().stream.handle.ptr, "from_dlpack")
        with capture_lock:
            source = source.__dlpack__(stream=stream)
        return self.ask(lambda: take(self.xp.from_dlpack(source)), "from_dlpack")

    def dlpack_device(self) -> tuple[int, int]:
        return (2, self.ordinal)

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Any:
        """CuPy's allocation hook, on the threads of this device. MemoryError if there is not enough
        memory even after all cached memory was freed."""
        try:
            return self.retry(partial(self.allocator.malloc, nbytes))
        except MemoryError:
            raise MemoryError(self.pool.explain(nbytes)) from None

    def retry(self, call: Callable[[], Any]) -> Any:
        """Return `call()`; if memory is short, trim and call again. CUDA's libraries allocate
        memory for their own use, such as a handle's workspace, which CuPy's pool may have cached.
        Runs on a thread that runs a task of this device."""
        try:
            return call()
        except Exception as problem:
            if not is_short_of_memory(problem):
                raise
        self.trim()
        return call()

    def trim(self, lane: StreamWorker | None = None) -> None:
        """Free the memory cached for reuse, on a thread that has `lane`: by default, whose task it
        runs."""
        lane = lane or self.lane_here()
        lane.free_pending(at_once=True)
        for other in self._lanes.values():
            if other is not lane and other.busy.acquire(blocking=False):
                try:
                    other.free_pending(at_once=True)
                finally:
                    other.busy.release()
        self.allocator.free_all_blocks()

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the GPU, shared with other programs."""
        return self.ask(self.xp.cuda.runtime.memGetInfo, "memory_info")  # type: ignore[no-any-return]

    def ask(self, question: Callable[[], Any], by: str) -> Any:
        """Call `question()` on the device's worker; the wait is recorded under the name `by`."""
        answers: list[Any] = []
        tag = Var()
        task = FunctionTask(lambda: answers.append(question()), by, (), (tag,), self.ctx)
        engine.current.push(task)
        engine.current.wait(by, tag)
        return answers[0]

    # -- errors ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise MXNetError if the device failed before."""
        if self.dead is not None:
            raise MXNetError(self.dead)

    def task_error(self, problem: Exception) -> Exception:
        """The error to store on a task, from an error raised while its work was put on the stream.
        After some errors that CUDA reports, the contents of the GPU cannot be trusted: that is the
        error of all its operations from now on."""
        # Each library numbers its errors differently; the class of CuPy's error names the library.
        kind, status = type(problem).__name__, getattr(problem, "status", None)
        if kind in ("CUDARuntimeError", "CUDADriverError") and status in _FATAL:
            return self._died(problem)
        text = str(problem)
        if is_short_of_memory(problem):
            known = text.startswith("out of memory on")
            return problem if known else MemoryError(f"out of memory on {self.ctx}: {text}")
        return problem

    def _died(self, problem: Exception) -> MXNetError:
        self.dead = self.dead or (
            f"{self.ctx} failed and cannot be used any more in this process; other devices "
            f"can. CUDA says: {problem}"
        )
        return MXNetError(self.dead)

    def waiting_error(self, problem: Exception) -> Exception:
        """The error to raise to a waiting thread, from an error that a query of the GPU raised."""
        known = self.task_error(problem)
        if isinstance(known, (MXNetError, MemoryError)):
            return known
        if "CUDA" not in type(problem).__name__:  # then it is unknown what the GPU does
            return self._died(problem)
        return MXNetError(f"{self.ctx}: {problem}")


def find() -> list[Device]:
    """The available GPUs: D2LMINI_LOGICAL_GPUS devices spread over the GPUs of this machine, or one
    device for each GPU."""
    found = module.look().gpus
    asked = environment.read("D2LMINI_LOGICAL_GPUS") or found
    return make_devices(asked if found else 0, found)


def make_devices(n: int, found: int, memory: int | None = None) -> list[Device]:
    """n devices; device i is on GPU i % found, with at most `memory` bytes of arrays."""
    made = [CudaDevice(gpu(i), i % found, memory) for i in range(n)]
    if n > 1:
        sums = NcclWorker(made)
        for device in made:
            device.sums = sums
    return list(made)


def _after_fork_in_child() -> None:
    """A forked child cannot use CUDA."""
    for device in list(_all):
        device.dead = f"{device.ctx}: CUDA cannot be used in a forked process; start it by 'spawn'"


forks.at_fork(after_in_child=_after_fork_in_child)
