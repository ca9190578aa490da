"""JAX's profiler, as `jax.profiler.trace` writes it: the trace.json.gz in its log directory.

    hlo_op            an argument of XLA's operations; hlo_module is the compiled function
    PjitFunction(f)   a call of a compiled function on the program's thread, which dispatches it
    $file.py:12 f     functions of Python, on the program's thread

A run of a compiled function is pushed when the call that dispatched it is over, or when its first
operation began. The file does not show which operations depend on each other: each is taken to
need the operation that had ended last before it began. The format: traces that JAX wrote on a CPU.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from d2lmini.profiler.foreign.builder import TraceBuilder
from d2lmini.profiler.foreign.events import (
    ENDED,
    PUSHED,
    ForeignEvents,
    Slice,
    by_thread,
    last_until,
)
from d2lmini.profiler.foreign.stack import Call, Frame, find_call, is_standard, walk_stack

_PYTHON = re.compile(r"\$(.+\.py):(\d+) (.+)")
_BUILTIN = re.compile(r"\$(?:builtins|<unknown>|\w+) (.+)")
_DISPATCH = re.compile(r"PjitFunction\((.+)\)")
#: A call that dispatches or waits: the slice, the compiled function or the kind of wait, the line.
Found = tuple[Slice, str, Call | None]

#: JAX's functions in which the program waits for a value -> kind of wait, and their files.
_WAITING = {
    "__float__": "float", "__int__": "int", "__bool__": "bool", "__index__": "index",
    "__array__": "__array__", "item": "item", "_item": "item", "tolist": "tolist",
    "_value": "_value", "__repr__": "print", "__str__": "print", "__format__": "print",
    "block_until_ready": "block_until_ready", "device_get": "device_get",
}  # fmt: skip
_WAITING_FILES = ("array.py", "array_methods.py", "api.py")

#: Files of JAX; the trace has no folders.
_OWN_FILES = frozenset(
    """api.py api_util.py array.py array_methods.py config.py core.py dispatch.py dtypes.py lax.py
    lax_numpy.py linear_util.py numpy.py partial_eval.py pjit.py profiler.py pxla.py reductions.py
    sharding.py sharding_impls.py traceback_util.py tree_util.py ufuncs.py util.py xla.py
    xla_bridge.py""".split()
)


def recognizes(events: ForeignEvents) -> bool:
    """Is this a file of JAX's profiler?"""
    names = events.processes.values()
    return any(name.startswith("/host:") for name in names)


def read(events: ForeignEvents, builder: TraceBuilder) -> None:
    """Fill the builder."""
    _Jax(events, builder).read()


class _Jax:
    """A file while it is read."""

    def __init__(self, events: ForeignEvents, builder: TraceBuilder):
        self.events, self.builder = events, builder
        self.dispatches: list[Found] = []
        self.waits: list[Found] = []

    def read(self) -> None:
        for slices in by_thread(self.events.slices).values():
            if any(slice.name.startswith("$") for slice in slices):
                self._read_program(slices)
        self.dispatches.sort(key=lambda dispatch: dispatch[0].begin_ns)
        self._read_operations()
        self._read_waits()

    def _read_program(self, slices: Sequence[Slice]) -> None:
        """Find the calls that dispatch, and those that wait."""
        for slice, stack in walk_stack(slices):
            if found := _DISPATCH.fullmatch(slice.name):
                if not any(_DISPATCH.fullmatch(outer.name) for outer in stack):
                    self.builder.span(slice.begin_ns, slice.end_ns)
                    self.dispatches.append((slice, found[1], find_call(stack, _function, found[1])))
            elif (kind := _waits(slice)) and not any(map(_waits, stack)):
                name = slice.name.rpartition(" ")[2]
                self.builder.span(slice.begin_ns, slice.end_ns)
                self.waits.append((slice, kind, find_call(stack, _function, name)))

    def _read_operations(self) -> None:
        runs: dict[str, list[list[Slice]]] = defaultdict(list)  # of each module, in order
        known: dict[tuple[str, str], list[Slice]] = {}
        for slice in self.events.slices:
            if "hlo_op" not in slice.args:
                continue
            module, run = str(slice.args.get("hlo_module", "")), str(slice.args.get("run_id", ""))
            if not run or (module, run) not in known:
                own: list[Slice] = []
                runs[module].append(own)
                known[module, run] = own
            known[module, run].append(slice)
        for module, of_module in runs.items():
            calls = [d for d in self.dispatches if module in (d[1], f"jit_{d[1]}")]
            for k, slices in enumerate(of_module):
                first_ns = slices[0].begin_ns
                dispatch = last_until(
                    calls or self.dispatches, first_ns, lambda dispatch: dispatch[0].begin_ns
                )
                if len(calls) == len(of_module):
                    dispatch = calls[k]
                for slice in slices:
                    self._add(slice, first_ns, dispatch)
        by_end = sorted(self.builder.trace.operations, key=ENDED)
        for operation in sorted(by_end, key=lambda operation: operation.began_ns):
            last = last_until(by_end, operation.began_ns, ENDED)
            if last is not None and last is not operation and last.began_ns < operation.began_ns:
                self.builder.follow(operation, last)

    def _add(self, slice: Slice, first_ns: int, dispatch: Found | None) -> None:
        thread, pushed_ns, call = "unknown", None, None
        if dispatch is not None:
            thread = self.events.thread_name(dispatch[0].thread)
            pushed_ns, call = min(first_ns, dispatch[0].end_ns), dispatch[2]
        self.builder.operation(
            slice.name, slice.begin_ns, slice.end_ns, thread, pushed_ns=pushed_ns, call=call,
            worker=self.events.thread_name(slice.thread),
        )  # fmt: skip

    def _read_waits(self) -> None:
        """A wait was for the operation that ended last before its end."""
        pushed = sorted(self.builder.trace.operations, key=PUSHED)
        for slice, kind, call in self.waits:
            k = bisect_right(pushed, slice.begin_ns, key=PUSHED)
            done = [operation for operation in pushed[:k] if operation.ended_ns <= slice.end_ns]
            awaited = max(done, key=ENDED, default=None)
            thread = self.events.thread_name(slice.thread)
            self.builder.wait(kind, thread, slice.begin_ns, slice.end_ns, call, awaited)


def _waits(slice: Slice) -> str | None:
    """The kind of the wait, if this is a function that waits."""
    if found := _PYTHON.fullmatch(slice.name):
        return _WAITING.get(found[3]) if found[1] in _WAITING_FILES else None
    return "__array__" if slice.name.startswith("np.asarray(jax.Array)") else None


def _function(slice: Slice) -> tuple[Frame | None, str] | None:
    """See `find_call`."""
    if found := _PYTHON.fullmatch(slice.name):
        file, line, name = found[1], int(found[2]), found[3]
        own = file not in _OWN_FILES and not is_standard(file)
        return Frame(file, line, name) if own else None, name
    builtin = _BUILTIN.fullmatch(slice.name)
    return (None, builtin[1]) if builtin else None
