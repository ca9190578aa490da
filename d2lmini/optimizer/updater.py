"""An optimizer together with the states of the weights it updates, and their file.

>>> from d2lmini import nd, optimizer
>>> updater = optimizer.get_updater(optimizer.SGD(learning_rate=0.5, momentum=0.9))
>>> weight = nd.ones(2)
>>> updater(0, nd.array([1, 2]), weight)              # index, gradient, weight
>>> weight.asnumpy().tolist(), updater.states[0].asnumpy().tolist()
([0.5, 0.0], [-0.5, -1.0])

A file of states is a `.params` file: the arrays, and among them one of bytes with the JSON text
that says where they belong and, if wanted, what the optimizer's attributes are. Loading one runs
no code (MXNet's own files are pickles, which could run any): classes are looked up by their
registered names, and of their attributes only numbers, texts, lists and dictionaries are kept.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from d2lmini import lr_scheduler, serialize
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.ndarray import NDArray, array
from d2lmini.optimizer.optimizer import Optimizer

_META = "d2lmini optimizer states"


class Updater:
    """Calls the optimizer; makes each weight's state when it is first updated.

    optimizer, states (by index), states_synced (is the state where its weight is?)."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.states_synced: dict[Any, bool] = {}
        self.aggregate_updates = optimizer.aggregate_num > 0

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one weight, or lists of them: in one task where the optimizer can (`Fused`)."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        if not index:
            return
        optimizer, states, synced = self.optimizer, self.states, self.states_synced
        optimizer._set_current_context(weight[0].context.device_id)
        for i, w in zip(index, weight, strict=True):
            if i not in states:
                states[i] = optimizer.create_state_multi_precision(i, w)
                synced[i] = True
            elif not synced[i]:
                states[i] = self.sync_state_context(states[i], w.context)
                synced[i] = True
        if getattr(optimizer, "takes_lists", False):
            of_each = [states[i] for i in index]
            optimizer.update_multi_precision(index, weight, grad, of_each)  # type: ignore[arg-type]
        else:
            for i, w, g in zip(index, weight, grad, strict=True):
                optimizer.update_multi_precision(i, w, g, states[i])

    def sync_state_context(self, state: Any, context: Context) -> Any:
        """The state on `context`."""
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            return type(state)(self.sync_state_context(each, context) for each in state)
        return state

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

    def set_states(self, states: bytes) -> None:
        """Take over what `get_states` gave; with an optimizer in it, its attributes too.
        MXNetError for anything else."""
        if bytes(states[:1]) == b"\x80":
            raise MXNetError(
                "these optimizer states are a pickle, as MXNet writes them; unpickling can run any "
                "code, so d2lmini reads only files of its own (Trainer.save_states)"
            )
        entries, names = serialize.load_frombuffer(states)
        if not names or names[0] != _META:
            raise MXNetError("these are no optimizer states: write them with Trainer.save_states")
        meta = json.loads(entries[0][0].tobytes())
        arrays = [entry[0] for entry in entries[1:]]
        self.states = {index: _from_tree(tree, arrays) for index, tree in meta["states"]}
        self.states_synced = dict.fromkeys(self.states, False)
        if "optimizer" in meta:
            self.optimizer = _restore(meta["optimizer"], self.optimizer)


def get_updater(optimizer: Optimizer) -> Updater:
    """An Updater of that optimizer."""
    return Updater(optimizer)


# -- states as trees: null, a number for an array, a list for a tuple, {"is": x} for a value -------


def _to_tree(state: Any, arrays: list[np.ndarray]) -> Any:
    if state is None:
        return None
    if isinstance(state, NDArray):
        arrays.append(state.asnumpy())
        return len(arrays) - 1
    if isinstance(state, (tuple, list)):
        return [_to_tree(each, arrays) for each in state]
    if isinstance(state, (bool, int, float, str)):
        return {"is": state}
    raise TypeError(
        f"a state holds NDArrays, numbers, texts, and tuples of them; cannot save a "
        f"{type(state).__name__}"
    )


def _from_tree(tree: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(tree, int):
        return array(arrays[tree], dtype=arrays[tree].dtype)
    if isinstance(tree, list):
        return tuple(_from_tree(each, arrays) for each in tree)
    return tree["is"] if isinstance(tree, dict) else None


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
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {"pairs": [[_plain(k), _plain(v)] for k, v in value.items()]}
    raise TypeError(type(value).__name__)


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(each) for each in plain]
    if isinstance(plain, dict):
        return {_value(k): _value(v) for k, v in plain["pairs"]}
    return plain


def _restore(described: dict[str, Any], old: Optimizer) -> Optimizer:
    """The optimizer that was described: `old` if it is of that class, else a new one."""
    name = described["class"]
    optimizer = old
    if type(old).__name__ != name:
        if name.lower() not in Optimizer.opt_registry:
            raise MXNetError(f"the states belong to optimizer {name}, which is not registered")
        klass = Optimizer.opt_registry[name.lower()]
        optimizer = klass.__new__(klass)
        optimizer.__dict__.update(param_dict=old.param_dict, lr_scheduler=None)
    for key, plain in described["attributes"].items():
        setattr(optimizer, key, _value(plain))
    optimizer._set_current_context(0)
    scheduler = described.get("lr_scheduler")
    if scheduler is None:
        optimizer.lr_scheduler = None
        return optimizer
    if type(optimizer.lr_scheduler).__name__ != scheduler["class"]:
        known: Any = getattr(lr_scheduler, scheduler["class"], None)
        if not (isinstance(known, type) and issubclass(known, lr_scheduler.LRScheduler)):
            raise MXNetError(
                f"the states belong to an optimizer with lr_scheduler {scheduler['class']}; give "
                "the Trainer one of that class before loading them"
            )
        optimizer.lr_scheduler = known.__new__(known)
    for key, plain in scheduler["attributes"].items():
        setattr(optimizer.lr_scheduler, key, _value(plain))
    return optimizer
