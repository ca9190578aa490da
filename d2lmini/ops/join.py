"""Joining, splitting and padding arrays: concat, stack, split, split_v2, pad.

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

`pad` extends axes with a constant, with the edge elements, or by reflection:

>>> x = nd.array([1, 2, 3]).reshape((1, 1, 1, 3))
>>> nd.pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 0, 0, 2, 1))
<BLANKLINE>
[[[[3. 2. 1. 2. 3. 2.]]]]
<NDArray 1x1x1x6 @cpu(0)>
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_choice, check_float, check_one_dtype, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Axes, Shape, Spec, normalize_axis, op, op_of_view, with_axis
from d2lmini.ops.create import where
from d2lmini.ops.shape import repeat
from d2lmini.ops.signature import converter_of
from d2lmini.ops.subscript import reverse, slice_axis, unslice

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


@op(mxnet_name="Concat", aliases=["_rnn_param_concat"], infer=_infer_concat, flops=0,
    writes_num_args=True)  # fmt: skip
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
    at = normalize_axis(axis, len(data[0].shape) + 1) if data else 0
    lines = [Spec((*x.shape[:at], 1, *x.shape[at:]), x.dtype) for x in data]
    for i, spec in enumerate(lines):
        check_shape(f"input {i}", spec, lines[0].shape, why="the shape of input 0")
    return _infer_concat(*lines, dim=at)


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
    if out is None:
        return parts if len(parts) > 1 else parts[0]
    for part, place in zip(parts, out if len(parts) > 1 else (out,)):
        chunking.copy(xp, part, place)
    return out


@op_of_view(
    mxnet_name="SliceChannel", outputs=lambda num_outputs, **_: num_outputs,
    output_names=("output0",),  # even a single one
)  # fmt: skip
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
    indices, sections = ([], wanted) if isinstance(wanted, int) else ([0, *wanted], 0)
    rest = {name: attrs[name] for name in ("axis", "squeeze_axis")}
    return {"indices": indices, "sections": sections, **rest}


def _v2_from_mxnet(words: dict[str, str]) -> dict[str, Any]:
    sections = int(words.pop("sections", 0))
    indices = converter_of("Shape")(words.pop("indices"))
    return {"axis": 1, **words, "indices_or_sections": sections or indices[1:]}


def _n_parts(indices_or_sections: Any, **_: Any) -> int:
    wanted = indices_or_sections
    return wanted if isinstance(wanted, int) else len(wanted) + 1


@op_of_view(
    mxnet_name="_split_v2", mxnet_attributes=(_v2_to_mxnet, _v2_from_mxnet), outputs=_n_parts
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


def _pairs(pad_width: Shape) -> list[tuple[int, int]]:
    """(0, 0, 1, 2) as [(0, 0), (1, 2)]: before and after each axis."""
    return list(zip(pad_width[::2], pad_width[1::2]))


def _infer_pad(data: Spec, *, mode: str, pad_width: Shape, constant_value: float = 0.0) -> Spec:
    check_choice("mode", mode, ("constant", "edge", "reflect"))
    check_float(data)
    ndim = len(data.shape)
    if ndim not in (4, 5) or len(pad_width) != 2 * ndim or any(pad_width[:4]):
        raise MXNetError(
            f"data is {data.shape}, pad_width={pad_width}: need (N, C, H, W) or (N, C, D, H, W), "
            "and two numbers (before, after) for each axis, 0 for the first two axes, as in MXNet; "
            "reshape data, or join it with zeros by concat"
        )
    for axis, (n, (before, after)) in enumerate(zip(data.shape, _pairs(pad_width))):
        longest = max(before, after)
        if before < 0 or after < 0:
            raise MXNetError(
                f"pad_width={pad_width} has a negative number; use slice() to shorten an axis"
            )
        if longest and mode != "constant" and n < (longest + 1 if mode == "reflect" else 1):
            raise MXNetError(
                f"mode {mode!r} needs a longer axis: axis {axis} of {data.shape} is "
                f"{n} long, its padding {longest}"
            )
    return Spec(_padded_shape(data.shape, pad_width), data.dtype)


def _padded_shape(shape: Shape, pad_width: Shape) -> Shape:
    return tuple(n + before + after for n, (before, after) in zip(shape, _pairs(pad_width)))


@composed(mxnet_name="Pad", infer=_infer_pad, flops=0)
def pad(data, *, mode: str, pad_width: Shape, constant_value: float = 0.0):
    """Extend every axis: pad_width is (before, after) for axis 0, then for axis 1, ...

    mode 'constant' fills with `constant_value`, 'edge' repeats the outermost element, 'reflect'
    mirrors at the outermost element (without repeating it). dtype kept. As in MXNet, data has four
    or five axes, and the first two are not padded; MXNetError at the call if not, and for a wrong
    width.
    """
    if mode == "constant":
        begin = pad_width[::2]
        among_zeros = partial(
            unslice, shape=_padded_shape(data.shape, pad_width), begin=begin,
            end=tuple(b + n for b, n in zip(begin, data.shape)),
        )  # fmt: skip
        if not constant_value:
            return among_zeros(data)
        inside, y = among_zeros(data.ones_like()), among_zeros(data)
        return where(inside, y, y.zeros_like() + constant_value)
    for axis, (before, after) in enumerate(_pairs(pad_width)):
        if not (before or after):
            continue
        n, part = data.shape[axis], partial(slice_axis, data, axis=axis)
        if mode == "edge":
            left = repeat(part(begin=0, end=1), repeats=before, axis=axis)
            right = repeat(part(begin=n - 1, end=n), repeats=after, axis=axis)
        else:
            left = reverse(part(begin=1, end=before + 1), axis=(axis,))
            right = reverse(part(begin=n - 1 - after, end=n - 1), axis=(axis,))
        data = concat(left, data, right, dim=axis)
    return data
