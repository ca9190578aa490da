"""Sub-namespaces of `nd` and of `sym`: the ops whose names begin alike.

>>> from d2lmini import nd
>>> nd.linalg.gemm2 is nd.linalg_gemm2
True
"""

from __future__ import annotations

from typing import Any

from d2lmini.ndarray.left_out import explain
from d2lmini.ops.core import Op, registry
from d2lmini.ops.fluent import FUNCTIONS


class Namespace:
    """Ops under one of the prefixes, without it; several prefixes are tried in turn."""

    def __init__(self, name: str, *prefixes: str):
        self.__name__ = name
        self._prefixes = prefixes or ("",)

    def __getattr__(self, name: str) -> Any:
        for prefix in self._prefixes:
            found = registry.get(prefix + name) or registry.get(name if prefix == "_" else "")
            if found is not None:
                value = self._shown(found, name)
                setattr(self, name, value)
                return value
        raise explain(self.__name__, name)

    def _shown(self, op: Op, name: str) -> Any:
        """What stands for the op here."""
        return op

    def __dir__(self) -> list[str]:
        ops = {n.removeprefix(p) for n in registry for p in self._prefixes if n.startswith(p)}
        return sorted(ops | {n for n in self.__dict__ if not n.startswith("_")})


def public_names() -> dict[str, Any]:
    """The ops that `nd` shows: those whose names do not begin with an underscore, and the
    functions that take a number in place of an array."""
    return {**{n: op for n, op in registry.items() if not n.startswith("_")}, **FUNCTIONS}
