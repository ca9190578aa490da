"""How an op computes where arrays are not NumPy's: on a GPU, with the module of its device.

The op's kernel for such a device, or without one the same `op.compute(xp, ...)` with another `xp`.
A worker runs this, and nothing in it waits: it puts work on the stream of its device. Memory is the
module's own business there, so what an op returns fresh becomes the contents of its output
(`adopt`, which serves NumPy's too), and `out=` is for arrays that are there already.
"""

from __future__ import annotations

from typing import Any

from d2lmini.device.storage import Chunk
from d2lmini.ops.core import Op, Spec
from d2lmini.ops.kernels import kind_of


def compute_there(
    xp: Any, op: Op, arrays: list, attrs: dict[str, Any], outputs: list, places: list
) -> None:
    """Compute the outputs, operands as in `OpTask`; `places` has their arrays where there are any,
    else None."""
    compute = op.kernel_for(kind_of(xp))
    single = len(outputs) == 1
    there = all(place is not None for place in places)
    if there and op.takes_out and not _clash(op, places, arrays):
        compute(xp, *arrays, out=places[0] if single else tuple(places), **attrs)
        return
    results = compute(xp, *arrays, **attrs)
    seen = list(arrays)
    for (chunk, _, spec), place, result in zip(
        outputs, places, (results,) if single else results, strict=True
    ):
        if place is None:
            adopt(xp, op, chunk, spec, result, seen)
            seen.append(result)
        else:
            xp.copyto(place, result, casting="same_kind")


def adopt(xp: Any, op: Op, chunk: Chunk, spec: Spec, result: Any, seen: list) -> None:
    """Make `result` the contents of a fresh chunk: itself if nobody else sees it, else a copy."""
    if not isinstance(result, xp.ndarray):
        result = xp.asarray(result)
    if result.shape != spec.shape or result.dtype != spec.dtype:
        raise AssertionError(
            f"{op.name} computed {result.shape} {result.dtype} and had promised {spec}"
        )
    if result.base is None and result.flags.c_contiguous and not any(result is a for a in seen):
        chunk.adopt(result)
    else:
        xp.copyto(chunk.allocate(spec.shape, spec.dtype), result)


def _clash(op: Op, places: list, arrays: list) -> bool:
    """Would writing the result destroy what is still to be read? As in `apply`; whole arrays and
    views are stretches of memory here."""
    for place in places:
        begin, end = _stretch(place)
        for array in arrays:
            first, last = (0, 0) if array is None else _stretch(array)
            same = first == begin and place.shape == array.shape
            if first < end and begin < last and not (op.elementwise and same):
                return True
    return False


def _stretch(array: Any) -> tuple[int, int]:
    begin = array.data.ptr
    return begin, begin + array.nbytes
