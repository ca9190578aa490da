"""An optimizer with the states of the weights it updates, and their file format.

>>> from d2lmini import nd, optimizer
>>> updater = optimizer.get_updater(optimizer.SGD(learning_rate=0.5, momentum=0.9))
>>> weight = nd.ones(2)
>>> updater(0, nd.array([1, 2]), weight)              # index, gradient, weight
>>> weight.asnumpy().tolist(), updater.states[0].asnumpy().tolist()
([0.5, 0.0], [-0.5, -1.0])

A file of states is a `.params` file. It holds the arrays, and one array of bytes with JSON text
that gives the place of each array and, optionally, the optimizer's attributes. Loading runs no code
(MXNet's own files are pickles, which can run any code): attributes are only numbers, strings, lists
and dictionaries. Every value must have the
kind expected in its place; otherwise nothing of the file is used.

The description of an optimizer consists of a class name and the values of attributes. The file is
not trusted: the class must be that of the present optimizer, and each value must have the kind that
this attribute has in it. So the restored optimizer works, and no attribute can replace a method:

>>> described = {"class": "SGD", "attributes": {"lr": 0.5, "update": 1}}
>>> restore(described, optimizer.SGD())
Traceback (most recent call last):
    ...
d2lmini.base.MXNetError: these optimizer states are damaged: SGD has no attribute 'update' to set
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.families import REQUIRED
from d2lmini.device import roles
from d2lmini.ndarray import NDArray, array, serialize
from d2lmini.optimizer.optimizer import Optimizer

_META = "d2lmini optimizer states"
#: Deepest nesting of tuples in a state.
_MOST_DEEP = 50
_SAME = (
    "load the states of the same parameters, in the same order, with the same optimizer settings"
)


class Updater:
    """Calls the optimizer, and makes each weight's state at the weight's first update.

    optimizer, states (by index), states_synced (True if the state is on the weight's context)."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.states_synced: dict[Any, bool] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one weight, or lists of weights: in one task if the optimizer can (`Fused`)."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        if not index:
            return
        optimizer, states = self.optimizer, self.states
        optimizer._set_current_context(weight[0]._ctx.device_id)
        for i, w in zip(index, weight, strict=True):
            if not self.states_synced.get(i):
                states[i] = self._state_for(i, w)
                self.states_synced[i] = True
                _map_arrays(states[i], lambda x: roles.note("optimizer state", [x]))
        of_each = [states[i] for i in index]
        if getattr(optimizer, "takes_lists", False):
            optimizer.update_multi_precision(index, weight, grad, of_each)  # type: ignore[arg-type]
        else:
            for i, w, g, state in zip(index, weight, grad, of_each, strict=True):
                optimizer.update_multi_precision(i, w, g, state)

    def _state_for(self, index: Any, weight: NDArray) -> Any:
        """A new state for this weight, or the state of a file, checked."""
        if index not in self.states:
            return self.optimizer.create_state_multi_precision(index, weight)
        self._check_fits(self.optimizer, index, self.states[index], weight)
        state = _map_arrays(self.states[index], lambda x: x.as_in_context(weight.context))
        return _map_arrays(state, lambda x: x.as_np_ndarray()) if weight.is_np else state

    def _check_fits(self, optimizer: Optimizer, index: Any, state: Any, weight: NDArray) -> None:
        """MXNetError unless `state`, of a file, is as the optimizer makes it for this weight."""
        found = _outline(state)
        expected = _outline(optimizer.create_state_multi_precision(index, weight))
        if not _fits(found, expected):
            name = getattr(self.optimizer.param_dict.get(index), "name", index)
            raise MXNetError(
                f"these optimizer states do not fit: {type(optimizer).__name__} keeps {expected} "
                f"for parameter {name!r}, found {found}: {_SAME}"
            )

    # -- files -------------------------------------------------------------------------------------

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states as bytes, with the optimizer's attributes if `dump_optimizer`; waits."""
        arrays: list[np.ndarray] = []
        meta: dict[str, Any] = {
            "states": [[index, _to_tree(state, arrays)] for index, state in self.states.items()]
        }
        if dump_optimizer:
            meta["optimizer"] = _describe(self.optimizer)
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        names = [_META, *map(str, range(len(arrays)))]
        return serialize.dumps([(a, (1, 0)) for a in (text, *arrays)], names)

    def set_states(self, states: bytes, source: Any = None) -> None:
        """Restore states from `get_states`, and the optimizer's attributes if they are included.

        MXNet unpickles the bytes, which can run any code; this method reads only data. Raises
        MXNetError, which names `source` (the file), for any other bytes, also for MXNet's pickles,
        and for states that the optimizer would not make for these weights; nothing is changed then.
        The weights of a Trainer are known; the states of other weights are checked at the next
        update, before any weight changes.
        """
        params = self.optimizer.param_dict
        known = {i: p._data[0] for i, p in params.items() if getattr(p, "_data", None)}
        optimizer = self.optimizer
        restored = copy.copy(optimizer)
        changes: Changes = []
        try:
            found, described = _read(states)
            if described is not None:
                changes = restore(described, optimizer)
                restored.__dict__.update(changes[0][1])
            for index, state in found.items():
                if index in known:
                    self._check_fits(restored, index, state, known[index])
                elif params and index not in params:
                    raise MXNetError(f"there is no parameter {index!r:.100}: {_SAME}")
        except MXNetError as problem:
            if source is None:
                raise
            raise MXNetError(f"{os.fspath(source)!r}: {problem}") from None
        self.states = found
        self.states_synced = dict.fromkeys(found, False)
        for changed, values in changes:
            changed.__dict__.update(values)
        optimizer._set_current_context(0)


def get_updater(optimizer: Optimizer) -> Updater:
    """An Updater for the optimizer."""
    return Updater(optimizer)


def _map(state: Any, function: Callable[[Any], Any]) -> Any:
    """The state, which may be nested in tuples, with the function of each item in its place."""
    if isinstance(state, (tuple, list)):
        return type(state)([_map(item, function) for item in state])
    return function(state)


def _map_arrays(state: Any, function: Callable[[NDArray], Any]) -> Any:
    """The state with the function of each array in its place."""
    return _map(state, lambda item: function(item) if isinstance(item, NDArray) else item)


def _outline(state: Any) -> Any:
    """The structure of a state, with the specs of its arrays."""
    return _map(state, lambda item: item._spec if isinstance(item, NDArray) else type(item))


def _fits(found: Any, expected: Any) -> bool:
    """True if the optimizer can use a state of the first outline as one of the second. It uses
    nothing where it expects nothing, as after the user has set a momentum to 0."""
    if not isinstance(expected, (tuple, list)):
        return expected in (found, type(None))
    alike = isinstance(found, (tuple, list)) and len(found) == len(expected)
    return alike and all(map(_fits, found, expected))


# -- states as trees: null, a number for an array, a list for a tuple ------------------------------


def _to_tree(state: Any, arrays: list[np.ndarray]) -> Any:
    def leaf(item: Any) -> Any:
        if isinstance(item, NDArray):
            arrays.append(item.asnumpy())
            return len(arrays) - 1
        if item is not None:
            raise TypeError(
                f"a state holds NDArrays, None, and tuples of them; cannot save {item!r:.100}"
            )
        return None

    return _map(state, leaf)


def _read(states: bytes) -> tuple[dict[Any, Any], Any]:
    """The states by index, and the optimizer's description or None."""
    if bytes(states[:1]) == b"\x80":
        raise MXNetError(
            "these optimizer states are a pickle, as MXNet writes them; unpickling can run any "
            "code, so d2lmini reads only files of its own (Trainer.save_states)"
        )
    entries, names = serialize.load_frombuffer(states)
    if not names or names[0] != _META or entries[0][0].dtype != np.uint8:
        raise MXNetError("these are no optimizer states: write them with Trainer.save_states")
    try:
        meta = json.loads(entries[0][0].tobytes().decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise damage_error(f"their description is not JSON: {problem}") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("states"), list):
        raise damage_error("their description lists no states")
    # Each array belongs to one place: a file cannot make many copies of an array.
    arrays: list[Any] = [entry[0] for entry in entries[1:]]
    found = {}
    for pair in meta["states"]:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], (int, str)):
            raise damage_error(f"expected [index, state], got {str(pair)[:100]}")
        found[pair[0]] = _from_tree(pair[1], arrays)
    return found, meta.get("optimizer")


def _from_tree(tree: Any, arrays: list[Any], depth: int = 0) -> Any:
    if type(tree) is int and 0 <= tree < len(arrays) and arrays[tree] is not None:
        value, arrays[tree] = arrays[tree], None
        return array(value, dtype=value.dtype)
    if isinstance(tree, list) and depth < _MOST_DEEP:
        return tuple(_from_tree(item, arrays, depth + 1) for item in tree)
    if tree is not None:
        raise damage_error(
            f"expected the number of one of {len(arrays)} arrays that has no place yet, a list or "
            f"null; got {str(tree)[:100]}"
        )
    return None


# -- attributes as JSON: dictionaries as lists of pairs, for their keys may be numbers -------------


def _describe(thing: Any) -> dict[str, Any]:
    attrs = {}
    for name, value in vars(thing).items():
        if name in ("lr_scheduler", "param_dict", "_index_update_count"):
            continue
        try:
            attrs[name] = _plain(value)
        except TypeError:
            continue
    described: dict[str, Any] = {"class": type(thing).__name__, "attributes": attrs}
    if getattr(thing, "lr_scheduler", None) is not None:
        described["lr_scheduler"] = _describe(thing.lr_scheduler)
    return described


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {"pairs": [[_plain(k), _plain(v)] for k, v in value.items()]}
    raise TypeError(type(value).__name__)


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
    """The changes that give the optimizer the described attributes. Raises MXNetError for a
    description that does not fit."""
    values = _attributes(described, optimizer)
    updates = max(_checked_counts(values), optimizer.num_update)
    values["lr_scheduler"] = None
    changes: Changes = [(optimizer, values)]
    if described.get("lr_scheduler") is not None:
        values["lr_scheduler"] = schedule = optimizer.lr_scheduler
        changes.append((schedule, _schedule(described["lr_scheduler"], schedule, updates)))
    elif values.get("lr", optimizer.lr) is None:
        raise damage_error(f"{type(optimizer).__name__} has neither a learning rate nor a schedule")
    return changes


def _attributes(described: Any, owner: Any) -> dict[str, Any]:
    """The values of the attributes of an object like `owner`: of this class, and each with a data
    attribute of that name and a value of that kind."""
    parts = described if isinstance(described, dict) else {}
    name, attributes = parts.get("class"), parts.get("attributes")
    if not isinstance(name, str) or not isinstance(attributes, dict):
        raise damage_error(f"expected a class and its attributes, got {str(described)[:100]}")
    own = type(owner).__name__
    if own != name:
        raise MXNetError(
            f"the states were saved with {name[:100]}, the Trainer has {own}: give it an optimizer "
            "and an lr_scheduler of the same classes before loading them"
        )
    try:
        values = {key: _value(plain) for key, plain in attributes.items()}
    except (TypeError, ValueError, KeyError, RecursionError) as problem:
        raise damage_error(f"an attribute of {name} is not as it is written: {problem}") from None
    for key, value in values.items():
        of_class = getattr(type(owner), key, None)
        of_class = None if of_class is REQUIRED else of_class  # a field without a default
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
    for key in ("lr_mult", "wd_mult"):
        if not all(isinstance(value, (int, float)) for value in values.get(key, {}).values()):
            raise damage_error(f"{key} holds values of another kind")
    return max(counts)


def _schedule(described: Any, schedule: Any, updates: int) -> dict[str, Any]:
    """The described attributes of the scheduler, which has made this many updates."""
    values, name = _attributes(described, schedule), type(schedule).__name__
    steps = values.get("step", 1)
    for step in steps if isinstance(steps, list) else [steps]:
        if not isinstance(step, int) or step < 1:
            raise damage_error(f"{name}.step is {str(step)[:100]}, expected 1 or more")
    # A schedule advances step by step from its state; the optimizer calls it at every update.
    count = values.get("count", getattr(schedule, "count", 0))
    behind = updates - count if isinstance(count, (int, float)) else 0
    if isinstance(steps, int) and behind > _MOST_STEPS * steps:
        raise damage_error(f"{name}.count is {count} after {updates} updates: too far behind")
    return values
