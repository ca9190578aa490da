"""Three passes that are lists of rules: `remove_identities`, `canonicalize` and `views`.

**Identities** give back what they got: copies, casts to the same dtype, `x * 1`, dropout in predict
mode, a choice that is known. In a net they come from code that is written for all cases; a compiled
graph knows its case.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.exp(sym.Dropout(x.copy() * 1, p=0.5), name="y")
>>> before = graph_of(y, x=(3,))
>>> print(listing(remove_identities(before)))
x                                           # (3,) float32
y = exp(x)                                  # (3,) float32
return y

The results are equal to the bit. So `x + 0` stays, unless x is of integers: for x = -0.0 it is 0.0,
which 1 / x tells apart. An output may become an input by this: what a Program returns is a copy
then.

**The same by simpler means**: `x + ones` is `x + 1`, `x * x` a square, equal shapes no broadcast.

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

**Views of views**: many steps that only name or order the axes anew become one, or none.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = x.expand_dims(axis=0).reshape((0, 2, -1)).flatten()
...     z = x.transpose(axes=(1, 0, 2)).swapaxes(dim1=0, dim2=1)
...     y = sym.Group([y, z])
>>> before = graph_of(y, x=(2, 3, 4))
>>> print(listing(views(before)))
x                                           # (2, 3, 4) float32
flatten0 = reshape(x, shape=(1, 24))        # (1, 24) float32
return flatten0, x

Whatever keeps all elements in their order counts as a reshape: a squeeze, a transpose that moves
axes of size 1 only, a spread to as many elements.

What is spread out is spread out last: the exponential of a number is computed once.

The results are equal to the bit.
"""

from __future__ import annotations

import math

import numpy as np

from d2lmini.device.errstate import run_quietly
from d2lmini.graph.constant import uniform
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.rewrite import Replacement, Rules, call, calls, same
from d2lmini.ops.binary import power
from d2lmini.ops.core import Shape
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.scalar_cache import fit

# -- identities ------------------------------------------------------------------------------------

#: Gradients have been taken before: `BlockGrad` and `make_loss` are copies in forward.
remove_identities = Rules("remove_identities", "Without calls that give back an input as it is.")


@remove_identities.rule(
    "_copy BlockGrad make_loss _identity_with_attr_like_rhs cast amp_cast _copyto"
)
def _(node: Node) -> Replacement:
    return same(node, node.inputs[0])


@remove_identities.rule("add_n concat")
def _(node: Node) -> Replacement:
    return same(node, node.inputs[0]) if len(node.inputs) == 1 else None


@remove_identities.rule("Dropout")
def _(node: Node) -> Replacement:
    return node.inputs[0] if node.attrs["rng"] is None else None


@remove_identities.rule(
    " ".join(f.scalar.name for f in FAMILIES.values() if f.identity is not None)
)
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


@remove_identities.rule("where")
def _(node: Node) -> Replacement:
    """A choice that is known."""
    condition = uniform(node.inputs[0])
    return None if condition is None else same(node, node.inputs[1 if condition else 2])


# -- the same by simpler means ---------------------------------------------------------------------

canonicalize = Rules("canonicalize", "With simpler ops in the place of general ones.")


@canonicalize.rule("elemwise_mul broadcast_mul")
def _(node: Node) -> Replacement:
    """A square reads its input once."""
    return call("square", node.inputs[:1], node) if node.inputs[0] == node.inputs[1] else None


@canonicalize.rule(" ".join(op.name for f in FAMILIES.values() for op in (f.broadcast, f.equal)))
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


@canonicalize.rule("Activation")
def _(node: Node) -> Replacement:
    """The op itself, which says what it costs: a relu is computed again rather than kept."""
    kind = node.attrs["act_type"]
    return call(kind, node.inputs, node) if kind in ("relu", "sigmoid", "tanh") else None


# -- views ----------------------------------------------------------------------------------------

RESHAPES = ("reshape", "flatten", "expand_dims", "squeeze", "reshape_like")
TRANSPOSES = ("transpose", "swapaxes")
#: These repeat elements; their input is no larger than their output.
SPREADS = ("_spread", "broadcast_to", "broadcast_axis", "broadcast_like")
#: These keep the elements in their order where the number of elements stays the same.
PERHAPS = ("_sum_to", *SPREADS)


class _Views(Rules):
    def of(self, node: Node) -> Replacement:
        return super().of(node) or _spread_last(node)


views = _Views("views", "Chains of reshapes, and of transposes, as one.")


def _spread_last(node: Node) -> Replacement:
    """An elementwise op on what is spread out, done before."""
    op, inputs = node.op, node.inputs
    assert op is not None
    spread = calls(inputs[0], SPREADS) if len(inputs) == 1 else None
    if spread is None or not op.elementwise or "shape" in op.attr_names:
        return None
    if op.mutates or op.injects or len(node.outputs) > 1:
        return None
    source, *others = spread.inputs
    value = call(op, (source,), node, **node.attrs)
    return call(spread.op, (value, *others), node, **spread.attrs)  # type: ignore[arg-type]


def is_reshape(node: Node) -> bool:
    """True if the outputs are all elements of the first input, in their order."""
    assert node.op is not None
    name = node.op.name
    if name in RESHAPES:
        return True
    if (name not in PERHAPS and name not in TRANSPOSES) or node.inputs[0] is None:
        return False
    before, after = spec_of(node.inputs[0]), spec_of((node, 0))
    if before.size != after.size or before.dtype != after.dtype:
        return False
    if name in TRANSPOSES:
        order = [a for a in order_of(node) if before.shape[a] != 1]
        return order == sorted(order)
    return True


def order_of(node: Node) -> tuple[int, ...]:
    """The order of the axes that a transpose or swapaxes makes: axis i is axis order[i] before."""
    assert node.op is not None and node.inputs[0] is not None
    ndim = len(spec_of(node.inputs[0]).shape)
    if node.op.name == "transpose":
        axes = node.attrs["axes"]
        return tuple(a % ndim for a in axes) if axes else tuple(reversed(range(ndim)))
    order = list(range(ndim))
    a, b = node.attrs["dim1"], node.attrs["dim2"]
    order[a], order[b] = order[b], order[a]
    return tuple(order)


@views.rule(" ".join((*RESHAPES, *PERHAPS, *TRANSPOSES)))
def _(node: Node) -> Replacement:
    if not is_reshape(node):
        return None
    source = node.inputs[0]
    while source is not None and source[0].op is not None and is_reshape(source[0]):
        source = source[0].inputs[0]
    assert source is not None
    whole = same(node, source)
    if whole is not None:
        return whole
    shape = spec_of((node, 0)).shape
    if source == node.inputs[0] and is_plain(node, shape):
        return None
    return reshape(source, shape, node)


def is_plain(node: Node, shape: Shape) -> bool:
    """True for a reshape as `reshape` writes it."""
    assert node.op is not None
    if node.op.name == "reshape":
        return 0 not in shape and node.attrs["shape"] == shape
    return node.op.name == "_spread" and 0 in shape and node.attrs["kept"] == shape


def reshape(source: Entry, shape: Shape, like: Node) -> Entry:
    """`source` in this shape. To `reshape` 0 is a code, so empty arrays go another way."""
    if 0 in shape:
        return call("_spread", (source,), like, kept=shape, shape=shape)
    return call("reshape", (source,), like, shape=shape)


def in_shape(source: Entry, shape: Shape, like: Node) -> Entry:
    """`source` itself if it has this shape, else in this shape."""
    return source if spec_of(source).shape == shape else reshape(source, shape, like)


def shape_before(spread: Node) -> Shape:
    """The shape that one of `SPREADS` starts from, with as many axes as its result has."""
    assert spread.op is not None
    shape = spec_of(spread.sources[0]).shape
    kept = spread.attrs["kept"] if spread.op.name == "_spread" else shape
    return (1,) * (len(spec_of((spread, 0)).shape) - len(kept)) + tuple(kept)


@views.rule("transpose swapaxes")
def _(node: Node) -> Replacement:
    order, source = order_of(node), node.inputs[0]
    inner = calls(source, TRANSPOSES)
    if inner is not None:
        first = order_of(inner)
        order, source = tuple(first[a] for a in order), inner.inputs[0]
    if order == tuple(range(len(order))):
        return source
    assert node.op is not None and source is not None
    if inner is None and node.op.name == "transpose" and node.attrs["axes"] == order:
        return None
    return call("transpose", (source,), node, axes=order)
