"""Converters of ops to ONNX: element by element, what moves or reduces, and layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.graph.ir import Node, spec_of
from d2lmini.onnx.writer import Writer, converts
from d2lmini.ops import scalar_cache
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.reduce import reduced_axes


@converts("Dropout")
def _dropout(w: Writer, node: Node, x: str) -> str:
    if node.attrs["mode"] == "always":
        raise w.problem("mode='always' draws numbers, and has no converter")
    return w.add("Identity", x)


@converts("relu")
def _relu(w: Writer, node: Node, x: str) -> str:
    dtype = w.x.dtype
    return w.add("Relu", x) if dtype.kind == "f" else w.add("Max", x, w.number(0, dtype))


@converts("clip")
def _clip(w: Writer, node: Node, x: str) -> str:
    low, high = node.attrs["a_min"], node.attrs["a_max"]
    if low > high:
        raise w.problem(f"a_min={low} above a_max={high} has no converter")
    return w.add("Clip", x, _beside(w, low, "clamped_scalars"), _beside(w, high, "clamped_scalars"))


@converts("cast", "amp_cast")
def _cast(w: Writer, node: Node, x: str) -> str:
    if w.op_name == "amp_cast" and w.y.dtype.kind in "iu" and w.x.dtype.kind == "f":
        raise w.problem("to integers has no converter")  # it rounds, and limits
    return w.cast(x, w.y.dtype)


@converts("where")
def _where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    mask = w.cast(condition, bool)
    missing = len(w.y.shape) - len(w.x.shape)
    if missing:  # a vector chooses among rows
        mask = w.unsqueeze(mask, *range(1, 1 + missing))
    return w.add("Where", mask, x, y)


# -- two operands ----------------------------------------------------------------------------------

_FAMILIES = [f for f in FAMILIES.values() if f.onnx]


@converts(*(op.name for f in _FAMILIES for op in f.ops))
def _family(w: Writer, node: Node, x: str, y: str = "") -> str:
    family = node.op.family
    if not y:
        y = _beside(w, node.attrs["scalar"], family.numbers)
        x, y = (x, y) if node.op is family.scalar else (y, x)
    if family.onnx in ("And", "Or", "Xor"):
        x, y = w.cast(x, bool), w.cast(y, bool)
    z = w.add(family.onnx, x, y)
    return w.cast(z, w.y.dtype) if family.truth else z


def _beside(w: Writer, value: Any, table: str) -> str:
    """A number beside the first input, in its dtype."""
    dtype = w.x.dtype
    if dtype.kind in "iu":
        value = getattr(scalar_cache, table)[np][dtype][value]
    return w.number(value, dtype)


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


@converts("concat")
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


# -- products --------------------------------------------------------------------------------------


@converts("FullyConnected")
def _fully_connected(w: Writer, node: Node, x: str, weight: str, bias: str = "") -> str:
    ndim = len(w.x.shape)
    if node.attrs["flatten"] or ndim == 2:
        x = x if ndim == 2 else w.add("Flatten", x, axis=1)
        return w.add("Gemm", x, weight, *([bias] if bias else []), transB=1)
    y = w.add("MatMul", x, w.transpose(weight, 1, 0))
    return w.add("Add", y, bias) if bias else y


@converts("batch_dot")
def _batch_dot(w: Writer, node: Node, *xs: str) -> str:
    a, operands, order = node.attrs, [], list(range(len(w.x.shape)))
    for x, is_transposed in zip(xs, (a["transpose_a"], a["transpose_b"])):
        operands.append(w.transpose(x, *order[:-2], order[-1], order[-2]) if is_transposed else x)
    return w.add("MatMul", *operands)


@converts("dot")
def _dot(w: Writer, node: Node, a: str, b: str) -> str:
    """The last axis of a with the first of b; transposed, the first of a, the last of b."""
    sizes = [spec_of(entry).shape for entry in node.sources]
    if len(sizes[0]) == len(sizes[1]) == 1:
        return w.reshape_to(w.add("MatMul", a, b), (1,))
    # Both become matrices, whose product gets its axes back.
    parts = []
    for x, size, transpose, at in (
        (a, sizes[0], node.attrs["transpose_a"], -1),
        (b, sizes[1], node.attrs["transpose_b"], 0),
    ):
        if transpose and len(size) > 1:
            order = list(range(len(size)))
            # a's first axis goes last, b's last goes first.
            order = [*order[1:], 0] if at == -1 else [order[-1], *order[:-1]]
            x, size = w.transpose(x, *order), tuple(size[i] for i in order)
        inner = size[at]
        if len(size) != 2:
            x = w.reshape_to(x, (-1, inner) if at == -1 else (inner, -1))
        parts.append(x)
    y = w.add("MatMul", *parts)
    return y if len(sizes[0]) == len(sizes[1]) == 2 else w.reshape_to(y, w.y.shape)


# -- convolution and pooling -----------------------------------------------------------------------


def _window(w: Writer, node: Node) -> dict[str, Any]:
    """Kernel, strides and symmetric pads as ONNX has them."""
    a = node.attrs
    if a.get("layout") not in (None, "NCW", "NCHW", "NCDHW"):
        raise w.problem(f"layout {a['layout']} has no converter; use N, C and then space")
    n = len(a["kernel"])
    return {
        "kernel_shape": list(a["kernel"]),
        "strides": list(a["stride"] or (1,) * n),
        "pads": list(a["pad"] or (0,) * n) * 2,
    }


@converts("Convolution")
def _convolution(w: Writer, node: Node, *xs: str) -> str:
    window = _window(w, node)
    dilations = list(node.attrs["dilate"] or (1,) * len(node.attrs["kernel"]))
    return w.add("Conv", *xs, group=node.attrs["num_group"], dilations=dilations, **window)


@converts("Deconvolution")
def _deconvolution(w: Writer, node: Node, *xs: str) -> str:
    a, n = node.attrs, len(node.attrs["kernel"])
    return w.add(
        "ConvTranspose", *xs, group=a["num_group"], dilations=list(a["dilate"] or (1,) * n),
        output_padding=list(a["adj"] or (0,) * n), **_window(w, node),
    )  # fmt: skip


@converts("Pooling")
def _pooling(w: Writer, node: Node, x: str) -> str:
    kind = {"max": "Max", "avg": "Average"}.get(node.attrs["pool_type"])
    if kind is None:
        raise w.problem("pool_type='sum' has no converter")
    ndim = len(w.x.shape)
    if node.attrs["global_pool"]:
        return w.add(f"Global{kind}Pool", x)
    window = _window(w, node)
    n = ndim - 2
    inputs = w.x.shape[2:]
    outputs = w.y.shape[2:]
    before = window["pads"][:n]
    # What the last window reaches beyond the padding, where the convention is 'full'.
    beyond = [
        max((o - 1) * s + k - i - 2 * p, 0)
        for o, s, k, i, p in zip(outputs, window["strides"], window["kernel_shape"], inputs, before)
    ]
    after = [p + b for p, b in zip(before, beyond)]
    window["pads"] = [*before, *after]
    if any(p >= k for p, k in zip(after, window["kernel_shape"])):
        raise w.problem("a window lies in the padding alone, which ONNX does not allow")
    if kind == "Max":
        return w.add("MaxPool", x, **window)
    padded = node.attrs["count_include_pad"] in (None, True)
    if padded and any(beyond):
        raise w.problem("the average of a window beyond the padding has no converter")
    return w.add("AveragePool", x, count_include_pad=int(padded), **window)


# -- normalization ---------------------------------------------------------------------------------


def _over_axis_1(node: Node) -> bool:
    ndim = len(spec_of(node.sources[0]).shape)
    return ndim > 1 and node.attrs["axis"] % ndim == 1 and not node.attrs["output_mean_var"]


@converts("BatchNorm", when=_over_axis_1)
def _batch_norm(w: Writer, node: Node, x: str, gamma: str, *rest: str) -> str:
    if node.attrs["fix_gamma"]:
        gamma = w.array(np.ones(w.y.shape[1]), spec_of(node.sources[1]).dtype)
    return w.add("BatchNormalization", x, gamma, *rest, epsilon=node.attrs["eps"])


def _over_last_axis(node: Node) -> bool:
    ndim = len(spec_of(node.sources[0]).shape)
    return node.attrs["axis"] % ndim == ndim - 1


@converts("LayerNorm", when=_over_last_axis)
def _layer_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    return w.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=node.attrs["eps"])


# -- activations -----------------------------------------------------------------------------------


@converts("Activation")
def _activation(w: Writer, node: Node, x: str) -> str:
    kind: str = node.attrs["act_type"]
    return w.add("Softplus" if kind == "softrelu" else kind.capitalize(), x)


@converts("LeakyReLU", when=lambda node: node.attrs["act_type"] in ("elu", "leaky", "prelu"))
def _leaky_relu(w: Writer, node: Node, x: str, gamma: str = "") -> str:
    if gamma:  # it broadcasts along the channels
        return w.add("PRelu", x, w.reshape_to(gamma, (-1,) + (1,) * (len(w.x.shape) - 2)))
    operator = "Elu" if node.attrs["act_type"] == "elu" else "LeakyRelu"
    return w.add(operator, x, alpha=node.attrs["slope"])


@converts("softmax", "log_softmax", when=lambda node: not node.attrs["temperature"])
def _softmax(w: Writer, node: Node, x: str) -> str:
    operator = "Softmax" if w.op_name == "softmax" else "LogSoftmax"
    return w.add(operator, x, axis=node.attrs["axis"])
