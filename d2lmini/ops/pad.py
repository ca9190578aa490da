"""pad: extend every axis with a constant, with the edge elements, or by reflection.

>>> from d2lmini import nd
>>> x = nd.array([1, 2, 3]).reshape((1, 1, 1, 3))
>>> nd.pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 0, 0, 2, 1))
<BLANKLINE>
[[[[3. 2. 1. 2. 3. 2.]]]]
<NDArray 1x1x1x6 @cpu(0)>
"""

from __future__ import annotations

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_choice, check_float
from d2lmini.ops.core import Shape, Spec, op
from d2lmini.ops.subscript import slice_


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
    return Spec(_infer_pad_shape(data.shape, pad_width), data.dtype)


def _infer_pad_shape(shape: Shape, pad_width: Shape) -> Shape:
    return tuple(n + before + after for n, (before, after) in zip(shape, _pairs(pad_width)))


def _inside(shape: Shape, pad_width: Shape) -> tuple[slice, ...]:
    """The index of an array of `shape` in its padded form."""
    return tuple(slice(b, b + n) for n, (b, _) in zip(shape, _pairs(pad_width)))


@op(mxnet_name="Pad", infer=_infer_pad, flops=0)
def pad(xp, data, *, mode: str, pad_width: Shape, constant_value: float = 0.0, out=None):
    """Extend every axis: pad_width is (before, after) for axis 0, then for axis 1, ...

    mode 'constant' fills with `constant_value`, 'edge' repeats the outermost element, 'reflect'
    mirrors at the outermost element (without repeating it). dtype kept. As in MXNet, data has four
    or five axes, and the first two are not padded; MXNetError at the call if not, and for a wrong
    width.
    """
    if out is None:
        out = xp.empty(_infer_pad_shape(data.shape, pad_width), data.dtype)
    if mode == "constant":
        out.fill(data.dtype.type(constant_value))
    chunking.copy(xp, data, out[_inside(data.shape, pad_width)])
    if mode == "constant":
        return out
    # Axis by axis over all of `out`: corners filled from unfinished elements are filled again when
    # the next axis is processed.
    for axis, (before, after) in enumerate(_pairs(pad_width)):
        lines = xp.moveaxis(out, axis, 0)
        first, last = before, before + data.shape[axis] - 1
        if mode == "edge":
            lines[:first] = lines[first : first + 1]
            lines[last + 1 :] = lines[last : last + 1]
        else:
            lines[:first] = lines[first + 1 : first + before + 1][::-1]
            lines[last + 1 :] = lines[last - after : last][::-1]
    return out


@pad.gradient(saves="data.shape")
def _(g, shape, *, mode, pad_width):
    if mode == "constant":
        inside = _inside(shape, pad_width)
        return slice_(g, begin=tuple(i.start for i in inside), end=tuple(i.stop for i in inside))
    return unpad(g, shape=shape, mode=mode, pad_width=pad_width)


@op("_unpad", infer=lambda data, *, shape, **_: Spec(shape, data.dtype))
def unpad(xp, data, *, shape: Shape, mode: str, pad_width: Shape):
    """Add the borders that `pad` made to the elements they were copied from: its gradient."""
    for axis, (n, (before, after)) in enumerate(zip(shape, _pairs(pad_width))):
        lines = xp.moveaxis(data, axis, 0)
        inner = lines[before : before + n].copy()
        left, right = lines[:before], lines[before + n :]
        if mode == "edge" and n:
            inner[:1] += left.sum(axis=0, dtype=data.dtype)
            inner[-1:] += right.sum(axis=0, dtype=data.dtype)
        elif mode == "reflect":
            inner[1 : before + 1] += left[::-1]
            inner[n - 1 - after : n - 1] += right[::-1]
        data = xp.moveaxis(inner, 0, axis)
    return data


unpad.gradient()(lambda g, *, mode, pad_width: pad(g, mode=mode, pad_width=pad_width))
