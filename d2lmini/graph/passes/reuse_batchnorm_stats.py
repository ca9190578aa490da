"""Normalization: who asks for mean and variance besides takes them from BatchNorm, which has them.

The gradient of BatchNorm's gradient depends on mean and variance of the data, and computes them
from the data again, so that gradients of all orders are right; a program may ask for them, too. In
a graph that is not differentiated further the mean is what BatchNorm itself has found, its second
output, and 1 / sqrt(variance + eps) the third.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of
>>> x, *states = [sym.var(name) for name in "xgbmv"]
>>> with sym.NameManager():
...     y = sym.BatchNorm(x, *states, fix_gamma=False, name="norm")
...     inverse = sym.rsqrt(sym.mean(sym.square(x - sym.mean(x, axis=0)), axis=0) + 0.001)
>>> before = graph_of(sym.Group([y, inverse]), True, x=(10, 3), g=(3,), b=(3,), m=(3,), v=(3,))
>>> [node.op.name for node in topological(before) if node.op]
['BatchNorm', 'mean', 'broadcast_sub', 'square', 'mean', '_plus_scalar', 'rsqrt']
>>> [node.op.name for node in topological(reuse_batchnorm_stats(before)) if node.op]
['BatchNorm', 'reshape']

The results differ by roundings from those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini.bfloat16 import is_half
from d2lmini.graph.ir import Entry, Node, spec_of, topological
from d2lmini.graph.passes.factor_sums import axes_of
from d2lmini.graph.passes.rewrite import Replacement, calls, rewritten
from d2lmini.graph.passes.views import is_reshape, reshape


def reuse_batchnorm_stats(outputs: Sequence[Entry]) -> list[Entry]:
    """With the statistics that BatchNorm found in the place of those taken again."""
    if not any(calls((node, 0), ("BatchNorm",)) for node in topological(outputs)):
        return list(outputs)
    # By what they normalize. Those met so far run before the node asked about: no circles.
    met: dict[Entry, Node] = {}

    def meet(_: Node, node: Node) -> None:
        if calls((node, 0), ("BatchNorm",)) and node.mutated:
            data, gamma = node.inputs[:2]
            assert data is not None and gamma is not None
            if spec_of(data).dtype == spec_of(gamma).dtype and not is_half(spec_of(data).dtype):
                met[_source(data)] = node

    def rule(node: Node) -> Replacement:
        assert node.op is not None
        if node.op.name == "mean":
            norm, which = _norm_of(node, node.inputs[0], met), 1
        elif node.op.name == "rsqrt":
            norm, which = _of_variance(node, met), 2
        else:
            return None
        return reshape((norm, which), spec_of((node, 0)).shape, node) if norm else None

    return rewritten(outputs, rule, meet)


def _norm_of(mean: Node, x: Entry | None, met: dict[Entry, Node]) -> Node | None:
    """The BatchNorm that takes this mean, of its data in any shape, over all but the channels."""
    assert x is not None
    norm = met.get(_source(x))
    if norm is None or mean.inputs[0] is None or norm.inputs[0] is None:
        return None
    shape, axis = spec_of(norm.inputs[0]).shape, norm.attrs["axis"]
    axis %= len(shape)
    taken = spec_of(mean.inputs[0]).shape
    fits = spec_of(x).shape == taken
    axes = axes_of(mean, taken)
    three = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    whole = taken == shape and [a for a in range(len(shape)) if a not in axes] == [axis]
    return norm if fits and (whole or (taken == three and sorted(axes) == [0, 2])) else None


def _of_variance(root: Node, met: dict[Entry, Node]) -> Node | None:
    """The BatchNorm of which this is 1 / sqrt(mean((x - mean)^2) + eps)."""
    plus = calls(root.inputs[0], ("_plus_scalar",))
    mean = calls(plus.inputs[0], ("mean",)) if plus else None
    square = calls(mean.inputs[0], ("square", "broadcast_mul", "elemwise_mul")) if mean else None
    if plus is None or mean is None or square is None:
        return None
    if any(e != square.inputs[0] for e in square.inputs):
        return None
    minus = calls(square.inputs[0], ("broadcast_sub", "elemwise_sub"))
    if minus is None or minus.inputs[0] is None or minus.inputs[1] is None:
        return None
    norm = _norm_of(mean, minus.inputs[0], met)
    if norm is None or plus.attrs["scalar"] != norm.attrs["eps"]:
        return None
    return norm if _source(minus.inputs[1]) == (norm, 1) else None


def _source(entry: Entry) -> Entry:
    """The value of which this is another shape."""
    while entry[0].op is not None and is_reshape(entry[0]) and entry[0].inputs[0] is not None:
        entry = entry[0].inputs[0]
    return entry
