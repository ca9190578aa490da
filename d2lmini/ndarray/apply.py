"""How an op is applied to NDArrays: infer at the call, make the outputs, push a task, return.

This is steps 2 to 6 of an operation's road. Shape, dtype and context errors are raised here, on
the caller's thread; what can only fail while computing fails inside `OpTask.run` and is kept on
the outputs' Vars.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini import autograd, callsite, engine, random_state
from d2lmini.base import MXNetError
from d2lmini.context import Context, current_context
from d2lmini.device.devices import device_of
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.device.quiet import run_quietly
from d2lmini.device.storage import Chunk, check_there, pool_of
from d2lmini.engine.budget import Handle
from d2lmini.engine.core import Task, Var
from d2lmini.ndarray.compute import adopt, compute_there
from d2lmini.ndarray.plan import Plan, plan_of
from d2lmini.ndarray.short import apply_small
from d2lmini.ops.core import ASSIGNING, Op, Spec, Value, modes

#: The class of the results; `NDArray` registers itself here, for it stands on this module.
Array: Any = None

Operand = tuple[Chunk, "int | None", Spec]


class OpTask(Task):
    """One call of an op: where its inputs lie, where its outputs go.

    An operand is (chunk, offset in elements or None for the whole, spec).
    """

    __slots__ = ("attrs", "inputs", "op", "outputs", "plan")

    spares = defers = True

    def __init__(
        self,
        op: Op,
        inputs: list[Operand],
        outputs: list[Operand],
        attrs: dict[str, Any],
        ctx: Context,
        plan: Plan,
    ):
        # The fields of Task, set here: a call saved on every small operation.
        self.name = op.name
        self.ctx = ctx
        self.priority = 0
        self.predicted_us = plan.predicted_us
        self.site = None
        self.cancelled = None
        self.waits = 0
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = attrs
        self.plan = plan

    @property
    def atomic(self) -> bool:  # type: ignore[override]
        return self.op.atomic

    @property
    def in_steps(self) -> bool:
        op = self.op
        if op.mutates or self.outputs[0][0].data is not None:
            return not op.atomic
        return False  # nearly every operation: its results are new

    def keeps(self, var: Var) -> bool:
        if var in self.reads:
            return True
        # Assigned to by the program, x[:] = y. What is copied, y.copyto(x), is a result like y.
        return (
            self.op.name in ASSIGNING
            and var.data is not None  # type: ignore[attr-defined]
            and (self.op.name != "_copyto" or not is_missing(self.reads[0]))
        )

    @property
    def cost(self) -> Any:
        """Predicted FLOPs and bytes."""
        return self.plan.cost()

    def footprint(self) -> Any:
        return self.plan.cost

    def run(self) -> None:
        run_quietly(self._compute)

    def _compute(self) -> None:
        arrays = [None if i is None else array_of(i) for i in self.inputs]
        op = self.op
        if not self.ctx.is_cpu:
            xp = device_of(self.ctx).xp
            if xp is not np:
                places = [None if o[0].data is None else array_of(o) for o in self.outputs]
                compute_there(xp, op, arrays, self.attrs, self.outputs, places)
                return
        if len(self.outputs) == 1:
            chunk, _, spec = self.outputs[0]
            if chunk.data is None and not (chunk.weight and op.takes_out):
                # A small result, or one the op makes itself.
                adopt(np, op, chunk, spec, op.compute(np, *arrays, **self.attrs), arrays)
                return
        compute_into(op, arrays, self.attrs, self.outputs)


def is_missing(var: Var) -> bool:
    """Was its value never computed?"""
    return var.error is not None and not var.error.unchanged


def array_of(operand: Operand) -> Any:
    """The operand's memory as an array of its shape, of its device's module."""
    chunk, offset, spec = operand
    data = chunk.data
    if offset is None:
        return data if data.shape == spec.shape else data.reshape(spec.shape)
    return data.reshape(-1)[offset : offset + spec.size].reshape(spec.shape)


def compute_into(op: Op, arrays: list, attrs: dict[str, Any], outputs: list[Operand]) -> None:
    """Compute into given places, or into fresh memory where there is none yet."""
    places = []
    for operand in outputs:
        chunk, _, spec = operand
        fresh = chunk.data is None
        places.append(chunk.allocate(spec.shape, spec.dtype) if fresh else array_of(operand))
    single = len(places) == 1
    if op.takes_out and not _clash(op, places, arrays):
        if single and op.elementwise and places[0].size >= 2 * GRAIN:
            compute_in_pieces(op, arrays, attrs, places[0])
        else:
            op.compute(np, *arrays, out=places[0] if single else tuple(places), **attrs)
        return
    results = op.compute(np, *arrays, **attrs)
    for place, result in zip(places, (results,) if single else results, strict=True):
        np.copyto(place, result, casting="same_kind")


def compute_in_pieces(op: Op, arrays: list, attrs: dict[str, Any], out: np.ndarray) -> None:
    """A pointwise op, cut along the first axis (or flat, where all shapes agree)."""
    if all(a.shape == out.shape or a.size == 1 for a in arrays) and out.flags.c_contiguous:
        arrays = [a.reshape(-1) for a in arrays]
        out = out.reshape(-1)
    rows = out.shape[0]
    # One pass gains nothing from the cache, so its pieces are large and few.
    grain = 4 * GRAIN if op.ufunc else GRAIN
    n = min(-(-out.size // grain), rows)
    cut = [a.ndim == out.ndim and a.shape[0] == rows and rows > 1 for a in arrays]

    def piece(i: int) -> None:
        part = slice(i * rows // n, (i + 1) * rows // n)
        op.compute(
            np, *(a[part] if c else a for a, c in zip(arrays, cut, strict=True)),
            out=out[part], **attrs,
        )  # fmt: skip

    def whole() -> None:
        op.compute(np, *arrays, out=out, **attrs)

    # An op of several passes gains from pieces that fit the cache even when nobody helps.
    parallel_for(n, piece, whole if op.ufunc else None)


def _clash(op: Op, places: list, arrays: list) -> bool:
    """Would writing the result destroy what is still to be read? A pointwise op may write over an
    input it reads at the very same places, no op over one that is shifted or of another shape."""
    for place in places:
        for array in arrays:
            if array is not None and np.may_share_memory(place, array):
                same = (
                    place.__array_interface__["data"] == array.__array_interface__["data"]
                    and place.shape == array.shape
                )
                if not (op.elementwise and same):
                    return True
    return False


def wrap(chunk: Chunk, spec: Spec, ctx: Context) -> Any:
    """An NDArray on the whole of `chunk`."""
    array = Array.__new__(Array)
    array._chunk = chunk
    array._handle = Handle(chunk) if chunk.weight else None
    array._offset = None
    array._spec = spec
    array._ctx = ctx
    array._node = None
    return array


def apply(
    op: Op, inputs: tuple, attrs: dict[str, Any], out: Any, ctx: Context | None = None
) -> Any:
    """Apply `op` to NDArrays, by the short road if it leads there; one NDArray or a list."""
    if out is None and inputs and type(inputs[0]) is Array:
        result = apply_small(inputs[0], op, inputs, attrs)
        if result is not None:
            return result
    return push_op(op, inputs, attrs, out, ctx)


def push_op(
    op: Op, inputs: tuple, attrs: dict[str, Any], out: Any, ctx: Context | None = None
) -> Any:
    """Apply `op` by a task; the results as one NDArray or a list."""
    operands: list[Any] = []
    reads = []
    specs = []
    for x in inputs:
        if x is None:
            operands.append(None)
            continue
        if not isinstance(x, Array):
            if isinstance(x, Value):  # a traced value, which takes the arrays into its graph
                return x._apply(op, inputs, attrs, out)
            raise _not_an_array(op, x)
        operands.append((x._chunk, x._offset, x._spec))
        reads.append(x._chunk)
        specs.append(x._spec)
        if ctx is None:
            ctx = x._ctx
        elif x._ctx is not ctx and not (ctx.is_cpu and x._ctx.is_cpu):
            raise MXNetError(
                f"{op.name}: inputs are on {ctx} and {x._ctx}; move one with .as_in_context({ctx})"
            )
    ctx = ctx or current_context()
    plan = plan_of(op, specs, attrs)
    inferred = plan.outputs
    if op.injects:
        attrs = dict(attrs)
        if op.random:
            attrs["rng"] = random_state.next_key(ctx)
        if "training" in op.injects:
            attrs["training"] = modes.training
    shown = len(inferred)
    if shown > 1 and callable(op.outputs):
        # The others are for backward alone: BatchNorm's mean and deviation.
        shown = op.outputs(**attrs)
    pool = reads[0].pool if reads else pool_of(ctx)
    site = None
    if out is None:
        outs = [wrap(Chunk(pool, spec.nbytes), spec, ctx) for spec in inferred]
    else:
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        _check_out(op, outs, inferred[:shown], ctx)
        if modes.recording:
            autograd.check_in_place(op, inputs, outs, all(is_whole(o) for o in outs))
        site = note_writes(outs)
        outs += [wrap(Chunk(pool, spec.nbytes), spec, ctx) for spec in inferred[shown:]]
    outputs = [(o._chunk, o._offset, o._spec) for o in outs]

    task = OpTask(op, operands, outputs, attrs, ctx, plan)
    writes = [o._chunk for o in outs]
    if op.mutates:
        positions = op.mutates
        if type(positions) is not tuple:
            positions = positions(len(inputs), attrs)
        mutated = [inputs[i] for i in positions]
        if modes.recording:
            autograd.check_in_place(op, (), mutated, False)
        site = note_writes(mutated)
        writes += [x._chunk for x in mutated]
    if out is not None:
        # Only a whole chunk is overwritten; a part of one is changed in place.
        reads += [o._chunk for o in outs if not is_whole(o)]
    task.site = site
    task.reads = tuple(reads)
    task.writes = tuple(writes)
    if not ctx.is_cpu:
        check_there(reads + writes)
    engine.current.push(task)
    if modes.recording:
        for x in inputs:
            if x is not None and x._node is not None:
                autograd.recorded(op, inputs, attrs, outs)
                break
    return outs[0] if shown == 1 else outs[:shown]


def is_whole(x: Any) -> bool:
    """Is `x` all of its chunk?"""
    return x._offset is None and x._spec.nbytes == x._chunk.nbytes


def note_writes(arrays: list) -> callsite.Site | None:
    """Existing arrays are about to be written: autograd may want to know where, and by whom."""
    site = callsite.find()
    for x in arrays:
        begin = x._offset or 0
        x._chunk.note_write(begin, begin + x._spec.size, site)
    return site


def _check_out(op: Op, outs: list, inferred: Any, ctx: Context) -> None:
    if len(outs) != len(inferred):
        raise MXNetError(f"{op.name}: gives {len(inferred)} outputs, out= has {len(outs)}")
    for x, spec in zip(outs, inferred, strict=True):
        if not isinstance(x, Array):
            raise TypeError(f"{op.name}: out= takes NDArrays, got {type(x).__name__}")
        if x._spec.shape != spec.shape:
            raise MXNetError(f"{op.name}: out= has shape {x._spec.shape}, result is {spec.shape}")
        if x._spec.dtype != spec.dtype:
            raise MXNetError(
                f"{op.name}: out= has dtype {x._spec.dtype.name}, result is {spec.dtype.name}"
            )
        if x._ctx.is_cpu is not ctx.is_cpu or not (ctx.is_cpu or x._ctx is ctx):
            raise MXNetError(f"{op.name}: out= is on {x._ctx}, the inputs are on {ctx}")


def _not_an_array(op: Op, x: Any) -> TypeError:
    hint = "; make an NDArray of it with nd.array(...)" if hasattr(x, "__len__") else ""
    return TypeError(f"{op.name}: expected NDArrays, got {type(x).__name__}{hint}")
