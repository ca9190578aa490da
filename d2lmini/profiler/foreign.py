"""Traces of PyTorch and JAX, as traces of this library.

    trace = d2lmini.profiler.load("pytorch_trace.json")
    print(trace.account())
    print(trace.waits())

Both write Chrome traces: slices of threads, one within another. A `_Reader` walks through them with
the functions that were active; a subclass knows the names that its library writes, and which slices
are operations, launches and waits.

Such a trace shows less than our own: not what an operation reads and writes, so its dependencies
are the order in its stream, and what the file says of events. `trace.lacks` names what cannot be
asked of it, each with the reason, and the question raises MXNetError with that reason.

Profilers record the *function* in which an operation was issued, by its file and first line, and
not the line. `_SourceLines` finds the line in the source, if the file lies beside the trace or in
the working folder and is the one that ran: the function must begin at the recorded line. There it
looks for the calls of what was called. If one line calls it, that is the line; else the function is
all that is known.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from d2lmini.base import MXNetError
from d2lmini.base.callsite import RecordedCode, Site
from d2lmini.context import cpu, gpu
from d2lmini.engine.operation import RecordedCost
from d2lmini.profiler.evidence import Intervals
from d2lmini.profiler.records import BEGAN, ENDED, PUSHED, Operation, Wait
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

T = TypeVar("T")


def find_file(path: str | os.PathLike[str]) -> str:
    """`path`; of a log directory of JAX the newest trace in it. MXNetError if it holds none."""
    found = [*Path(path).rglob("*.trace.json.gz")] if os.path.isdir(path) else [Path(path)]
    if not found:
        raise MXNetError(
            f"load: the folder {os.fspath(path)} holds no *.trace.json.gz; give the log directory "
            "of jax.profiler.trace, or a file"
        )
    return str(max(found, key=lambda file: file.stat().st_mtime))


def read(file: str, tree: dict[str, Any], trace: Trace) -> Trace:
    """Fill a trace from the object in `file`. MXNetError if neither profiler wrote it."""
    slices, names = _read_events(tree)
    kinds = {slice.kind for slice in slices}
    if kinds & {"cpu_op", "python_function", *_RUNTIME, "kernel"}:
        reader: type[_Reader] = _Kineto
    elif any(name.startswith("/host:") for (_, tid), name in names.items() if tid is None):
        reader = _Jax
    else:
        raise MXNetError(
            f"{file} is no trace of d2lmini, PyTorch's profiler or JAX's: none of its events is "
            "one that these write"
        )
    folders = [os.path.dirname(os.path.abspath(file)), os.getcwd()]
    return reader(slices, names, folders).read(trace)


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
    """The slices in the order of their begins, an enclosing slice first; and the names of threads
    (pid, tid), each of its own, and of processes (pid, None). The first slice begins at 1 ns: 0
    says that something did not happen. Events that lack a time or a name are left out."""
    events = [
        event for event in tree.get("traceEvents", ())
        if isinstance(event, dict) and type(event.get("name")) is str
    ]  # fmt: skip
    names: dict[Thread, str] = {}
    for event in events:
        if event.get("ph") == "M" and event["name"] in ("process_name", "thread_name"):
            tid = event.get("tid") if event["name"] == "thread_name" else None
            own = str((event.get("args") or {}).get("name"))
            names.pop((event.get("pid"), tid), None)  # a thread may be named twice
            own = f"{own} ({tid})" if own in names.values() else own
            names[event.get("pid"), tid] = own
    spans = [event for event in events if event.get("ph") == "X" and event.get("ts") is not None]
    zero_ns = min((_ns(event["ts"]) for event in spans), default=0) - 1
    slices = []
    for event in spans:
        begin_ns = _ns(event["ts"]) - zero_ns
        end_ns = begin_ns + max(0, _ns(event.get("dur") or 0))
        thread, kind = (event.get("pid"), event.get("tid")), str(event.get("cat"))
        args = event.get("args") or {}
        slices.append(Slice(thread, event["name"], kind, begin_ns, end_ns, args))
    return sorted(slices, key=lambda slice: (slice.begin_ns, -slice.end_ns)), names


def _ns(us: Any) -> int:
    if type(us) not in (int, float):
        raise ValueError(f"traceEvents: {repr(us)[:60]} is no time in microseconds")
    return round(1000 * us)


def _last_until(items: Sequence[T], when_ns: int, key: Callable[[T], int]) -> T | None:
    """The last of `items`, which are in the order of their `key`, that is not later than a time."""
    k = bisect_right(items, when_ns, key=key)
    return items[k - 1] if k else None


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
_SPELLINGS = {
    "item": ("item", "float", "int", "bool", "tolist"),
    "_item": ("item",),
    "__float__": ("float",),
    "__int__": ("int",),
    "__bool__": ("bool",),
    "__array__": ("asarray", "array"),
}


def _is_standard(file: str) -> bool:
    """Is it a file of Python's own library, named relative to it or by its full path?"""
    first = file.replace("\\", "/").split("/")[0].removesuffix(".py")
    standard = os.path.dirname(os.__file__)
    return first in sys.stdlib_module_names or file.startswith((standard, "<frozen", "<string>"))


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


# -- the common reader -----------------------------------------------------------------------------


class _Reader:
    """A file while it is read. `visit` is called with each slice, `add_operations` at the end.

    python      how the library writes a Python function: file, line, name
    library     the library's own files
    slack_ns    an awaited operation may end this much after the wait, by the two clocks
    """

    python: ClassVar[re.Pattern[str]]
    library: ClassVar[re.Pattern[str]]
    slack_ns = 0

    def __init__(self, slices: list[Slice], names: dict[Thread, str], folders: Iterable[str]):
        self.slices, self.names = slices, names
        self.lines = _SourceLines(folders)
        self.serials = count(1)
        self.found: list[Operation] = []  # until the end, `site` is where the program called
        self.waits: list[tuple[str, Slice, Call | None, bool]] = []
        self.active: list[Slice] = []  # activities of the program, which the trace must cover

    def visit(self, slice: Slice, stack: list[Slice], call: Call | None) -> None:
        """Note what a slice is, which these enclose; `call` is where the program made it."""
        raise NotImplementedError

    def add_operations(self) -> None:
        """Add the operations that `visit` did not."""
        raise NotImplementedError

    # -- the walk ----------------------------------------------------------------------------------

    def read(self, trace: Trace) -> Trace:
        """Fill the trace; MXNetError if there is nothing in it."""
        stacks: dict[Thread, list[tuple[Slice, Call | None]]] = defaultdict(list)
        for slice in self.slices:
            stack = stacks[slice.thread]
            while stack and stack[-1][0].end_ns <= slice.begin_ns:
                stack.pop()
            call = stack[-1][1] if stack else None
            if (function := self.function(slice)) is not None:
                own, name = function
                inner = self.calling(call, name)
                call = inner if own is None else Call(own)
            self.visit(slice, [outer for outer, _ in stack], call)
            stack.append((slice, call))
        self.add_operations()
        if not self.found:
            raise MXNetError("load: the file has events, but no operation among them")
        return self._finish(trace)

    def function(self, slice: Slice) -> tuple[Frame | None, str] | None:
        """The function that a slice is, if it is the user's, and its name; None: it is none."""
        if (found := self.python.fullmatch(slice.name)) is None:
            return None
        file, line, name = found[1].replace("\\", "/"), int(found[2]), found[3]
        own = not (_is_standard(file) or self.library.search(file))
        return Frame(file, line, name) if own else None, name

    def calling(self, call: Call | None, name: str) -> Call | None:
        """The place where the program called `name` last."""
        if call is None:
            return None
        self.lines.called[call.frame].add(name)
        return Call(call.frame, (*call.callees, name))

    def thread_name(self, slice: Slice) -> str:
        """The name of the slice's thread."""
        return self.names.get(slice.thread, f"thread {slice.thread[1]}")

    def operation(
        self, slice: Slice, launch: Slice | None, pushed_ns: int, call: Call | None, **fields: Any
    ) -> Operation:
        """Add an operation, which `launch` issued; without other `fields` it ran inline."""
        pushed_ns = min(pushed_ns, slice.begin_ns)
        times = {"pushed_ns": pushed_ns, "ready_ns": pushed_ns, "began_ns": slice.begin_ns}
        thread = "unknown" if launch is None else self.thread_name(launch)
        told = {"name": slice.name, "thread": thread, "site": call, "ended_ns": slice.end_ns}
        self.found.append(Operation(**{**_INLINE, **times, **told, **fields}))
        return self.found[-1]

    def follow(self, operation: Operation, before: Operation) -> None:
        """Let `operation` need the result of `before`."""
        serial = next(self.serials)
        before.writes += (serial,)
        operation.reads += (serial,)

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, trace: Trace) -> Trace:
        """Number the operations in the order of their pushes; find what waits waited for."""
        trace.lacks = dict(LACKS)
        trace.operations += sorted(self.found, key=lambda x: (x.pushed_ns, x.began_ns))
        for number, operation in enumerate(trace.operations, start=1):
            operation.number, operation.site = number, self.lines.site(operation.site)
        for wait in sorted(self.waits, key=lambda wait: wait[1].end_ns):
            trace.waits.append(self._wait(trace.operations, *wait))
        for operation, (needs, room) in zip(trace.operations, trace.order):
            ended = [trace[number].ended_ns for number in needs + room]
            operation.ready_ns = min(max([operation.pushed_ns, *ended]), operation.began_ns)
        if not any(operation.is_copy and operation.nbytes for operation in trace.operations):
            reason = "the file shows no copy between devices with its bytes"
            trace.lacks["replay(link_gb_s=)"] = reason
        begins = [slice.begin_ns for slice in self.active]
        trace.begin_ns = min([trace.operations[0].pushed_ns, *begins])
        ends = [x.ended_ns if x.inline else x.pushed_ns for x in trace.operations]
        trace.left_ns = max([*ends, *(slice.end_ns for slice in self.active)])
        trace.end_ns = max(trace.left_ns, *(operation.ended_ns for operation in trace.operations))
        for place in dict.fromkeys(operation.place for operation in trace.operations):
            ran = (x for x in trace.operations if x.place == place and x.run_ns)
            at_once = Intervals((x.began_ns, x.ended_ns, 1.0) for x in ran).rates
            trace.workers[place] = int(max(at_once, default=1))
        trace.cores = trace.workers.get("cpu", 1)
        return trace

    def _wait(
        self, operations: list[Operation], kind: str, slice: Slice, call: Call | None,
        everything: bool,
    ) -> Wait:  # fmt: skip
        """A wait for some of the work was for what had been pushed before it and ended last within
        it: for a Var that only this operation writes."""
        target, number = None if everything else next(self.serials), 0
        pushed = bisect_right(operations, slice.begin_ns, key=PUSHED)
        latest_ns = slice.end_ns + self.slack_ns
        done = [operation for operation in operations[:pushed] if operation.ended_ns <= latest_ns]
        if target is not None and done:
            awaited = max(done, key=ENDED)
            awaited.writes += (target,)
            number = awaited.number
        return Wait(
            kind, target, number, pushed, self.lines.site(call), self.thread_name(slice),
            slice.begin_ns, slice.end_ns, kind, HIDDEN.get(kind),
        )  # fmt: skip


# -- PyTorch ---------------------------------------------------------------------------------------

_RUNTIME = ("cuda_runtime", "cuda_driver")

#: Calls of the runtime that return when work of the GPU is done, of all its work or of some.
_SYNCHRONIZING = re.compile(
    r"cuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy)(_v\d+)?"
    r"|cu(Ctx|Stream|Event)Synchronize"
)
_EVERYTHING = re.compile(r"cudaDeviceSynchronize|cuCtxSynchronize")

#: Operators that read a value of a tensor, as `.item()` does.
_READING = ("aten::item", "aten::_local_scalar_dense")

_BUILTIN = re.compile(r"<built-in (?:method|function) ([^\s>]+)")
_COPY = {"HtoD": "in", "DtoH": "out"}


class _Kineto(_Reader):
    """PyTorch's profiler (Kineto), as `prof.export_chrome_trace` writes it.

    cpu_op            an operator of PyTorch, nested ones within; without a GPU the outermost is an
                      operation that runs on the calling thread
    cuda_runtime      a call of the CUDA runtime: a launch, whose "correlation" the kernel or copy
                      has too, or a synchronizing call, which is a wait
    kernel, gpu_memcpy, gpu_memset    operations of a GPU; "device" and "stream" say where
    cuda_sync         what a stream waited for, where the file has it
    python_function   functions of Python (with_stack=True)

    Operations of a stream run in the order of their launches. With a GPU, what PyTorch does on the
    CPU between two launches is the program's own time: "issuing".

    The format: Kineto's output_json.cpp and PyTorch's own traces; synchronization events: Kineto's
    documentation of CUDA event synchronization.
    """

    python = re.compile(r"(.+)\((\d+)\): (.+)")
    library = re.compile(r"^torch/|/site-packages/torch/")
    slack_ns = 20_000

    def __init__(self, *facts: Any):
        super().__init__(*facts)
        kinds = ("kernel", "gpu_memcpy", "gpu_memset")
        self.on_gpu = [slice for slice in self.slices if slice.kind in kinds]
        self.launches: dict[Any, tuple[Slice | None, Call | None]] = {None: (None, None)}

    def function(self, slice: Slice) -> tuple[Frame | None, str] | None:
        if slice.kind != "python_function":
            return None
        builtin = _BUILTIN.match(slice.name)
        return super().function(slice) or (None, builtin[1] if builtin else slice.name)

    def visit(self, slice: Slice, stack: list[Slice], call: Call | None) -> None:
        if slice.kind in (*_RUNTIME, "cpu_op", "user_annotation"):
            self.active.append(slice)
        within = [outer.name for outer in stack if outer.kind == "cpu_op"]
        reads = any(name in _READING for name in within)
        if slice.kind in _RUNTIME:
            if "correlation" in slice.args:
                self.launches[slice.args["correlation"]] = slice, call
            if _SYNCHRONIZING.fullmatch(slice.name):
                kind, called = ("item", "item") if reads else (slice.name, "synchronize")
                everything = _EVERYTHING.fullmatch(slice.name) is not None
                self.waits.append((kind, slice, self.calling(call, called), everything))
        elif slice.kind == "cpu_op" and not self.on_gpu:
            if slice.name in _READING and not reads:
                self.waits.append(("item", slice, self.calling(call, "item"), False))
            elif not within and slice.name not in _READING:
                self.operation(slice, slice, slice.begin_ns, call)

    def add_operations(self) -> None:
        """The work of GPUs. Operations of a stream change one Var."""
        serials: dict[Any, int] = defaultdict(lambda: next(self.serials))
        streams: dict[Any, list[Operation]] = defaultdict(list)
        for slice in self.on_gpu:
            launch, call = self.launches.get(slice.args.get("correlation"), (None, None))
            device, stream = _device(slice), slice.args.get("stream", slice.thread[1])
            copied, nbytes = slice.kind == "gpu_memcpy", slice.args.get("bytes", 0)
            lanes = (lane for word, lane in _COPY.items() if copied and word in slice.name)
            operation = self.operation(
                slice, launch, slice.begin_ns if launch is None else launch.begin_ns, call,
                worker=f"gpu({device}) stream {stream}", ctx=gpu(device),
                lane=next(lanes, "compute"), footprint=RecordedCost(0.0, float(nbytes)),
            )  # fmt: skip
            operation.writes += (serials[device, stream],)
            streams[device, stream].append(operation)
        for slice in self.slices:
            if slice.kind == "cuda_sync" and "wait_on_stream" in slice.args:
                self._order(slice, streams)

    def _order(self, slice: Slice, streams: dict[Any, list[Operation]]) -> None:
        """A stream waits for an event: what it is given next needs what the other had before."""
        device, args = _device(slice), slice.args
        call, _ = self.launches.get(args.get("correlation"), (None, None))
        record, _ = self.launches.get(args.get("wait_on_cuda_event_record_corr_id"), (call, None))
        if call is not None and record is not None:
            theirs = sorted(streams[device, args["wait_on_stream"]], key=PUSHED)
            before = _last_until(theirs, record.begin_ns, PUSHED)
            later = [o for o in streams[device, args.get("stream")] if o.pushed_ns > call.begin_ns]
            if before is not None and later:
                self.follow(min(later, key=PUSHED), before)


def _device(slice: Slice) -> int:
    device = slice.args.get("device", slice.thread[0])
    return device if isinstance(device, int) and device >= 0 else 0


# -- JAX -------------------------------------------------------------------------------------------

_JAX_BUILTIN = re.compile(r"\$(?:builtins|<unknown>|\w+) (.+)")
_DISPATCH = re.compile(r"PjitFunction\((.+)\)")

#: JAX's functions in which the program waits for a value -> kind of wait, and their files.
_WAITING = {
    "__float__": "float", "__int__": "int", "__bool__": "bool", "__index__": "index",
    "__array__": "__array__", "item": "item", "_item": "item", "tolist": "tolist",
    "_value": "_value", "__repr__": "print", "__str__": "print", "__format__": "print",
    "block_until_ready": "block_until_ready", "device_get": "device_get",
}  # fmt: skip
_WAITING_FILES = ("array.py", "array_methods.py", "api.py")

#: JAX's own files; the trace has no folders.
_OWN_FILES = """
    api api_util array array_methods config core dispatch dtypes lax lax_numpy linear_util numpy
    partial_eval pjit profiler pxla reductions sharding sharding_impls traceback_util tree_util
    ufuncs util xla xla_bridge""".split()


class _Jax(_Reader):
    """JAX's profiler, as `jax.profiler.trace` writes it: the trace.json.gz in its log directory.

    hlo_op            an argument of XLA's operations; hlo_module is the compiled function
    PjitFunction(f)   a call of a compiled function on the program's thread, which dispatches it
    $file.py:12 f     functions of Python, on the program's thread

    A run of a compiled function is pushed when the call that dispatched it is over, or when its
    first operation began. The file does not show which operations depend on each other: each is
    taken to need the operation that had ended last before it began. The format: traces that JAX
    wrote on a CPU.
    """

    python = re.compile(r"\$(.+\.py):(\d+) (.+)")
    library = re.compile(rf"^(?:{'|'.join(_OWN_FILES)})\.py$")

    def __init__(self, *facts: Any):
        super().__init__(*facts)
        self.dispatches: list[tuple[Slice, str, Call | None]] = []

    def function(self, slice: Slice) -> tuple[Frame | None, str] | None:
        builtin = _JAX_BUILTIN.fullmatch(slice.name)
        return super().function(slice) or ((None, builtin[1]) if builtin else None)

    def visit(self, slice: Slice, stack: list[Slice], call: Call | None) -> None:
        if found := _DISPATCH.fullmatch(slice.name):
            if not any(_DISPATCH.fullmatch(outer.name) for outer in stack):
                self.active.append(slice)
                self.dispatches.append((slice, found[1], self.calling(call, found[1])))
        elif (kind := self._waits(slice)) and not any(map(self._waits, stack)):
            self.active.append(slice)
            self.waits.append((kind, slice, self.calling(call, kind), False))

    def _waits(self, slice: Slice) -> str | None:
        """The kind of the wait, if this is a function that waits."""
        if found := self.python.fullmatch(slice.name):
            return _WAITING.get(found[3]) if found[1] in _WAITING_FILES else None
        return "__array__" if slice.name.startswith("np.asarray(jax.Array)") else None

    def add_operations(self) -> None:
        runs: dict[str, dict[Any, list[Slice]]] = defaultdict(lambda: defaultdict(list))
        for i, slice in enumerate(self.slices):
            if "hlo_op" in slice.args:
                run = slice.args.get("run_id") or f"slice {i}"
                runs[str(slice.args.get("hlo_module", ""))][str(run)].append(slice)
        self.dispatches.sort(key=lambda dispatch: dispatch[0].begin_ns)
        for module, of_module in runs.items():
            calls = [d for d in self.dispatches if module in (d[1], f"jit_{d[1]}")]
            for k, slices in enumerate(of_module.values()):
                first_ns = slices[0].begin_ns
                among, begin = calls or self.dispatches, lambda dispatch: dispatch[0].begin_ns
                dispatch = _last_until(among, first_ns, begin)
                if len(calls) == len(of_module):
                    dispatch = calls[k]
                launch, _, call = dispatch or (None, "", None)
                for slice in slices:
                    pushed_ns = slice.begin_ns if launch is None else min(first_ns, launch.end_ns)
                    self.operation(slice, launch, pushed_ns, call, worker=self.thread_name(slice))
        by_end = sorted(self.found, key=ENDED)
        for operation in sorted(by_end, key=BEGAN):
            last = _last_until(by_end, operation.began_ns, ENDED)
            if last is not None and last is not operation and last.began_ns < operation.began_ns:
                self.follow(operation, last)
