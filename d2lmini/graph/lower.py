"""What the user wrote, in the pieces that are best to compute: before statements are formed.

- A layer with a bias is a product and an addition: the addition can then join the activation that
  follows, in one loop or in one place.
- The gradient of relu is a mask and a product: the mask may then be small scratch, and the product
  goes in the place of the gradient that came.
- An elementwise op broadcasts by itself: what was spread out for it (`_spread`, `broadcast_to`: the
  gradients of sums and means) is only brought into a shape that fits.
- On a GPU what is computed of a reshaped value is computed before: a reshape parts a kernel in two.
- On a GPU an element picked from a row is the sum of that row with 0 in place of the others: a
  kernel that reduces the row for something else adds it up in the same loop.

All keep the values to the bit, but for the sum of a picked -0.0, which is 0.0.

>>> from d2lmini import sym
>>> from d2lmini.graph.ir import topological
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x, w, b = sym.var("x"), sym.var("w"), sym.var("b")
>>> y = sym.FullyConnected(x, w, b, num_hidden=4, name="dense0")
>>> shapes = {x: (2, 3), w: (4, 3), b: (4,)}
>>> specs = {v._entry[0]: Spec(shape, "float32") for v, shape in shapes.items()}
>>> _, outputs = infer_types(y._entries, specs, training=True)
>>> [node for node in topological(lower(outputs)) if node.op]
[<FullyConnected dense0>, <broadcast_add dense0>]

**Formulas in graphs**: composed ops (`ops/composed.py`) become the primitives they are made of.

Inside a compiled graph a composed op is replaced by the graph of its formula, so that the passes
simplify it and fusion joins it to what stands before and behind:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> graph = graph_of(sym.log_softmax(sym.var("x"), name="y"), x=(2, 3))
>>> print(listing(inlined(graph)))
x                                           # (2, 3) float32
y_max0 = max(x, axis=-1, keepdims=True)     # (2, 1) float32
y_minus0 = broadcast_sub(x, y_max0)         # (2, 3) float32
y_exp0 = exp(y_minus0)                      # (2, 3) float32
y_sum0 = sum(y_exp0, axis=-1, keepdims=True)  # (2, 1) float32
y_log0 = log(y_sum0)                        # (2, 1) float32
y = broadcast_sub(y_minus0, y_log0)         # (2, 3) float32
return y

`Program` does so with every graph, hence also with the gradients of composed ops.

**Steps** of an op: the calls of NumPy's ufuncs that compute it, one after the other in one array.
An elementwise op on floats is a formula such as 1 / (1 + exp(-data)). As a chain of calls, each of
which works on the result so far, the formula needs no memory except that of the result. A generated
program can print the calls, run them block by block, and join them to the calls of other ops:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> known = {x._entry[0]: Spec((3,), "float32")}
>>> _, [(node, _)] = infer_types(sym.sigmoid(x)._entries, known, False)
>>> [step.ufunc for step in steps_of(node)]
['negative', 'exp', 'add', 'divide']

The steps are found by a trace: the op's own `compute` runs on proxies (`ops.symbolic`). In each
step at most one operand may be a result, otherwise the chain would need a second array. Other ops,
and dtypes that are converted on the way (float16 to float32, integers to float64), have no steps:
the program calls their `compute`. The values of the steps equal those of `compute` to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.graph.ir import Entry, Inputs, Node, spec_of, transform, with_order
from d2lmini.graph.passes import SPREADS, call, calls, in_shape, map_before, shape_before, simplify
from d2lmini.ndarray.plan import infer
from d2lmini.ops import scalar_cache
from d2lmini.ops.composed import Composed, FormulaValue, results_of
from d2lmini.ops.core import Op, Spec, as_specs, modes, registry, with_axis
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.kernels import has_bfloat16, needs_copies, widened
from d2lmini.ops.symbolic import NotTraceable, Proxy, SymbolicModule, trace
from d2lmini.symbol.naming import next_name, operator_hint

#: Stands for the result so far.
Y = "y"


class Number(NamedTuple):
    """A scalar operand: the entry `table[xp][dtype][value]` of ops/scalar_cache.py."""

    table: str
    dtype: np.dtype
    value: Any


class Step(NamedTuple):
    """One call of a ufunc. `args`: indices of inputs, `Number`s, or Y, the result so far; in the
    trace the Step that gave it. `dtype`: that of the array which the ufunc writes to."""

    ufunc: str
    args: tuple[Any, ...]
    dtype: np.dtype


def steps_of(node: Node) -> tuple[Step, ...] | None:
    """The steps of a typed node; None if the op must be computed by its own `compute`."""
    if node.steps is None:
        node.steps = _find_steps(node) or ()
    return node.steps or None


def _find_steps(node: Node) -> tuple[Step, ...] | None:
    op, specs = node.op, node.specs
    if op is None or not op.elementwise or op.mutates or op.injects or not node.inputs:
        return None
    if None in node.inputs or specs is None or len(specs) != 1:
        return None
    if has_bfloat16([specs[0], *map(spec_of, node.sources)]):
        return None
    dtypes = tuple([spec_of(entry).dtype for entry in node.sources])
    attrs = node.attrs
    # The text distinguishes -0.0 from 0.0 and 2 from 2.0, which compare equal.
    return _steps(op, dtypes, specs[0].dtype, tuple(attrs.items()), str(attrs))


@lru_cache(maxsize=4096)
def _steps(
    op: Op, dtypes: tuple[np.dtype, ...], dtype: np.dtype, attrs: tuple[Any, ...], _text: str
) -> tuple[Step, ...] | None:
    """The steps of an op on inputs of `dtypes` with a result of `dtype`; None as in `steps_of`."""
    inputs = [Proxy(_xp, i, given) for i, given in enumerate(dtypes)]
    out = {"out": _xp.empty((), dtype)} if op.takes_out else {}
    try:
        result = trace(_xp, op.compute, inputs, dict(attrs), **out)
    except NotTraceable:
        return None
    last = result.expr if isinstance(result, Proxy) else None
    steps: list[Step] = []
    while isinstance(last, Step):
        computed = [arg for arg in last.args if isinstance(arg, Step)]
        if last.dtype != dtype or len(computed) > 1:
            return None
        args = [Y if isinstance(arg, Step) else arg for arg in last.args]
        steps.insert(0, last._replace(args=tuple(args)))
        last = computed[0] if computed else None
    return tuple(steps) or None


def may_overwrite(steps: tuple[Step, ...], i: int) -> bool:
    """True if the result may overwrite input i, because only the first step reads that input."""
    return all(i not in [a for a in step.args if type(a) is int] for step in steps[1:])


# -- the trace -------------------------------------------------------------------------------------


#: The table of the scalar operands of a ufunc, if it is not `scalars`.
_TABLES = {family.ufunc: family.numbers for family in FAMILIES.values()}


class _Ufuncs(SymbolicModule):
    """The array module whose expressions are the index of an input, a `Number` or a `Step`."""

    def call(
        self, ufunc: np.ufunc, args: Sequence[Any], loop: Sequence[np.dtype], result: np.dtype
    ) -> Proxy:
        name = ufunc.__name__
        dtype = next(arg.dtype for arg in args if isinstance(arg, Proxy))

        def argument(arg: Any) -> Any:
            if isinstance(arg, Proxy):
                return arg.expr
            if type(arg) in (int, float) and dtype.kind == "f":
                return Number(_TABLES.get(name, "scalars"), dtype, arg)
            raise NotTraceable(f"the operand {arg!r} with an array of {dtype.name}")

        exprs = tuple(map(argument, args))
        if None in exprs or all(isinstance(expr, Number) for expr in exprs):
            raise NotTraceable(f"{name} without an array")
        return Proxy(self, Step(name, exprs, result), result)

    def convert(self, expr: Any, old: np.dtype, new: np.dtype) -> Any:
        """A ufunc converts its result while it writes; other values are not converted."""
        if old != new and isinstance(expr, Step) and np.can_cast(old, new, "same_kind"):
            return expr._replace(dtype=new)
        return super().convert(expr, old, new)


class _Table:
    """A table of `scalar_cache` in a trace: `table[dtype][value]` is a proxy of a `Number`."""

    def __init__(self, name: str, dtype: Any = None):
        self.name = name
        self.dtype = dtype

    def __getitem__(self, key: Any) -> Any:
        if self.dtype is None:
            return _Table(self.name, key)
        found = getattr(scalar_cache, self.name)[np][self.dtype][key]
        return Proxy(_xp, Number(self.name, self.dtype, key), found.dtype)


_xp = _Ufuncs()
for _name in ("scalars", "clamped_scalars"):
    getattr(scalar_cache, _name)[_xp] = _Table(_name)


def lower(outputs: Sequence[Entry], on_gpu: bool = False) -> list[Entry]:
    """The graph behind `outputs` in these pieces."""

    def rule(node: Node, inputs: Inputs) -> Node | list[Entry] | None:
        found = (_lower_pick(node, inputs) or _reshape_last(node, inputs)) if on_gpu else None
        return _lower(node, inputs) if found is None else [found]

    return transform(outputs, rule)


def _lower(node: Node, inputs: Inputs) -> Node | None:
    op, attrs = node.op, node.attrs
    if op is None:
        return None
    # Of bfloat16 the layer stays whole: its product and its sum are rounded once.
    has_bias = op.name == "FullyConnected" and len(node.sources) > 2
    if has_bias and not has_bfloat16(node.specs):
        product = node.replace(inputs=inputs[:2], attrs={**attrs, "no_bias": True}, labels={})
        added = ((product, 0), inputs[2])
        return node.replace(op=registry["broadcast_add"], inputs=added, attrs={})
    if op.name == "_relu_backward":
        # 1 where the relu let pass what came, else 0.
        mask = node.replace(
            op=registry["_greater_scalar"], inputs=inputs[1:2], attrs={"scalar": 0.0}, labels={}
        )
        op, inputs, attrs = registry["broadcast_mul"], ((mask, 0), inputs[0]), {}
    if op.elementwise and any(e and _is_broadcast(e) for e in inputs):
        inputs = _unspread(node, inputs)
    if op is node.op and inputs == node.inputs:
        return node
    return node.replace(op=op, inputs=inputs, attrs=attrs)


def _lower_pick(node: Node, inputs: Inputs) -> Entry | None:
    """An element picked along an axis as a sum; and the gradient, with inputs that broadcast."""
    op, attrs, specs = node.op, node.attrs, node.specs
    if op is None or op.name not in ("pick", "_pick_grad") or attrs["mode"] != "clip":
        return None
    data, index = inputs
    shape = spec_of(data).shape if op.name == "pick" else specs[0].shape
    if specs[0].dtype.char not in "fd" or not prod(shape):
        return None
    axis = attrs["axis"]
    kept = with_axis(shape, axis, 1)
    where = {"shape": shape, "axis": axis, "mode": "clip"}
    index = in_shape(index, kept, node)
    if op.name == "_pick_grad":
        g = _source(data) if _is_broadcast(data) else in_shape(data, kept, node)
        return call(op, (g, index), node, **where)
    alone = call("_pick_grad", (data, index), node, **where)
    return in_shape(call("sum", (alone,), node, axis=axis, keepdims=True), specs[0].shape, node)


def _reshape_last(node: Node, inputs: Inputs) -> Entry | None:
    """An elementwise op on a value that was computed and then reshaped, done before the reshape."""
    view = calls(inputs[0], ("reshape",)) if len(inputs) == 1 else None
    is_computed = view is not None and view.sources[0][0].op is not None
    return map_before(node, inputs, ("reshape",)) if is_computed else None


def _is_broadcast(entry: Entry) -> bool:
    return entry[0].op is not None and entry[0].op.name in SPREADS


def _unspread(node: Node, inputs: Inputs) -> Inputs:
    """The inputs before they were spread out, where another one has the shape of the result."""
    if steps_of(node) is None or len(inputs) < 2:
        return inputs
    shape = node.specs[0].shape
    whole = [e for e in inputs if e and spec_of(e).shape == shape and not _is_broadcast(e)]
    if not whole:
        return inputs
    return tuple([_source(e) if e and _is_broadcast(e) else e for e in inputs])


def _source(entry: Entry) -> Entry:
    """What a spread starts from, in as many axes as its result has."""
    return in_shape(entry[0].sources[0], shape_before(entry[0]), entry[0])


# -- formulas --------------------------------------------------------------------------------------


def inlined(outputs: Sequence[Entry], kind: str = "cpu") -> list[Entry]:
    """The graph with the formulas of its composed ops, simplified. kind: of the device; an op that
    has a kernel of its own for the device stays."""

    def is_formula(node: Node) -> bool:
        op = node.op
        return isinstance(op, Composed) and kind not in op.kernels and not node.mutated

    def rule(node: Node, inputs: Inputs) -> list[Entry] | None:
        return expand(node, inputs) if is_formula(node) else None

    found = given = with_order(outputs)
    while any(map(is_formula, found.order)):  # formulas call composed ops
        found = with_order(transform(found, rule))
    return found if found is given else simplify(found)


def expand(node: Node, inputs: Inputs, prefix: str | None = None) -> list[Entry]:
    """The outputs of the formula of a node. The new nodes have its line and its labels, and names
    that begin with its own or with `prefix`. Of a node without specs they are what the formula
    gives."""
    op = node.op
    assert isinstance(op, Composed)
    call_of = call_maker(f"{node.name}_" if prefix is None else prefix, node, {})
    given = [None if e is None else Written(e, call_of) for e in inputs]
    if needs_copies(op, [*[spec_of(e) for e in inputs if e is not None], *(node.specs or ())]):
        given = [
            x if x is None else x.astype(widened(op, x._spec.dtype), copy=False) for x in given
        ]
    values = results_of(op, given, node.attrs)
    if node.specs is not None:
        values = [y.astype(spec.dtype, copy=False) for y, spec in zip(values, node.specs)]
    last = values[0].entry[0]
    if len(values) == 1 and last not in [e[0] for e in inputs if e is not None]:
        last.name = node.name
    return [y.entry for y in values]


#: Makes the node of a call of an op on these entries with these attributes.
CallMaker = Callable[[Op, Inputs, dict[str, Any]], Node]


def call_maker(prefix: str, like: Node, counts: dict[str, int]) -> CallMaker:
    """A function that makes nodes with the line and the labels of `like`, and with names that begin
    with `prefix` and are counted, by kind, in `counts`."""

    def call_of(op: Op, entries: Inputs, attrs: dict[str, Any]) -> Node:
        specs = as_specs(infer(op, [spec_of(e) for e in entries if e is not None], attrs))
        if "training" in op.injects:
            attrs = {"training": modes.training, **attrs}
        # "backward_softmax0", with the prefix once.
        name = prefix + next_name(counts, operator_hint(op.name)).lstrip("_").removeprefix(prefix)
        return Node(op, name, entries, attrs, tuple(specs), like.labels, like.site)

    return call_of


class Written(FormulaValue):
    """A value of the graph of a formula, or of gradients."""

    __slots__ = ("call_of", "entry")

    context: Any = None  # that of the graph, which lies on one device

    def __init__(self, entry: Entry, call_of: CallMaker):
        self.entry = entry
        self.call_of = call_of

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return spec_of(self.entry)

    def as_in_context(self, ctx: Any) -> Written:
        return self

    def __neg__(self) -> Any:
        return self * -1.0  # type: ignore[operator]  # as a Symbol

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        call_of = inputs[0].call_of
        node = call_of(op, tuple([None if x is None else x.entry for x in inputs]), attrs)
        found = [Written((node, i), call_of) for i in range(node.n_outputs)]
        return found[0] if len(found) == 1 else found
