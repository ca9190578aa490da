"""Infer shapes and dtypes of a graph from known ones: forward and backward, to a fixed point.

>>> from d2lmini import sym
>>> net = sym.FullyConnected(sym.var("x"), num_hidden=4, name="fc")
>>> net.infer_shape(x=(32, 10))              # arguments, outputs, auxiliary states
([(32, 10), (4, 10), (4,)], [(32, 4)], [])
>>> net.infer_shape_partial(x=(0, 10))       # 0: this size is unknown
([(0, 10), (4, 10), (4,)], [(0, 4)], [])
>>> net.infer_type(x="float16")[0] == [np.float16] * 3
True

Forward, the ops infer outputs from inputs (`op.infer`). If a size is unknown, `op.infer` is called
twice, with two different numbers for that size: sizes that agree in both results do not depend on
it, and a call with 1 tells whether the number of axes does (`squeeze`). Backward, the ops infer
inputs (`op.infer_inputs`). When nothing more follows, `a + b` with b unknown assumes that b is like
the result or like a.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.bfloat16 import is_half
from d2lmini.graph.ir import Entry, Node, topological, variables_of
from d2lmini.ndarray.plan import infer
from d2lmini.ops.attributes import as_dtype, converter_of
from d2lmini.ops.partial import Conflict, Partial, broadcast_partial, is_known, merged
from d2lmini.ops.spec import Spec
from d2lmini.serialize import dtype_of
from d2lmini.symbol import lists
from d2lmini.symbol.naming import operator_hint
from d2lmini.symbol.symbol import Symbol, lacks_shape

#: Two substitutes for an unknown size, with many divisors for the sake of reshapes and splits.
TRIES = (5040, 7560)


# -- shapes ----------------------------------------------------------------------------------------


class Sure(tuple):
    """The shape of an output that follows from known inputs: a 0 is the size, not an unknown."""


def shapes_of(entries: Sequence[Entry], known: Mapping[Node, Partial]) -> dict[Entry, Partial]:
    """Shapes of all outputs in the graph as far as they follow from those of some variables; labels
    apply to variables without a given shape. MXNetError, with the node and its line, for a
    contradiction."""
    nodes = topological(entries)
    found: dict[Entry, Partial] = {}
    for node in nodes:
        if node.op is None:
            found[node, 0] = known.get(node) or _infer_label(node)
    calls = [node for node in nodes if node.op is not None]
    while True:
        before = dict(found)
        for node in (*calls, *reversed(calls)):
            try:
                _visit(node, found)
            except _MISFITS as problem:
                raise _misfit(node, problem) from None
        if found == before and not _guess(calls, found):
            return found


def _infer_label(node: Node) -> Partial:
    if node.specs is not None:
        return node.specs[0].shape
    text = node.labels.get("__shape__") or "()"
    try:
        return _shape(text) or None
    except ValueError:
        raise MXNetError(f"{node.name[:100]!r} has the label __shape__={text[:100]!r}") from None


#: Exceptions of rules and ops for wrong attributes and labels, which a file may contain.
_MISFITS = (Conflict, TypeError, ValueError, LookupError, ArithmeticError, AssertionError)
_shape = converter_of("Shape")


def _misfit(node: Node, problem: Exception) -> MXNetError:
    return MXNetError(f"{_where(node)}: {str(problem)[:300] or type(problem).__name__}")


def _visit(node: Node, found: dict[Entry, Partial]) -> None:
    """Infer all that follows from one node."""
    op = node.op
    assert op is not None
    if op.whole and not is_known(found.get(node.sources[0])):
        return
    names = op.input_names if not op.variadic else [f"input {i}" for i in range(len(node.inputs))]
    given = {n: found.get(e) for n, e in zip(names, node.inputs) if e is not None}
    out = found.get((node, 0))
    if op.input_rule is not None:
        told = op.input_rule(given, out, node.attrs)
    elif op.same_shape:
        together = out
        for name, shape in given.items():
            together = _merge(node, name, shape, together)
        told = {**dict.fromkeys(given, together), "out": together}
    elif op.broadcasts:
        told = {"out": broadcast_partial(*given.values(), by_name=not _is_operator(node))}
    else:
        told = {}
    for name, entry in zip(names, node.inputs):
        if entry is not None and told.get(name) is not None:
            found[entry] = _merge(node, name, given[name], told[name])
    for i in range(node.n_outputs):
        shape = told.get(f"out{i}" if i else "out")
        if shape is not None:
            found[node, i] = _merge(node, f"output {i}", found.get((node, i)), shape)
    shapes = [found.get(e) for e in node.sources]
    if all(shape is not None for shape in shapes):
        for i, shape in enumerate(_outputs(node, shapes)):
            found[node, i] = _merge(node, f"output {i}", found.get((node, i)), shape)


def _merge(node: Node, what: str, a: Partial, b: Partial) -> Partial:
    try:
        return merged(a, b)
    except Conflict as problem:
        raise MXNetError(f"{_where(node)}: shapes do not fit: {what}: {problem}") from None


def _where(node: Node) -> str:
    assert node.op is not None
    return f"{node.op.name} in node {node.name!r}, made at {callsite.describe(node.site)}"


def _outputs(node: Node, shapes: Sequence[Any]) -> list[Partial]:
    """The outputs that the op infers for these shapes of its inputs."""
    op = node.op
    assert op is not None
    if lacks_shape(op, node.attrs):
        return []
    if not node.inputs and min(node.attrs.get("shape") or (0,)) < 0:
        return [tuple([max(n, 0) for n in node.attrs["shape"]])]  # as in MXNet, -1 is unknown
    if all(is_known(shape) for shape in shapes):
        kind = Sure if node.inputs or "num" in node.attrs else tuple  # else 0 is unknown
        try:
            return [kind(shape) for shape in _ask(node, shapes)]
        except MXNetError:
            if op.unchecked:
                return []
            raise
    try:
        low, high = (
            _ask(node, [tuple([n or size for n in shape]) for shape in shapes]) for size in TRIES
        )
    except MXNetError:
        return []  # an error may be due to the substituted sizes
    try:
        ones = _ask(node, [tuple([n or 1 for n in shape]) for shape in shapes])
    except MXNetError:
        ones = low
    return [
        tuple([m if m == n else 0 for m, n in zip(a, b)]) if len(a) == len(b) == len(c) else None
        for a, b, c in zip(low, high, ones)  # type: ignore[arg-type]
    ]


def _ask(node: Node, shapes: Sequence[Any]) -> list[Any]:
    try:
        outputs = infer(node.op, _specs(node, shapes), node.own_attrs)  # type: ignore[arg-type]
    except MXNetError as problem:
        raise MXNetError(f"{_where(node)}: {problem}") from None
    return [spec.shape for spec in ([outputs] if isinstance(outputs, Spec) else outputs)]


def _specs(node: Node, shapes: Sequence[Any]) -> list[Spec]:
    """Specs with these shapes, of dtypes that the op takes."""
    op = node.op
    assert op is not None
    names = [n for n, e in zip(op.input_names, node.inputs) if e is not None]
    dtypes = [op.presumed_dtypes.get(name) or "float32" for name in names]
    dtypes += ["float32"] * (len(shapes) - len(dtypes))  # of any number of inputs one has a name
    return [Spec(shape, dtype) for shape, dtype in zip(shapes, dtypes)]


def _guess(calls: Sequence[Node], found: dict[Entry, Partial]) -> bool:
    """Assume that one side of the first unresolved `a + b` is like the result, or like the other
    side; False without one."""
    for node in calls:
        if not _is_operator(node):
            continue
        for one, other in (node.inputs, node.inputs[::-1]):
            known, missing = found.get((node, 0)), found.get(one)  # type: ignore[arg-type]
            known = known or found.get(other)  # type: ignore[arg-type]
            if known is None or is_known(missing):
                continue
            if missing is None or len(missing) == len(known):
                full = known if missing is None else tuple([m or n for m, n in zip(missing, known)])
                if full != missing:
                    found[one] = full  # type: ignore[index]
                    return True
    return False


def _is_operator(node: Node) -> bool:
    """True for a node that `a + b` made, known by its name; broadcast_add(a, b) may broadcast."""
    op = node.op
    assert op is not None
    return op.broadcasts and operator_hint(op.name) in node.name and op.name not in node.name


def complete_shapes(entries: Sequence[Entry], known: Mapping[Node, Partial]) -> Sequence[Entry]:
    """The same graph, with open sizes (0) of zeros and open shapes of random numbers filled in as
    their consumers require. MXNetError where no consumer determines a size."""
    given: dict[Node, Entry] = {}
    found: dict[Entry, Partial] = {}
    for node in topological(entries):
        if node.op is None or node.inputs or node.specs is not None:
            continue
        if min(node.attrs.get("shape") or (1,)) < 1 or lacks_shape(node.op, node.attrs):
            found = found or shapes_of(entries, known)
            shape = found[node, 0]
            if not is_known(shape):
                raise MXNetError(
                    f"node {node.name!r}: its size cannot be inferred: only {shape} is known; "
                    "give its shape without 0"
                )
            given[node] = node.replace(attrs={**node.attrs, "shape": shape}), 0
    return lists.substitute(entries, given) if given else entries


# -- dtypes ----------------------------------------------------------------------------------------


def dtypes_of(entries: Sequence[Entry], known: Mapping[Node, Any]) -> dict[Entry, Any]:
    """Dtypes of all outputs in the graph as far as they follow from those of some variables."""
    nodes = topological(entries)
    found: dict[Entry, Any] = {}
    for node in nodes:
        if node.op is None:
            own = node.specs[0].dtype if node.specs else label_dtype(node)
            found[node, 0] = known.get(node) or own
    calls = [node for node in nodes if node.op is not None]
    while True:
        before = dict(found)
        for node in (*calls, *reversed(calls)):
            try:
                _visit_dtypes(node, found)
            except _MISFITS as problem:
                raise _misfit(node, problem) from None
        if found == before:
            return found


def label_dtype(node: Node) -> Any:
    """The dtype in the label of a variable; None without one."""
    label = node.labels.get("__dtype__", "-1")  # MXNet writes -1 for an unknown dtype
    dtype = dtype_of(int(label)) if label.isdecimal() and len(label) < 3 else None
    if dtype is None and label != "-1":
        raise MXNetError(f"{node.name[:100]!r} has the label __dtype__={label[:100]!r}")
    return dtype


def _visit_dtypes(node: Node, found: dict[Entry, Any]) -> None:
    op = node.op
    assert op is not None
    names = op.input_names if not op.variadic else [op.input_names[0]] * len(node.inputs)
    given = [(n, e) for n, e in zip(names, node.inputs) if e is not None]
    bound = [e for n, e in given if n not in op.free_dtypes]
    together = next((found[e] for e in bound if found.get(e) is not None), None)
    if op.data_tells_dtype and found.get(node.inputs[0]) is None:  # type: ignore[arg-type]
        together = None
    data_is_free = "data" in op.free_dtypes
    if data_is_free and node.attrs.get("dtype") is not None:
        together = as_dtype(node.attrs["dtype"])
    elif together is None and not data_is_free and (_passes_on(node) or op.same_shape):
        together = found.get((node, 0))
    for entry in bound:
        if found.get(entry) is None:
            found[entry] = together
        elif together is not None and found[entry] != together and not op.mixed_dtypes:
            raise MXNetError(
                f"{_where(node)}: dtypes differ: {found[entry].name} and {together.name}; "
                "convert one with sym.cast"
            )
    if op.float32_parameters and together is not None:
        for _, entry in given[1:]:
            if found.get(entry) is None:
                found[entry] = np.dtype("float32") if is_half(together) else together
    data: Any = together
    if data_is_free:
        data = [found.get(entry) for _, entry in given] if op.variadic else found.get(given[0][1])
    for name, entry in given:
        if name in op.presumed_dtypes and found.get(entry) is None and data is not None:
            found[entry] = np.dtype(op.presumed_dtypes[name] or data)
    for i, dtype in enumerate(op.output_dtypes(node.attrs, data, node.n_outputs)):
        if dtype is not None:
            found[node, i] = as_dtype(dtype)


def _passes_on(node: Node) -> bool:
    """True if the output has the dtype of the inputs."""
    mark = object()
    return node.op.output_dtypes(node.attrs, mark, 1)[0] is mark  # type: ignore[union-attr]


# -- methods of Symbol -----------------------------------------------------------------------------


def _read_given(symbol: Symbol, args: tuple, kwargs: dict[str, Any], what: str) -> dict[Node, Any]:
    """The caller's value for each variable; a name applies to all variables of that name."""
    if args and kwargs:
        raise ValueError(f"{what}: give known arguments by position or by name, not both")
    variables = variables_of(symbol._entries)
    if args:
        nodes: Iterable[Node] = lists.arguments(symbol._entries)
        return {node: value for node, value in zip(nodes, args) if value is not None}
    names = {node.name for node in variables}
    for name in kwargs:
        if name not in names:
            raise MXNetError(f"{what}: there is no argument {name!r}; there are {sorted(names)}")
    return {n: kwargs[n.name] for n in variables if kwargs.get(n.name) is not None}


def _collect(symbol: Symbol, found: Mapping[Entry, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The found values of arguments, outputs and auxiliary states."""
    arguments = [found.get((node, 0)) for node in lists.arguments(symbol._entries)]
    states = [found.get((node, 0)) for node in lists.auxiliary_states(symbol._entries)]
    return arguments, [found.get(entry) for entry in symbol._entries], states


def _shapes(symbol: Symbol, args: tuple, kwargs: dict[str, Any]) -> Any:
    known = {}
    for node, shape in _read_given(symbol, args, kwargs, "infer_shape").items():
        if not isinstance(shape, (tuple, list)):
            raise TypeError(
                f"infer_shape: a shape is a tuple, but {node.name!r} is {type(shape).__name__}"
            )
        if not all(isinstance(n, Integral) for n in shape):
            raise TypeError(f"infer_shape: sizes are integers, but {node.name!r} is {shape}")
        known[node] = tuple([max(int(n), 0) for n in shape]) or None  # -1 is unknown as well
    return _collect(symbol, shapes_of(symbol._entries, known))


def _or_warn(symbol: Symbol, results: Any, complete: Any, what: str) -> Any:
    """The results, or (None, None, None) and a warning if some are missing."""
    if all(complete(x) for part in results for x in part):
        return results
    names = (symbol.list_arguments(), symbol.list_outputs(), symbol.list_auxiliary_states())
    missing = [
        f"{name}: {x}" for row, part in zip(names, results) for name, x in zip(row, part)
        if not complete(x)
    ]  # fmt: skip
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


def _types(symbol: Symbol, args: tuple, kwargs: dict[str, Any]) -> Any:
    known = _read_given(symbol, args, kwargs, "infer_type")
    found = dtypes_of(symbol._entries, {node: as_dtype(dtype) for node, dtype in known.items()})
    results = _collect(symbol, found)
    return tuple([[None if d is None else np.dtype(d).type for d in part] for part in results])


def infer_type(self: Symbol, *args: Any, **kwargs: Any) -> Any:
    """NumPy types of arguments, outputs and auxiliary states, from those of some arguments; see
    `infer_shape`."""
    return _or_warn(self, _types(self, args, kwargs), lambda d: d is not None, "type")


def infer_type_partial(self: Symbol, *args: Any, **kwargs: Any) -> Any:
    """Like `infer_type`, as far as known: None for unknown types."""
    return _types(self, args, kwargs)


for _function in (infer_shape, infer_shape_partial, infer_type, infer_type_partial):
    setattr(Symbol, _function.__name__, _function)
del _function
