"""Optimizer updates of all parameters at once: one task in place of one per parameter.

A net has tens of parameters, most of them tiny. A separate operation for each costs more in pushing
than in computing. Large parameters gain when their chunks stay in the cache between the few passes
of a formula, and when all cores share them. So the optimizers push a single `_fused_update`: a list
of steps, each an op of `update` or `update_adaptive` with its attributes, and the arrays of all
steps in sequence. It processes chunks whose boundaries depend on sizes alone.

    steps   [Step(sgd_mom_update, {"lr": 0.1, "momentum": 0.9}), Step(sgd_mom_update, ...)]
    data    weight0, grad0, mom0, weight1, grad1, mom1

The `preloaded_multi_` ops are MXNet's own ops of this kind; LARS uses them.

>>> from d2lmini import nd
>>> w, lrs, wds = [nd.ones(2), nd.ones(3)], nd.array([0.5, 1]), nd.zeros(2)
>>> _ = nd.preloaded_multi_sgd_update(w[0], nd.ones(2), w[1], nd.ones(3), lrs, wds, num_weights=2,
...                                   out=w)
>>> w[1]
<BLANKLINE>
[0. 0. 0.]
<NDArray 3 @cpu(0)>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.ops.checks import check_shapes
from d2lmini.ops.core import Op, Spec, op, registry
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.signature import Signature, signature_of, with_signature
from d2lmini.ops.update import Step, bind

#: Elements of a block: all arrays of a step and its temporaries stay in the L2 cache.
BLOCK = 1 << 16


class UpdateStep(NamedTuple):
    """One parameter's update: the op (elementwise, changing its states in place) and attributes."""

    op: Op
    attrs: dict[str, Any]

    @property
    def width(self) -> int:
        """Number of arrays that the step takes."""
        return len(self.op.input_names)


def pieces_of(sizes: Sequence[int], grain: int = GRAIN) -> list[list[tuple[int, int, int]]]:
    """Split arrays of these sizes into chunks of at most about `grain` elements; small arrays share
    a chunk. Each chunk is a list of (array, begin, end).

    >>> pieces_of([10, 1, 2], grain=4)
    [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 10)], [(1, 0, 1), (2, 0, 2)]]
    """
    pieces: list[list[tuple[int, int, int]]] = []
    together: list[tuple[int, int, int]] = []
    room = grain
    for i, size in enumerate(sizes):
        if size >= grain:
            n = -(-size // grain)
            pieces += [[(i, size * k // n, size * (k + 1) // n)] for k in range(n)]
            continue
        if size > room:
            pieces.append(together)
            together, room = [], grain
        together.append((i, 0, size))
        room -= size
    return [*pieces, together] if together else pieces


def over_pieces(arrays: Sequence[Any], body: Callable[[int, int, int], None]) -> None:
    """Call body(array, begin, end) for all chunks of these arrays, on all cores."""
    pieces = pieces_of([a.size for a in arrays])

    def chunk(k: int) -> None:
        for piece in pieces[k]:
            body(*piece)

    parallel_for(len(pieces), chunk)


@with_kernels
def run(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple], outs: Sequence[Any]) -> None:
    """Run all steps, in blocks, on all cores. groups: the arrays of each step, weight first;
    outs: the destination of each new weight."""
    if xp is not np:
        run.kernels[kind_of(xp)](xp, steps, groups, outs)
        return
    updates: list[Step] = []
    for i, step in enumerate(steps):
        dtype = outs[i].dtype
        if i and step == steps[i - 1] and dtype == outs[i - 1].dtype:
            updates.append(updates[-1])
        else:
            updates.append(bind(step.op, xp, dtype, step.attrs))

    def body(i: int, begin: int, end: int) -> None:
        arrays = (*groups[i], outs[i])
        if end - begin == outs[i].size <= BLOCK and outs[i].ndim:
            updates[i](*arrays)
            return
        flat = [a.reshape(-1) for a in arrays]
        for at in range(begin, end, BLOCK):
            updates[i](*[a[at : min(at + BLOCK, end)] for a in flat])

    over_pieces(outs, body)


def groups_of(steps: Sequence[UpdateStep], data: Sequence[Any]) -> list[tuple]:
    """The arrays of each step."""
    groups, at = [], 0
    for step in steps:
        width = step.width
        groups.append(tuple(data[at : at + width]))
        at += width
    return groups


# -- used by the optimizers ------------------------------------------------------------------------


def _written(n: int, attrs: dict[str, Any]) -> list[int]:
    """Weights, and what the ops of the steps change."""
    positions, at = [], 0
    for step in attrs["steps"]:
        positions += [at, *(at + i for i in step.op.mutates)]
        at += step.width
    return positions


def _infer_steps(*data: Spec, steps: Sequence[UpdateStep], **_attrs: Any) -> tuple:
    """No output, if each step's arrays are as its op needs them. (A plan depends on the ops of the
    steps, too, so this is checked once per plan.)"""
    expected = sum(step.width for step in steps)
    if expected != len(data):
        raise MXNetError(
            f"the updates take {expected} arrays, got {len(data)}: an optimizer's states were made "
            "with other settings, as momentum or multi_precision; make a new Trainer to change them"
        )
    for step, specs in zip(steps, groups_of(steps, data)):
        step.op.infer(*specs)
    return ()


@op(infer=_infer_steps, outputs=0, mutates=_written, flops=0, grad=None)
def _fused_update(xp, *data, steps):
    """Run each of `steps` in place, on its arrays; no output."""
    groups = groups_of(steps, data)
    run(xp, steps, groups, [arrays[0] for arrays in groups])
    return ()


# -- MXNet's ops -----------------------------------------------------------------------------------


def _declare(rule: Op) -> None:
    """`preloaded_multi_RULE`: the rule on many weights. Rates and decays are the two last arrays,
    which need not be computed yet (see `multi_lars`)."""
    own = signature_of(rule.compute).without("lr", "wd", "lazy_update", "out")
    width = len(own.inputs)
    signature = Signature(
        ("data",), (*own.words, "num_weights", "out"), {**own.defaults, "num_weights": 1},
        {**own.annotations, "num_weights": "int"}, variadic=True,
    )  # fmt: skip

    def infer(*data: Spec, num_weights: int, **_attrs: Any) -> list[Spec]:
        """The outputs of `rule` on each of the weights; then two arrays, lrs and wds."""
        n = width * num_weights + 2
        if len(data) != n:
            raise MXNetError(f"num_weights={num_weights} weights take {n} arrays, got {len(data)}")
        check_shapes((num_weights,), why="a number a weight", lrs=data[-2], wds=data[-1])
        return [rule.infer(*data[i * width : (i + 1) * width]) for i in range(num_weights)]

    def states(n: int, attrs: dict[str, Any]) -> list[int]:
        return [i for i in range(n - n % width) if i % width > 1]

    def names(attrs: dict[str, Any]) -> list[str]:
        each = [f"{what}_{i}" for i in range(attrs["num_weights"]) for what in own.inputs]
        return [*each, "lrs", "wds"]

    @op(
        f"preloaded_multi_{rule.name}", infer=infer,
        outputs=lambda *, num_weights, **_: num_weights,
        mutates=states if width > 2 else (), elementwise=True, flops=rule.flops, grad=None,
        counted_inputs=names, symbolic=rule.name != "sgd_mom_update", free_dtypes=("data",),
    )  # fmt: skip
    @with_signature(
        signature, f"`{rule.name}` of ({', '.join(own.inputs)}) ..., lrs, wds; the new weights."
    )
    def _(xp, *data, num_weights=1, out=None, **attrs):
        *arrays, lrs, wds = data
        if xp is np:
            lrs, wds = map(float, lrs), map(float, wds)
        steps = [
            UpdateStep(rule, {**attrs, "lr": lr, "wd": wd}) for lr, wd in zip(lrs, wds, strict=True)
        ]
        groups = groups_of(steps, arrays)
        outs = [xp.empty_like(group[0]) for group in groups] if out is None else out
        run(xp, steps, groups, outs if isinstance(outs, (tuple, list)) else (outs,))
        return outs


for _name in ("sgd_update", "sgd_mom_update", "mp_sgd_update", "mp_sgd_mom_update"):
    _declare(registry[_name])


def _one_factor(factor: Spec, *data: Spec) -> tuple:
    if factor.size != 1:
        raise MXNetError(f"the factor is an array of size 1, got shape {factor.shape}")
    return ()


@op(infer=_one_factor, outputs=0, mutates=lambda n, attrs: range(1, n), flops=0, grad=None)
def _scale_arrays(xp, *data):
    """Multiply all arrays but the first, in place, by the first, which has one element; no output.
    `gluon.utils.clip_global_norm` clips gradients to a common norm with this op."""
    factor, *arrays = data
    flat = [a.reshape(-1) for a in arrays]

    def scale(x: Any) -> None:
        x *= factor.reshape(-1).astype(x.dtype, copy=False)

    if xp is not np:
        for x in flat:
            scale(x)
        return ()
    over_pieces(flat, lambda i, begin, end: scale(flat[i][begin:end]))
    return ()
