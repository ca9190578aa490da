"""Optimizer steps on a GPU: one launch for all parameters whose steps have the same formula."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from d2lmini.cuda.current import outside
from d2lmini.cuda.kernels import updates
from d2lmini.cuda.recorder import NotRecorded
from d2lmini.ops.symbolic import NotTraceable
from d2lmini.ops.update import bind
from d2lmini.ops.update_multi import UpdateStep, run


@run.kernel("cuda")
def _(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple]) -> None:
    """On a GPU: steps that differ only in their arrays are one launch."""
    for members in _alike(steps, groups):
        outside(partial(_update, xp, steps, members, [groups[i] for i in members]))


def _update(
    xp: Any, steps: Sequence[UpdateStep], members: list[int], groups: Sequence[Sequence[Any]]
) -> None:
    """Run the steps `members`, which are equal; on other numbers when the call is repeated."""
    rule, attrs = steps[members[0]]
    if any([steps[i] != (rule, attrs) for i in members]):
        raise NotRecorded("steps that were equal differ")
    if _is_plain(attrs, groups[0]):
        with suppress(NotTraceable):
            return updates.update(xp, rule, attrs, groups)
    for weight, *others in groups:
        bind(rule, xp, weight.dtype, attrs)(weight, *others, weight)
    return None


def _alike(steps: Sequence[UpdateStep], groups: Sequence[Sequence[Any]]) -> list[list[int]]:
    """The steps of each launch, which differ only in their arrays."""
    alike: dict[Any, list[int]] = {}
    for i, ((rule, attrs), arrays) in enumerate(zip(steps, groups, strict=True)):
        what = tuple(attrs.items()) if _is_plain(attrs, arrays) else i
        alike.setdefault((rule, tuple(a.dtype for a in arrays), what), []).append(i)
    return list(alike.values())


def _is_plain(attrs: dict[str, Any], arrays: Sequence[Any]) -> bool:
    """True if the arrays are in C order and no number is an array."""
    ordered = all([a.flags.c_contiguous for a in arrays])
    return ordered and all([isinstance(v, (int, float)) for v in attrs.values()])
