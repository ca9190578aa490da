"""Where the bytes of a training step are: predicted from shapes, and measured.

>>> from d2lmini import autograd, d2l, gluon, nd
>>> net, loss = gluon.nn.Dense(10, in_units=100), gluon.loss.L2Loss()
>>> net.initialize()
>>> trainer = gluon.Trainer(net.collect_params(), "adam")
>>> def step(X, y):
...     with autograd.record():
...         l = loss(net(X), y)
...     l.backward()
...     trainer.step(X.shape[0])
>>> X, y = nd.ones((8, 100)), nd.ones((8, 10))
>>> predicted = d2l.predict_memory(step, X, y, net=net)
>>> measured = d2l.measure_memory(step, X, y, net=net)
>>> print(predicted.compare(measured))
bytes at the peak        predicted      measured  difference
weights                      4,040         4,040      +0.0 %
gradients                    4,040         4,040      +0.0 %
optimizer state              8,080         8,080      +0.0 %
inputs                       3,520         3,520      +0.0 %
activations                    352           352      +0.0 %
temporaries                    352           352      +0.0 %
peak                        20,384        20,384      +0.0 %
issued by the step             704           704      +0.0 %

`predict_memory` walks through the step with arrays that have a shape and no memory, so it predicts
steps that would not fit; `measure_memory` runs the step. Both ask `trace.memory()` about a step in
the middle of training: the optimizer has made its states.

    activations   what operations within `autograd.record` computed and something still needs:
                  backward, or a variable of the program
    temporaries   what backward or the optimizer computes on its way, and the intermediate results
                  of compiled programs

The engine runs each operation at its push for both, so the figures do not depend on the machine.
What asynchrony adds comes on top, in the last line: so many bytes of results can be pending for
each step that the program runs ahead of the workers.

In a dry run a program runs, and its operations do not. Shapes and dtypes are known before an
operation runs (`Op.infer`), and so is which values backward needs (`Op.keeps`) and when Python
drops an array. So the engine of a dry run gives each result a size and no memory, and skips the
computation. The tape, the gradient rules, the compiler and the trace are the real ones. A value
that the program reads is 1. PyTorch has the same idea as its device "meta", JAX as
`jax.eval_shape`.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2lmini import engine, initializer, optimizer
from d2lmini import ndarray as nd
from d2lmini.base import MXNetError, instrument
from d2lmini.base.scopes import contextmanager
from d2lmini.context import Context, current_context
from d2lmini.device import storage
from d2lmini.device.devices import list_named
from d2lmini.device.storage import SMALL, Chunk, Pool, pool_of, settle
from d2lmini.engine.core import Task, lock
from d2lmini.engine.engine import NaiveEngine
from d2lmini.gluon.parameter import arrays
from d2lmini.gluon.utils import shape_is_known
from d2lmini.graph.plan import MOST_KEPT
from d2lmini.graph.program import ProgramTask
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.compute import Operand, OpTask
from d2lmini.ops import random_state
from d2lmini.profiler import profile

#: The rows of the table, from what stays to what goes first.
ROWS = ("weights", "gradients", "optimizer state", "inputs", "activations", "temporaries")

#: Steps in which the optimizer must have updated the weights.
MOST_STEPS = 25


@dataclass(frozen=True)
class StepMemory:
    """The memory of a training step on its device.

    rows          the bytes of each of ROWS when most bytes are in use
    issued_bytes  results of all operations of the step: so many bytes can be pending for each step
                  that the program runs ahead
    flops         arithmetic of the step
    """

    ctx: Context
    rows: dict[str, int]
    issued_bytes: int
    flops: float

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use at once."""
        return sum(self.rows.values())

    def compare(self, measured: StepMemory) -> str:
        """A table of this prediction and a measurement, line by line."""
        lines = [f"{'bytes at the peak':<20}{'predicted':>14}{'measured':>14}{'difference':>12}"]
        for (name, nbytes), other in zip(self._lines().items(), measured._lines().values()):
            off = f"{100 * (nbytes - other) / other:+.1f} %" if other else ""
            lines.append(f"{name:<20}{nbytes:>14,}{other:>14,}{off:>12}".rstrip())
        return "\n".join(lines)

    def _lines(self) -> dict[str, int]:
        return {**self.rows, "peak": self.peak_bytes, "issued by the step": self.issued_bytes}


def predict_memory(step: Callable[..., object], *inputs: Any, net: Any) -> StepMemory:
    """Predict the memory of `step(*inputs)` from shapes; no operation runs, no array changes.

    step    one step of training: forward, backward, and the Trainer's step if there is one
    inputs  NDArrays, NumPy arrays, or shapes (float32)
    net     the Block that the step trains. Its arrays may be missing (deferred initialization): so
            a net that does not fit into memory can be asked about

    MXNetError for a net on several devices or a Trainer with a KVStore."""
    ctx = _device_of(net)
    with dry_run(), _without_arrays(net, ctx):
        return _observe(step, [_zeros(x, ctx) for x in inputs], net, ctx)


def measure_memory(step: Callable[..., object], *inputs: Any, net: Any) -> StepMemory:
    """Measure the memory of `step(*inputs)`, run after one that made the optimizer's states.

    The arguments are those of `predict_memory`; a shape stands for an array of zeros. Arrays that
    existed before the call and belong neither to the net nor to its Trainer do not count."""
    ctx = _device_of(net)
    given = [x if isinstance(x, NDArray) else _zeros(x, ctx) for x in inputs]
    with engine.use("naive"):
        return _observe(step, given, net, ctx)


def _observe(
    step: Callable[..., object], given: list[NDArray], net: Any, ctx: Context
) -> StepMemory:
    """Run steps until the optimizer has made its states, and ask a trace about the next one."""
    inputs_nbytes = _nbytes(given)
    gc.collect()  # arrays of older nets must not die in the step that is observed
    others = storage.stats(ctx).live - sum(_held(net, ctx).values()) - inputs_nbytes
    for _ in range(MOST_STEPS):
        step(*given)
        if all(trainer._updaters[0].states for trainer in _trainers_of(net)):
            break  # mixed precision skips steps until it has found a scale for the loss
    gc.collect()
    held = _held(net, ctx)
    with profile() as trace:
        step(*given)
    report = trace.memory()[ctx]
    rows = {}
    for role in ROWS[:3]:
        rows[role] = report.roles[role] - report.begin_roles[role] + held[role]
    rows["inputs"], rows["activations"] = inputs_nbytes, report.roles["activations"]
    rows["temporaries"] = report.peak_bytes - others - sum(rows.values())
    results = {serial for op in trace.operations for serial in op.writes}
    issued = sum(c.nbytes for c in trace.memory if c.nbytes > 0 and c.serial in results)
    return StepMemory(ctx, rows, issued, sum(row.flops for row in trace.summary().rows))


# -- what a net and its Trainer hold ---------------------------------------------------------------


def _device_of(net: Any) -> Context:
    """The device of the net's parameters."""
    params = net.collect_params().values()
    made = [p for p in params if p._data is not None or p._deferred_init]
    contexts = {ctx for p in made for ctx in p.list_ctx()}
    if len(contexts) > 1:
        raise MXNetError(f"the memory of a step is known for nets on one device, not {contexts}")
    return contexts.pop() if contexts else current_context()


def _trainers_of(net: Any) -> list[Any]:
    """The Trainers that update parameters of the net; MXNetError for one with a KVStore."""
    found = {id(p._trainer): p._trainer for p in net.collect_params().values() if p._trainer}
    if any(trainer._kvstore is not None for trainer in found.values()):
        raise MXNetError("the memory of a step is known with gluon.Trainer(..., kvstore=None)")
    return list(found.values())


@contextmanager
def _without_arrays(net: Any, ctx: Context) -> Iterator[None]:
    """A scope in which the net has arrays of the dry run, and its Trainers make new states. At its
    end parameters, Trainers and optimizers are as they were."""
    params = list(net.collect_params().values())
    trainers = _trainers_of(net)
    before = [(thing, dict(vars(thing))) for thing in (*params, *trainers)]
    try:
        for p in params:
            p._data = p._grad = p._one = None
            p._deferred_init = (initializer.Zero(), [ctx], initializer.Zero(), None)
            if shape_is_known(p.shape):
                p._finish_deferred_init()
        for trainer in trainers:
            trainer._optimizer = _copy_of(trainer._optimizer)
            trainer._updaters = [optimizer.get_updater(trainer._optimizer)]
            trainer._contexts = [ctx]
            if trainer._amp_loss_scaler is not None:
                trainer._amp_loss_scaler = copy.copy(trainer._amp_loss_scaler)
        yield
    finally:
        deferred = [thing for thing, attributes in before if attributes.get("_deferred_init")]
        for thing, attributes in before:
            vars(thing).clear()
            vars(thing).update(attributes)
        if deferred:  # what was compiled would not make these arrays at the next call
            net.apply(lambda block: getattr(block, "_clear_cached_op", int)())
        arrays.now = object()  # compiled nets look their arrays up again


def _copy_of(original: Any) -> Any:
    """An optimizer with counts and a schedule of its own."""
    copied = copy.copy(original)
    copied.lr_scheduler = copy.copy(original.lr_scheduler)
    copied._all_index_update_counts = {0: {}}
    copied._index_update_count = copied._all_index_update_counts[0]
    return copied


def _held(net: Any, ctx: Context) -> dict[str, int]:
    """The bytes that a net and its Trainers hold between steps, by role."""
    params = list(net.collect_params().values())
    return {
        "weights": _nbytes(p._data for p in params),
        "gradients": _nbytes(p._grad for p in params),
        "optimizer state": _nbytes(t._updaters[0].states.values() for t in _trainers_of(net)),
        "programs": _arena_bytes(net, ctx),
    }


def _arena_bytes(net: Any, ctx: Context) -> int:
    """The memory that compiled programs of the net keep between calls."""
    found: list[Any] = []
    net.apply(lambda block: found.append(vars(block).get("forward")))
    return sum(forward.cache.arenas(ctx).nbytes for forward in found if hasattr(forward, "cache"))


def _nbytes(nested: Any) -> int:
    """The bytes of all arrays in nested lists."""
    return sum(chunk.nbytes for chunk in {x._chunk for x in _flat(nested)})


def _flat(nested: Any) -> Iterator[NDArray]:
    if isinstance(nested, NDArray):
        yield nested
    elif nested is not None:
        for item in nested:
            yield from _flat(item)


def _zeros(x: Any, ctx: Context) -> NDArray:
    """Zeros in place of an input, which may be a shape."""
    is_shape = isinstance(x, (tuple, list))
    return nd.zeros(x if is_shape else x.shape, ctx, "float32" if is_shape else x.dtype)


# -- a dry run -------------------------------------------------------------------------------------


class DryRun(NaiveEngine):
    """The engine of a dry run. Each task that this thread pushes ends at once without a result."""

    kind = "dry"

    def __init__(self, outer: engine.Engine) -> None:
        super().__init__()
        self._outer = outer
        self._thread = threading.get_ident()
        self._arenas: defaultdict[Any, list[Chunk]] = defaultdict(list)

    def push(self, task: Task) -> None:
        if threading.get_ident() != self._thread:
            self._outer.push(task)
            return
        for var in task.writes:
            if isinstance(var, Chunk) and var.data is None:
                var.pool = pool_of(var.pool.ctx)
        super().push(task)

    def _run_task(self, task: Task) -> None:
        for chunk, _, spec in _outputs_of(task):
            if chunk.data is None:
                chunk.data = np.broadcast_to(np.ones((), spec.dtype), spec.shape)
                _count(chunk)
        if isinstance(task, ProgramTask) and task.program.arena_nbytes:
            self._take_arena(task)

    def _take_arena(self, task: ProgramTask) -> None:
        """A program takes an arena and gives it back, as `graph.arena.Arenas` does."""
        arenas, nbytes = task.program.arenas, task.program.arena_nbytes
        free, most = self._arenas[arenas], arenas._most
        arena = free.pop() if nbytes <= most and free else None
        if arena is None or arena.nbytes < nbytes:
            arena = Chunk(pool_of(task.ctx), max(nbytes, SMALL))
            arena.data = ()
            _count(arena)
        if arena.nbytes <= most and len(free) < MOST_KEPT:
            free.append(arena)


def _count(chunk: Chunk) -> None:
    """Count the bytes of `chunk`, as if it had memory, until it dies."""
    with lock:
        chunk.pool.live += chunk.nbytes
        chunk.pool.review()
        instrument.emit("alloc", chunk.pool.ctx, chunk.nbytes, chunk)


def _outputs_of(task: Task) -> Sequence[Operand]:
    """The arrays that a task writes."""
    if isinstance(task, (OpTask, ProgramTask)):
        return task.outputs
    target = getattr(task, "target", None)  # of a copy between devices
    return (target,) if isinstance(target, tuple) else ()


@contextmanager
def dry_run() -> Iterator[None]:
    """A scope in which this thread's operations are counted and not computed.

    Arrays made before the scope keep their values; arrays made in it have no values, and are of no
    use afterwards. Random streams continue after the scope as if it had not been.

    >>> with dry_run(), profile() as trace:
    ...     x = nd.ones((1000, 1000))
    ...     y = x * 2 + 1
    >>> trace.memory()[x.context].peak_bytes                       # x, x * 2, and the sum
    12000000
    """
    outer = engine.current
    outer.wait_idle("dry_run")
    settle()
    others = instrument.listeners
    for listener in others:
        instrument.remove(listener)
    pools = [(device, device.pool) for device in list_named()]
    try:
        for device, _ in pools:
            device.pool = Pool(device.ctx)
        engine.current = DryRun(outer)
        with random_state.rewound():
            yield
    finally:
        engine.current = outer
        for device, pool in pools:
            device.pool = pool
        for listener in others:
            instrument.add(listener)
