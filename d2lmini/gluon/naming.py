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
"""

from __future__ import annotations

import threading
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
