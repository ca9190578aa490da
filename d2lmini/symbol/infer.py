"""What a Symbol gives for known variables: shapes and dtypes, inferred, and values, op by op.

Shapes and dtypes of a graph follow from known ones: forward and backward, to a fixed point.

>>> from d2lmini import sym
>>> net = sym.FullyConnected(sym.var("x"), num_hidden=4, name="fc")
>>> net.infer_shape(x=(32, 10))              # arguments, outputs, auxiliary states
([(32, 10), (4, 10), (4,)], [(32, 4)], [])
>>> net.infer_shape_partial(x=(0, 10))       # 0: this size is unknown
([(0, 10), (4, 10), (4,)], [(0, 4)], [])
>>> net.infer_type(x="float16")[0] == [np.float16] * 3
True

Forward, `op.infer` tells the outputs. If a size is unknown, `op.infer` is called with different
numbers for that size: sizes that agree in the results do not depend on it. Backward, an op whose
output has the shape of its inputs tells that shape (`op.same_shape`), and an op with parameters,
labels or lengths tells their shapes (`op.infer_inputs`).

**Values** (`s.eval(x=..., w=...)`, and what SymbolBlocks run): nothing is compiled. On arrays each
node is an operation of its own, pushed as if the program had called the op, and recorded by
autograd. On Symbols the nodes are copied into another graph. `bind` and hybridized nets run a graph
as one task.

>>> from d2lmini import nd, sym
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.relu(x * 2, name="y")
>>> evaluate(y._entries, {x._entry[0]: nd.array([-1, 3])})[0].asnumpy()
array([0., 6.], dtype=float32)
>>> evaluate(y._entries, {x._entry[0]: sym.var("z")})[0].list_arguments()
['z']
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from numbers import Integral
from typing import Any

import numpy as np

from d2lmini.autograd.scopes import scope
from d2lmini.base import MXNetError, callsite
from d2lmini.base.dtypes import dtype_of, is_half
from d2lmini.context import Context, current_context
from d2lmini.graph.ir import Entry, Node, interpret, topological, variables_of
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ndarray.plan import infer
from d2lmini.ops import random_state
from d2lmini.ops.core import as_specs, without_casts
from d2lmini.ops.facts import MISFITS, Conflict, Partial, is_known, merged
from d2lmini.ops.signature import as_dtype, converter_of
from d2lmini.ops.spec import Spec
from d2lmini.symbol import naming
from d2lmini.symbol.symbol import Symbol, apply_op, is_open

#: Two substitutes for an unknown size, with many divisors for the sake of reshapes and splits; and
#: 1, which tells whether the number of axes depends on the size (`squeeze`).
TRIES = (5040, 7560, 1)

_shape, _FLOAT32 = converter_of("Shape"), np.dtype("float32")


def _to_fixed_point(
    entries: Sequence[Entry], given: Mapping[Node, Any], fact: str, visit: Callable[..., None]
) -> dict[Entry, Any]:
    """What is known of all outputs in the graph, from what is `given` of some variables and from
    the labels of the others. fact: 'shape' or 'dtype'. visit: (node, known) adds what follows from
    one node. MXNetError, with the node and its line, for a contradiction."""
    nodes = topological(entries)
    known = {(v, 0): given.get(v) or _fact_of(v, fact) for v in nodes if v.op is None}
    sweep = [node for node in nodes if node.op is not None][::-1]
    before: dict[Entry, Any] | None = None
    while known != before:
        before = dict(known)
        sweep.reverse()
        for node in sweep:
            try:
                visit(node, known)
            except MISFITS as problem:
                where = f"{node.op.name} in node {node.name!r}"  # type: ignore[union-attr]
                raise MXNetError(
                    f"{where}, made at {callsite.describe(node.site)}: "
                    f"{str(problem)[:300] or type(problem).__name__}"
                ) from None
    return known


def _fact_of(variable: Node, fact: str) -> Any:
    """The shape or dtype of a variable that its graph or its label tells."""
    if variable.specs is not None:
        return getattr(variable.specs[0], fact)
    label = variable.labels.get(f"__{fact}__", "")
    if label in ("", "-1"):  # MXNet's number of an unknown dtype
        return None
    with suppress(ValueError):
        found: Any = _shape(label) if fact == "shape" else dtype_of(int(label))
        if found is not None:
            return found or None
    raise MXNetError(f"{variable.name[:100]!r} has the label __{fact}__={label[:100]!r}")


def _names(node: Node) -> Sequence[str]:
    """A name for each input of a node."""
    n = len(node.inputs)
    return [f"input {i}" for i in range(n)] if node.op.variadic else node.op.input_names[:n]


# -- shapes ----------------------------------------------------------------------------------------


class Sure(tuple):
    """The shape of an output that follows from known inputs: a 0 is the size, not an unknown."""


def shapes_of(entries: Sequence[Entry], known: Mapping[Node, Partial]) -> dict[Entry, Partial]:
    """Shapes of all outputs in the graph as far as they follow from those of some variables; labels
    apply to variables without a given shape. MXNetError, with the node and its line, for a
    contradiction."""
    return _to_fixed_point(entries, known, "shape", _visit)


def _visit(node: Node, found: dict[Entry, Partial]) -> None:
    """Infer all shapes that follow from one node."""
    op = node.op

    def learn(what: str, entry: Entry, shape: Partial) -> None:
        try:
            found[entry] = merged(found.get(entry), shape)
        except Conflict as problem:
            raise Conflict(f"shapes do not fit: {what}: {problem}") from None

    entries = {name: entry for name, entry in zip(_names(node), node.inputs) if entry is not None}
    for name in entries if op.same_shape is True else op.same_shape or ():
        learn(name, entries[name], found.get((node, 0)))
        learn("output 0", (node, 0), found[entries[name]])
    if op.input_rule is not None:
        given = {name: found.get(entry) for name, entry in entries.items()}
        for name, shape in op.input_rule(given, found.get((node, 0)), node.attrs).items():
            if name in entries:
                learn(name, entries[name], shape)
    shapes = [found.get(entry) for entry in node.sources]
    if None not in shapes:
        for i, shape in enumerate(_outputs(node, shapes)):
            learn(f"output {i}", (node, i), shape)


def _outputs(node: Node, shapes: Sequence[Any]) -> Sequence[Partial]:
    """The outputs that the op infers for these shapes of its inputs."""
    op = node.op
    if is_open(op, node.attrs):
        return [tuple([max(n, 0) for n in node.attrs["shape"]]) or None]
    if all(map(is_known, shapes)):
        return list(map(Sure, _infer_with(node, shapes, 0)))
    found = []
    for size in TRIES:
        with suppress(MXNetError):  # it may be due to the substituted size
            found.append(_infer_with(node, shapes, size))
    return [_common(of_tries) for of_tries in zip(*found)] if len(found) > 1 else []


def _common(shapes: Sequence[tuple[int, ...]]) -> Partial:
    """The sizes in which all shapes agree."""
    if len(set(map(len, shapes))) > 1:
        return None
    return tuple([sizes[0] if len(set(sizes)) == 1 else 0 for sizes in zip(*shapes)])


def _infer_with(node: Node, shapes: Sequence[Any], size: int) -> list[Any]:
    """The shapes of the outputs, with `size` for each unknown size and dtypes that the op takes."""
    op = node.op
    names = [n for n, entry in zip(_names(node), node.inputs) if entry is not None]
    specs = [
        Spec(tuple([n or size for n in shape]), op.presumed_dtypes.get(name) or "float32")
        for name, shape in zip(names, shapes)
    ]
    return [spec.shape for spec in as_specs(infer(op, specs, node.own_attrs))]


def complete_shapes(entries: Sequence[Entry], known: Mapping[Node, Partial]) -> Sequence[Entry]:
    """The same graph, with open sizes (0) of zeros and open shapes of random numbers filled in as
    their consumers require. MXNetError where no consumer determines a size."""
    given: dict[Node, Entry] = {}
    found: dict[Entry, Partial] = {}
    for node in topological(entries):
        if node.op is not None and node.specs is None and is_open(node.op, node.attrs):
            found = found or shapes_of(entries, known)
            shape = found[node, 0]
            if not is_known(shape):
                raise MXNetError(
                    f"node {node.name!r}: its size cannot be inferred: only {shape} is known; "
                    "give its shape without 0"
                )
            given[node] = node.replace(attrs={**node.attrs, "shape": shape}), 0
    return naming.substitute(entries, given) if given else entries


# -- values --------------------------------------------------------------------------------------


def evaluate(
    entries: Sequence[Entry], values: Mapping[Node, Any], ctx: Context | None = None,
    keys: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """The values of `entries`, given those of the variables: all NDArrays, or all Symbols.

    ctx: the context of arrays made without inputs. keys: what the nodes of a trace draw with.
    MXNetError for a variable without a value.
    """
    symbolic = any(isinstance(value, Symbol) for value in values.values())

    def call(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
        if node.op is None:
            if node not in values:
                raise MXNetError(f"variable {node.name!r} has no value")
            return [values[node]]
        if symbolic:
            y = apply_op(node.op, tuple(inputs), node.own_attrs, node.name, node.labels, node.given)
            return list(y) if len(y._entries) > 1 else [y]
        draw = node.attrs.get("rng") if keys else None
        with nullcontext() if draw is None else random_state.use_key(keys[draw.number]):
            result = apply(node.op, tuple(inputs), node.own_attrs, None, None if inputs else ctx)
        return result if isinstance(result, list) else [result]

    with without_casts() if symbolic else nullcontext():
        return interpret(entries, call)


def _eval(self: Symbol, ctx: Context | None = None, **kwargs: NDArray) -> list[NDArray]:
    """The outputs as a list of NDArrays on `ctx`, given an array for each variable by name. Runs in
    prediction mode and unrecorded.

    ValueError for a variable without an array; MXNetError for shapes that do not fit, with the node
    and its line.
    """
    ctx = ctx or current_context()
    values = {}
    for node in variables_of(self._entries):
        array = kwargs.get(node.name)
        if not isinstance(array, NDArray):
            raise (ValueError if array is None else TypeError)(
                f"eval: {node.name} must be an NDArray, got {type(array).__name__}; give one for "
                f"each of {self.list_inputs()}"
            )
        values[node] = array.as_in_context(ctx)
    shapes = {node: array.shape for node, array in values.items()}
    try:
        with scope(False, False):
            return evaluate(complete_shapes(self._entries, shapes), values, ctx=ctx)
    except (MXNetError, ValueError):
        shapes_of(self._entries, shapes)  # shapes that do not fit: it names the node
        raise


# -- dtypes ----------------------------------------------------------------------------------------


def _visit_dtypes(node: Node, found: dict[Entry, Any]) -> None:
    """Infer all dtypes that follow from one node."""
    op = node.op
    names = op.input_names if not op.variadic else [op.input_names[0]] * len(node.inputs)
    given = [(n, e) for n, e in zip(names, node.inputs) if e is not None]
    bound = [e for n, e in given if n not in op.free_dtypes]
    together = next(filter(None, map(found.get, bound)), None)
    data_is_free = "data" in op.free_dtypes
    if data_is_free and node.attrs.get("dtype") is not None:
        together = as_dtype(node.attrs["dtype"])
    elif together is None and not data_is_free:
        passes_on = op.same_shape or op.output_dtypes(node.attrs, node, 1)[0] is node
        together = found.get((node, 0)) if passes_on else None
    for entry in bound:
        found[entry] = found.get(entry) or together
        if found[entry] != together and not op.mixed_dtypes:
            raise Conflict(
                f"dtypes differ: {found[entry]} and {together}; convert one with sym.cast"
            )
    if op.float32_parameters and together is not None:
        for _, entry in given[1:]:
            found[entry] = found.get(entry) or (_FLOAT32 if is_half(together) else together)
    data: Any = together
    if data_is_free:
        data = [found.get(entry) for _, entry in given] if op.variadic else found.get(given[0][1])
    for name, entry in given:
        if name in op.presumed_dtypes and data is not None:
            found[entry] = found.get(entry) or np.dtype(op.presumed_dtypes[name] or data)
    for i, dtype in enumerate(op.output_dtypes(node.attrs, data, node.n_outputs)):
        if dtype is not None:
            found[node, i] = as_dtype(dtype)


# -- methods of Symbol -----------------------------------------------------------------------------


def _read_given(symbol: Symbol, args: tuple, kwargs: dict[str, Any], what: str) -> dict[Node, Any]:
    """The caller's value for each variable; a name applies to all variables of that name."""
    if args and kwargs:
        raise ValueError(f"{what}: give known arguments by position or by name, not both")
    variables = variables_of(symbol._entries)
    names = {node.name for node in variables}
    for name in kwargs:
        if name not in names:
            raise MXNetError(f"{what}: there is no argument {name!r}; there are {sorted(names)}")
    given = [(node, kwargs.get(node.name)) for node in variables]
    given = list(zip(naming.variables(symbol._entries)[0], args)) if args else given
    return {node: value for node, value in given if value is not None}


def _collect(symbol: Symbol, found: Mapping[Entry, Any]) -> tuple[list[Any], ...]:
    """The found values of arguments, outputs and auxiliary states."""
    arguments, states = naming.variables(symbol._entries)
    heads = [(node, 0) for node in arguments], symbol._entries, [(node, 0) for node in states]
    return tuple([found.get(entry) for entry in entries] for entries in heads)


def _shapes(symbol: Symbol, args: tuple, kwargs: dict[str, Any]) -> Any:
    known = {}
    for node, shape in _read_given(symbol, args, kwargs, "infer_shape").items():
        if not isinstance(shape, (tuple, list)) or any(not isinstance(n, Integral) for n in shape):
            raise TypeError(f"infer_shape: {node.name!r} needs a tuple of integers, got {shape!r}")
        known[node] = tuple([max(int(n), 0) for n in shape]) or None  # -1 is unknown as well
    return _collect(symbol, shapes_of(symbol._entries, known))


def _or_warn(symbol: Symbol, results: Any, complete: Any, what: str) -> Any:
    """The results, or (None, None, None) and a warning if some are missing."""
    names = (symbol.list_arguments(), symbol.list_outputs(), symbol.list_auxiliary_states())
    missing = [
        f"{name}: {x}" for row, part in zip(names, results) for name, x in zip(row, part)
        if not complete(x)
    ]  # fmt: skip
    if not missing:
        return results
    warnings.warn(
        f"Cannot decide {what} of the following; give more of the inputs' (0 stands for an "
        f"unknown size): {', '.join(missing)}",
        stacklevel=3,
    )
    return None, None, None


def infer_shape(self: Symbol, *args: Any, **kwargs: Any) -> Any:
    """Shapes of arguments, outputs and auxiliary states, as three lists, from the shapes of some
    arguments by name or position. (None, None, None) and a warning if these are not enough.

    MXNetError for an unknown name and for contradicting shapes, with the node and its line.
    """
    results = _shapes(self, args, kwargs)
    results = _or_warn(self, results, lambda s: is_known(s) or isinstance(s, Sure), "shape")
    return tuple([part and [tuple(s) for s in part] for part in results])


def infer_shape_partial(self: Symbol, *args: Any, **kwargs: Any) -> Any:
    """Like `infer_shape`, as far as known: () for an unknown shape, 0 for an unknown size."""
    return tuple([[tuple(s or ()) for s in part] for part in _shapes(self, args, kwargs)])


def infer_type(self: Symbol, *args: Any, **kwargs: Any) -> Any:
    """NumPy types of arguments, outputs and auxiliary states, from those of some arguments; see
    `infer_shape`."""
    found = infer_type_partial(self, *args, **kwargs)
    return _or_warn(self, found, lambda dtype: dtype is not None, "type")


def infer_type_partial(self: Symbol, *args: Any, **kwargs: Any) -> Any:
    """Like `infer_type`, as far as known: None for unknown types."""
    given = _read_given(self, args, kwargs, "infer_type")
    known = {node: as_dtype(dtype) for node, dtype in given.items()}
    found = _to_fixed_point(self._entries, known, "dtype", _visit_dtypes)
    return tuple(
        [[None if d is None else np.dtype(d).type for d in part] for part in _collect(self, found)]
    )


for _function in (infer_shape, infer_shape_partial, infer_type, infer_type_partial):
    setattr(Symbol, _function.__name__, _function)
del _function
Symbol.eval = _eval  # type: ignore[attr-defined]
