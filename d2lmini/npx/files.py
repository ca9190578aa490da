"""`npx.save` and `npx.load`: `nd.save` and `nd.load` for `np.ndarray`s."""

from __future__ import annotations

from typing import Any

from d2lmini.ndarray import exchange


def save(file: str, arr: Any) -> None:
    """Write an array, a list or a dict of arrays."""
    if isinstance(arr, dict):
        exchange.save(file, {name: x.as_nd_ndarray() for name, x in arr.items()})
    else:
        many = arr if isinstance(arr, (list, tuple)) else [arr]
        exchange.save(file, [x.as_nd_ndarray() for x in many])


def load(file: str) -> Any:
    """The dict or list that `save` wrote; an array comes back as a list of one."""
    found = exchange.load(file)
    if isinstance(found, dict):
        return {name: x.as_np_ndarray() for name, x in found.items()}
    return [x.as_np_ndarray() for x in found]
