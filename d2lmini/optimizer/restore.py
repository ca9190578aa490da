"""Restores an optimizer from its description in a file of states (`updater.py`), with checks.

A description consists of a class name and the values of attributes. The file is not trusted: the
class must be that of the optimizer in use, and each value must have the kind that the attribute has
there. So the restored optimizer works, and no attribute can replace a method:

>>> from d2lmini import optimizer
>>> described = {"class": "SGD", "attributes": {"lr": 0.5, "update": 1}}
>>> restore(described, optimizer.SGD())
Traceback (most recent call last):
    ...
d2lmini.base.MXNetError: these optimizer states are damaged: SGD has no attribute 'update' to set
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import MXNetError
from d2lmini.optimizer.optimizer import Optimizer

#: Largest accepted count of updates; no training makes more.
_MOST_UPDATES = 1 << 40
#: Largest number of steps that a schedule makes at once.
_MOST_STEPS = 1 << 16


def damage_error(words: str) -> MXNetError:
    """The error for states that `Updater.get_states` would not write."""
    return MXNetError(f"these optimizer states are damaged: {words}")


#: (object, values of its attributes)
Changes = list[tuple[Any, dict[str, Any]]]


def restore(described: Any, optimizer: Optimizer) -> Changes:
    """The changes that make the optimizer, and its schedule, as described. Raises MXNetError for a
    description that does not fit."""
    values = _checked(described, optimizer, "an optimizer")
    updates = max(_checked_counts(values), optimizer.num_update)
    schedule, of_schedule = optimizer.lr_scheduler, described.get("lr_scheduler")
    if schedule is None and of_schedule is None:
        if values.get("lr", optimizer.lr) is None:
            raise damage_error(f"{type(optimizer).__name__} has neither a rate nor a schedule")
        return [(optimizer, values)]
    found = _checked(of_schedule, schedule, "an optimizer with lr_scheduler")
    steps = found.get("step", 1)
    for step in steps if isinstance(steps, list) else [steps]:
        if not isinstance(step, int) or step < 1:
            raise damage_error(f"the schedule's step is {str(step)[:100]}, expected 1 or more")
    # A schedule advances step by step from its state; the optimizer calls it at every update.
    count = found.get("count", getattr(schedule, "count", 0))
    behind = updates - count if isinstance(count, (int, float)) else 0
    if isinstance(steps, int) and behind > _MOST_STEPS * steps:
        raise damage_error(f"the schedule's count is {count} after {updates} updates")
    return [(optimizer, values), (schedule, found)]


def _checked(described: Any, owner: Any, what: str) -> dict[str, Any]:
    """The described values of attributes. `owner`, None if there is no such object, has to be of
    the described class, and to have a data attribute of each name, with a value of that kind."""
    parts = described if isinstance(described, dict) else {"class": "NoneType", "attributes": {}}
    name, attributes = parts.get("class"), parts.get("attributes")
    if not isinstance(name, str) or not isinstance(attributes, dict):
        raise damage_error(f"expected a class and its attributes, got {str(described)[:100]}")
    if type(owner).__name__ != name:
        raise MXNetError(
            f"the states belong to {what} {name[:100]}, here it is {type(owner).__name__}; make "
            "the Trainer with the same before loading them"
        )
    try:
        values = {key: _value(plain) for key, plain in attributes.items()}
    except (TypeError, ValueError, KeyError, RecursionError) as problem:
        raise damage_error(f"an attribute of {name} is not as it is written: {problem}") from None
    for key, value in values.items():
        of_class = getattr(type(owner), key, None)
        if key.startswith("__") or callable(of_class) or isinstance(of_class, property):
            raise damage_error(f"{name} has no attribute {key[:100]!r} to set")
        wanted = getattr(owner, key, None)
        if key in ("lr", "clip_gradient"):
            fits = value is None or isinstance(value, (int, float))
        else:
            fits = wanted is None or _kind(value) is _kind(wanted)
        if not fits or value != value:
            raise damage_error(
                f"{name}.{key} is {str(value)[:100]}, expected a {type(wanted).__name__}"
            )
    return values


def _value(plain: Any) -> Any:
    """Decode a value from JSON: dictionaries are lists of pairs, because keys may be numbers."""
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if isinstance(plain, dict):
        return {_value(k): _value(v) for k, v in plain["pairs"]}
    return plain


def _kind(value: Any) -> Any:
    """The kind of a value: numbers are one kind, tuples and lists another, else the type."""
    if isinstance(value, (bool, int, float)):
        return float
    return list if isinstance(value, tuple) else type(value)


def _checked_counts(values: dict[str, Any]) -> int:
    """The largest number of updates; also checks the tables by index or name."""
    tables = values.get("_all_index_update_counts", {})
    counts = [values.get("num_update", 0), values.get("begin_num_update", 0)]
    for table in tables.values():
        counts += table.values() if isinstance(table, dict) else [None]
    if not all(isinstance(n, int) and 0 <= n <= _MOST_UPDATES for n in counts):
        raise damage_error("a number of updates is no number, or none that training makes")
    for key, kind in (("lr_mult", (int, float)), ("wd_mult", (int, float)), ("idx2name", str)):
        if not all(isinstance(value, kind) for value in values.get(key, {}).values()):  # type: ignore[arg-type]
            raise damage_error(f"{key} holds values of another kind")
    return max(counts)
