"""The task of a queued op (`OpTask`): one call of an op, run by a worker.

The task collects the arrays of its inputs and computes into the memory of its outputs, or into new
memory where an output has none yet. `xp` is the module of the task's device: NumPy, or CuPy on a
GPU, where a worker only launches work on the device's stream and never waits. The kernel is the
op's own for that kind of device, or `op.compute` with that `xp`.

>>> import numpy as np
>>> from d2lmini.ops.core import registry
>>> x = np.arange(4.0)
>>> overlaps(np, registry["negative"], [x], [x])            # reads each element before writing it
False
>>> overlaps(np, registry["negative"], [x[1:]], [x[:-1]])   # reads some elements too late
True
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.device.storage import Chunk
from d2lmini.engine.core import Task, Var
from d2lmini.ndarray.plan import CallPlan, as_contents
from d2lmini.ops.chunking import split_evenly
from d2lmini.ops.core import ASSIGNING, Op, Spec
from d2lmini.ops.kernels import kind_of

#: An array: its memory, its first element (None: the array is all of the memory), its spec.
Operand = tuple[Chunk, "int | None", Spec]


class OpTask(Task):
    """One call of an op: the locations of its inputs and outputs."""

    __slots__ = ("attrs", "inputs", "op", "outputs", "plan")

    preserves_old = defers = True

    def __init__(
        self, op: Op, inputs: list[Operand], outputs: list[Operand], attrs: dict[str, Any],
        ctx: Context, plan: CallPlan, reads: tuple[Var, ...], writes: tuple[Var, ...],
    ):  # fmt: skip
        super().__init__(op.name, reads, writes, ctx, 0, plan.predicted_us)
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = attrs
        self.plan = plan

    @property
    def atomic(self) -> bool:  # type: ignore[override]
        return self.op.atomic

    @property
    def multi_step(self) -> bool:
        overwrites = self.op.mutates or self.outputs[0][0].data is not None  # few operations do
        return bool(overwrites) and not self.op.atomic

    def keeps(self, var: Var) -> bool:
        if var in self.reads:
            return True
        # The program assigns: x[:] = y. A copy, y.copyto(x), is a result like y.
        return (
            self.op.name in ASSIGNING
            and var.data is not None  # type: ignore[attr-defined]
            and (self.op.name != "_copyto" or not never_computed(self.reads[0]))
        )

    @property
    def callee(self) -> CallPlan:
        return self.plan

    def footprint(self) -> Any:
        return self.plan.cost

    def run(self) -> None:
        run_quietly(self._compute)

    def _compute(self) -> None:
        op = self.op
        xp: Any = np if self.ctx.is_cpu else device_of(self.ctx).xp
        kernel = self.plan.compute if xp is np else self.plan.kernel_on(kind_of(xp))
        arrays = [None if i is None else array_of(i) for i in self.inputs]
        single = len(self.outputs) == 1
        places: list[Any] = []
        written: list[Any] = []  # the outputs that had memory before
        for operand in self.outputs:
            chunk, _, spec = operand
            place = None  # a small result, or an array made by the op or by the GPU's module
            if chunk.data is not None:
                place = array_of(operand)
                written.append(place)
            elif xp is np and op.takes_out and (chunk.weight or not single):
                place = chunk.allocate(spec.shape, spec.dtype)
            places.append(place)
        is_complete = op.takes_out and all([place is not None for place in places])
        if is_complete and not (written and overlaps(xp, op, written, arrays)):
            if single and op.elementwise and xp is np and places[0].size >= 2 * GRAIN:
                compute_in_pieces(op, kernel, arrays, self.attrs, places[0])
            else:
                out = places[0] if single else tuple(places)
                kernel(xp, *arrays, out=out, **self.attrs)
            return
        results = kernel(xp, *arrays, **self.attrs)
        seen = arrays
        for (chunk, _, spec), place, result in zip(
            self.outputs, places, (results,) if single else results, strict=True
        ):
            if place is None:
                chunk.adopt(as_contents(xp, op.name, spec, result, seen))
                seen.append(result)
            else:
                xp.copyto(place, result, casting="same_kind")


def never_computed(var: Var) -> bool:
    """True if the value of the Var was never computed."""
    return var.error is not None and not var.error.unchanged


def array_of(operand: Operand) -> Any:
    """The operand's memory as an array of its shape, in its device's module."""
    chunk, offset, spec = operand
    data = chunk.data
    if offset is None:
        return data if data.shape == spec.shape else data.reshape(spec.shape)
    return data.reshape(-1)[offset : offset + spec.size].reshape(spec.shape)


def compute_in_pieces(
    op: Op, compute: Any, arrays: list, attrs: dict[str, Any], out: np.ndarray
) -> None:
    """Compute a pointwise op in pieces, along the first axis (or flat, where all shapes agree)."""
    if all(a.shape == out.shape or a.size == 1 for a in arrays) and out.flags.c_contiguous:
        arrays = [a.reshape(-1) for a in arrays]
        out = out.reshape(-1)
    rows = out.shape[0]
    # A single pass gains nothing from the cache, so its pieces are large and few.
    grain = 4 * GRAIN if op.ufunc else GRAIN
    parts = split_evenly(rows, min(-(-out.size // grain), rows))
    cut = [a.ndim == out.ndim and a.shape[0] == rows and rows > 1 for a in arrays]

    def piece(i: int) -> None:
        pieces = [a[parts[i]] if c else a for a, c in zip(arrays, cut)]
        compute(np, *pieces, out=out[parts[i]], **attrs)

    # An op of several passes gains from pieces that fit the cache, even on one worker.
    whole = partial(compute, np, *arrays, out=out, **attrs) if op.ufunc else None
    parallel_for(len(parts), piece, whole)


def overlaps(xp: Any, op: Op, places: list, arrays: list) -> bool:
    """True if writing results into `places` would overwrite elements of `arrays` too early.

    A pointwise op may write over an input with exactly the same memory and shape; no op may write
    over a shifted input or one of another shape."""
    for place in places:
        for array in arrays:
            if array is None or (xp is np and not np.may_share_memory(place, array)):
                continue
            begin, end = _stretch(xp, place)
            first, last = _stretch(xp, array)
            same = first == begin and place.shape == array.shape
            if first < end and begin < last and not (op.elementwise and same):
                return True
    return False


def _stretch(xp: Any, array: Any) -> tuple[int, int]:
    """The addresses between which `array` lies; arrays here are in C order."""
    begin = array.__array_interface__["data"][0] if xp is np else array.data.ptr
    return begin, begin + array.nbytes
