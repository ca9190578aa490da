"""The module `cupy.cuda` of the fake, and `fake_cuda`, the scope in which its GPUs exist.

>>> from fakes.cuda import fake_cuda
>>> with fake_cuda(devices=2, seed=1) as cupy:
...     stream = cupy.cuda.Stream(non_blocking=True)
...     with stream:
...         x = cupy.arange(3) + 1
...     done = stream.record()
...     done.synchronize()
...     x.get(stream).tolist()
[1, 2, 3]

Names, parameters and rules are CuPy's: what CuPy has and our devices do not use is not here. The
streams, the memory and the checks are `fakes.streams`; what follows is the hook that array
functions go through, and `nccl` has the collectives.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from d2lmini.cuda import products
from fakes import cublas, cupy_arrays, dlpack, nccl
from fakes.cuda_cpp import CIntptr
from fakes.cupy_arrays import ndarray, specs_of
from fakes.cupy_module import cupy
from fakes.streams import graphs
from fakes.streams import machine as machines
from fakes.streams.errors import CUDARuntimeError
from fakes.streams.host_memory import (
    PinnedMemoryPool,
    alloc_pinned_memory,
    bounds,
    from_host,
    to_host,
)
from fakes.streams.machine import Machine, running
from fakes.streams.memory import (
    MemoryPointer,
    MemoryPool,
    OutOfMemoryError,
    UnownedMemory,
    alloc,
    using_allocator,
)
from fakes.streams.order import Queue, Region
from fakes.streams.stream import (
    Device,
    Event,
    Stream,
    event_query,
    get_current_stream,
    get_elapsed_time,
)

# -- the hook of the arrays ------------------------------------------------------------------------

#: Sorting waits for its stream, in thrust.
WAITS = ("argpartition", "argsort", "lexsort", "partition", "sort", "unique")
#: What CuPy does by cuBLAS and cuSOLVER, which CuPy refuses while a stream is being captured.
LIBRARY = ("dot", "einsum", "inner", "linalg", "matmul", "outer", "tensordot", "vdot")


class Hook:
    """What the array half calls (see the package's first page): work goes to the current stream."""

    def allocate(self, nbytes: int) -> MemoryPointer:
        return alloc(nbytes)

    def execute(
        self,
        name: str,
        function: Callable[..., tuple[np.ndarray, ...]],
        inputs: Sequence[ndarray],
        out: Sequence[ndarray] | None = None,
    ) -> tuple[ndarray, ...]:
        machine = machines.current()
        queue = machine.current_queue
        if queue.capture is not None and name.split(".")[0] in LIBRARY:
            raise NotImplementedError(
                "calling cuBLAS API during stream capture is currently unsupported"
            )
        if name.split(".")[0] in WAITS:
            machine.refuse_capture(queue)
        assert not _keeps_an_array(function), f"the work of {name} keeps an array alive"
        has_waited = machine.local.__dict__.pop("has_waited", False)
        if out is None:
            specs = self._specs(machine, function, inputs, has_waited)
            out = [ndarray(shape, dtype) for shape, dtype in specs]
        self._launch(machine, queue, name, function, inputs, out)
        return tuple(out)

    @staticmethod
    def _launch(
        machine: Machine,
        queue: Queue,
        name: str,
        function: Callable[..., tuple[np.ndarray, ...]],
        inputs: Sequence[ndarray],
        out: Sequence[ndarray],
    ) -> None:
        """Issue a kernel. ValueError if an array is on another device than the current one."""
        for x in (*inputs, *out):
            if x.data.device_id != queue.device:
                raise ValueError(
                    f"Array device must be same as the current device: array device = "
                    f"{x.data.device_id} while current = {queue.device}"
                )
        # NumPy arrays only: work that is pending must not keep memory of the pool alive.
        raws, places = [x.raw for x in inputs], [x.raw for x in out]

        def run() -> None:
            for place, result in zip(places, function(*raws), strict=True):
                place[...] = result

        reads, writes = (
            [region for region in map(_region_of, arrays) if region] for arrays in (inputs, out)
        )
        machine.issue(queue, name, run, reads, writes)

    @staticmethod
    def _specs(
        machine: Machine, function: Callable, inputs: Sequence[ndarray], has_waited: bool
    ) -> Sequence:
        """Shapes and dtypes of the results, from the values where the host has just waited for
        them: then the shapes may depend on them."""
        if not has_waited:
            with np.errstate(all="ignore"):
                return specs_of(function, inputs)
        with machine.lock:
            return [(r.shape, r.dtype) for r in function(*(x.raw for x in inputs))]

    def synchronize(self, why: str, array: ndarray | None = None) -> None:
        """The host waits for the current stream, to read `array`."""
        machine = machines.current()
        region = None if array is None else _region_of(array)
        reads = [] if region is None else [region]
        machine.refuse_capture(machine.current_queue)
        work = machine.issue(machine.current_queue, why, reads=reads)
        assert work is not None
        machine.synchronize(work, why)
        machine.local.has_waited = True

    def to_host(self, array: ndarray, out: np.ndarray, stream: Any) -> None:
        """Copy to `out`, which is filled when this returns unless it is pinned."""
        region = _region_of(array)
        if region is not None:
            to_host(array.raw, region, out, stream)

    def from_host(self, array: ndarray, source: np.ndarray, stream: Any) -> None:
        """Copy from `source`, which may be changed when this returns unless it is pinned."""
        region = _region_of(array)
        if region is not None:
            from_host(array.raw, region, source, stream)


def _region_of(array: ndarray) -> Region | None:
    """The bytes of its memory that an array spans; None if it is empty."""
    start, nbytes = bounds(array.raw)
    block = array.data.mem.block
    offset = start - block.address
    return Region(block, offset, offset + nbytes) if nbytes else None


def _keeps_an_array(thing: Any) -> bool:
    """Whether a function holds an array of ours, itself or by what it holds, five times over."""
    layer = [thing]
    for _ in range(6):
        inside: list = []
        for part in layer:
            if type(part) in _HOLD_NOTHING:
                continue
            if isinstance(part, ndarray):
                return True
            if isinstance(part, (list, tuple)):
                inside += part
            elif isinstance(part, dict):
                inside += part.values()
            elif isinstance(part, types.FunctionType):
                cells = part.__closure__ or ()
                inside += [cell.cell_contents for cell in cells if cell != _EMPTY_CELL]
        layer = inside
    return False


#: It is asked of all work: most of what is found are these.
_HOLD_NOTHING = {int, float, bool, str, type(None), np.ndarray, np.ufunc, types.ModuleType}
_EMPTY_CELL = types.CellType()


# -- the scope -------------------------------------------------------------------------------------


def _empty_pinned(shape: Any, dtype: Any = float) -> np.ndarray:
    """`cupyx.empty_pinned`: an array of the host to which copies run asynchronously."""
    like = np.empty(shape, dtype)
    return np.frombuffer(alloc_pinned_memory(like.nbytes), like.dtype, like.size).reshape(shape)


def _namespaces(machine: Machine, has_nccl: bool) -> dict[str, Any]:
    """What the module `cupy` has beside its array functions."""
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: machine.devices,
        getDevice=lambda: machine.current_device,
        eventQuery=event_query,
        memGetInfo=lambda: Device().mem_info,
        getDeviceProperties=lambda device: {
            "name": b"fake GPU",
            "totalGlobalMem": machine.memory,
            "major": 9,
            "minor": 0,
            "multiProcessorCount": 132,
        },
        driverGetVersion=lambda: 12080,
        runtimeGetVersion=lambda: 12080,
    )
    names = types.SimpleNamespace(
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        OutOfMemoryError=OutOfMemoryError,
        UnownedMemory=UnownedMemory,
    )
    cuda = types.SimpleNamespace(
        Device=Device,
        Event=Event,
        Graph=graphs.Graph,
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        Stream=Stream,
        UnownedMemory=UnownedMemory,
        alloc=alloc,
        function=types.SimpleNamespace(CIntptr=CIntptr),
        alloc_pinned_memory=alloc_pinned_memory,
        get_current_stream=get_current_stream,
        get_elapsed_time=get_elapsed_time,
        memory=names,
        nccl=nccl.namespace(has_nccl),
        runtime=runtime,
        using_allocator=using_allocator,
    )
    return {
        "cuda": cuda,
        "from_dlpack": dlpack.from_dlpack,
        "get_default_memory_pool": lambda: machine.pool,
    }


@contextmanager
def fake_cuda(
    devices: int = 2, memory: int = 1 << 28, seed: int = 0, nccl: bool = True, **options: Any
) -> Iterator[Any]:
    """`devices` GPUs with `memory` bytes each; gives the module `cupy`, with `machine` and `cupyx`
    beside CuPy's names. `nccl`: is it installed? `options` are those of `Machine`. An OrderError
    that nobody noticed is raised at the end."""
    machine = Machine(devices, memory, seed, **options)
    machine.pool, machine.pinned_pool = MemoryPool(), PinnedMemoryPool()
    machine.allocator = machine.pool.malloc
    with running(machine), _installed(machine, nccl):
        yield cupy


@contextmanager
def _installed(machine: Machine, nccl: bool) -> Iterator[None]:
    """The scope in which `machine` is what the module `cupy` works on."""
    names = {
        **_namespaces(machine, nccl),
        "machine": machine,
        "cupyx": types.SimpleNamespace(empty_pinned=_empty_pinned),
    }
    before = {name: vars(cupy).get(name) for name in names}
    hook, cupy_arrays.hook = cupy_arrays.hook, Hook()
    vars(cupy).update(names)
    try:
        with mock.patch.object(products, "Library", lambda xp: cublas.Library()):
            yield
    finally:
        cupy_arrays.hook = hook
        for name, value in before.items():
            if value is None:
                delattr(cupy, name)
            else:
                setattr(cupy, name, value)
