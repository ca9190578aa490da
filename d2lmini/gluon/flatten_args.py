"""Nested lists of arguments: flatten them to one list, and restore the nesting.

>>> flat, form = flatten([1, (2, None)])
>>> flat, form
([1, 2, None], [0, [0, -1]])
>>> regroup([x and 10 * x for x in flat], form)[0]
[10, [20, None]]

A form describes the nesting: 0 is a single value, -1 is None, a number n > 0 is a value that has n
outputs (a Symbol), and a list is a list or tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.symbol.symbol import Symbol


def flatten(args: Any, what: str = "") -> tuple[list[Any], Any]:
    """All values in order, and the form for `regroup`. (MXNet uses `what`, the kind of values, in
    messages.)"""
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        outputs = len(args._entries) if isinstance(args, Symbol) else 1
        return [args], outputs if outputs > 1 else 0
    flat: list[Any] = []
    form = []
    for arg in args:
        values, part = flatten(arg)
        flat += values
        form.append(part)
    return flat, form


def regroup(flat: Sequence[Any], form: Any) -> tuple[Any, Sequence[Any]]:
    """The values of `flat`, nested by `form`, and the unused rest of `flat`."""
    if isinstance(form, int):
        if form > 0:
            return list(flat[:form]), flat[form:]
        return flat[0], flat[1:]
    groups = []
    for part in form:
        group, flat = regroup(flat, part)
        groups.append(group)
    return groups, flat
