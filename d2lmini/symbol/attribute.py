"""AttrScope: labels for all variables and nodes made in it, such as their device group.

>>> from d2lmini import sym
>>> from d2lmini.symbol import AttrScope
>>> with AttrScope(ctx_group="first", lr_mult="0.1"):
...     w = sym.var("w")
>>> w.attr("lr_mult"), w.attr("ctx_group")
('0.1', 'first')

After `mxnet.attribute`. `AttrScope.current` is the innermost scope of this thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from d2lmini.scopes import Scope, Undo, swap
from d2lmini.symbol.attribute_text import decode_label
from d2lmini.symbol.naming import PerThread


class AttrScope(Scope, metaclass=PerThread):
    """Labels, as strings by name (ValueError for others). Scopes nest; the inner value wins."""

    def __init__(self, **labels: str):
        for name, value in labels.items():
            if not isinstance(value, str):
                raise ValueError(f"attributes are strings, got {name}={value!r}")
        self._attr = labels

    def get(self, labels: dict[str, str] | None) -> dict[str, str]:
        """The labels of this scope, updated with `labels`."""
        if not self._attr:
            return labels or {}
        return {**self._attr, **(labels or {})}

    def _begin(self, undo: Undo) -> AttrScope:
        swap(undo, self, "_attr", {**AttrScope.current._attr, **self._attr})
        swap(undo, AttrScope, "current", self)
        return self


def labels_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Convert a user's labels to the form that nodes keep: labels with a meaning in MXNet under
    their plain names. ValueError for values that are not strings."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"attributes are strings, got {name}={value!r}")
    return {decode_label(name): value for name, value in given.items()}
