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

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_one_dtype, check_shape
from d2lmini.ops.core import Axes, Spec, normalize_axis, op, op_of_view, with_axis
from d2lmini.ops.signature import converter_of

# -- joining ---------------------------------------------------------------------------------------


def _infer_concat(*data: Spec, dim: int = 1) -> Spec:
    if not data:
        raise MXNetError("needs one array or more")
    check_one_dtype(*data)
    first = data[0].shape
    axis = normalize_axis(dim, len(first), "dim")
    for i, spec in enumerate(data):
        like = with_axis(first, axis, *spec.shape[axis : axis + 1])
        check_shape(f"input {i}", spec, like, why=f"sizes may differ on axis {axis} only")
    return Spec(with_axis(first, axis, sum([x.shape[axis] for x in data])), data[0].dtype)


@op(mxnet_name="Concat", infer=_infer_concat, flops=0, writes_num_args=True)
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
        check_shape(f"input {i}", spec, shape, why="the shape of input 0")
    at = normalize_axis(axis, len(shape) + 1)
    return Spec((*shape[:at], len(data), *shape[at:]), data[0].dtype)


@op(infer=_infer_stack, flops=0, writes_num_args=True)
def stack(xp, *data, axis: int = 0, out=None):
    """Arrays of equal shape side by side along a new axis, at position `axis` of the result.

    >>> nd.stack(nd.array([1, 2]), nd.array([3, 4]), axis=1).asnumpy().tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    at = axis % (data[0].ndim + 1)
    parts = [part[chunking.along(at, None)] for part in data]
    return concat.compute(xp, *parts, dim=at, out=out)


@stack.gradient(saves="data.shape")
def _(g, shapes, *, axis):
    parts = split(g, num_outputs=len(shapes), axis=axis, squeeze_axis=True)
    return parts if len(shapes) > 1 else [parts]


# -- splitting -------------------------------------------------------------------------------------


def _split(xp: Any, data: Any, cuts: Any, axis: int, squeeze: bool, out: Any) -> Any:
    """The parts of `data` along `axis`: so many equal ones, or between the positions in `cuts`."""
    axis = normalize_axis(axis, data.ndim)
    size = data.shape[axis]
    if isinstance(cuts, int):
        if cuts < 1 or size % cuts:
            raise MXNetError(
                f"axis {axis} of {data.shape} has size {size}, which does not divide into {cuts} "
                "equal parts"
            )
        cuts = [size // cuts * i for i in range(1, cuts)]
    bounds = list(pairwise((0, *cuts, size)))
    if any(not 0 <= begin <= end for begin, end in bounds):
        raise MXNetError(
            f"places {tuple(cuts)} do not cut axis {axis} of {data.shape}: need rising numbers "
            f"from 0 to {size}"
        )
    if squeeze and any(end - begin != 1 for begin, end in bounds):
        raise MXNetError(
            f"squeeze_axis needs parts of size 1: axis {axis} of {data.shape} has size {size}, the "
            f"parts are {bounds}"
        )
    parts = tuple(
        data[chunking.along(axis, begin if squeeze else slice(begin, end), ...)]
        for begin, end in bounds
    )
    if out is not None:
        for part, place in zip(parts, out if len(parts) > 1 else (out,)):
            chunking.copy(xp, part, place)
        return out
    return parts if len(parts) > 1 else parts[0]


@op_of_view(
    mxnet_name="SliceChannel",
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
    return _split(xp, data, num_outputs, axis, squeeze_axis, out)


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


@op_of_view(
    mxnet_name="_split_v2",
    mxnet_attributes=(_v2_to_mxnet, _v2_from_mxnet),
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
    return _split(xp, ary, indices_or_sections, axis, squeeze_axis, out)


@split.gradient()
@split_v2.gradient()
def _(g, *, axis, squeeze_axis):
    parts = g if isinstance(g, (list, tuple)) else [g]
    return stack(*parts, axis=axis) if squeeze_axis else concat(*parts, dim=axis)
