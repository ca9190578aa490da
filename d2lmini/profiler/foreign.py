"""Traces of PyTorch, as traces of this library.

    trace = d2lmini.profiler.load("pytorch_trace.json")
    print(trace.account())
    print(trace.waits())

PyTorch's profiler (Kineto) writes a Chrome trace with `prof.export_chrome_trace`: slices of
threads, one within another.

    cpu_op            an operator of PyTorch, nested ones within; without a GPU the outermost is an
                      operation that runs on the calling thread
    cuda_runtime      a call of the CUDA runtime: a launch, whose "correlation" the kernel or copy
                      has too, or a synchronizing call, which is a wait
    kernel, gpu_memcpy, gpu_memset    operations of a GPU; "device" and "stream" say where
    python_function   functions of Python (with_stack=True)

Operations of a stream run in the order of their launches. With a GPU, what PyTorch does on the CPU
between two launches is the program's own time: "issuing".

Such a trace shows less than our own: not what an operation reads and writes, so its dependencies
are the order in its stream. `trace.lacks` names what cannot be
asked of it, each with the reason, and the question raises MXNetError with that reason.

The profiler records the *function* in which an operation was issued, by its file and first line,
and not the line. `_SourceLines` finds the line in the source, if the file lies beside the trace or
in the working folder and is the one that ran: the function must begin at the recorded line. There
it looks for the calls of what was called. If one line calls it, that is the line; else the function
is all that is known.

The format: Kineto's output_json.cpp and PyTorch's own traces.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import accumulate, count
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import MXNetError
from d2lmini.base.callsite import RecordedCode, Site
from d2lmini.context import cpu, gpu
from d2lmini.engine.operation import RecordedCost
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.waits import HIDDEN

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

_NO_SETS = "the file does not show what an operation reads and writes"

#: What no trace of another library shows.
LACKS = {
    "memory()": "the allocations of the file are not read",
    "replay(workers=)": f"{_NO_SETS}, so which operations could run side by side is unknown",
    "replay(devices=)": f"{_NO_SETS}, so what a device would have to be sent is unknown",
}

#: An operation that runs on the thread that calls it; what no file says of one.
_INLINE = {
    "ctx": cpu(), "lane": "compute", "worker": "caller", "priority": 0, "predicted_us": inf,
    "reads": (), "writes": (), "by": 0, "failure": None, "footprint": RecordedCost(0.0, 0.0),
}  # fmt: skip

_RUNTIME = ("cuda_runtime", "cuda_driver")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")

#: Calls of the runtime that return when work of the GPU is done, of all its work or of some.
_SYNCHRONIZING = re.compile(
    r"cuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy)(_v\d+)?"
    r"|cu(Ctx|Stream|Event)Synchronize"
)
_EVERYTHING = re.compile(r"cudaDeviceSynchronize|cuCtxSynchronize")

#: Operators that read a value of a tensor, as `.item()` does.
_READING = ("aten::item", "aten::_local_scalar_dense")

_PYTHON = re.compile(r"(.+)\((\d+)\): (.+)")
_BUILTIN = re.compile(r"<built-in (?:method|function) ([^\s>]+)")
_TORCH = re.compile(r"^torch/|/site-packages/torch/")
_COPY = {"HtoD": "in", "DtoH": "out"}

#: An awaited operation may end this much after the wait, by the two clocks.
_SLACK_NS = 20_000

#: Keys for sorting.
PUSHED, ENDED = map(attrgetter, ("pushed_ns", "ended_ns"))


# -- the events of a file --------------------------------------------------------------------------

Thread = tuple[Any, Any]


class Slice(NamedTuple):
    """An activity of a thread from begin to end (an event X)."""

    thread: Thread
    name: str
    kind: str
    begin_ns: int
    end_ns: int
    args: dict[str, Any]


def _read_events(tree: dict[str, Any]) -> tuple[list[Slice], dict[Thread, str]]:
    """The slices in the order of their begins, an enclosing slice first; and the names of threads,
    each of its own. The first slice begins at 1 ns: 0 says that something did not happen. Events
    that lack a time or a name are left out."""
    events = [
        ((event.get("pid"), event.get("tid")), event.get("args") or {}, event)
        for event in tree.get("traceEvents", ())
        if isinstance(event, dict) and type(event.get("name")) is str
    ]
    names: dict[Thread, str] = {}
    for thread, args, event in events:
        if event.get("ph") == "M" and event["name"] == "thread_name" and args.get("name"):
            names.pop(thread, None)  # a thread may be named twice
            own = str(args["name"])
            names[thread] = f"{own} ({thread[1]})" if own in names.values() else own
    events = [e for e in events if e[2].get("ph") == "X" and e[2].get("ts") is not None]
    zero_ns = min((_ns(event["ts"]) for _, _, event in events), default=0) - 1
    slices = []
    for thread, args, event in events:
        begin_ns = _ns(event["ts"]) - zero_ns
        end_ns = begin_ns + max(0, _ns(event.get("dur") or 0))
        kind = str(event.get("cat"))
        slices.append(Slice(thread, event["name"], kind, begin_ns, end_ns, args))
    return sorted(slices, key=lambda slice: (slice.begin_ns, -slice.end_ns)), names


def _ns(us: Any) -> int:
    if type(us) not in (int, float):
        raise ValueError(f"traceEvents: {repr(us)[:60]} is no time in microseconds")
    return round(1000 * us)


# -- lines of the program --------------------------------------------------------------------------


class Frame(NamedTuple):
    """A Python function: its file, its first line (of a module: unknown), its name."""

    file: str
    line: int
    name: str


class Call(NamedTuple):
    """A place of the user's program: the function, and the names of what it called there, the
    outermost first."""

    frame: Frame
    callees: tuple[str, ...] = ()


#: What a program may write to call a method.
_SPELLINGS = {"item": ("item", "float", "int", "bool", "tolist")}


class _SourceLines:
    """Finds the lines of calls. `called` has what each function called, because a name that one
    call accounts for is not what another call looks for; `site` is asked when it is complete."""

    def __init__(self, folders: Iterable[str]):
        self.folders = folders
        self.called: dict[Frame, set[str]] = defaultdict(set)
        self.site = cache(self._find_site)
        self._source = cache(self._read_source)
        self._site_at = cache(_site_at)

    def _find_site(self, call: Call | None) -> Site | None:
        """The line of a call as a site; None for no call."""
        if call is None:
            return None
        file, first, name = call.frame
        source, calls = self._source(file)
        own = calls[name, 0 if name == "<module>" else first]
        called = self.called[call.frame]
        known = called.union(dir(builtins), *(_SPELLINGS.get(name, ()) for name in called))
        spellings = [spelling for name in call.callees for spelling in _SPELLINGS.get(name, [name])]
        found = [{line for called, line in own if called == spelling} for spelling in spellings]
        # Something without a name of its own, such as a Module: the one line that nothing explains.
        found.append({line for called, line in own if called not in known})
        lines = next(filter(None, found), set())
        if len(lines) != 1:
            return self._site_at(first, f"{file}:{first}: in {name}")
        (line,) = lines
        return self._site_at(line, f"{file}:{line}: {source.splitlines()[line - 1].strip()}")

    def _read_source(self, file: str) -> tuple[str, dict[Any, list[tuple[str, int]]]]:
        """The text of a file, and of each function (its name, and its first line) the calls in its
        own body: (name, line). Nothing if the file is not there, or is not Python."""
        calls: dict[Any, list[tuple[str, int]]] = defaultdict(list)

        def walk(node: ast.AST, owner: Any) -> None:
            for child in ast.iter_child_nodes(node):
                inner = owner
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    inner = child.name, min(x.lineno for x in (child, *child.decorator_list))
                elif isinstance(child, (ast.ClassDef, ast.Lambda)):
                    inner = None
                elif isinstance(child, ast.Call):
                    called = str(getattr(child.func, "attr", getattr(child.func, "id", "")))
                    calls[owner].append((called, child.lineno))
                walk(child, inner)

        paths = (os.path.join(folder, file) for folder in self.folders)
        try:
            source = Path(next(filter(os.path.isfile, paths))).read_text(encoding="utf-8")
            walk(ast.parse(source), ("<module>", 0))
        except (StopIteration, OSError, UnicodeDecodeError, SyntaxError):
            return "", calls
        return source, calls


def _site_at(line: int, text: str) -> Site:
    code = RecordedCode()
    code.lines[0] = line, text
    return code, 0


# -- the trace -------------------------------------------------------------------------------------


def read(file: str, tree: dict[str, Any], trace: Trace) -> Trace:
    """Fill a trace from the object in `file`. MXNetError if PyTorch's profiler did not write it, or
    if there is no operation in it."""
    slices, names = _read_events(tree)
    if not {"cpu_op", "python_function", *_RUNTIME, "kernel"}.intersection(x.kind for x in slices):
        raise MXNetError(
            f"{file} is no trace of d2lmini or of PyTorch's profiler: none of its events is one "
            "that these write"
        )
    folders = [os.path.dirname(os.path.abspath(file)), os.getcwd()]
    reader = _Reader(slices, names, _SourceLines(folders))
    reader.walk()
    reader.add_work_of_gpus()
    if not reader.operations:
        raise MXNetError("load: the file has events, but no operation among them")
    return reader.finish(trace)


class _Reader:
    """A file while it is read."""

    def __init__(self, slices: list[Slice], names: dict[Thread, str], lines: _SourceLines):
        self.slices, self.names, self.lines = slices, names, lines
        self.on_gpu = [slice for slice in slices if slice.kind in _ON_GPU]
        self.launches: dict[Any, tuple[Slice | None, Call | None]] = {}
        self.operations: list[Operation] = []
        self.calls: dict[Operation, Call | None] = {}
        self.waits: list[tuple[Slice, str, Call | None]] = []
        self.active: list[Slice] = []  # activities of the program, which the trace must cover
        self.serials = count(1)

    def walk(self) -> None:
        """Look at each slice, with those that enclose it, and where the program called it."""
        stacks: dict[Thread, list[tuple[Slice, Call | None]]] = defaultdict(list)
        for slice in self.slices:
            stack = stacks[slice.thread]
            while stack and stack[-1][0].end_ns <= slice.begin_ns:
                stack.pop()
            call = stack[-1][1] if stack else None
            if slice.kind == "python_function":
                call = self.enter(call, slice.name)
            elif slice.kind in (*_RUNTIME, "cpu_op", "user_annotation"):
                self.active.append(slice)
                self.look(slice, [outer.name for outer, _ in stack if outer.kind == "cpu_op"], call)
            stack.append((slice, call))

    def enter(self, call: Call | None, name: str) -> Call | None:
        """Within a function of that name; one of the user's is neither PyTorch's nor Python's."""
        found, builtin = _PYTHON.fullmatch(name), _BUILTIN.match(name)
        if found is None:
            return self.calling(call, builtin[1] if builtin else name)
        file, line, name = found[1].replace("\\", "/"), int(found[2]), found[3]
        inner = self.calling(call, name)
        standard = (os.path.dirname(os.__file__), "<frozen", "<string>")
        module = file.partition("/")[0].removesuffix(".py")
        foreign = module in sys.stdlib_module_names or file.startswith(standard)
        return inner if foreign or _TORCH.search(file) else Call(Frame(file, line, name))

    def calling(self, call: Call | None, name: str) -> Call | None:
        """The place where the program called `name` last."""
        if call is None:
            return None
        self.lines.called[call.frame].add(name)
        return Call(call.frame, (*call.callees, name))

    def look(self, slice: Slice, within: list[str], call: Call | None) -> None:
        """Note a launch, a wait or an operation, within these operators."""
        reads = any(name in _READING for name in within)
        if "correlation" in slice.args:
            self.launches[slice.args["correlation"]] = slice, call
        if slice.kind in _RUNTIME and _SYNCHRONIZING.fullmatch(slice.name):
            kind, called = ("item", "item") if reads else (slice.name, "synchronize")
            self.waits.append((slice, kind, self.calling(call, called)))
        elif slice.kind == "cpu_op" and not self.on_gpu:
            if slice.name in _READING and not reads:
                self.waits.append((slice, "item", self.calling(call, "item")))
            elif not within and slice.name not in _READING:
                self.add(slice, slice, call)

    def add(
        self, slice: Slice, launch: Slice | None, call: Call | None, **fields: Any
    ) -> Operation:
        """Add an operation, which `launch` issued; without other `fields` it ran inline."""
        pushed_ns = slice.begin_ns if launch is None else min(launch.begin_ns, slice.begin_ns)
        times = {"pushed_ns": pushed_ns, "began_ns": slice.begin_ns, "ended_ns": slice.end_ns}
        thread = "unknown" if launch is None else self.thread_name(launch)
        told = {"name": slice.name, "thread": thread, **times, **fields}
        operation = Operation(**{**_INLINE, **told})
        self.operations.append(operation)
        self.calls[operation] = call
        return operation

    def thread_name(self, slice: Slice) -> str:
        """The name of the slice's thread."""
        return self.names.get(slice.thread, f"thread {slice.thread[1]}")

    def add_work_of_gpus(self) -> None:
        """Operations of a stream change one Var."""
        serials: dict[Any, int] = defaultdict(lambda: next(self.serials))
        for slice in self.on_gpu:
            launch, call = self.launches.get(slice.args.get("correlation"), (None, None))
            device, stream = _device(slice), slice.args.get("stream", slice.thread[1])
            copied, nbytes = slice.kind == "gpu_memcpy", slice.args.get("bytes", 0)
            lanes = (lane for word, lane in _COPY.items() if copied and word in slice.name)
            self.add(
                slice, launch, call, worker=f"gpu({device}) stream {stream}", ctx=gpu(device),
                lane=next(lanes, "compute"), footprint=RecordedCost(0.0, float(nbytes)),
                writes=(serials[device, stream],),
            )  # fmt: skip

    def finish(self, trace: Trace) -> Trace:
        """Number the operations in the order of their pushes; find what waits waited for."""
        trace.lacks = dict(LACKS)
        trace.operations += sorted(self.operations, key=lambda x: (x.pushed_ns, x.began_ns))
        for number, operation in enumerate(trace.operations, start=1):
            operation.number, operation.site = number, self.lines.site(self.calls[operation])
        for wait in sorted(self.waits, key=lambda wait: wait[0].end_ns):
            trace.waits.append(self.wait(trace.operations, *wait))
        for operation, (needs, room) in zip(trace.operations, trace.order):
            ended = [trace[number].ended_ns for number in needs + room]
            operation.ready_ns = min(max([operation.pushed_ns, *ended]), operation.began_ns)
        if not any(operation.is_copy and operation.nbytes for operation in trace.operations):
            reason = "the file shows no copy between devices with its bytes"
            trace.lacks["replay(link_gb_s=)"] = reason
        trace.begin_ns = min(x.begin_ns for x in [*self.active, *self.on_gpu])
        pushed_ns = trace.operations[-1].pushed_ns
        trace.left_ns = max([pushed_ns, *(slice.end_ns for slice in self.active)])
        trace.end_ns = max(trace.left_ns, *(operation.ended_ns for operation in trace.operations))
        for place in dict.fromkeys(operation.place for operation in trace.operations):
            trace.workers[place] = _most_at_once(x for x in trace.operations if x.place == place)
        trace.cores = trace.workers.get("cpu", 1)
        return trace

    def wait(self, operations: list[Operation], slice: Slice, kind: str, call: Call | None) -> Wait:
        """A wait for some of the work was for what had been pushed before it and ended last within
        it: for a Var that only this operation writes."""
        target, number = None, 0
        pushed = bisect_right(operations, slice.begin_ns, key=PUSHED)
        if not _EVERYTHING.fullmatch(slice.name):
            target, latest_ns = next(self.serials), slice.end_ns + _SLACK_NS
            done = (
                operation for operation in operations[:pushed] if operation.ended_ns <= latest_ns
            )
            awaited = max(done, key=ENDED, default=None)
            if awaited is not None:
                awaited.writes += (target,)
                number = awaited.number
        return Wait(
            kind, target, number, pushed, self.lines.site(call), self.thread_name(slice),
            slice.begin_ns, slice.end_ns, kind, HIDDEN.get(kind),
        )  # fmt: skip


def _device(slice: Slice) -> int:
    device = slice.args.get("device", slice.thread[0])
    return device if isinstance(device, int) and device >= 0 else 0


def _most_at_once(operations: Iterable[Operation]) -> int:
    """The largest number of operations that ran at the same time."""
    ran = [operation for operation in operations if operation.run_ns]
    steps = [(x.began_ns, 1) for x in ran] + [(x.ended_ns, -1) for x in ran]
    return max(accumulate(step for _, step in sorted(steps)), default=1)
