"""PyTorch's profiler (Kineto), as `prof.export_chrome_trace` writes it.

    cpu_op            an operator of PyTorch, nested ones within; without a GPU the outermost is an
                      operation that runs on the calling thread
    cuda_runtime      a call of the CUDA runtime: a launch, whose "correlation" the kernel or copy
                      has too, or a synchronizing call, which is a wait
    kernel, gpu_memcpy, gpu_memset    operations of a GPU; "device" and "stream" say where
    cuda_sync         what a stream waited for, where the file has it
    python_function   functions of Python (with_stack=True)

Operations of a stream run in the order of their launches. A collective of NCCL is an operation of
the wire, as in our own traces. With a GPU, what PyTorch does on the CPU between two launches is the
program's own time: "issuing".

The format: Kineto's output_json.cpp and PyTorch's own traces; synchronization events: Kineto's
documentation of CUDA event synchronization.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from d2lmini.context import gpu
from d2lmini.engine.worker_pools import WIRE
from d2lmini.profiler.columns import check, is_whole
from d2lmini.profiler.foreign.builder import TraceBuilder
from d2lmini.profiler.foreign.events import (
    ENDED,
    PUSHED,
    ForeignEvents,
    Slice,
    Thread,
    by_thread,
    last_until,
)
from d2lmini.profiler.foreign.stack import Call, Frame, find_call, is_standard, walk_stack
from d2lmini.profiler.records import Operation

GPU_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
HOST_KINDS = (*RUNTIME, "cpu_op", "user_annotation", "python_function")

#: Calls of the runtime that return when work of the GPU is done; ROCm's begin with hip.
SYNCHRONIZING = re.compile(
    r"(cuda|hip)(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy|MemcpyDtoH)(_v\d+)?"
    r"|cu(Ctx|Stream|Event)Synchronize"
)
_EVERYTHING = re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize")

#: Operators that read a value of a tensor.
READING = {"aten::item": "item", "aten::_local_scalar_dense": "item"}

_PYTHON = re.compile(r"(.+)\((\d+)\): (.+)")
_BUILTIN = re.compile(r"<built-in (?:method|function) ([^\s>]+)")
_NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
_COPY = {"HtoD": "in", "DtoH": "out"}

_ID = (is_whole, str)

#: What the arguments of events are, see `columns.fits`.
FORMS = {
    "correlation": is_whole, "stream": _ID, "wait_on_stream": _ID, "device": _ID, "bytes": float,
    "wait_on_cuda_event_record_corr_id": is_whole,
}  # fmt: skip

#: An awaited operation may end this much after the wait, by the two clocks.
SLACK_NS = 20_000


def recognizes(events: ForeignEvents) -> bool:
    """Is this a file of PyTorch's profiler?"""
    kinds = {slice.kind for slice in events.slices}
    return bool(kinds & {"cpu_op", "python_function", *RUNTIME, "kernel"})


def read(events: ForeignEvents, builder: TraceBuilder) -> None:
    """Fill the builder."""
    _Kineto(events, builder).read()


class _Kineto:
    """A file while it is read."""

    def __init__(self, events: ForeignEvents, builder: TraceBuilder):
        self.events, self.builder = events, builder
        self.on_gpu = [slice for slice in events.slices if slice.kind in GPU_KINDS]
        self.launches: dict[int, tuple[Slice, Call | None]] = {}
        self.syncs: list[tuple[Slice, str, Call | None]] = []
        self.readings: list[tuple[Slice, Call | None]] = []
        self.outermost: list[tuple[Slice, Call | None]] = []
        self.streams: dict[tuple[int, Any], list[Operation]] = defaultdict(list)

    def read(self) -> None:
        for slice in self.events.slices:
            check(slice.args, FORMS)
        host = (slice for slice in self.events.slices if slice.kind in HOST_KINDS)
        for slices in by_thread(host).values():
            self._read_thread(slices)
        if self.on_gpu:
            self._read_gpu()
            self._order_streams()
        else:
            self._read_operators()
        self._read_waits()

    @property
    def _operations(self) -> list[Operation]:
        return self.builder.trace.operations

    # -- the program's threads ---------------------------------------------------------------------

    def _read_thread(self, slices: Sequence[Slice]) -> None:
        """Find the launches, waits and outermost operators of a thread, with their calls."""
        frames: dict[int, Frame | None] = {}  # of each function, the user's one it is called from
        for slice, stack in walk_stack(slices):
            if (function := _function(slice)) is not None:
                outer = (frames[id(other)] for other in reversed(stack) if id(other) in frames)
                frame, (own, name) = next(outer, None), function
                if frame is not None:
                    self.builder.lines.add(Call(frame, (name,)))
                frames[id(slice)] = own or frame
                continue
            self.builder.span(slice.begin_ns, slice.end_ns)
            if slice.kind in RUNTIME:
                self._read_runtime(slice, stack)
            elif slice.kind == "cpu_op":
                within = [outer.name for outer in stack if outer.kind == "cpu_op"]
                if slice.name in READING and READING.keys().isdisjoint(within):
                    call = find_call(stack, _function, READING[slice.name])
                    self.readings.append((slice, call))
                if not within:
                    self.outermost.append((slice, find_call(stack, _function)))

    def _read_runtime(self, slice: Slice, stack: Sequence[Slice]) -> None:
        if SYNCHRONIZING.fullmatch(slice.name):
            reads = [READING[outer.name] for outer in stack if outer.name in READING]
            kind, called = (reads[0], reads[0]) if reads else (slice.name, "synchronize")
            self.syncs.append((slice, kind, find_call(stack, _function, called)))
        if "correlation" in slice.args:
            self.launches[slice.args["correlation"]] = slice, find_call(stack, _function)

    # -- operations --------------------------------------------------------------------------------

    def _read_operators(self) -> None:
        """Without a GPU: the outermost operators, except those that only read a value."""
        for slice, call in self.outermost:
            if slice.name not in READING:
                name = self.events.thread_name(slice.thread)
                wire = slice.name.startswith(("gloo:", "mpi:", "nccl:"))
                self.builder.operation(
                    slice.name, slice.begin_ns, slice.end_ns, name, call=call,
                    lane=WIRE if wire else "compute", worker=name if wire else "caller",
                )  # fmt: skip

    def _read_gpu(self) -> None:
        for slice in self.on_gpu:
            launch, call = self.launches.get(slice.args.get("correlation", -1), (None, None))
            device, stream = _device(slice), slice.args.get("stream", slice.thread[1])
            name, lane = slice.name, "compute"
            if slice.kind == "gpu_memcpy":
                lane = next((way for word, way in _COPY.items() if word in name), "compute")
            elif collective := _NCCL.match(name):
                name, lane = collective[1], WIRE
            thread = "unknown" if launch is None else self.events.thread_name(launch.thread)
            operation = self.builder.operation(
                name, slice.begin_ns, slice.end_ns, thread, worker=f"gpu({device}) stream {stream}",
                pushed_ns=None if launch is None else launch.begin_ns, ctx=gpu(device), lane=lane,
                call=call, nbytes=slice.args.get("bytes", 0),
            )  # fmt: skip
            self.streams[device, stream].append(operation)

    def _order_streams(self) -> None:
        """Operations of a stream change one Var. A stream that waits for an event needs what the
        other stream had been given before."""
        for operations in self.streams.values():
            serial = self.builder.serial()
            operations.sort(key=lambda operation: (operation.pushed_ns, operation.began_ns))
            for operation in operations:
                operation.writes += (serial,)
        for slice in self.events.slices:
            call = self.launches.get(slice.args.get("correlation", -1))
            if slice.kind != "cuda_sync" or "wait_on_stream" not in slice.args or call is None:
                continue
            record = self.launches.get(slice.args.get("wait_on_cuda_event_record_corr_id", -1))
            came_ns = call[0].begin_ns
            upto_ns = came_ns if record is None else record[0].begin_ns
            before = self._last(_device(slice), slice.args["wait_on_stream"], upto_ns)
            own = self.streams.get((_device(slice), slice.args.get("stream")), [])
            k = bisect_right(own, came_ns, key=PUSHED)
            if before is not None and k < len(own):
                self.builder.follow(own[k], before)

    def _last(self, device: int, stream: Any, when_ns: int) -> Operation | None:
        """The last operation launched on a stream before a time."""
        return last_until(self.streams.get((device, stream), []), when_ns, PUSHED)

    # -- waits -------------------------------------------------------------------------------------

    def _read_waits(self) -> None:
        """Synchronizing calls; and operators that read a value where no such call is within."""
        streams = {
            slice.args["correlation"]: (_device(slice), slice.args["stream"])
            for slice in self.events.slices
            if slice.kind == "cuda_sync" and {"correlation", "stream"} <= set(slice.args)
        }
        launched = sorted(self._operations, key=PUSHED)
        for slice, kind, call in self.syncs:
            everything = _EVERYTHING.fullmatch(slice.name) is not None
            where = streams.get(slice.args.get("correlation", -1))
            awaited = None
            if where in self.streams and where is not None:
                awaited = self._last(*where, slice.begin_ns)
            elif not everything:
                k = bisect_right(launched, slice.begin_ns, key=PUSHED)
                done = [o for o in launched[:k] if o.ended_ns <= slice.end_ns + SLACK_NS]
                awaited = max(done, key=ENDED, default=None)
            self._wait(kind, slice, call, awaited, everything)
        begins: dict[Thread, list[int]] = defaultdict(list)
        for slice, *_ in self.syncs:
            begins[slice.thread].append(slice.begin_ns)
        for slice, call in self.readings:
            own = begins[slice.thread]
            k = bisect_left(own, slice.begin_ns)
            if k == len(own) or own[k] >= slice.end_ns:
                awaited = None
                if not self.on_gpu:
                    awaited = last_until(launched, slice.begin_ns, PUSHED)
                self._wait(READING[slice.name], slice, call, awaited, False)

    def _wait(
        self, kind: str, slice: Slice, call: Call | None, awaited: Operation | None,
        everything: bool,
    ) -> None:  # fmt: skip
        thread = self.events.thread_name(slice.thread)
        self.builder.wait(
            kind, thread, slice.begin_ns, slice.end_ns, call, awaited, everything
        )  # fmt: skip


def _device(slice: Slice) -> int:
    device = slice.args.get("device", slice.thread[0])
    return device if isinstance(device, int) and device >= 0 else 0


def _function(slice: Slice) -> tuple[Frame | None, str] | None:
    """See `find_call`; a function of the user's is neither PyTorch's nor Python's."""
    if slice.kind != "python_function":
        return None
    if found := _PYTHON.fullmatch(slice.name):
        file, line, name = found[1], int(found[2]), found[3]
        if _is_torch(file) or is_standard(file):
            return None, name
        return Frame(file, line, name), name
    builtin = _BUILTIN.match(slice.name)
    return None, builtin[1] if builtin else slice.name


def _is_torch(file: str) -> bool:
    return file.replace("\\", "/").startswith("torch/") or "/site-packages/torch/" in file
