"""Joining and splitting arrays: concat, stack, split, split_v2.

>>> from d2lmini import nd
>>> x, y = nd.ones((2, 1)), nd.zeros((2, 2))
>>> z = nd.concat(x, y, dim=1)
>>> z
<BLANKLINE>
[[1. 0. 0.]
 [1. 0. 0.]]
<NDArray 2x3 @cpu(0)>
>>> [part.shape for part in nd.split_v2(z, (1,), axis=1)]
[(2, 1), (2, 2)]

Joining and splitting are each other's gradients. All ops keep the dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.attributes import converter_of
from d2lmini.ops.checks import check_one_dtype
from d2lmini.ops.core import Axes, Shape, Spec, normalize_axis, op, with_axis

# -- joining ---------------------------------------------------------------------------------------


def _infer_concat(*data: Spec, dim: int = 1) -> Spec:
    if not data:
        raise MXNetError("needs one array or more")
    check_one_dtype(*data)
    first = data[0].shape
    axis = normalize_axis(dim, len(first), "dim")
    before, after = first[:axis], first[axis + 1 :]
    joined = 0
    for i, spec in enumerate(data):
        shape = spec.shape
        if len(shape) != len(first) or shape[:axis] != before or shape[axis + 1 :] != after:
            raise MXNetError(
                f"input {i} is {shape}, input 0 {first}: sizes may differ on axis {axis} only"
            )
        joined += shape[axis]
    return Spec((*before, joined, *after), data[0].dtype)


@op(mxnet_name="Concat", infer=_infer_concat, flops=0, counted=True)
def concat(xp, *data, dim: int = 1, out=None):
    """Arrays one after the other along axis `dim`; their other sizes and dtypes must agree.

    MXNetError at the call, naming the input that does not fit.

    >>> nd.concat(nd.ones((1, 2)), nd.zeros((1, 2)), dim=0).asnumpy().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    if out is None:
        return xp.concatenate(data, axis=dim)
    axis = dim % out.ndim
    end = 0
    for part in data:
        begin, end = end, end + part.shape[axis]
        chunking.copy(xp, part, out[chunking.along(axis, slice(begin, end))])
    return out


@concat.gradient(saves="data.shape")
def _(g, shapes, *, dim):
    axis = dim % len(shapes[0])
    if len(shapes) == 1:
        return [g]
    ends = tuple(accumulate(shape[axis] for shape in shapes))
    return split_v2(g, ends[:-1], axis=axis)


def _infer_stack(*data: Spec, axis: int = 0) -> Spec:
    if not data:
        raise MXNetError("needs one array or more")
    check_one_dtype(*data)
    shape = data[0].shape
    for i, spec in enumerate(data):
        if spec.shape != shape:
            raise MXNetError(f"input {i} is {spec.shape}, input 0 {shape}: need the same shape")
    at = normalize_axis(axis, len(shape) + 1)
    return Spec((*shape[:at], len(data), *shape[at:]), data[0].dtype)


@op(infer=_infer_stack, flops=0, counted=True)
def stack(xp, *data, axis: int = 0, out=None):
    """Arrays of equal shape side by side along a new axis, at position `axis` of the result.

    >>> nd.stack(nd.array([1, 2]), nd.array([3, 4]), axis=1).asnumpy().tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    if out is None:
        return xp.stack(data, axis=axis)
    at = axis % out.ndim
    for i, part in enumerate(data):
        chunking.copy(xp, part, out[chunking.along(at, i, ...)])
    return out


@stack.gradient(saves="data.shape")
def _(g, shapes, *, axis):
    parts = split(g, num_outputs=len(shapes), axis=axis, squeeze_axis=True)
    return parts if len(shapes) > 1 else [parts]


# -- splitting -------------------------------------------------------------------------------------


def _parts(shape: Shape, axis: int, ends: Sequence[int], squeeze: bool) -> list[Shape]:
    """The shapes of the parts between 0, ends[0], ends[1], ... along `axis`."""
    sizes = [() if squeeze else (end - begin,) for begin, end in zip((0, *ends), ends)]
    return [with_axis(shape, axis, *size) for size in sizes]


def _split(xp: Any, data: Any, axis: int, ends: Sequence[int], squeeze: bool, out: Any) -> Any:
    axis %= data.ndim
    shapes = _parts(data.shape, axis, ends, squeeze)
    parts = tuple(
        data[chunking.along(axis, slice(begin, end))].reshape(shape)
        for begin, end, shape in zip((0, *ends), ends, shapes)
    )
    if out is not None:
        for part, place in zip(parts, out if len(parts) > 1 else (out,)):
            chunking.copy(xp, part, place)
        return out
    return parts if len(parts) > 1 else parts[0]


def _infer_split(
    data: Spec, *, num_outputs: int, axis: int = 1, squeeze_axis: bool = False
) -> list[Spec]:
    axis = normalize_axis(axis, len(data.shape))
    size = data.shape[axis]
    if num_outputs < 1 or size % num_outputs:
        raise MXNetError(
            f"axis {axis} of {data.shape} has size {size}, which does not divide into "
            f"num_outputs={num_outputs} equal parts"
        )
    if squeeze_axis and size != num_outputs:
        raise MXNetError(
            f"squeeze_axis needs parts of size 1: axis {axis} of {data.shape} has size {size}, "
            f"num_outputs={num_outputs}"
        )
    ends = _equal_ends(size, num_outputs)
    return [Spec(s, data.dtype) for s in _parts(data.shape, axis, ends, squeeze_axis)]


def _equal_ends(size: int, n: int) -> list[int]:
    return [size // n * (i + 1) for i in range(n)]


@op(
    mxnet_name="SliceChannel",
    infer=_infer_split,
    flops=0,
    outputs=lambda num_outputs, **_: num_outputs,
    output_names=("output0",),  # even a single one
)
def split(xp, data, *, num_outputs: int, axis: int = 1, squeeze_axis: bool = False, out=None):
    """`num_outputs` equal parts along `axis`, without that axis if squeeze_axis (parts of size 1).

    Returns a list, or the array itself for one part. MXNetError at the call if num_outputs does not
    divide the size.

    >>> [part.shape for part in nd.split(nd.ones((4, 6)), num_outputs=3, axis=1)]
    [(4, 2), (4, 2), (4, 2)]
    """
    return _split(xp, data, axis, _equal_ends(data.shape[axis], num_outputs), squeeze_axis, out)


def _v2_ends(size: int, indices_or_sections: Any) -> list[int]:
    if isinstance(indices_or_sections, int):
        return _equal_ends(size, indices_or_sections)
    return [*indices_or_sections, size]


def _v2_to_mxnet(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """MXNet encodes the number of equal parts as the positions where parts begin, 0 included."""
    wanted = attrs["indices_or_sections"]
    equal = isinstance(wanted, int)
    return {
        "indices": [] if equal else [0, *wanted],
        "sections": wanted if equal else 0,
        "axis": attrs["axis"],
        "squeeze_axis": attrs["squeeze_axis"],
    }


def _v2_from_mxnet(words: dict[str, str]) -> dict[str, Any]:
    sections = int(words.pop("sections", 0))
    indices = converter_of("Shape")(words.pop("indices"))
    return {"axis": 1, **words, "indices_or_sections": sections or indices[1:]}


def _infer_split_v2(
    ary: Spec, *, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False
) -> list[Spec]:
    axis = normalize_axis(axis, len(ary.shape))
    size = ary.shape[axis]
    if isinstance(indices_or_sections, int) and (
        indices_or_sections < 1 or size % indices_or_sections
    ):
        raise MXNetError(
            f"axis {axis} of {ary.shape} has size {size}, which does not divide into "
            f"{indices_or_sections} equal parts"
        )
    ends = _v2_ends(size, indices_or_sections)
    if any(not 0 <= begin <= end for begin, end in zip((0, *ends), ends)):
        raise MXNetError(
            f"places {tuple(ends[:-1])} do not cut axis {axis} of {ary.shape}: need rising numbers "
            f"from 0 to {size}"
        )
    if squeeze_axis and any(end - begin != 1 for begin, end in zip((0, *ends), ends)):
        raise MXNetError(f"squeeze_axis needs parts of size 1, got ends {ends} on axis {axis}")
    return [Spec(s, ary.dtype) for s in _parts(ary.shape, axis, ends, squeeze_axis)]


@op(
    mxnet_name="_split_v2",
    mxnet_attributes=(_v2_to_mxnet, _v2_from_mxnet),
    infer=_infer_split_v2,
    flops=0,
    outputs=lambda indices_or_sections, **_: (
        indices_or_sections
        if isinstance(indices_or_sections, int)
        else len(indices_or_sections) + 1
    ),
)
def split_v2(
    xp, ary, *, indices_or_sections: Axes, axis: int = 0, squeeze_axis: bool = False, out=None
):
    """Parts along `axis`: n equal parts (an int), or split before the positions in a tuple.

    split_v2(x, (1, 3)) is [x[:1], x[1:3], x[3:]]. squeeze_axis drops the axis of parts of size 1.
    Returns a list, or the array itself for one part. MXNetError at the call for positions that do
    not increase from 0 to the size.
    """
    ends = _v2_ends(ary.shape[axis], indices_or_sections)
    return _split(xp, ary, axis, ends, squeeze_axis, out)


@split.gradient()
@split_v2.gradient()
def _(g, *, axis, squeeze_axis):
    parts = g if isinstance(g, (list, tuple)) else [g]
    return stack(*parts, axis=axis) if squeeze_axis else concat(*parts, dim=axis)
