"""Collectives over devices: sums and shards of arrays that lie on k devices.

>>> from d2lmini import nd, virtual_gpus
>>> from d2lmini.d2l.links import traffic
>>> with virtual_gpus(2) as ctxs:
...     parts = [nd.arange(4, ctx=ctx) * (i + 1) for i, ctx in enumerate(ctxs)]
...     with traffic() as links:
...         shards = reduce_scatter(parts)
...         wholes = all_gather(shards)
...     [x.asnumpy().tolist() for x in shards], wholes[0].asnumpy().tolist()
([[0.0, 3.0], [6.0, 9.0]], [0.0, 3.0, 6.0, 9.0])
>>> links.nbytes
32

A collective takes a list with one array for each device and returns such a list. Shard i is the
i-th of k equal parts along the first axis, and lies on the device of array i. Everything is an
operation of the engine: copies by `as_in_context` and sums by `add_n`. So a collective overlaps
with what does not depend on it, `d2l.traffic` counts its bytes, and autograd records it.

    reduce_scatter  device i gets shard i of the sum         (k - 1) / k of N bytes into each device
    all_gather      every device gets all shards             (k - 1) / k of N bytes into each device
    all_reduce      every device gets the sum: both in turn  2 (k - 1) / k of N bytes into each

N is the size of the whole array. That is the least possible (Patarasuk and Yuan, 2009). By default
each device sends each shard straight to the device that needs it, and a sum is computed in the
order of the list: it has the same bits as `add_n` of the whole arrays. With ring=True each device
sends only to the next device of the list, in k - 1 steps. The bytes are the same, but each shard is
summed in another order.

A list may name a device several times: then its copies travel nowhere, and one device computes what
k devices would, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini import ndarray as nd
from d2lmini.ndarray import NDArray


def reduce_scatter(parts: Sequence[NDArray], ring: bool = False) -> list[NDArray]:
    """Shard i of the sum of `parts`, on the device of part i, for each i.

    parts: k arrays (M, ...) of one shape and dtype; the result: k arrays (M / k, ...).
    TypeError for anything but NDArrays, ValueError unless the shapes and dtypes agree and k divides
    M.
    """
    rows = [_cut(part, len(parts)) for part in _check("reduce_scatter", parts, cut=True)]
    devices = [part.context for part in parts]
    if ring:
        return _reduce_in_ring(rows, devices)
    return [
        nd.add_n(*[row[i].as_in_context(device) for row in rows])
        for i, device in enumerate(devices)
    ]


def all_gather(shards: Sequence[NDArray], ring: bool = False) -> list[NDArray]:
    """All shards, one after the other along the first axis, on the device of each shard.

    shards: k arrays (M, ...) of one shape and dtype; the result: k arrays (k M, ...).
    TypeError for anything but NDArrays, ValueError unless the shapes and dtypes agree.
    """
    _check("all_gather", shards)
    devices = [shard.context for shard in shards]
    if ring:
        there = _pass_around(shards)
    else:
        there = [[shard.as_in_context(device) for shard in shards] for device in devices]
    return [nd.concat(*row, dim=0) for row in there]


def all_reduce(parts: Sequence[NDArray], ring: bool = False) -> list[NDArray]:
    """The sum of `parts`, on the device of each part.

    parts: k arrays (M, ...) of one shape and dtype; the result: k such arrays.
    TypeError for anything but NDArrays, ValueError unless the shapes and dtypes agree and k divides
    M.
    """
    _check("all_reduce", parts, cut=True)
    return all_gather(reduce_scatter(parts, ring), ring)


def _cut(part: NDArray, k: int) -> list[NDArray]:
    """The k shards of an array, as views."""
    n = part.shape[0] // k
    return [part[i * n : (i + 1) * n] for i in range(k)]


def _reduce_in_ring(rows: list[list[NDArray]], devices: list) -> list[NDArray]:
    """The sum of shard i starts at device i + 1, and each device on the way to i adds its own."""
    k = len(rows)
    moving = [rows[i][i - 1] for i in range(k)]
    for step in range(1, k):
        arrived = [moving[i - 1].as_in_context(device) for i, device in enumerate(devices)]
        moving = [nd.add_n(x, rows[i][(i - 1 - step) % k]) for i, x in enumerate(arrived)]
    return moving if k > 1 else [rows[0][0].copy()]


def _pass_around(shards: Sequence[NDArray]) -> list[list[NDArray]]:
    """All shards on each device: in each step a device sends on the shard that arrived last."""
    k = len(shards)
    found = [{i: shard} for i, shard in enumerate(shards)]
    for step in range(1, k):
        for i in range(k):
            which = (i - step) % k
            found[i][which] = found[i - 1][which].as_in_context(shards[i].context)
    return [[row[which] for which in range(k)] for row in found]


def _check(call: str, arrays: Sequence[NDArray], cut: bool = False) -> Sequence[NDArray]:
    """`arrays`, if they are alike; cut: and divide into as many shards."""
    if isinstance(arrays, NDArray) or not all(isinstance(x, NDArray) for x in arrays):
        raise TypeError(f"{call}: expected a list with an NDArray for each device")
    if not arrays:
        raise ValueError(f"{call}: the list is empty; need an array for each device")
    kinds = {(x.shape, x.dtype) for x in arrays}
    if len(kinds) > 1:
        raise ValueError(f"{call}: the arrays differ, make them alike: {kinds}")
    if arrays[0].ndim == 0:
        raise ValueError(f"{call}: a number has no first axis; use reshape((1,))")
    if cut and arrays[0].shape[0] % len(arrays):
        raise ValueError(
            f"{call}: shape {arrays[0].shape} has no {len(arrays)} equal shards along its first "
            "axis; reshape or pad the arrays"
        )
    return arrays
