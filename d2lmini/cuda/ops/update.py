"""Optimizer steps on a GPU: one launch for all parameters whose steps have the same formula."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from d2lmini.cuda.kernels import updates
from d2lmini.ops.symbolic import NotTraceable
from d2lmini.ops.update import bind
from d2lmini.ops.update_multi import UpdateStep, run


@run.kernel("cuda")
def _(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple], outs: Sequence[Any]) -> None:
    """On a GPU: steps that differ only in their arrays are one launch."""
    in_place = []
    for (weight, *others), out in zip(groups, outs, strict=True):
        if out is not weight:
            xp.copyto(out, weight)
        in_place.append((out, *others))
    for members, name, formula in _launches(steps, in_place):
        if formula is not None:
            updates.update(xp, name, formula, [in_place[i] for i in members])
            continue
        for i in members:
            weight, *others = in_place[i]
            bind(steps[i].op, xp, weight.dtype, steps[i].attrs)(weight, *others, weight)


def _launches(
    steps: Sequence[UpdateStep], groups: Sequence[Sequence[Any]]
) -> list[tuple[list[int], str, Any]]:
    """The steps of each launch, the kernel's name and formula. The formula is None if a number is
    an array, or a decision depends on one."""
    alike: dict[Any, list[int]] = {}
    for i, (step, arrays) in enumerate(zip(steps, groups, strict=True)):
        ordered = all(a.flags.c_contiguous for a in arrays)
        numbers = all(isinstance(v, (int, float)) for v in step.attrs.values())
        attrs = tuple(step.attrs.items()) if ordered and numbers else i
        alike.setdefault((step.op, tuple(a.dtype for a in arrays), attrs), []).append(i)
    launches = []
    for (rule, dtypes, _), members in alike.items():
        formula = None
        with suppress(NotTraceable):
            formula = updates.Formula(rule.compute, steps[members[0]].attrs, dtypes)
        launches.append((members, rule.name.strip("_"), formula))
    return launches
