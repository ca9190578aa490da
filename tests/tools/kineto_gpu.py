"""Traces of PyTorch on a GPU, GENERATED: no GPU was here. `generate(kind)` gives the value of the
JSON file that PyTorch's profiler would write of `PROGRAM`, on a clock of our own.

What a CPU trace has too (cpu_op, python_function, [memory], metadata, the members of the file) has
the fields that PyTorch's own writer gives; `test_foreign_traces.py` compares them with a recorded
trace. What only a GPU has follows Kineto's CuptiActivity.cpp: cuda_runtime with "cbid" and
"correlation"; kernel, gpu_memcpy and gpu_memset on pid = device, tid = stream, with "device",
"context", "stream", "correlation", "External id"; cuda_sync with "cuda_sync_kind" and
"wait_on_stream"; arrows ac2g from a launch to what it launched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: The program of all four; the lines are what the traces are about.
PROGRAM = (Path(__file__).parents[2] / "chapters" / "traces" / "gpu_loop.py").read_text()
FILE, FIRST = "gpu_loop.py", 1
STEPS = 5
PID = 4242
ADDRESS = 0x7F0000000000

#: kind -> us of a copy to the GPU, number of kernels, us of each, us between launches, is there an
#: `.item()`, us of Python after it, is the copy on a stream of its own.
KINDS: dict[str, tuple[int, int, int, int, bool, int, bool]] = {
    "launch-bound": (5, 60, 3, 12, False, 0, False),
    "copy": (2000, 10, 150, 10, False, 0, False),
    "prefetched copy": (1400, 10, 150, 10, False, 0, True),
    "item": (50, 10, 100, 10, True, 800, False),
}  # fmt: skip


class _Writer:
    """The events, and the clocks of the host and of each stream, in us."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 1000.0
        self.free: dict[int, float] = {}
        self.correlation = 100
        self.ids = 0

    def host(self, kind: str, name: str, begin: float, **args: Any) -> None:
        """An activity of the program's thread from `begin` to now."""
        self.events.append(
            {"ph": "X", "cat": kind, "name": name, "pid": PID, "tid": PID, "ts": begin,
             "dur": round(self.now - begin, 3), "args": args}
        )  # fmt: skip

    def op(self, name: str, begin: float) -> None:
        self.ids += 1
        self.host("cpu_op", name, round(begin - 0.1, 3), **{
            "External id": self.ids, "Record function id": 0, "Ev Idx": self.ids,
        })  # fmt: skip

    def runtime(self, name: str, us: float) -> int:
        begin, self.now = self.now, self.now + us
        self.correlation += 1
        self.host("cuda_runtime", name, begin, **{
            "External id": self.ids, "cbid": 211, "correlation": self.correlation,
        })  # fmt: skip
        return self.correlation

    def launch(self, call: str, kind: str, name: str, us: float, stream: int = 7, after: float = 0,
               **args: Any) -> float:  # fmt: skip
        """Launch work; the time at which it will be done."""
        launched = self.now
        correlation = self.runtime(call, 3)
        begin = max(self.now + 2, self.free.get(stream, 0), after)
        self.free[stream] = begin + us
        self.events.append(
            {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": us,
             "args": {"External id": self.ids, "device": 0, "context": 1, "stream": stream,
                      "correlation": correlation, **args}}
        )  # fmt: skip
        flow = {"id": correlation, "cat": "ac2g", "name": "ac2g"}
        self.events += [
            {"ph": "s", **flow, "pid": PID, "tid": PID, "ts": launched},
            {"ph": "f", **flow, "pid": 0, "tid": stream, "ts": begin, "bp": "e"},
        ]
        return begin + us

    def kernel(self, name: str, us: float, after: float = 0) -> float:
        return self.launch(
            "cudaLaunchKernel", "kernel", name, us, after=after, queued=0, grid=[64, 1, 1],
            block=[256, 1, 1], **{"registers per thread": 32, "shared memory": 0,
                                  "blocks per SM": 0.5, "warps per SM": 4.0,
                                  "est. achieved occupancy %": 6},
        )  # fmt: skip

    def copy(self, words: str, nbytes: int, us: float, stream: int = 7) -> float:
        bandwidth = {"bytes": nbytes, "memory bandwidth (GB/s)": nbytes / us / 1e3}
        return self.launch("cudaMemcpyAsync", "gpu_memcpy", words, us, stream, **bandwidth)

    def sync(self, call: str, kind: str, stream: int, until: float, **args: Any) -> int:
        """A synchronizing call: returns at `until`; or a stream that waits."""
        begin = self.now
        correlation = self.runtime(call, max(2.0, until - self.now))
        self.events.append(
            {"ph": "X", "cat": "cuda_sync", "name": kind, "pid": 0, "tid": stream, "ts": begin,
             "dur": self.now - begin, "args": {"cuda_sync_kind": kind, "stream": stream,
                                               "correlation": correlation, "device": 0,
                                               "context": 1, **args}}
        )  # fmt: skip
        return correlation

    def memory(self, nbytes: int, total: int, address: int) -> None:
        self.events.append(
            {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID,
             "tid": PID, "ts": self.now, "args": {
                 "Total Reserved": 2 * total, "Total Allocated": total, "Bytes": nbytes,
                 "Device Id": 0, "Device Type": 1, "Addr": address, "finished": False,
                 "Ev Idx": 9999}}
        )  # fmt: skip


def generate(kind: str, with_sync_events: bool = True) -> dict[str, Any]:
    """The value of the file, for a kind of KINDS."""
    copy_us, kernels, kernel_us, launch_us, item, python_us, apart = KINDS[kind]
    writer = _Writer()
    whole = writer.now
    for step in range(STEPS):
        _step(writer, step, copy_us, kernels, kernel_us, launch_us, apart)
        if item:
            _item(writer)
        writer.memory(-4096, 0, ADDRESS + step)
        writer.now += python_us
    writer.sync("cudaDeviceSynchronize", "Context Sync", -1, max(writer.free.values()))
    writer.host("python_function", f"{FILE}({FIRST}): train", whole - 1, **{
        "Python parent id": None, "Python id": 1, "Ev Idx": 10000,
    })  # fmt: skip
    events = writer.events
    if not with_sync_events:  # only recorded if asked for (enable_cuda_sync_events)
        events = [event for event in events if event["cat"] != "cuda_sync"]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "a generated GPU", "numSms": 132}],
        "with_stack": 1,
        "profile_memory": 1,
        "record_shapes": 0,
        "trace_id": "0" * 32,
        "host_name": "generated",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1790857026000000000,
        "traceName": f"{kind}.json",
        "traceEvents": [*events, *_names()],
    }


def _step(
    writer: _Writer,
    step: int,
    copy_us: int,
    kernels: int,
    kernel_us: int,
    launch_us: int,
    apart: bool,
) -> None:
    writer.now += 0.5
    begin, stream = writer.now, 20 if apart else 7
    there = writer.copy("Memcpy HtoD (Pinned -> Device)", 1000 * copy_us, copy_us, stream)
    record = writer.runtime("cudaEventRecord", 1) if apart else 0
    if apart:
        writer.sync(
            "cudaStreamWaitEvent", "Stream Wait Event", 7, 0,
            wait_on_stream=20, wait_on_cuda_event_record_corr_id=record, wait_on_cuda_event_id=3,
        )  # fmt: skip
    writer.op("aten::to", begin)
    _called(writer, "<built-in method to of Tensor object at 0x7f00>", begin)
    half = kernels // 2
    for count, name, module in (
        (half, "aten::linear", "nn.Module: Net_0"),
        (kernels - half, "autograd::engine::evaluate_function: AddmmBackward0", "torch"),
    ):
        begin = writer.now + 0.4
        for i in range(count):
            writer.now += 0.5
            first = writer.now
            if i == 0 and module != "torch":
                writer.memory(4096, 4096, ADDRESS + step)
            writer.now += launch_us - 3
            writer.kernel("ampere_sgemm_128x64_tn", kernel_us, there if i == 0 else 0)
            writer.op(name, first)
        _called(writer, module if module != "torch" else "torch/_tensor.py(566): backward", begin)


def _item(writer: _Writer) -> None:
    writer.now += 0.5
    begin = writer.now
    done = writer.copy("Memcpy DtoH (Device -> Pageable)", 4, 1)
    writer.sync("cudaStreamSynchronize", "Stream Sync", 7, done + 3)
    writer.op("aten::_local_scalar_dense", begin)
    writer.op("aten::item", begin)
    _called(writer, "<built-in method item of Tensor object at 0x7f00>", begin)


def _called(writer: _Writer, name: str, begin: float) -> None:
    writer.ids += 1
    writer.host("python_function", name, round(begin - 0.2, 3), **{
        "Python parent id": 1, "Python id": writer.ids, "Ev Idx": writer.ids,
    })  # fmt: skip


def _names() -> list[dict[str, Any]]:
    def meta(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "ts": 0.0, "pid": pid, "tid": tid, "args": args}

    return [
        meta("process_name", PID, 0, name="python"),
        meta("process_labels", PID, 0, labels="CPU"),
        meta("thread_name", PID, PID, name=f"thread {PID} (python)"),
        meta("process_name", 0, 0, name="python"),
        meta("process_labels", 0, 0, labels="GPU 0"),
        meta("thread_name", 0, 7, name="stream 7"),
    ]
