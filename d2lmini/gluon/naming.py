"""Names of Blocks: 'dense0', 'dense1', ... and, inside a `name_scope`, 'net0_dense0'.

>>> from d2lmini.gluon import nn
>>> net = nn.Sequential(prefix="net_")
>>> with net.name_scope():
...     net.add(nn.Dense(3), nn.Dense(2))
>>> [layer.name for layer in net]
['net_dense0', 'net_dense1']

Each Block numbers the layers of each kind made in its scope. Outside any scope the thread's
`NameManager` numbers them; it also names the nodes of graphs. Nodes made in the scope of a Block
get the Block's prefix.

The structure of a net is saved as JSON, with these names:

>>> net = nn.Sequential(prefix="mlp_")
>>> with net.name_scope():
...     net.add(nn.Dense(2))
>>> print(describe(net))                     # doctest: +NORMALIZE_WHITESPACE
{"sequential0": {"orig_name": "mlp", "children": {"mlp_dense0": "0"},
 "dense1": {"orig_name": "mlp_dense0", "hybridized": false, "children": {}}}}

Each Block has an entry named by its class and its number in visiting order; the entry contains
those of the Block's children. The layout is that of MXNet 1.9.1's `Block.save`. (MXNet also writes
the graph of a hybridized Block. Loading does not need that graph.)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.gluon.parameter_dict import ParameterDict
from d2lmini.symbol.naming import NameManager, Prefix, next_name


class _ThreadState(threading.local):
    """Per thread: the innermost scope."""

    scope: _BlockScope | None = None


_thread_state = _ThreadState()


class _BlockScope(Scope):
    """`with block.name_scope():` names the Blocks made inside as children of `block`."""

    def __init__(self, block: Any):
        self._block = block
        self._counter = block.__dict__.setdefault("_names_used", {})

    @staticmethod
    def create(
        prefix: str | None, params: ParameterDict | None, hint: str
    ) -> tuple[str, ParameterDict]:
        """The prefix and parameters of a new Block of kind `hint` in the current scope."""
        scope = _thread_state.scope
        if prefix is None:
            if scope is None:
                prefix = NameManager.current.get(None, hint) + "_"
            else:
                prefix = next_name(scope._counter, hint) + "_"
        if params is not None:
            params = ParameterDict(params.prefix, params)
        elif scope is None:
            params = ParameterDict(prefix)
        else:
            outer = scope._block.params
            params = ParameterDict(outer.prefix + prefix, outer._shared)
        return (prefix if scope is None else scope._block.prefix + prefix), params

    def _begin(self, undo: Undo) -> _BlockScope:
        # A Block with an empty prefix leaves the naming to the enclosing scope.
        if not self._block._empty_prefix:
            swap(undo, _thread_state, "scope", self)
            Prefix(self._block.prefix)._begin(undo)
        return self


def describe(block: Any) -> str:
    """The structure of `block` as JSON."""
    numbers = count()
    return json.dumps(dict([_entry(block, numbers)]))


def _entry(block: Any, numbers: Iterator[int]) -> tuple[str, dict[str, Any]]:
    key = _key(block, numbers)
    entry: dict[str, Any] = {"orig_name": block.name}
    if hasattr(block, "_active"):
        # True would require the graph as well.
        entry["hybridized"] = False
    entry["children"] = {child.name: name for name, child in block._children.items()}
    entry.update(_entry(child, numbers) for child in block._children.values())
    return key, entry


def _key(block: Any, numbers: Iterator[int]) -> str:
    return f"{type(block).__name__.lower()}{next(numbers)}"


def load(block: Any, filename: str) -> None:
    """Give `block` and the Blocks in it the names in the file, and hybridize those that were
    hybridized. ValueError, without any change, if the structures differ."""
    with open(filename, encoding="utf-8") as file:
        try:
            entries = json.load(file)
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"{filename}: this is not JSON: {problem}") from None
    if not isinstance(entries, dict):
        raise ValueError(f"{filename}: this is not the structure of a net: {str(entries)[:100]}")
    found = list(_match(block, entries, count(), filename))
    for part, entry in found:
        _rename(part, entry["orig_name"])
        if entry.get("hybridized"):
            part.hybridize()


def _match(
    block: Any, entries: dict[str, Any], numbers: Iterator[int], filename: str
) -> Iterator[tuple[Any, dict[str, Any]]]:
    key = _key(block, numbers)
    if key not in entries:
        there = [name for name, entry in entries.items() if "orig_name" in _dict(entry)]
        raise ValueError(
            f"{filename}: the net that was saved is built differently: here is {key}, there "
            f"{', '.join(there)[:300] or 'nothing'}"
        )
    entry = _dict(entries[key])
    children = list(_dict(entry.get("children")).values())
    if children != list(block._children):
        raise ValueError(
            f"{filename}: {key} was saved with children {str(children)[:300]}, here it has "
            f"{list(block._children)}"
        )
    if not isinstance(entry.get("orig_name"), str):
        raise ValueError(f"{filename}: {key} has no name: its 'orig_name' is no text")
    yield block, entry
    for child in block._children.values():
        yield from _match(child, entry, numbers, filename)


def _dict(entry: Any) -> dict[str, Any]:
    return entry if isinstance(entry, dict) else {}


def _rename(block: Any, name: str) -> None:
    """Rename `block`, and its own parameters accordingly."""
    before = block._prefix
    prefix = name + "_" if name else ""
    if prefix == before:
        return
    block._prefix, block._name = prefix, name
    params = block._params
    if params._prefix == before:
        params._prefix = prefix
    for parameter in params.values():
        if parameter.name.startswith(before):
            parameter.name = prefix + parameter.name[len(before) :]
    params._params = {parameter.name: parameter for parameter in params.values()}
