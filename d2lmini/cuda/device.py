"""A GPU through CuPy, as a device of the house.

    from d2lmini import gpu, nd
    x = nd.ones((1000, 1000), ctx=gpu(0))       # a worker tells the GPU what to do, and goes on
    y = nd.dot(x, x)
    y.wait_to_read()                            # here somebody waits for the GPU

`gpu(i)` is CUDA's device i. On a machine with one, `logical_gpus(n)` makes n devices of it, with
streams and memory pools of their own, for programs (and tests) that want several.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context, gpu
from d2lmini.cuda import current, lanes, module, recording
from d2lmini.cuda.lanes import CudaLane
from d2lmini.cuda.memory import CudaPool
from d2lmini.cuda.nccl import SumLane
from d2lmini.cuda.staging import is_pinned, pieces, pinned
from d2lmini.device import devices
from d2lmini.device.interface import Device
from d2lmini.engine.core import FunctionTask, Var

_LANES = ("compute", "in", "out")

#: After these errors nothing works any more on a device: devices that are unavailable, errors of
#: memory and links that cannot be corrected, illegal addresses, timeouts, contexts that are gone,
#: failed asserts, illegal instructions, failed launches, unknown errors. Others concern one call.
_FATAL = {46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999}

# The numbers mean something else in each library, so CuPy's class of the error says whose it is.
_OF_CUDA = ("CUDARuntimeError", "CUDADriverError")
_NO_MEMORY = {
    ("CUDARuntimeError", 2), ("CUDADriverError", 2), ("CUBLASError", 3), ("CUSOLVERError", 2),
    ("CURANDError", 102),
}  # fmt: skip

_all: weakref.WeakSet[CudaDevice] = weakref.WeakSet()


class _Question(FunctionTask):
    """A function of ours, which pushes nothing."""

    __slots__ = ()


class CudaDevice(Device):
    """GPU number `ordinal` of CUDA under the name `ctx`.

    allocator  CuPy's memory pool for it
    sums       who sums over it and others; one for all of them
    dead       why it cannot be used any more; None while it can
    """

    kind = "cuda"

    def __init__(self, ctx: Context, ordinal: int, memory: int | None = None):
        self.xp = module.cupy()
        if self.xp is None:
            raise MXNetError(f"{ctx}: {module.missing()}")
        properties = self.xp.cuda.runtime.getDeviceProperties(ordinal)
        super().__init__(ctx, 1, memory or int(properties["totalGlobalMem"]))
        self.ordinal = ordinal
        self.dead: str | None = None
        self.allocator = self.xp.cuda.MemoryPool()
        self.pool: CudaPool = CudaPool(self)
        self._lanes = {name: CudaLane(self, name) for name in _LANES}
        _all.add(self)

    def lanes(self) -> dict[tuple[Context, str], int]:
        return dict.fromkeys(self.runners(), 1)

    def runners(self) -> dict[tuple[Context, str], Any]:
        runners: dict[str, Any] = {**self._lanes}
        if self.sums is not None and self.sums.ctx == self.ctx:
            runners["sum"] = self.sums
        return {(self.ctx, name): runner for name, runner in runners.items()}

    def lane_here(self) -> CudaLane:
        """The lane whose task this thread runs."""
        lane = lanes.here.lane
        assert lane is not None and lane.device is self, "memory of a GPU is taken by its tasks"
        return lane

    def replay_calls(self, program: Any) -> Callable[..., Any] | None:
        # Not at the head of the file: who asks whether there are GPUs needs no compiler.
        from d2lmini.cuda.replay_tasks import replay_calls

        return replay_calls(program)

    # -- copies ------------------------------------------------------------------------------------

    def copy(self, target: Any, source: Any) -> None:
        """Put a copy on the stream of this lane. One from the host is complete on the host's side
        when this returns, one to the host on both."""
        if not source.size:
            return
        if isinstance(source, np.ndarray):
            self._copy_in(target.reshape(-1), np.ascontiguousarray(source).reshape(-1))
        elif isinstance(target, np.ndarray):
            self._copy_out(target, source.reshape(-1))
        else:
            handle = self.lane_here().stream.handle
            target.data.copy_from_device_async(source.data, source.nbytes, handle)

    def _copy_in(self, target: Any, source: np.ndarray) -> None:
        lane = self.lane_here()
        if is_pinned(source):
            target.set(source, stream=lane.stream.handle)
            lane.stream.mark().wait()  # then others may write to the source
            return
        for part in pieces(source.size, source.itemsize):
            here = source[part]
            piece = lane.staging.take(here.nbytes)
            stage = piece[: here.nbytes].view(here.dtype)
            np.copyto(stage, here)
            target[part].set(stage, stream=lane.stream.handle)
            lane.staging.give_after(lane.stream.mark(), piece)

    def _copy_out(self, target: np.ndarray, source: Any) -> None:
        """While a piece travels, the one before it is copied to its place."""
        lane = self.lane_here()
        if is_pinned(target) and target.flags.c_contiguous:
            flat = target.reshape(-1)
            source.get(stream=lane.stream.handle, out=flat, blocking=False)
            lane.stream.mark().wait()
            return
        flat = (
            target.reshape(-1) if target.flags.c_contiguous else np.empty(target.size, target.dtype)
        )
        before: tuple[Any, Any, slice] | None = None
        for part in [*pieces(source.size, flat.itemsize), None]:
            coming = None
            if part is not None:
                nbytes = (part.stop - part.start) * flat.itemsize
                piece = lane.staging.take(nbytes)
                stage = piece[:nbytes].view(flat.dtype)
                source[part].get(stream=lane.stream.handle, out=stage, blocking=False)
                coming = lane.stream.mark(), piece, part
            if before is not None:
                mark, piece, place = before
                mark.wait()
                flat[place] = piece[: (place.stop - place.start) * flat.itemsize].view(flat.dtype)
                lane.staging.give(piece)
            before = coming
        if flat.base is not target and flat is not target:
            target[...] = flat.reshape(target.shape)

    def pinned(self, nbytes: int) -> np.ndarray | None:
        if self.dead is not None:
            return None
        return current.ask(self, lambda: pinned(self.xp.cuda, nbytes))

    # -- other libraries ---------------------------------------------------------------------------

    def lend(self, array: Any, owner: Any, **options: Any) -> Any:
        cuda = self.xp.cuda
        # A handle of CuPy's on the same memory, which knows `owner` and not the pool.
        memory = cuda.UnownedMemory(array.data.ptr, array.nbytes, owner, self.ordinal)
        view = self.xp.ndarray(array.shape, array.dtype, cuda.MemoryPointer(memory, 0))
        # Nothing is pending on it: no stream has to wait for another.
        return view.__dlpack__(**{**options, "stream": -1})

    def borrow(self, source: Any, take: Callable[[Any], Any]) -> Any:
        if hasattr(source, "__dlpack__"):
            # Asked on this thread, whose current stream is what the other library has pending work
            # on; it lets ours wait for that.
            stream = self.ask(lambda: self.lane_here().stream.handle.ptr, "from_dlpack")
            with recording.none():
                source = source.__dlpack__(stream=stream)
        return self.ask(lambda: take(self.xp.from_dlpack(source)), "from_dlpack")

    def dlpack_device(self) -> tuple[int, int]:
        return (2, self.ordinal)

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Any:
        """What CuPy asks for memory, on the threads of this device. MemoryError when there is none
        after everything that is kept was given back."""
        try:
            return self.allocator.malloc(nbytes)
        except MemoryError:
            self.trim()
        try:
            return self.allocator.malloc(nbytes)
        except MemoryError:
            raise MemoryError(self.pool.explain(nbytes)) from None

    def retry(self, call: Callable[[], Any]) -> Any:
        """What `call` gives, which may be called again: a library of CUDA's takes memory for its
        own use, a handle's workspace for instance, that CuPy's pool may be keeping. On a thread
        that runs a task of this device."""
        try:
            return call()
        except Exception as problem:
            if not is_short_of_memory(problem):
                raise
        self.trim()
        return call()

    def trim(self) -> None:
        """Give back what is kept for reuse, on a thread that runs a task of this device."""
        lane = self.lane_here()
        lane.bury(at_once=True)
        for other in self._lanes.values():
            if other is not lane and other._busy.acquire(blocking=False):
                try:
                    other.bury(at_once=True)
                finally:
                    other._busy.release()
        self.allocator.free_all_blocks()

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the card; others may have a share in it."""
        free, total = self.ask(self.xp.cuda.runtime.memGetInfo, "memory_info")
        return int(free), int(total)

    def ask(self, question: Callable[[], Any], by: str) -> Any:
        """The answer to a question that one asks of CUDA: on the worker, waited for as `by`."""
        answers: list[Any] = []
        tag = Var()
        task = _Question(lambda: answers.append(question()), by, (), (tag,), self.ctx)
        engine.current.push(task)
        engine.current.wait(by, tag)
        return answers[0]

    # -- errors ------------------------------------------------------------------------------------

    def check(self) -> None:
        """MXNetError if the device failed before."""
        if self.dead is not None:
            raise MXNetError(self.dead)

    def failed(self, problem: BaseException) -> None:
        """CUDA reported an error that came up on the GPU: whatever is there cannot be trusted."""
        if self.dead is None:
            self.dead = (
                f"{self.ctx} failed and cannot be used any more in this process; other devices "
                f"can. CUDA says: {problem}"
            )

    def explained(self, problem: Exception) -> Exception:
        """The error that a task keeps for one that came up while it was put on its stream."""
        kind, status = type(problem).__name__, getattr(problem, "status", None)
        if kind in _OF_CUDA and status in _FATAL:
            self.failed(problem)
            return MXNetError(self.dead)
        text = str(problem)
        if is_short_of_memory(problem):
            known = text.startswith("out of memory on")
            return problem if known else MemoryError(f"out of memory on {self.ctx}: {text}")
        return problem

    def told(self, problem: Exception) -> Exception:
        """The error for whoever waits, for one that came up while the GPU was asked."""
        known = self.explained(problem)
        if isinstance(known, (MXNetError, MemoryError)):
            return known
        if type(problem).__name__ in _OF_CUDA:
            return MXNetError(f"{self.ctx}: {problem}")
        self.failed(problem)
        return MXNetError(self.dead)


def is_short_of_memory(problem: BaseException) -> bool:
    """Does an error of CuPy, or of a library of CUDA, say that there is no memory?"""
    kind = type(problem).__name__, getattr(problem, "status", None)
    return isinstance(problem, MemoryError) or kind in _NO_MEMORY


def find() -> list[Device]:
    """The GPUs there are: as many as D2LMINI_LOGICAL_GPUS says on those of this machine, else each
    once."""
    found = module.count()
    asked = os.environ.get("D2LMINI_LOGICAL_GPUS")
    return _over(int(asked) if asked and found else found, found)


def _over(n: int, found: int, memory: int | None = None) -> list[Device]:
    """n devices, dealt out over the GPUs there are."""
    made = [CudaDevice(gpu(i), i % found, memory) for i in range(n)]
    if n > 1:
        sums = SumLane(made)
        for device in made:
            device.sums = sums
    return list(made)


class logical_gpus:
    """A scope in which gpu(0) to gpu(n - 1) are devices of their own on the GPUs there are, several
    on each if n is larger; `as` gives the list of contexts. `memory`: bytes that arrays may take on
    each, None: as much as the card has.

    MXNetError where there is no GPU. Waits at its begin and end, as `virtual_gpus` does.
    """

    def __init__(self, n: int, memory: int | None = None):
        found = module.count()
        if not found:
            raise MXNetError(f"logical_gpus: {module.missing()}")
        self.devices = _over(n, found, memory)

    def __enter__(self) -> list[Context]:
        engine.current.wait_idle("logical_gpus")
        self._before = devices.state()
        devices.install(self.devices, None)
        return [device.ctx for device in self.devices]

    def __exit__(self, *exc: object) -> None:
        try:
            engine.current.wait_idle("logical_gpus")
        finally:
            devices.install(*self._before)


def _after_fork_in_child() -> None:
    """CUDA does not come along."""
    for device in list(_all):
        device.dead = f"{device.ctx}: CUDA cannot be used in a forked process; start it by 'spawn'"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
