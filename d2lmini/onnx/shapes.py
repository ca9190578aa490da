"""Converters of what moves, picks, joins and reduces."""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.graph.ir import Node
from d2lmini.onnx.writer import Writer, converts
from d2lmini.ops.reduce import reduced_axes

#: "To the end" in a Slice.
_FAR = np.iinfo(np.int64).max


def _axis(w: Writer, node: Node, name: str = "axis") -> int:
    """The attribute, counted from the front."""
    axis: int = node.attrs[name]
    return axis % len(w.x.shape)


# -- other shapes ----------------------------------------------------------------------------------


@converts("reshape", "_np_reshape", "reshape_like", "flatten", "expand_dims", "squeeze")
def _reshape(w: Writer, node: Node, x: str, *_like: str) -> str:
    return w.reshape_to(x, w.y.shape)


@converts("transpose")
def _transpose(w: Writer, node: Node, x: str) -> str:
    order = list(range(len(w.x.shape)))
    order = [order[a] for a in node.attrs["axes"] or order[::-1]]
    return w.transpose(x, *order) if order else w.add("Identity", x)


@converts("_spread")
def _spread(w: Writer, node: Node, x: str) -> str:
    if 0 in node.attrs["shape"]:
        raise w.problem("this op has no converter for copies to size 0")
    return w.add("Expand", w.reshape_to(x, node.attrs["kept"]), w.array(list(node.attrs["shape"])))


@converts("broadcast_to", "broadcast_axis", "broadcast_like")
def _broadcast(w: Writer, node: Node, x: str, *_like: str) -> str:
    before, after = w.x.shape, w.y.shape
    before = (1,) * (len(after) - len(before)) + before
    return w.add("Expand", x, w.array([1 if n == m else n for n, m in zip(after, before)]))


@converts("pad")
def _pad(w: Writer, node: Node, x: str) -> str:
    width = node.attrs["pad_width"]
    value = w.number(node.attrs["constant_value"], w.x.dtype)
    return w.add("Pad", x, w.array(width[::2] + width[1::2]), value, mode=node.attrs["mode"])


# -- parts -----------------------------------------------------------------------------------------


def slice_axis(w: Writer, x: str, begin: Any, end: Any, step: Any, axes: Any) -> str:
    """x[begin:end:step] along the axes; None as in Python."""
    steps = [s or 1 for s in step]
    begins = [(0 if s > 0 else _FAR) if b is None else b for b, s in zip(begin, steps)]
    ends = [(_FAR if s > 0 else -_FAR) if e is None else e for e, s in zip(end, steps)]
    return w.add("Slice", x, *(w.array(list(v)) for v in (begins, ends, axes, steps)))


@converts("slice", "slice_axis", "reverse")
def _slice(w: Writer, node: Node, x: str) -> str:
    a = node.attrs
    if w.op_name == "slice":
        step = a["step"] or (1,) * len(a["begin"])
        return slice_axis(w, x, a["begin"], a["end"], step, range(len(a["begin"])))
    if w.op_name == "slice_axis":
        return slice_axis(w, x, (a["begin"],), (a["end"],), (1,), (_axis(w, node),))
    axes = (a["axis"],) if isinstance(a["axis"], int) else a["axis"]
    nothing = (None,) * len(axes)
    return slice_axis(w, x, nothing, nothing, (-1,) * len(axes), axes)


@converts("split", "split_v2")
def _split(w: Writer, node: Node, x: str) -> Any:
    axis = _axis(w, node)
    whole = w.x.shape[axis]
    wanted = node.attrs.get("num_outputs") or node.attrs["indices_or_sections"]
    if isinstance(wanted, int):
        cuts = [whole // wanted * i for i in range(1, wanted)]
    else:
        cuts = list(wanted)
    pairs = zip([0, *cuts], [*cuts, None])
    ys = [slice_axis(w, x, (begin,), (end,), (1,), (axis,)) for begin, end in pairs]
    if node.attrs["squeeze_axis"]:
        ys = [w.squeeze(y, axis) for y in ys]
    return ys


@converts("concat", "_rnn_param_concat")
def _concat(w: Writer, node: Node, *xs: str) -> str:
    return w.add("Concat", *xs, axis=_axis(w, node, "dim"))


# -- by index --------------------------------------------------------------------------------------


def _places(w: Writer, indices: str, size: Any, mode: str) -> str:
    """Indices as numbers below `size`; others go to the border, or around."""
    places = w.cast(indices, "int64")
    if mode == "wrap":
        return w.add("Mod", places, w.array(size))
    return w.clip(places, 0, w.array(size - 1))


@converts("take")
def _take(w: Writer, node: Node, data: str, indices: str) -> str:
    axis = _axis(w, node)
    places = _places(w, indices, w.x.shape[axis], node.attrs["mode"])
    return w.add("Gather", data, places, axis=axis)


@converts("one_hot")
def _one_hot(w: Writer, node: Node, indices: str) -> str:
    # OneHot would take -1 for the last.
    a, ndim = node.attrs, len(w.x.shape)
    hit = w.add("Equal", w.unsqueeze(w.cast(indices, "int64"), ndim), w.array(range(a["depth"])))
    return w.add(
        "Where", hit, w.array(a["on_value"], a["dtype"]), w.array(a["off_value"], a["dtype"])
    )


# -- reductions ------------------------------------------------------------------------------------

_REDUCTIONS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax",
    "min": "ReduceMin",
}  # fmt: skip


def _reduce(w: Writer, node: Node, operator: str, x: str) -> str:
    ndim = len(w.x.shape)
    axes = reduced_axes(node.attrs["axis"], ndim, node.attrs.get("exclude", False))
    out = w.y.shape
    y = w.reduce(operator, x, axes, node.attrs["keepdims"]) if axes else w.add("Identity", x)
    left = ndim if node.attrs["keepdims"] else ndim - len(axes)
    return y if len(out) == left else w.reshape_to(y, out)


@converts(*_REDUCTIONS)
def _reduction(w: Writer, node: Node, x: str) -> str:
    return _reduce(w, node, _REDUCTIONS[w.op_name], x)


@converts("norm")
def _norm(w: Writer, node: Node, x: str) -> str:
    y = _reduce(w, node, "ReduceL1" if node.attrs["ord"] == 1 else "ReduceL2", x)
    return w.cast(y, w.y.dtype) if w.y.dtype != w.x.dtype else y


@converts("argmax", "argmin")
def _arg(w: Writer, node: Node, x: str) -> str:
    axis, keep = node.attrs["axis"], int(node.attrs["keepdims"])
    if axis is None:
        x, axis = w.add("Flatten", x, axis=0), 1
    operator = "ArgMax" if w.op_name == "argmax" else "ArgMin"
    y = w.cast(w.add(operator, x, axis=axis, keepdims=keep), w.y.dtype)
    out, ndim = w.y.shape, len(w.x.shape)
    plain = node.attrs["axis"] is not None and len(out) == ndim - 1 + keep
    return y if plain else w.reshape_to(y, out)
