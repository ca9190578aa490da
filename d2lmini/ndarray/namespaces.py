"""Sub-namespaces of `nd` and `sym`: the ops whose names share a prefix.

>>> from d2lmini import nd
>>> nd.linalg.gemm2 is nd.linalg_gemm2
True
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from d2lmini.base import missing_attribute
from d2lmini.ops.core import Op, registry
from d2lmini.ops.fluent import FUNCTIONS


class Namespace(ModuleType):
    """Ops under one of the prefixes, without the prefix; several prefixes are tried in turn."""

    def __init__(self, name: str, *prefixes: str):
        super().__init__(name, type(self).__doc__)
        self._prefixes = prefixes or ("",)

    def __getattr__(self, name: str) -> Any:
        for prefix in self._prefixes:
            found = registry.get(prefix + name) or registry.get(name if prefix == "_" else "")
            if found is not None:
                value = self._wrap_op(found, name)
                setattr(self, name, value)
                return value
        where = self.__name__
        raise missing_attribute(where, name, dir(self), f"; dir({where}) lists the names")

    def _wrap_op(self, op: Op, name: str) -> Any:
        """The object under the op's name: here the op itself."""
        return op

    def __dir__(self) -> list[str]:
        ops = {n.removeprefix(p) for n in registry for p in self._prefixes if n.startswith(p)}
        return sorted(ops | {n for n in self.__dict__ if not n.startswith("_")})


def public_names() -> dict[str, Any]:
    """The public ops, whose names do not begin with an underscore, and the functions that also take
    numbers."""
    return {**{n: op for n, op in registry.items() if not n.startswith("_")}, **FUNCTIONS}
