"""PyTorch's profiler (Kineto), as `prof.export_chrome_trace` writes it.

    cpu_op            an operator of PyTorch, nested ones within; without a GPU the outermost is an
                      operation that runs on the calling thread
    cuda_runtime      a call of the CUDA runtime: a launch, whose "correlation" the kernel or copy
                      has too, or a synchronizing call, which is a wait
    kernel, gpu_memcpy, gpu_memset    operations of a GPU; "device" and "stream" say where
    cuda_sync         what a stream waited for, where the file has it
    python_function   functions of Python (with_stack=True)

Operations of a stream run in the order of their launches. With a GPU, what PyTorch does on the CPU
between two launches is the program's own time: "issuing".

The format: Kineto's output_json.cpp and PyTorch's own traces; synchronization events: Kineto's
documentation of CUDA event synchronization.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from d2lmini.context import gpu
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

#: Calls of the runtime that return when work of the GPU is done, of all its work or of some.
_SYNCHRONIZING = re.compile(
    r"cuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy)(_v\d+)?"
    r"|cu(Ctx|Stream|Event)Synchronize"
)
_EVERYTHING = re.compile(r"cudaDeviceSynchronize|cuCtxSynchronize")

#: Operators that read a value of a tensor, as `.item()` does.
_READING = frozenset({"aten::item", "aten::_local_scalar_dense"})

_PYTHON = re.compile(r"(.+)\((\d+)\): (.+)")
_BUILTIN = re.compile(r"<built-in (?:method|function) ([^\s>]+)")
_TORCH = re.compile(r"^torch/|/site-packages/torch/")
_COPY = {"HtoD": "in", "DtoH": "out"}

_ID = (is_whole, str)

#: What the arguments of events are, see `columns.fits`.
FORMS = {
    "correlation": is_whole, "stream": _ID, "wait_on_stream": _ID, "device": _ID, "bytes": float,
    "wait_on_cuda_event_record_corr_id": is_whole,
}  # fmt: skip

#: An awaited operation may end this much after the wait, by the two clocks.
_SLACK_NS = 20_000


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
        self.syncs: dict[Thread, list[tuple[Slice, str, Call | None]]] = defaultdict(list)
        self.readings: list[tuple[Slice, Call | None]] = []
        self.outermost: list[tuple[Slice, Call | None]] = []

    def read(self) -> None:
        for slice in self.events.slices:
            check(slice.args, FORMS)
        host = (slice for slice in self.events.slices if slice.kind in HOST_KINDS)
        for slices in by_thread(host).values():
            self._read_thread(slices)
        if self.on_gpu:
            self._read_gpu()
        else:
            self._read_operators()
        self._read_waits()

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
            within = [outer.name for outer in stack if outer.kind == "cpu_op"]
            reads = not _READING.isdisjoint(within)
            if slice.kind in RUNTIME:
                call = find_call(stack, _function)
                if _SYNCHRONIZING.fullmatch(slice.name):
                    kind, called = ("item", "item") if reads else (slice.name, "synchronize")
                    waits = find_call(stack, _function, called)
                    self.syncs[slice.thread].append((slice, kind, waits))
                if "correlation" in slice.args:
                    self.launches[slice.args["correlation"]] = slice, call
            elif slice.kind == "cpu_op":
                if slice.name in _READING and not reads:
                    self.readings.append((slice, find_call(stack, _function, "item")))
                if not within:
                    self.outermost.append((slice, find_call(stack, _function)))

    # -- operations --------------------------------------------------------------------------------

    def _read_operators(self) -> None:
        """Without a GPU: the outermost operators, except those that only read a value."""
        for slice, call in self.outermost:
            if slice.name not in _READING:
                name = self.events.thread_name(slice.thread)
                self.builder.operation(slice.name, slice.begin_ns, slice.end_ns, name, call=call)

    def _read_gpu(self) -> None:
        """The work of GPUs. Operations of a stream change one Var."""
        serials: dict[Any, int] = defaultdict(self.builder.serial)
        streams: dict[Any, list[Operation]] = defaultdict(list)
        for slice in self.on_gpu:
            launch, call = self.launches.get(slice.args.get("correlation", -1), (None, None))
            device, stream = _device(slice), slice.args.get("stream", slice.thread[1])
            lane = "compute"
            if slice.kind == "gpu_memcpy":
                lane = next((way for word, way in _COPY.items() if word in slice.name), "compute")
            thread = "unknown" if launch is None else self.events.thread_name(launch.thread)
            operation = self.builder.operation(
                slice.name, slice.begin_ns, slice.end_ns, thread,
                worker=f"gpu({device}) stream {stream}", ctx=gpu(device), lane=lane, call=call,
                pushed_ns=None if launch is None else launch.begin_ns,
                nbytes=slice.args.get("bytes", 0),
            )  # fmt: skip
            operation.writes += (serials[device, stream],)
            streams[device, stream].append(operation)
        for slice in self.events.slices:
            if slice.kind == "cuda_sync" and "wait_on_stream" in slice.args:
                self._order(slice, streams)

    def _order(self, slice: Slice, streams: dict[Any, list[Operation]]) -> None:
        """A stream waits for an event: what it is given next needs what the other had before."""
        device, args = _device(slice), slice.args
        call = self.launches.get(args.get("correlation", -1))
        record = self.launches.get(args.get("wait_on_cuda_event_record_corr_id", -1), call)
        if call is not None and record is not None:
            theirs, own = (
                streams[device, args["wait_on_stream"]],
                streams[device, args.get("stream")],
            )
            before = last_until(sorted(theirs, key=PUSHED), record[0].begin_ns, PUSHED)
            later = [o for o in own if o.pushed_ns > call[0].begin_ns]
            if before is not None and later:
                self.builder.follow(min(later, key=PUSHED), before)

    # -- waits -------------------------------------------------------------------------------------

    def _read_waits(self) -> None:
        """Synchronizing calls; and operators that read a value where no such call is within. A wait
        for some of the work was for what had been launched before it and ended last within it."""
        launched = sorted(self.builder.trace.operations, key=PUSHED)
        for slice, kind, call in (sync for own in self.syncs.values() for sync in own):
            everything = _EVERYTHING.fullmatch(slice.name) is not None
            k = bisect_right(launched, slice.begin_ns, key=PUSHED)
            done = [o for o in launched[:k] if o.ended_ns <= slice.end_ns + _SLACK_NS]
            awaited = None if everything else max(done, key=ENDED, default=None)
            self._wait(kind, slice, call, awaited, everything)
        for slice, call in self.readings:
            if not any(slice.begin_ns <= sync.begin_ns < slice.end_ns
                       for sync, *_ in self.syncs[slice.thread]):  # fmt: skip
                last = None if self.on_gpu else last_until(launched, slice.begin_ns, PUSHED)
                self._wait("item", slice, call, last)

    def _wait(
        self, kind: str, slice: Slice, call: Call | None, awaited: Operation | None,
        everything: bool = False,
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
        own = not (is_standard(file) or _TORCH.search(file.replace("\\", "/")))
        return Frame(file, line, name) if own else None, name
    builtin = _BUILTIN.match(slice.name)
    return None, builtin[1] if builtin else slice.name
