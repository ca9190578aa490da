"""What MXNet 1.x calls our ops, and how it says what it has no op for.

Most names are the same. Some of ours do at once what MXNet takes several for (a loss from logits,
`x[1, ::2]` of a traced `forward`): these are written out in its words. What has no words there, as
the ops of our gradients, is an error.

>>> from d2lmini import sym
>>> from d2lmini.graph.ir import topological
>>> gap = sym._contrib_isnan(sym.var("x"), name="gap")
>>> [node.op.name for node in topological(in_mxnet_words(gap._entries)) if node.op]
['_not_equal']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Inputs, Node, Replacement, transform
from d2lmini.ops.core import Op, registry

#: Our name -> MXNet's own, where it is another (it knows most of ours as aliases, too).
RENAMED = {
    "reshape": "Reshape",
    "flatten": "Flatten",
    "cast": "Cast",
    "concat": "Concat",
    "split": "SliceChannel",
    "swapaxes": "SwapAxis",
    "pad": "Pad",
    "split_v2": "_split_v2",
    "cumsum": "_np_cumsum",
    "ravel_multi_index": "_ravel_multi_index",
    "unravel_index": "_unravel_index",
}

#: Names with an underscore in front are ours alone, but for these and families of the same kind.
UNDERSCORED = frozenset(
    "_full _zeros _ones _arange _linspace _eye _copyto _copy _identity_with_attr_like_rhs _mod "
    "_power _maximum _minimum _hypot _equal _not_equal _greater _greater_equal _lesser "
    "_lesser_equal _logical_and _logical_or _logical_xor _backward_gather_nd _scatter_set_nd "
    "_rnn_param_concat _shuffle _adamw_update _mp_adamw_update".split()
)
FAMILIES = ("_contrib_", "_random_", "_sample_")
NOT_THERE = frozenset(
    "_arctan2_scalar _rarctan2_scalar _setitem_scalar _contrib_isnan _contrib_isinf "
    "_contrib_isfinite broadcast_arctan2 digamma".split()
)

#: Attributes that are always written: MXNet requires them, or has another default.
ALWAYS = {
    "_full": ("value",),
    "slice_axis": ("end",),
    "smooth_l1": ("scalar",),
    "lamb_update_phase1": ("wd",),
    "mp_lamb_update_phase1": ("wd",),
    "multi_sum_sq": ("num_arrays",),
    "reset_arrays": ("num_arrays",),
}

#: Ops that are told how many inputs they get.
COUNTED = frozenset({"concat", "stack", "add_n", "_rnn_param_concat", "UpSampling", "khatri_rao"})


def mxnet_name(op: Op) -> str | None:
    """The op's name in MXNet; None if MXNet has no such op."""
    name = op.name
    known = name in UNDERSCORED or name.startswith(FAMILIES) or name.endswith("_scalar")
    if name in NOT_THERE or (name.startswith("_") and not known):
        return None
    return f"_{name}" if name.startswith("linalg_") else RENAMED.get(name, name)


def in_mxnet_words(
    entries: Sequence[Entry], remove_amp_cast: bool = False, others: bool = False
) -> list[Entry]:
    """The graph behind `entries` in ops that MXNet has.

    remove_amp_cast: leave out conversions that mixed precision put in. Where MXNet has no words for
    an op, MXNetError naming it and the node; with `others` it stays.
    """

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node.op is None:
            return None
        if node.op.name == "amp_cast" and remove_amp_cast:
            return inputs[:1]
        if node.op.name in WORDS:
            return [WORDS[node.op.name](node, *inputs)]
        if mxnet_name(node.op) is None and not others:
            raise MXNetError(
                f"node {node.name!r}: MXNet has no op {node.op.name!r}, which is d2lmini's own, so "
                "this graph cannot be written to its file format; use ops of MXNet's instead"
            )
        return None if inputs is node.inputs else node.replace(inputs=inputs, specs=None)

    return transform(entries, rule)


class _Writer:
    """Makes the nodes that stand for one of ours; the last gets its name and labels."""

    def __init__(self, node: Node):
        self.node = node
        self.count = 0

    def __call__(self, op: str, *inputs: Entry | None, last: bool = False, **attrs: Any) -> Entry:
        name = self.node.name if last else f"{self.node.name}_{op.strip('_')}{self.count}"
        self.count += 1
        attrs = registry[op].bind_attributes((), attrs, 0)
        return Node(registry[op], name, inputs, attrs, None, self.node.labels), 0


def _cross_entropy(node: Node, data: Entry, label: Entry) -> Entry:
    write, attrs = _Writer(node), node.attrs
    axis = attrs["axis"]
    p = write("log_softmax", data, axis=axis)
    if attrs["sparse_label"]:
        taken = write("pick", p, label, axis=axis, keepdims=True)
    else:
        like = write("reshape_like", label, p)
        taken = write("sum", write("elemwise_mul", p, like), axis=axis, keepdims=True)
    scaled = write("_mul_scalar", taken, scalar=-attrs["scale"])
    return write("mean", scaled, axis=attrs["batch_axis"], exclude=True, last=True)


def _squared_error(node: Node, pred: Entry, label: Entry) -> Entry:
    write = _Writer(node)
    squares = write("square", write("elemwise_sub", pred, write("reshape_like", label, pred)))
    scaled = write("_mul_scalar", squares, scalar=node.attrs["scale"])
    return write("mean", scaled, axis=node.attrs["batch_axis"], exclude=True, last=True)


def _getitem(node: Node, data: Entry, indices: Entry | None = None) -> Entry:
    """A slice for numbers and slices, then axes gone and axes new."""
    key, write = node.attrs["key"], _Writer(node)
    axes = [item for item in key if item is not None and item is not ...]
    arrays = [axis for axis, item in enumerate(axes) if type(item) is tuple and item[0] == "at"]
    numbers = tuple(axis for axis, item in enumerate(axes) if type(item) is int)
    if len(arrays) > 1 or (arrays and numbers):
        raise MXNetError(
            f"node {node.name!r}: x[{key}] by several arrays has no counterpart in MXNet's files; "
            "use take, pick or gather_nd"
        )
    bounds = [(None, None, 1) if i in arrays else _bounds(item) for i, item in enumerate(axes)]
    begin, end, step = (tuple(b) for b in zip(*bounds, strict=True)) if bounds else ((), (), ())
    y = write("slice", data, begin=begin, end=end, step=step)
    if arrays:
        axis = arrays[0]
        places = write("reshape", indices, shape=axes[axis][1])
        y = write("take", y, places, axis=axis, mode="wrap")  # -1 is the last
    if numbers:
        y = write("squeeze", y, axis=numbers)
    for axis, item in enumerate(i for i in key if type(i) is not int and i is not ...):
        if item is None:
            y = write("expand_dims", y, axis=axis)
    return write("_copy", y, last=True)


def _bounds(item: Any) -> tuple[int, int | None, int]:
    return (item, item + 1, 1) if type(item) is int else item


def _isnan(node: Node, x: Entry) -> Entry:
    return _Writer(node)("_not_equal", x, x, last=True)


def _isinf(node: Node, x: Entry) -> Entry:
    write = _Writer(node)
    return write("_equal_scalar", write("abs", x), scalar=float("inf"), last=True)


def _isfinite(node: Node, x: Entry) -> Entry:
    write = _Writer(node)
    nothing = write("elemwise_sub", x, x)  # 0, or nan
    return write("_equal", nothing, nothing, last=True)


def _to_dtype(node: Node, x: Entry) -> Entry:
    return _Writer(node)("cast", x, dtype=node.attrs["dtype"], last=True)


#: Our op -> what says the same in MXNet's ops: (node, *inputs) -> entry.
WORDS: dict[str, Callable[..., Entry]] = {
    "_softmax_cross_entropy": _cross_entropy,
    "_squared_error": _squared_error,
    "_getitem": _getitem,
    "_contrib_isnan": _isnan,
    "_contrib_isinf": _isinf,
    "_contrib_isfinite": _isfinite,
    "_copyto": _to_dtype,
}
