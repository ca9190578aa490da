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
    ordered = [all(a.flags.c_contiguous for a in (*arrays, out))
               for arrays, out in zip(groups, outs, strict=True)]  # fmt: skip
    for members, name, formula in _launches(steps, groups, outs, ordered):
        if formula is None:
            for i in members:
                step = bind(steps[i].op, xp, outs[i].dtype, steps[i].attrs)
                step(*groups[i], outs[i])
            continue
        parts = [groups[i] for i in members], [outs[i] for i in members]
        updates.update(xp, name, formula, *parts)


def _launches(
    steps: Sequence[UpdateStep], groups: Sequence[Sequence[Any]], outs: Sequence[Any],
    ordered: Sequence[bool],
) -> list[tuple[list[int], str, Any]]:  # fmt: skip
    """The steps of each launch, the kernel's name and formula. The formula is None if a number is
    an array, or a decision depends on one. Only dtypes of `groups` and `outs` are read."""
    alike: dict[Any, list[int]] = {}
    for i, (step, arrays, out) in enumerate(zip(steps, groups, outs, strict=True)):
        kept = tuple(a.dtype for a in arrays), out.dtype, out is arrays[0]
        numbers = all(isinstance(v, (int, float)) for v in step.attrs.values())
        attrs = tuple(step.attrs.items()) if ordered[i] and numbers else i
        alike.setdefault((step.op, kept, attrs), []).append(i)
    launches = []
    for (rule, (dtypes, out_dtype, in_place), _), members in alike.items():
        formula = None
        with suppress(NotTraceable):
            place = None if in_place else out_dtype
            formula = updates.Formula(rule.compute, steps[members[0]].attrs, dtypes, place)
        launches.append((members, rule.name.strip("_"), formula))
    return launches
