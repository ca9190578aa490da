"""Restores an optimizer from its description in a file of states (`updater.py`), with checks.

A description consists of a class name and the values of attributes. The file is not trusted: the
class is looked up among the registered classes, and each value must have the kind that this
attribute has in an optimizer of that class. So the restored optimizer works, and no attribute can
replace a method:

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
from d2lmini.optimizer import lr_scheduler
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


def restore(described: Any, old: Optimizer) -> tuple[Optimizer, Changes]:
    """The described optimizer, `old` if the class is the same, otherwise a new one; and the changes
    that restore it. Raises MXNetError for a description that does not fit."""
    name, values = _parts(described)
    optimizer = old
    if type(old).__name__ != name:
        klass = Optimizer.opt_registry.get(name.lower())
        if klass is None:
            raise MXNetError(f"the states belong to optimizer {name}, which is not registered")
        optimizer = _blank(klass)
        optimizer.__dict__.update(param_dict=old.param_dict, lr_scheduler=None)
    _check(optimizer, values)
    updates = max(_checked_counts(values), optimizer.num_update)
    schedule: Any = None
    changes: Changes = []
    if described.get("lr_scheduler") is not None:
        schedule, changes = _schedule(described["lr_scheduler"], optimizer.lr_scheduler, updates)
    elif values.get("lr", optimizer.lr) is None:
        raise damage_error(f"{name} has neither a learning rate nor a schedule")
    return optimizer, [(optimizer, {**values, "lr_scheduler": schedule}), *changes]


def _parts(described: Any) -> tuple[str, dict[str, Any]]:
    """The class name and the attributes' values."""
    parts = described if isinstance(described, dict) else {}
    name, attributes = parts.get("class"), parts.get("attributes")
    if not isinstance(name, str) or not isinstance(attributes, dict):
        raise damage_error(f"expected a class and its attributes, got {str(described)[:100]}")
    try:
        return name[:100], {key: _value(plain) for key, plain in attributes.items()}
    except (TypeError, ValueError, KeyError, RecursionError) as problem:
        raise damage_error(
            f"an attribute of {name[:100]} is not as it is written: {problem}"
        ) from None


def _value(plain: Any) -> Any:
    """Decode a value from JSON: dictionaries are lists of pairs, because keys may be numbers."""
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if isinstance(plain, dict):
        return {_value(k): _value(v) for k, v in plain["pairs"]}
    return plain


def _blank(klass: type[Optimizer]) -> Optimizer:
    """An optimizer of that class with default attributes."""
    try:
        return klass()
    except TypeError:  # a user's class with required arguments
        blank = klass.__new__(klass)
        Optimizer.__init__(blank)
        return blank


def _check(owner: Any, values: dict[str, Any]) -> None:
    """Check each value: `owner` has a data attribute of that name, with a value of that kind."""
    name = type(owner).__name__
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
                f"{name}.{key} is {str(value)[:100]}, a {type(value).__name__}; expected a "
                f"{type(wanted).__name__}"
            )


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


def _schedule(described: Any, old: Any, updates: int) -> tuple[Any, Changes]:
    """The described scheduler, `old` if the class is the same, otherwise a new scheduler of
    `lr_scheduler`; and the change that gives it the state after this many updates."""
    name, values = _parts(described)
    schedule = old
    if old is None or type(old).__name__ != name:
        known: Any = getattr(lr_scheduler, name, None)
        if not (isinstance(known, type) and issubclass(known, lr_scheduler.LRScheduler)):
            raise MXNetError(
                f"the states belong to an optimizer with lr_scheduler {name}; give the Trainer one "
                "of that class before loading them"
            )
        try:
            schedule = known(1)
        except AssertionError:  # the steps are a list
            schedule = known([1])  # type: ignore[arg-type]
    _check(schedule, values)
    steps = values.get("step", 1)
    for step in steps if isinstance(steps, list) else [steps]:
        if not isinstance(step, int) or step < 1:
            raise damage_error(f"{name}.step is {str(step)[:100]}, expected 1 or more")
    # A schedule advances step by step from its state; the optimizer calls it at every update.
    count = values.get("count", getattr(schedule, "count", 0))
    behind = updates - count if isinstance(count, (int, float)) else 0
    if isinstance(steps, int) and behind > _MOST_STEPS * steps:
        raise damage_error(f"{name}.count is {count} after {updates} updates: too far behind")
    return schedule, [(schedule, values)]
