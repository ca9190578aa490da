"""Values on which a formula is computed: with arrays, with shapes alone, and with a history.

The formula of a composed op (`composed.py`) is a function of values. The kind of the values decides
what a call of the formula gives:

- `Local`: the result on arrays, one primitive after the other (`interpret`);
- `Sketch`: the shape and dtype of the result (`infer_by_formula`);
- `Taped`: the gradients of the inputs (`pull_back`), from the rules of the primitives;
- `Written`: the graph of the formula (`graph/lower.py`).

>>> import numpy as np
>>> from d2lmini.ops.core import Spec, registry
>>> softmax = registry["softmax"]
>>> infer_by_formula(softmax, [Spec((2, 3), "float32")], softmax.defaults)
[Spec((2, 3), float32)]
>>> interpret(softmax, np, [np.array([1.0, 1.0])], softmax.defaults)
[array([0.5, 0.5])]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.ops.core import Op, Spec, as_specs, registry
from d2lmini.ops.fluent import Fluent, Typed
from d2lmini.ops.in_float32 import needs_copies, widened
from d2lmini.ops.kernels import kind_of


class FormulaValue(Typed, Fluent):
    """What formulas compute with: the operators and methods of arrays and Symbols."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Any:
        """The elements in another shape; see the op."""
        return registry["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The value in `dtype`: itself, if it has that dtype and `copy` is False."""
        if not copy and self._spec.dtype == dtype:
            return self
        return registry["cast"](self, dtype=dtype)

    def expand_dims(self, axis: int) -> Any:
        """A new axis of size 1."""
        return registry["expand_dims"](self, axis)


def results_of(op: Op, values: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """The results of an op's formula on these values."""
    found = op.formula(*values, **attrs)
    return list(found) if isinstance(found, (tuple, list)) else [found]


# -- shapes ----------------------------------------------------------------------------------------


class Sketch(FormulaValue):
    """A value of which only shape and dtype are known."""

    __slots__ = ("_spec",)

    def __init__(self, spec: Spec):
        self._spec = spec

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        specs: list[Any] = [None if x is None else x._spec for x in inputs]
        found = [Sketch(spec) for spec in as_specs(op.infer(*specs, **attrs))]
        return found[0] if len(found) == 1 else found


def infer_by_formula(op: Op, specs: Sequence[Spec | None], attrs: dict) -> list[Spec]:
    """The specs of the results of an op's formula, by the rules of its primitives."""
    values = [None if spec is None else Sketch(spec) for spec in specs]
    return [y._spec for y in results_of(op, values, attrs)]


def rounded_specs(op: Op, specs: Sequence[Spec | None], attrs: dict) -> list[Spec]:
    """The same of a formula that is computed in float32: its outputs have the op's own dtypes."""
    wide = [spec and Spec(spec.shape, widened(op, spec.dtype)) for spec in specs]
    outputs = as_specs(op.infer(*specs, **attrs))  # type: ignore[arg-type]
    return [*outputs, *infer_by_formula(op, wide, attrs)[len(outputs) :]]


# -- interpreting ----------------------------------------------------------------------------------


class Local(FormulaValue):
    """An array inside an op: the values on which a formula is interpreted."""

    __slots__ = ("array", "xp")

    def __init__(self, xp: Any, array: Any):
        self.xp = xp
        self.array = array

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return Spec(self.array.shape, self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape  # type: ignore[no-any-return]

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        if op.formula is not None:
            return op.formula(*inputs, **attrs)
        xp = inputs[0].xp
        arrays = [None if x is None else x.array for x in inputs]
        result = op.kernel_for(kind_of(xp))(xp, *arrays, **attrs)
        if isinstance(result, tuple):
            return [Local(xp, xp.asarray(part)) for part in result]
        return Local(xp, xp.asarray(result))


def interpret(op: Op, xp: Any, arrays: Sequence[Any], attrs: dict) -> list[Any]:
    """The results of the formula on arrays, one primitive after the other."""
    if not needs_copies(op, [a for a in arrays if a is not None]):
        values = [None if a is None else Local(xp, a) for a in arrays]
        return [y.array for y in results_of(op, values, attrs)]
    wide = [a if a is None else a.astype(widened(op, a.dtype), copy=False) for a in arrays]
    values = [None if a is None else Local(xp, a) for a in wide]
    specs = rounded_specs(op, [a if a is None else Spec(a.shape, a.dtype) for a in arrays], attrs)
    return [
        y.array.astype(spec.dtype, copy=False)
        for y, spec in zip(results_of(op, values, attrs), specs, strict=True)
    ]


# -- differentiating -------------------------------------------------------------------------------


class Taped(FormulaValue):
    """A value whose history is recorded.

    value  the recorded value: an array or a Symbol
    tape   the calls so far, as (op, inputs, attributes, outputs)
    leads  the value depends on an input whose gradient is wanted
    g      parts of its gradient
    """

    __slots__ = ("g", "leads", "tape", "value")

    def __init__(self, value: Any, tape: list, leads: bool):
        self.value = value
        self.tape = tape
        self.leads = leads
        self.g: list[Any] = []

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return self.value._spec  # type: ignore[no-any-return]

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        if op.formula is not None:
            return op.formula(*inputs, **attrs)
        plain: tuple[Any, ...] = tuple([None if x is None else x.value for x in inputs])
        found = plain[0]._apply(op, plain, attrs)
        tape = inputs[0].tape
        leads = op.rule is not None and any([x is not None and x.leads for x in inputs])
        outputs = [Taped(y, tape, leads) for y in (found if isinstance(found, list) else [found])]
        if leads:
            tape.append((op, inputs, attrs, outputs))
        return outputs if isinstance(found, list) else outputs[0]


def pull_back(
    op: Op, gs: Sequence[Any], inputs: Sequence[Any], wanted: Sequence[bool], attrs: dict
) -> list[Any]:
    """The gradients of the `wanted` inputs of a formula, from those of its outputs."""
    tape: list = []
    sources: list[Any] = [None if x is None else Taped(x, tape, w) for x, w in zip(inputs, wanted)]
    for y, g in zip(results_of(op, sources, attrs), gs):
        y.g.append(g)
    while tape:
        called, values, own, outputs = tape.pop()
        parts = [total(y.g) for y in outputs]
        if all(part is None for part in parts):
            continue
        needs = [x is not None and x.leads for x in values]
        plain = [None if x is None else x.value for x in values]
        saved = called.saved_of(plain, [y.value for y in outputs])
        g = parts[0] if len(parts) == 1 else parts
        for x, needed, part in zip(values, needs, called.gradients(g, saved, own, needs)):
            if needed and part is not None:
                x.g.append(part)
    return [
        None if not w else x.value.zeros_like() if (g := total(x.g)) is None else g
        for x, w in zip(sources, wanted)
    ]


def total(parts: list[Any] | None) -> Any:
    """The sum of the parts of a gradient, in their order; None if there are none."""
    if parts and len(parts) > 1:
        parts[:] = [registry["elemwise_add" if len(parts) == 2 else "add_n"](*parts)]
    return parts[0] if parts else None
