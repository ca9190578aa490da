"""The same by simpler means: `x + ones` is `x + 1`, `x * x` a square, equal shapes no broadcast.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.Activation(x, act_type="relu") + sym.ones((3,))
...     y = sym.broadcast_mul(y, x, name="y")
>>> before = graph_of(y, x=(3,))
>>> print(listing(canonicalize(before)))
x                                           # (3,) float32
activation0 = relu(x)                       # (3,) float32
_plus0 = _plus_scalar(activation0, scalar=1.0)  # (3,) float32
y = elemwise_mul(_plus0, x)                 # (3,) float32
return y

A number is not read from memory, and two spellings of one call become one for `cse`. The results
are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.graph.constant import uniform
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, rewritten, same
from d2lmini.ops.binary import power
from d2lmini.ops.elementwise import FAMILIES

rules = Rules()


def canonicalize(outputs: Sequence[Entry]) -> list[Entry]:
    """With simpler ops in the place of general ones."""
    return rewritten(outputs, rules.of, is_local=True)


@rules(" ".join(op.name for f in FAMILIES.values() for op in (f.broadcast, f.equal)))
def _(node: Node) -> Replacement:
    """By the op of the family beside a number, or for equal shapes."""
    assert node.op is not None
    family = node.op.family
    a, b = node.inputs
    assert a is not None and b is not None
    # A power with a number is computed in another way, which rounds otherwise; limits know no -0.0.
    exact = family is not power and family.numbers == "fit"
    for x, number, op in ((a, uniform(b), family.scalar), (b, uniform(a), family.reflected)):
        if number is not None and spec_of(x) == spec_of((node, 0)) and exact:
            return same(node, call(op, (x,), node, scalar=number))
    if spec_of(a).shape == spec_of(b).shape and node.op is not family.equal:
        return same(node, call(family.equal, (a, b), node))
    return None


@rules("elemwise_mul broadcast_mul")
def _(node: Node) -> Replacement:
    """A square reads its input once."""
    return call("square", node.inputs[:1], node) if node.inputs[0] == node.inputs[1] else None


@rules("Activation")
def _(node: Node) -> Replacement:
    """The op itself, which says what it costs: a relu is computed again rather than kept."""
    kind = node.attrs["act_type"]
    return call(kind, node.inputs, node) if kind in ("relu", "sigmoid", "tanh") else None
