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

A net's arguments may be nested lists. A graph takes one list; the form describes the nesting: 0 is
a single value, -1 is None, a number n > 0 is a value that has n outputs (a Symbol), and a list is a
list or tuple.

>>> flat, form = flatten([1, (2, None)])
>>> flat, form
([1, 2, None], [0, [0, -1]])
>>> regroup([x and 10 * x for x in flat], form)[0]
[10, [20, None]]
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from d2lmini import ndarray as nd
from d2lmini import symbol
from d2lmini.base import callsite, loaders
from d2lmini.base.util import np_shape
from d2lmini.context import Context
from d2lmini.device import files
from d2lmini.gluon.parameter import arrays
from d2lmini.gluon.utils import shape_is_known
from d2lmini.graph import symbolic_trace as tracing
from d2lmini.graph.cached_op import CachedOp, Compiled, ProgramCache
from d2lmini.graph.ir import topological
from d2lmini.graph.symbolic_trace import FallbackToEager, SymbolicTrace, one_at_a_time
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import modes
from d2lmini.ops.rnn import rnn_layer
from d2lmini.symbol import Symbol

#: The lines for which a warning has said that their Block is not compiled.
_told: set[callsite.Site] = set()


def flatten(args: Any, what: str = "") -> tuple[list[Any], Any]:
    """All values in order, and the form for `regroup`. (MXNet uses `what`, the kind of values, in
    messages.)"""
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        outputs = len(args._entries) if isinstance(args, Symbol) else 1
        return [args], outputs if outputs > 1 else 0
    flat: list[Any] = []
    form = []
    for arg in args:
        values, part = flatten(arg)
        flat += values
        form.append(part)
    return flat, form


def regroup(flat: Sequence[Any], form: Any) -> tuple[Any, Sequence[Any]]:
    """The values of `flat`, nested by `form`, and the unused rest of `flat`."""
    if isinstance(form, int):
        if form > 0:
            return list(flat[:form]), flat[form:]
        return flat[0], flat[1:]
    groups = []
    for part in form:
        group, flat = regroup(flat, part)
        groups.append(group)
    return groups, flat


#: `arrays.now` when the list of a graph's arrays was made; the list; the program that ran last with
#: the list; the spec of its input; and whether it ran in training mode.
Last = tuple[Any, list[Any], "Compiled | None", Any, bool]


class DeviceProgram:
    """A trace in one context: its CachedOp, and the arrays that fill its variables.

    specs, training the only kind of inputs the trace is for; specs is None if it is for all kinds
    spec            the spec of the only input, if specs is not None
    single          one array in, one array out: the common case, with the shortest fast path
    kind            the class of the arrays of a call
    form            nesting of the outputs
    places          position among the graph's variables of each input; None if unused
    """

    def __init__(self, trace: SymbolicTrace, form: Any, ctx: Context, name: str, net: HybridCache):
        self.trace = trace
        self.form = form
        self.ctx = ctx
        self.kind: Any = loaders["np.ndarray"]() if trace.is_np else NDArray
        self.op = CachedOp(trace.symbol, net.flags, name, net.cache, trace)
        positions = {node: i for i, node in enumerate(self.op.variables)}
        self.places = [None if node is None else positions.get(node) for node in trace.inputs]
        self.place: Any = self.places[0]
        self.n_inputs = len(self.places)
        one = self.n_inputs == 1 and form == 0
        self.single = one and self.place is not None and trace.outputs == [0]
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
        last = self.last
        inputs = (last if last[0] is arrays.now else self._fill())[1].copy()
        for place, x in zip(self.places, flat):
            if place is not None:
                inputs[place] = x
        results: Any = self.op(*inputs) if self.trace.symbol._entries else []
        if not isinstance(results, list):
            results = [results]
        found = [results[i] if isinstance(i, int) else i[0] for i in self.trace.outputs]
        return regroup(found, self.form)[0]


class Programs(list):
    """Compiled programs, in order of compilation; `print` shows their source."""

    def __str__(self) -> str:
        return "\n\n".join(str(program) for program in self)


class HybridCache:
    """Replaces `forward` in a hybridized Block."""

    def __init__(self, block: Any, flags: Any = ()):
        self._block = weakref.ref(block)
        self.flags = flags
        self.cache = ProgramCache(CachedOp.flag(flags, "static_alloc"))
        self.placed: dict[Any, DeviceProgram] = {}
        self.first: SymbolicTrace | None = None  # for `export`
        self.form: Any = None  # nesting of its inputs
        self._general: DeviceProgram | None = None  # its trace holds for all NDArrays
        self._as_written: set[bool] = set()  # the modes that run uncompiled
        self._last: DeviceProgram | None = None

    def __call__(self, *args: Any) -> Any:
        last = self._last
        if last is not None and len(args) == last.n_inputs and modes.tracing is None:
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
        """What a call without the fast path calls: a DeviceProgram, made if needed, or the
        Block's own `forward`. It is called above: Blocks may be nested deep."""
        block = self._block()
        assert block is not None
        forward = type(block).forward.__get__(block)
        flat, form = flatten(list(args))
        if any(isinstance(x, Symbol) for x in flat):
            if any(isinstance(x, NDArray) for x in flat) and modes.tracing is None:
                raise ValueError(
                    "In HybridBlock, we do not support mixed NDArrays and Symbols types for the "
                    "input. Please check the type of the args."
                )
            if modes.tracing is not None and block._sees_shapes:
                modes.tracing.shaped = True
                args = regroup([modes.tracing.with_shape(x) for x in flat], form)[0]
            return forward, args
        ctx = _context(block, flat)
        if modes.tracing is not None:
            # Only arrays, inside the trace of an outer Block: they become variables of the outer
            # graph.
            stood = [x if x is None else modes.tracing.stands_for(x) for x in flat]
            return forward, regroup(stood, form)[0]
        if modes.training in self._as_written:
            return forward, args
        try:
            placed = self.place(block, flat, form, ctx)
        except FallbackToEager as reason:
            self._as_written.add(modes.training)
            if reason.site is not None and reason.site not in _told:
                _told.add(reason.site)
                callsite.warn(
                    f"{reason} cannot be part of a graph, so the Blocks around it "
                    f"are not compiled but run eagerly\n  at {callsite.describe(reason.site)}"
                )
            return forward, args
        if form == [0] * len(flat):
            self._last = placed
        return placed, (flat,)

    def _key(self, flat: list[Any], form: Any, ctx: Context) -> Any:
        """The key of the graph for such inputs: the context, if the graph holds for all NDArrays.
        ValueError if that graph does not fit these inputs."""
        if self._general is None or _is_np(flat):
            specs = tuple([None if x is None else x._spec for x in flat])
            return str(form), specs, modes.training, ctx, _is_np(flat)
        if _bare(form) != _bare(self.form):
            raise ValueError(
                "The argument structure of HybridBlock does not match the cached version. "
                f"Stored format = {self.form}, input format = {form}. It was "
                "traced with other arguments: give the same ones as None or not, or call "
                "hybridize() again to forget that trace"
            )
        return ctx

    def place(self, block: Any, flat: list[Any], form: Any, ctx: Context) -> DeviceProgram:
        """The DeviceProgram for such inputs; traces the Block if needed."""
        found = self.placed.get(self._key(flat, form, ctx))
        if found is not None:
            return found
        with one_at_a_time():
            key = self._key(flat, form, ctx)
            found = self.placed.get(key)
            if found is not None:  # another thread has been here
                return found
            if key is ctx and self._general is not None:
                trace, outputs = self._general.trace, self._general.form
            else:
                trace, outputs = self._trace(block, flat, form, ctx)
            name = block.name or type(block).__name__.lower()
            found = DeviceProgram(trace, outputs, ctx, name, self)
            if self.first is None:
                self.first, self.form = trace, form
            for other, program in list(self.placed.items()):
                if not self.cache.of(program.op.mark) and not program.trace.general:
                    del self.placed[other]  # its programs were unused for long
            self.placed[ctx if trace.general else key] = found
            if trace.general:
                self._general = found  # last: other threads then use the trace
            return found

    def _trace(self, block: Any, flat: list, form: Any, ctx: Context) -> tuple[SymbolicTrace, Any]:
        """Trace the Block's Python with Symbols; returns (trace, nesting of the outputs)."""
        specs = [None if x is None else x._spec for x in flat]
        names = tracing.input_names(len(flat))
        trace = SymbolicTrace(names, specs, block._sees_shapes, _is_np(flat))
        result = trace.run(
            lambda *args: type(block).forward(block, *args),
            lambda values: regroup(values, form)[0],
            lambda: block.collect_params().values(),
            ctx,
        )
        return trace, flatten(result)[1]

    def programs(self) -> Programs:
        """All programs: for each kind of input the forward program, then the backward ones."""
        found = Programs()
        for placed in list(self.placed.values()):
            for kind in self.cache.of(placed.op.mark):
                found.append(kind.forward)
                found += [backward.program for backward in list(kind._backward.values())]
        return found

    def export(self, block: Any, path: str, epoch: int, remove_amp_cast: bool) -> None:
        """Write the graph that was traced first, and the arrays of its variables."""
        trace = self.first
        assert trace is not None
        graph: Any = tracing.plain(trace.symbol)
        if any(node.op is rnn_layer for node in topological(graph._entries)):
            # MXNet lacks the op for all steps of a cell; an untraced graph has single steps.
            graph, _ = graph_of(block, tuple(regroup(trace.inputs, self.form)[0]))
        auxiliary = set(graph.list_auxiliary_states())
        values = {}
        for node, used in trace.uses.items():
            kind = "aux" if node.name in auxiliary else "arg"
            values[f"{kind}:{node.name}"] = used if isinstance(used, NDArray) else used._reduce()
        names = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
        with files.replace_atomically(*names) as (graph_file, params_file):
            graph.save(graph_file, remove_amp_cast)
            nd.save(params_file, values)


def _bare(form: Any) -> Any:
    """A form without trailing Nones: an argument that is None may also be omitted."""
    while form and form[-1] == -1:
        form = form[:-1]
    return form


def _context(block: Any, flat: list[Any]) -> Context:
    """The context of the inputs; ValueError for inputs that cannot be compiled."""
    ctx: Context = block._context_of(flat)
    for x in flat:
        if isinstance(x, NDArray):
            if x._ctx != ctx:
                raise ValueError(
                    "Find multiple contexts in the input, After hybridized, the HybridBlock only "
                    f"supports one input context. {type(block).__name__} got {ctx} and {x._ctx}"
                )
        elif x is not None:
            raise ValueError(
                "When hybridized, the input of HybridBlock input must be (nested) list of Symbol "
                f"or NDArray, but got {x} of type {type(x)}. A value that is no array must "
                "be an attribute of the Block; tracing fixes its value"
            )
    return ctx


def _is_np(flat: list[Any]) -> bool:
    """True if an input is an `np.ndarray`: then the Block's Python gets such values too."""
    return any(x is not None and x.is_np for x in flat)


# -- graphs of whole nets --------------------------------------------------------------------------


def graph_of(block: Any, inputs: tuple) -> tuple[Any, dict[str, Any]]:
    """The net as a Symbol, as MXNet would build it, and the inputs by their variables' names."""
    flat, form = flatten(list(inputs))
    names = tracing.input_names(len(flat))
    given = {name: x for name, x in zip(names, flat) if x is not None}
    variables = [symbol.var(name) if name in given else None for name in names]
    with tracing.outside():
        result = type(block).forward(block, *regroup(variables, form)[0])
    parts = [part for part in flatten(result)[0] if isinstance(part, Symbol)]
    return Symbol(tuple(entry for part in parts for entry in part._entries)), given


def complete_shapes(block: Any, inputs: tuple) -> None:
    """Set the parameters' shapes that follow from the graph and the inputs' shapes; MXNetError if
    shapes contradict each other."""
    parameters = block.collect_params()
    with np_shape(False):  # a graph's unknown sizes are 0
        graph, given = graph_of(block, inputs)
        shapes, _, auxiliary = graph.infer_shape_partial(**{n: x.shape for n, x in given.items()})
        names = [*graph.list_arguments(), *graph.list_auxiliary_states()]
        for name, shape in zip(names, [*shapes, *auxiliary]):
            if name in parameters and shape_is_known(shape):
                parameters[name].shape = shape
