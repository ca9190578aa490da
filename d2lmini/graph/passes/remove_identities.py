"""Calls that give back what they got: copies, casts to the same dtype, `x * 1`, dropout in predict
mode, a choice that is known.

In a net they come from code that is written for all cases; a compiled graph knows its case.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.exp(sym.Dropout(x.copy() * 1, p=0.5), name="y")
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
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, rewritten, same
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.scalar_cache import fit

rules = Rules()


def remove_identities(outputs: Sequence[Entry]) -> list[Entry]:
    """Without calls that give back an input as it is. Asked only after gradients were taken:
    `BlockGrad` and `make_loss` are copies in forward."""
    return rewritten(outputs, rules.of, is_local=True)


@rules(
    "_copy BlockGrad make_loss MakeLoss _contrib_gradientmultiplier _identity_with_attr_like_rhs "
    "cast amp_cast _copyto"
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
    family = node.op.family
    # An exponent keeps its value beside integers.
    number = node.attrs["scalar"] if family.name == "power" else number_of(node)
    identity = family.identity
    if number != identity:
        return None
    # Of floats the sign counts: x + -0.0 is x, but -0.0 + 0.0 is 0.0.
    exact = type(number) is int or math.copysign(1, number) == math.copysign(1, identity)
    return same(node, node.inputs[0]) if exact else None


def number_of(node: Node) -> float | int:
    """The number beside the array, as the op computes with it: 1.5 is 1 beside integers."""
    assert node.inputs[0] is not None
    numbers = fit[np][spec_of(node.inputs[0]).dtype]
    return run_quietly(lambda: numbers[node.attrs["scalar"]]).item()  # type: ignore[no-any-return]


@rules("where")
def _(node: Node) -> Replacement:
    """A choice that is known."""
    condition = uniform(node.inputs[0])
    return None if condition is None else same(node, node.inputs[1 if condition else 2])
