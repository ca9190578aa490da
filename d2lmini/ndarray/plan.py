"""The plan of a call: specs of its outputs and predicted time, cached per op, specs and attributes.

A program calls the same op on the same shapes again and again. Specs are interned, so a dictionary
keyed by their numbers returns the results of `op.infer` and the op's cost in a tenth of the time of
computing them again.

>>> from d2lmini.ndarray.plan import plan_of
>>> from d2lmini.ops.core import Spec, registry
>>> dot = registry["dot"]
>>> plan_of(dot, [Spec((2, 3), "float32"), Spec((3, 4), "float32")], dot.defaults).outputs
(Spec((2, 4), float32),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.storage import SMALL
from d2lmini.ops.core import Bound, Op, Spec, as_specs
from d2lmini.ops.kernels import kernel_for
from d2lmini.ops.spec import Cost

# Throughput of one core of a typical machine per microsecond, measured on arrays in its cache: the
# predicted time of a small operation decides whether a hand-over to a worker pays off. An error by
# a factor of two costs little.
CALL_US = 1.5
BYTES_PER_US = 3e4
FLOPS_PER_US = 5e3  # of elementwise functions, whose `flops` are those of a polynomial
PRODUCT_FLOPS_PER_US = 4e4  # where an op counts its own FLOPs: matrix products

#: Plans kept per op; an op with more kinds of calls drops all its plans and starts again.
MOST = 512


class CallPlan:
    """Cached facts of calls of `op` on inputs of these specs with these attributes.

    outputs       specs of the outputs, hidden ones included
    predicted_us  predicted run time
    tiny          each output takes less than 4 KiB
    simple        `dispatch.run_inline` may compute the call without a task: the op has one output,
                  mutates no input, takes no random key and no mode, and writes a result of 4 KiB or
                  more to `out`
    small         tiny and simple
    compute       that of the op, or for bfloat16 on float32 copies
    kernel        `compute` with these attributes, set once its result was a new array in C order
                  (specs and attributes alone decide whether it is, or is a view); None before
    kernels       implementations for other kinds of devices
    inputs, attrs of the first such call
    """

    no_outputs = (None,)

    __slots__ = (
        "attrs", "compute", "inputs", "kernel", "kernels", "name", "op", "outputs", "predicted_us",
        "simple", "small", "tiny", "__weakref__",
    )  # fmt: skip

    def __init__(self, op: Op, inputs: Sequence[Spec], attrs: dict[str, Any]):
        self.op = op
        self.name = op.name
        self.inputs = inputs = tuple(inputs)
        self.attrs = attrs
        self.outputs = outputs = tuple(as_specs(infer(op, inputs, attrs)))
        flops = op.count_flops(inputs, outputs, attrs)
        nbytes = sum([spec.nbytes for spec in inputs + outputs])
        rate = PRODUCT_FLOPS_PER_US if callable(op.flops) else FLOPS_PER_US
        self.predicted_us = CALL_US + max(flops / rate, nbytes / BYTES_PER_US)
        self.compute = kernel_for(op, "cpu", inputs, outputs)
        self.tiny = all([spec.nbytes < SMALL for spec in outputs])
        self.simple = op.simple and len(outputs) == 1 and (self.tiny or op.takes_out)
        self.small = self.simple and self.tiny
        self.kernel: Callable[..., Any] | None = None
        self.kernels: dict[str, Callable[..., Any]] = {}

    def run(
        self, arrays: Sequence[Any], places: Sequence[Any], attrs: dict[str, Any]
    ) -> tuple[np.ndarray]:
        """Compute the output, in its place or in new memory: what a chunk can hold, of the planned
        spec, in C order, no view of any input. If the op's result is that already, the plan keeps
        the kernel. Same interface as `Program.run`."""
        place = places[0]
        if place is not None:
            self.compute(np, *arrays, out=place, **attrs)
            return (place,)
        if self.kernel is not None:
            if type(attrs) is Bound:
                return (self.kernel(np, *arrays),)
            return (self.compute(np, *arrays, **attrs),)
        result = self.compute(np, *arrays, **attrs)
        kept = as_contents(np, self.name, self.outputs[0], result, arrays)
        if kept is result:
            is_own = self.compute is self.op.compute  # else perhaps a composed op's, with a program
            self.kernel = self._bind() if is_own else getattr(self.compute, "kernel", None)
        return (kept,)

    def _bind(self) -> Callable[..., Any]:
        """`compute` with the attributes as defaults. A call without keywords is 0.3 us faster."""
        f: Any = self.op.compute
        kernel = FunctionType(f.__code__, f.__globals__, None, f.__defaults__, f.__closure__)
        kernel.__kwdefaults__ = {**(f.__kwdefaults__ or {}), **self.attrs}
        return kernel

    def kernel_on(self, kind: str) -> Callable[..., Any]:
        """The implementation for another kind of device."""
        found = self.kernels.get(kind)
        if found is None:
            found = self.kernels[kind] = kernel_for(self.op, kind, self.inputs, self.outputs)
        return found

    def cost(self) -> Cost:
        """Predicted FLOPs and bytes of the call."""
        return self.op.cost(self.inputs, self.outputs, **self.attrs)


def as_contents(xp: Any, name: str, spec: Spec, result: Any, seen: Sequence[Any]) -> Any:
    """An op's result as a chunk can hold it: new memory in C order, no view and none of the arrays
    `seen`. A copy, unless the result is that. AssertionError for another spec than the op promised.
    """
    if not isinstance(result, xp.ndarray):
        return xp.asarray(result, spec.dtype)
    if result.shape != spec.shape or result.dtype != spec.dtype:
        raise AssertionError(f"{name} computed {result.shape} {result.dtype}, promised {spec}")
    is_own = result.base is None and result.flags.c_contiguous
    is_new = is_own and not any(result is array for array in seen)
    # Without `order` a copy of a transposed array would be in Fortran order.
    return result if is_new else xp.array(result, order="C")


def plan_of(op: Op, specs: Sequence[Spec], attrs: dict[str, Any]) -> CallPlan:
    """The plan of a call; MXNetError, prefixed with the op's name, if the call is invalid.

    Attributes that the op caches are identified by their number, which is fast; others by their
    values (`_key_of`)."""
    inputs = tuple([spec.number for spec in specs])
    kept = (attrs.number, *inputs) if type(attrs) is Bound else None
    plan: CallPlan | None = op.plans.get(kept) if kept else None
    if plan is not None:
        return plan
    key = _key_of(op, inputs, attrs)
    try:
        plan = op.plans.get(key)
    except TypeError:  # an attribute is not hashable
        return CallPlan(op, specs, attrs)
    if plan is None:
        plan = _keep(op, key, CallPlan(op, specs, attrs))
    return _keep(op, kept, plan) if kept else plan


def _key_of(op: Op, inputs: Sequence[int], attrs: dict[str, Any]) -> tuple:
    """The key of a plan. Values have their types beside them, for 1, 1.0 and True are equal but
    differ in meaning; and where there is a zero their texts, for so do 0.0 and -0.0.

    For an op without outputs the attributes cannot affect the plan, except for the ops that an
    optimizer runs; so its plan is found again at the next step, although the learning rates differ.
    """
    if op.outputs == 0:
        return *inputs, *[step.op for step in attrs.get("steps", ())]
    values = attrs.values()
    key = *inputs, *values, *map(type, values)
    return (*key, *map(str, values)) if op.signed_zeros and 0 in values else key


def _keep(op: Op, key: tuple, plan: CallPlan) -> CallPlan:
    if len(op.plans) >= MOST:
        op.plans.clear()
    op.plans[key] = plan
    return plan


def find_plan(op: Op, inputs: tuple, attrs: dict[str, Any]) -> CallPlan | None:
    """The plan of a call on these arrays, if an equal call was planned before, with attributes of
    the same spelling or of equal values."""
    n = len(inputs)
    try:
        if type(attrs) is not Bound:
            if not op.simple:  # then an early look-up saves nothing
                return None
            numbers = [x._spec.number for x in inputs] if n != 1 else (inputs[0]._spec.number,)
            return op.plans.get(_key_of(op, numbers, attrs))
        if n == 1:
            return op.plans.get((attrs.number, inputs[0]._spec.number))
        if n == 2:
            a, b = inputs
            return op.plans.get((attrs.number, a._spec.number, b._spec.number))
        if n == 3:
            a, b, c = inputs
            return op.plans.get((attrs.number, a._spec.number, b._spec.number, c._spec.number))
        return op.plans.get((attrs.number, *[x._spec.number for x in inputs]))
    except (AttributeError, TypeError):  # an input is missing; an attribute is not hashable
        return None


def infer(op: Op, specs: Sequence[Spec], attrs: dict[str, Any]) -> Any:
    """The result of `op.infer`, with errors prefixed with the op's name."""
    try:
        return op.infer(*specs, **attrs)
    except (MXNetError, ValueError, OverflowError) as problem:
        text = str(problem)
        raise MXNetError(text if text.startswith(op.name) else f"{op.name}: {text}") from None
