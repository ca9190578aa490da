"""Calls that give back what they got: copies, casts to the same dtype, `x * 1`, dropout in predict
mode, a sign turned twice.

In a net they come from code that is written for all cases; a compiled graph knows its case.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.exp(sym.Dropout(sym.negative(sym.negative(x)) * 1, p=0.5), name="y")
>>> before = graph_of(y, x=(3,))
>>> print(listing(remove_identities(before)))
x                                           # (3,) float32
y = exp(x)                                  # (3,) float32
return y

The results are equal to the bit. So `x + 0` stays, unless x is of integers: for x = -0.0 it is 0.0,
which 1 / x tells apart.

An output may become an input by this: what a Program returns is a copy then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from d2lmini.device.errstate import run_quietly
from d2lmini.graph.constant import uniform
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, calls, rewritten, same
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.scalar_cache import fit

rules = Rules()


def remove_identities(outputs: Sequence[Entry]) -> list[Entry]:
    """Without calls that give back an input as it is. Asked only after gradients were taken:
    `BlockGrad` and `make_loss` are copies in forward."""
    return rewritten(outputs, rules.of)


@rules(
    "_copy BlockGrad make_loss MakeLoss _contrib_gradientmultiplier _identity_with_attr_like_rhs "
    "cast amp_cast _copyto broadcast_to broadcast_axis broadcast_like"
)
def _(node: Node) -> Replacement:
    return same(node, node.inputs[0])


@rules("amp_multicast")
def _(node: Node) -> Replacement:
    return [
        entry
        if entry and spec_of(entry) == spec
        else call("amp_cast", [entry], node, dtype=spec.dtype)
        for entry, spec in zip(node.inputs, node.specs or ())
    ]


@rules("add_n concat")
def _(node: Node) -> Replacement:
    return same(node, node.inputs[0]) if len(node.inputs) == 1 else None


@rules("Dropout")
def _(node: Node) -> Replacement:
    return node.inputs[0] if node.attrs["rng"] is None else None


@rules(" ".join(f.scalar.name for f in FAMILIES.values() if f.identity is not None))
def _(node: Node) -> Replacement:
    assert node.op is not None
    number, identity = number_of(node), node.op.family.identity
    if number != identity:
        return None
    # Of floats the sign counts: x + -0.0 is x, but -0.0 + 0.0 is 0.0.
    exact = type(number) is int or math.copysign(1, number) == math.copysign(1, identity)
    return same(node, node.inputs[0]) if exact else None


def number_of(node: Node) -> float | int:
    """The number beside the array, in the array's dtype: 1.5 is 1 beside integers."""
    assert node.inputs[0] is not None
    numbers = fit[np][spec_of(node.inputs[0]).dtype]
    return run_quietly(lambda: numbers[node.attrs["scalar"]]).item()  # type: ignore[no-any-return]


@rules("negative")
def _(node: Node) -> Replacement:
    inner = calls(node.inputs[0], ("negative",))
    return inner.inputs[0] if inner else None


@rules("relu abs floor ceil trunc fix round rint sign")
def _(node: Node) -> Replacement:
    """Done twice is done once."""
    assert node.op is not None
    return node.inputs[0] if calls(node.inputs[0], (node.op.name,)) else None


@rules("cast")
def _(node: Node) -> Replacement:
    """Into a wider dtype and back."""
    inner = calls(node.inputs[0], ("cast",))
    if inner is None or inner.inputs[0] is None:
        return None
    first, wide = spec_of(inner.inputs[0]).dtype, spec_of((inner, 0)).dtype
    return same(node, inner.inputs[0]) if np.can_cast(first, wide, "safe") else None


@rules("reverse")
def _(node: Node) -> Replacement:
    inner = calls(node.inputs[0], ("reverse",))
    return inner.inputs[0] if inner and inner.attrs["axis"] == node.attrs["axis"] else None


@rules("slice slice_axis slice_like tile repeat")
def _(node: Node) -> Replacement:
    """The whole of it: the same shape, not backwards."""
    backwards = any(s is not None and s < 0 for s in node.attrs.get("step", ()))
    return None if backwards else same(node, node.inputs[0])


@rules("_getitem")
def _(node: Node) -> Replacement:
    whole = all(type(k) is tuple and k[0] == 0 and k[2] > 0 for k in node.attrs["key"])
    return same(node, node.inputs[0]) if whole and len(node.inputs) == 1 else None


@rules("where")
def _(node: Node) -> Replacement:
    """A choice that is known."""
    condition = uniform(node.inputs[0])
    return None if condition is None else same(node, node.inputs[1 if condition else 2])


@rules("add_n")
def _(node: Node) -> Replacement:
    """Of two: what `elemwise_add` is."""
    return call("elemwise_add", node.inputs, node) if len(node.inputs) == 2 else None
