"""Sub-namespaces of `nd` (and later of `sym`): the ops whose names begin alike.

>>> from d2lmini import nd
>>> nd.linalg.gemm2 is nd.linalg_gemm2
True
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops import binary
from d2lmini.ops.core import registry

_LEFT_OUT = {
    "image": "images", "ROIPooling": "detection", "MultiBoxPrior": "detection",
    "MultiBoxTarget": "detection", "MultiBoxDetection": "detection", "Proposal": "detection",
    "MultiProposal": "detection", "ROIAlign": "detection", "box_nms": "detection",
    "box_iou": "detection", "bipartite_matching": "detection", "SpatialTransformer": "detection",
    "sparse": "sparse arrays", "imdecode": "images", "Correlation": "images", "text": "text",
}  # fmt: skip


class Namespace:
    """Ops under one of the prefixes, without it; several prefixes are tried in turn."""

    def __init__(self, name: str, *prefixes: str):
        self.__name__ = name
        self._prefixes = prefixes or ("",)

    def __getattr__(self, name: str) -> Any:
        for prefix in self._prefixes:
            found = registry.get(prefix + name) or registry.get(name if prefix == "_" else "")
            if found is not None:
                setattr(self, name, found)
                return found
        raise left_out(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted(
            name.removeprefix(p)
            for name in registry
            for p in self._prefixes
            if name.startswith(p)
        )


def public_names() -> dict[str, Any]:
    """The ops that `nd` shows: those whose names do not begin with an underscore, and the
    functions that take a number in place of an array."""
    functions = {name: getattr(binary, name) for name in binary.FUNCTIONS}
    return {**{n: op for n, op in registry.items() if not n.startswith("_")}, **functions}


def left_out(where: str, name: str) -> AttributeError:
    """The error for a name that is not there: left out on purpose, or unknown."""
    if name in _LEFT_OUT:
        return AttributeError(
            f"{where}.{name} is left out of d2lmini: it has no part of MXNet for "
            f"{_LEFT_OUT[name]}"
        )
    return AttributeError(f"{where} has no {name!r}; dir({where}) lists what there is")
