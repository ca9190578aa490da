"""The call path of a hybridized Block: from `net(x)` to a compiled program.

`hybridize` replaces the Block's `forward` by a `HybridCache`. The first call traces the Block's
Python (`graph.symbolic_trace`). Every call passes the inputs and the parameters' arrays, in a list
made once, to a `CachedOp`.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> class Twice(nn.HybridBlock):
...     def hybrid_forward(self, F, x):
...         print("my Python runs, F is", F.__name__)
...         return x * 2
>>> net = Twice()
>>> net.hybridize()
>>> net(nd.ones(2)), net(nd.ones(3))                       # doctest: +ELLIPSIS
my Python runs, F is d2lmini.symbol
(...)

A `hybrid_forward` is traced once, for NDArrays of all shapes. A plain `forward` sees shapes, and so
does each function of an `np.ndarray`; such nets are traced again for each new kind of input.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from d2lmini.base import callsite, loaders
from d2lmini.context import Context
from d2lmini.gluon.graphs import flatten, regroup
from d2lmini.gluon.variables import arrays
from d2lmini.graph.cached_op import CachedOp, Compiled, ProgramCache
from d2lmini.graph.ir import Node
from d2lmini.graph.symbolic_trace import (
    FallbackToEager,
    SymbolicTrace,
    input_names,
    one_at_a_time,
    thread_state,
)
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import modes
from d2lmini.symbol import Symbol
from d2lmini.symbol.evaluate import evaluate
from d2lmini.symbol.lists import monitored_inputs, output_name

#: The lines for which a warning has said that their Block is not compiled.
_told: set[callsite.Site] = set()


class _TrackedCachedOp(CachedOp):
    """A CachedOp that calls back when its last program is dropped."""

    emptied: Callable[[], None]

    def _forget(self, key: tuple) -> None:
        super()._forget(key)
        if not self._compiled:
            self.emptied()


#: `arrays.now` when the list of a graph's arrays was made; the list; the program that ran last with
#: the list; the spec of its input; and whether it ran in training mode.
Last = tuple[Any, list[Any], "Compiled | None", Any, bool]


class DeviceProgram:
    """A trace in one context: its CachedOp, and the arrays that fill its variables.

    specs, training the only kind of inputs the trace is for; specs is None if it is for all kinds
    spec            the spec of the only input, if specs is not None
    single          one array in, one array out: the common case, with the shortest fast path
    kind            the class of the arrays of a call
    """

    def __init__(
        self, trace: SymbolicTrace, form: Any, ctx: Context, name: str, flags: Any,
        kept: ProgramCache, emptied: Callable[[], None],
    ):  # fmt: skip
        self.trace = trace
        self.form = form
        self.ctx = ctx
        self.kind: Any = loaders["np.ndarray"]() if trace.is_np else NDArray
        self.op = _TrackedCachedOp(trace.symbol, flags, name, kept, trace)
        self.op.emptied = emptied
        positions = {node: i for i, node in enumerate(self.op.variables)}
        self.places = [None if node is None else positions.get(node) for node in trace.inputs]
        self.place: Any = self.places[0]
        self.n_inputs = len(self.places)
        one = self.n_inputs == 1 and self.place is not None
        self.single = one and form == 0 and trace.outputs == [0]
        self.specs: list[Any] | None = None
        if not trace.general:
            self.specs = [
                None if node is None else (node.specs or (None,))[0] for node in trace.inputs
            ]
        self.spec: Any = self.specs[0] if self.specs and self.single else None
        self.training = modes.training
        # A call reads this tuple once; another thread may replace the whole tuple meanwhile.
        self.last: Last = (object(), [], None, None, False)

    def _fill(self) -> Last:
        """Collect all arrays of the graph except the inputs of the call."""
        made = arrays.now
        uses, ctx = self.trace.uses, self.ctx
        filled = [
            x if x is None or isinstance(x, NDArray) else self._of_kind(x.data(ctx))
            for x in map(uses.get, self.op.variables)
        ]
        self.last = last = made, filled, None, None, False
        return last

    def _of_kind(self, x: NDArray) -> NDArray:
        """A parameter's array as the values of the trace: a net may be older than `set_np()`."""
        if type(x) is self.kind:
            return x
        return x.as_np_ndarray() if self.trace.is_np else x.as_nd_ndarray()

    def one(self, x: NDArray) -> NDArray:
        """Call with one array and one result."""
        made, filled, compiled, spec, training = self.last
        if made is not arrays.now:
            made, filled, compiled, spec, training = self._fill()
        inputs = filled.copy()
        inputs[self.place] = x
        if modes.recording:
            return self.op(*inputs)
        if x._spec is not spec or modes.training is not training:
            compiled = self.op.compiled_for(inputs)
            self.last = made, filled, compiled, x._spec, modes.training
        return compiled(inputs, None)[0]  # type: ignore[misc]

    def __call__(self, flat: Sequence[NDArray | None]) -> Any:
        inputs = self.arrays_for(flat)
        results = self.op(*inputs) if self.trace.symbol._entries else []
        return self.unflatten(results if isinstance(results, list) else [results])

    def arrays_for(self, flat: Sequence[NDArray | None]) -> list[NDArray]:
        """All arrays for one call."""
        last = self.last
        inputs = (last if last[0] is arrays.now else self._fill())[1].copy()
        for place, x in zip(self.places, flat):
            if place is not None:
                inputs[place] = x
        return inputs

    def unflatten(self, results: list[NDArray]) -> Any:
        """The outputs as the traced function returned them."""
        found = [results[i] if isinstance(i, int) else i[0] for i in self.trace.outputs]
        return regroup(found, self.form)[0]

    def run_with_hooks(self, flat: Sequence[NDArray | None], hooks: Sequence[tuple]) -> Any:
        """Call op by op, and call every hook for every op."""

        def watch(node: Node, inputs: list[Any], outputs: list[Any]) -> None:
            names = monitored_inputs(node)
            taken = [(name, x) for name, x in zip(names, inputs) if x is not None]
            given = [(output_name((node, i)), y) for i, y in enumerate(outputs)]
            for callback, monitor_all in hooks:
                for name, array in taken + given if monitor_all else given:
                    callback(name, node.op.name, array)

        values = dict(zip(self.op.variables, self.arrays_for(flat)))
        keys = self.trace.keys(self.trace.draws(modes.training), self.ctx)
        results = evaluate(self.trace.symbol._entries, values, watch, self.ctx, keys=keys)
        return self.unflatten(results)


class HybridCache:
    """Replaces `forward` in a hybridized Block."""

    def __init__(self, block: Any, flags: Any = ()):
        self._block = weakref.ref(block)
        self.flags = flags
        self.kept = ProgramCache(CachedOp.flag(flags, "static_alloc"))
        self.traces: dict[Any, tuple[SymbolicTrace, Any]] = {}
        self.placed: dict[Any, DeviceProgram] = {}
        self.form: Any = None  # nesting of the inputs of the first trace
        self._general = False  # True if that nesting holds for all inputs
        self._as_written: set[bool] = set()  # the modes that run uncompiled
        self._last: DeviceProgram | None = None

    def __call__(self, *args: Any) -> Any:
        last = self._last
        if last is not None and len(args) == last.n_inputs and thread_state.trace is None:
            ctx, kind, specs = last.ctx, last.kind, last.specs
            for x in args:
                if type(x) is not kind or x._ctx is not ctx:
                    break
            else:
                if last.single:
                    spec = last.spec
                    if spec is None or (args[0]._spec is spec and modes.training is last.training):
                        return last.one(args[0])
                elif specs is None or (
                    modes.training is last.training and [x._spec for x in args] == specs
                ):
                    return last(args)
        function, args = self._find(args)
        return function(*args)

    def _find(self, args: tuple) -> tuple[Callable[..., Any], tuple]:
        """What a call without the fast path calls: a placed trace, made if needed, or the Block's
        own `forward`. It is called above: Blocks may be nested deep."""
        block = self._block()
        assert block is not None
        forward = type(block).forward.__get__(block)
        flat, form = flatten(list(args))
        if any(isinstance(x, Symbol) for x in flat):
            if any(isinstance(x, NDArray) for x in flat) and thread_state.trace is None:
                raise ValueError(
                    "In HybridBlock, we do not support mixed NDArrays and Symbols types for the "
                    "input. Please check the type of the args."
                )
            if thread_state.trace is not None and block._sees_shapes:
                thread_state.trace.shaped = True
                args = regroup([thread_state.trace.with_shape(x) for x in flat], form)[0]
            return forward, args
        ctx = _context(block, flat)
        if thread_state.trace is not None:
            # Only arrays, inside the trace of an outer Block: they become variables of the outer
            # graph.
            stood = [x if x is None else thread_state.trace.stands_for(x) for x in flat]
            return forward, regroup(stood, form)[0]
        if modes.training in self._as_written:
            return forward, args
        try:
            placed = self.place(block, flat, form, ctx)
        except FallbackToEager as reason:
            self._run_as_written(reason)
            return forward, args
        if block._op_hooks:
            return placed.run_with_hooks, (flat, block._op_hooks)
        if form == [0] * len(flat):
            self._last = placed
        return placed, (flat,)

    def _run_as_written(self, reason: FallbackToEager) -> None:
        """Run uncompiled in this mode from now on; warn once for each source line at fault."""
        self._as_written.add(modes.training)
        if reason.site is not None and reason.site not in _told:
            _told.add(reason.site)
            warnings.warn(
                f"{reason} cannot be part of a graph, so the Blocks around it "
                f"are not compiled but run eagerly\n  at {callsite.describe(reason.site)}",
                stacklevel=5,
            )

    def place(self, block: Any, flat: list[Any], form: Any, ctx: Context) -> DeviceProgram:
        """The graph for such inputs, traced if needed, in the context of the inputs."""
        found = self.placed.get((self._key(flat, form, ctx), ctx))
        if found is not None:
            return found
        with one_at_a_time():
            key = self._key(flat, form, ctx)  # another thread may have been here
            return self.placed.get((key, ctx)) or self._place(key, block, flat, form, ctx)

    def _key(self, flat: list[Any], form: Any, ctx: Context) -> Any:
        """The key of the graph for such inputs; None for the graph that holds for all NDArrays.
        ValueError if that graph does not fit these inputs."""
        if not self._general or _is_np(flat):
            specs = tuple([None if x is None else x._spec for x in flat])
            return str(form), specs, modes.training, ctx, _is_np(flat)
        if _bare(form) != _bare(self.form):
            raise ValueError(
                "The argument structure of HybridBlock does not match the cached version. "
                f"Stored format = {self.form}, input format = {form}. It was "
                "traced with other arguments: give the same ones as None or not, or call "
                "hybridize() again to forget that trace"
            )
        return None

    def _place(
        self, key: Any, block: Any, flat: list[Any], form: Any, ctx: Context
    ) -> DeviceProgram:
        trace, outputs = self.traces.get(key) or self._trace(block, flat, form, ctx)
        if not self.traces:
            self.form = form
        if trace.general:
            key = None
        mine = weakref.ref(self)

        def emptied() -> None:
            compiled = mine()
            if compiled is not None and key is not None:
                compiled._forget(key, ctx)

        name = block.name or type(block).__name__.lower()
        found = DeviceProgram(trace, outputs, ctx, name, self.flags, self.kept, emptied)
        self.traces[key] = trace, outputs
        self.placed[key, ctx] = found
        if trace.general:
            self._general = True  # last: other threads then use the trace
        return found

    def _forget(self, key: Any, ctx: Context) -> None:
        """Drop the graph for one kind of input, whose programs were unused for long. The first
        graph stays, for `export`."""
        self.placed.pop((key, ctx), None)
        if key != next(iter(self.traces)):
            self.traces.pop(key, None)

    def _trace(
        self, block: Any, flat: list[Any], form: Any, ctx: Context | None = None
    ) -> tuple[SymbolicTrace, Any]:
        """Trace the Block's Python with Symbols; returns (trace, nesting of the outputs)."""
        specs = [None if x is None else x._spec for x in flat]
        names = input_names(len(flat))
        trace = SymbolicTrace(names, specs, block._sees_shapes, _is_np(flat))
        result = trace.run(
            lambda *args: type(block).forward(block, *args),
            lambda values: regroup(values, form)[0],
            lambda: block.collect_params().values(),
            ctx,
        )
        return trace, flatten(result)[1]


def _bare(form: Any) -> Any:
    """A form without trailing Nones: an argument that is None may also be omitted."""
    while form and form[-1] == -1:
        form = form[:-1]
    return form


def _context(block: Any, flat: list[Any]) -> Context:
    """The context of the inputs; ValueError for inputs that cannot be compiled."""
    ctx = None
    for x in flat:
        if isinstance(x, NDArray):
            if ctx is not None and x._ctx != ctx:
                raise ValueError(
                    "Find multiple contexts in the input, After hybridized, the HybridBlock only "
                    f"supports one input context. {type(block).__name__} got {ctx} and {x._ctx}"
                )
            ctx = x._ctx
    if ctx is None:
        got = ", ".join(type(x).__name__ for x in flat)
        raise ValueError(
            "In HybridBlock, there must be one NDArray or one Symbol in the input. Please check "
            f"the type of the args. {type(block).__name__} got {got}"
        )
    for x in flat:
        if x is not None and not isinstance(x, NDArray):
            raise ValueError(
                "When hybridized, the input of HybridBlock input must be (nested) list of Symbol "
                f"or NDArray, but got {x} of type {type(x)}. A value that is no array must "
                "be an attribute of the Block; tracing fixes its value"
            )
    return ctx


def _is_np(flat: list[Any]) -> bool:
    """True if an input is an `np.ndarray`: then the Block's Python gets such values too."""
    return any(x is not None and x.is_np for x in flat)


class Programs(list):
    """Compiled programs, in order of compilation; `print` shows their source."""

    def __str__(self) -> str:
        return "\n\n".join(str(program) for program in self)


def programs_of(compiled: HybridCache) -> Programs:
    """All programs of a net: for each kind of input the forward program, then the backward ones."""
    found = Programs()
    for placed in list(compiled.placed.values()):
        for kind in list(placed.op._compiled.values()):
            found.append(kind.forward)
            found += [backward.program for backward in list(kind._backward.values())]
    return found
