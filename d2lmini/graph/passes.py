"""Passes: functions from a typed graph to one that does the same with less.

A graph is given by its outputs, and a pass returns the outputs of the new one. `simplify` runs all
of them until none finds anything more:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = (x * 2 * sym.ones((2, 3))) / (x * 2 + sym.exp(sym.zeros((2, 3))))
...     y = sym.relu(y.flatten() / 1, name="y")
>>> before = graph_of(y, x=(2, 3))
>>> print(listing(before))
x                                           # (2, 3) float32
_mulscalar0 = _mul_scalar(x, scalar=2)      # (2, 3) float32
_ones0 = _ones(shape=(2, 3))                # (2, 3) float32
_mul0 = elemwise_mul(_mulscalar0, _ones0)   # (2, 3) float32
_mulscalar1 = _mul_scalar(x, scalar=2)      # (2, 3) float32
_zeros0 = _zeros(shape=(2, 3))              # (2, 3) float32
exp0 = exp(_zeros0)                         # (2, 3) float32
_plus0 = elemwise_add(_mulscalar1, exp0)    # (2, 3) float32
_div0 = elemwise_div(_mul0, _plus0)         # (2, 3) float32
flatten0 = flatten(_div0)                   # (2, 3) float32
_divscalar0 = _div_scalar(flatten0, scalar=1)  # (2, 3) float32
y = relu(_divscalar0)                       # (2, 3) float32
return y
>>> print(listing(simplify(before)))
x                                           # (2, 3) float32
_mulscalar0 = _mul_scalar(x, scalar=2)      # (2, 3) float32
_plus0 = _plus_scalar(_mulscalar0, scalar=1.0)  # (2, 3) float32
_div0 = elemwise_div(_mulscalar0, _plus0)   # (2, 3) float32
y = relu(_div0)                             # (2, 3) float32
return y

A pass says what it promises: results equal to the bit, or to a rounding. Three passes consist of
rules. With `D2LMINI_VERIFY=1` in the environment `verify` (`typed.py`) looks at the result of each
pass. docs/add-a-pass.md is a guide.

**The walk** that all passes share goes node by node; each is kept or replaced by other values. A
pass says what becomes of one node whose inputs have been dealt with; `rewritten` does the rest.

>>> before = graph_of(sym.exp(sym.identity(sym.var("x")), name="y"), x=(3,))
>>> no_copies = lambda node: node.inputs[0] if node.op.name == "_copy" else None
>>> print(listing(rewritten(before, no_copies)))
x                                           # (3,) float32
y = exp(x)                                  # (3,) float32
return y

What no output needs any more is gone by itself: a graph is what its outputs reach. Only a node that
changes a variable is wanted for more than its outputs. Therefore

- a node that reads or changes such a variable is never replaced: it runs, and at its own place;
- a rewriting that would lose such a node, or run two of them in another order, is not done.

**Identities** (`remove_identities`) give back what they got: copies, casts to the same dtype, `x *
1`, dropout in predict mode, a choice that is known. In a net they come from code that is written
for all cases; a compiled graph knows its case.

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

**The same by simpler means** (`canonicalize`): `x + ones` is `x + 1`, `x * x` a square, equal
shapes no broadcast.

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

**Constant folding**: what does not depend on any variable is computed once, by the compiler.

>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = x * sym.exp(sym.zeros((3,)) + 1)
>>> before = graph_of(y, x=(3,))
>>> print(listing(constant_fold(before)))
x                                           # (3,) float32
exp0 = 2.7182819843292236 everywhere        # (3,) float32
_mul0 = elemwise_mul(x, exp0)               # (3,) float32
return _mul0

The results are those that the ops compute, to the bit. Nodes that draw are no constants. What would
take more than a megabyte is left to the run.

**Common subexpressions**: what is computed twice is computed once.

>>> with sym.NameManager():
...     y = sym.exp(x) * sym.exp(x)
>>> before = graph_of(y, x=(3,))
>>> print(listing(cse(before)))
x                                           # (3,) float32
exp0 = exp(x)                               # (3,) float32
_mul0 = elemwise_mul(exp0, exp0)            # (3,) float32
return _mul0

Two calls are one if op, attributes and inputs are: two draws with different keys are not. On the
joint graph of forward and backward this finds what the gradient rules compute anew. The results are
equal to the bit.

**Pooling first**: the largest of some activations is the activation of the largest.

>>> with sym.NameManager():
...     y = sym.Activation(sym.var("x"), act_type="sigmoid", name="bent")
...     y = sym.Pooling(y, kernel=(2, 2), stride=(2, 2), name="pool")
>>> before = graph_of(y, x=(9, 6, 24, 24))
>>> after = topological(pool_before_activation(before))
>>> [(node.name, node.specs[0].shape) for node in after if node.op]
[('pool', (9, 6, 12, 12)), ('bent', (9, 6, 12, 12))]

For relu, sigmoid, tanh and softrelu never fall. So the activation is taken of a quarter of the
numbers, or of less, and its gradient too. In LeNet, whose images are few channels wide, that was a
tenth of a step.

Where rounding makes the activations of two places equal, the gradient goes to the one that is
larger before, and not to the first: to the place of the maximum all the same. In float16 that is
common, so there the order stays. Values differ by a rounding at most, where the activation as it is
computed falls by one. A nan makes the gradients of its whole window nan, not its own alone.

This is done before gradients are taken: they need what was pooled, and then it is too late.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from d2lmini.base.dtypes import is_half
from d2lmini.device.errstate import run_quietly
from d2lmini.graph import ir, typed
from d2lmini.graph.ir import (
    CONSTANT,
    Constant,
    Draw,
    Entry,
    Inputs,
    Node,
    array_of,
    compute,
    constant,
    is_constant,
    mutated_by,
    spec_of,
    topological,
    transform,
    uniform,
    variables_of,
    with_order,
)
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.binary import power
from d2lmini.ops.core import Op, Shape, registry
from d2lmini.ops.elementwise import FAMILIES
from d2lmini.ops.scalar_cache import scalars

#: What stands in the place of a node: a value, or one for each output (None: no node uses it).
Replacement = Entry | list[Entry | None] | None
Rule = Callable[[Node], Replacement]


#: The bit in `Node.stays` of each rule whose answer depends on the node and its inputs alone: such
#: a rule is asked once about a node, however often the passes run.
_bits: dict[Rule, int] = {}


def rewritten(outputs: Sequence[Entry], rule: Rule, is_local: bool = False) -> list[Entry]:
    """The graph with every node replaced by what `rule` says, None for those that stay. is_local:
    the answer depends on the node and its inputs alone.

    Most passes find nothing in most graphs. So nodes are only looked at, in their order, up to the
    first that is replaced; from there on the graph is made anew."""
    bit = _bits.setdefault(rule, 1 << len(_bits)) if is_local else 0
    graph = with_order(outputs)
    order, changed = graph.order, graph.changed
    known = set(order) if changed else set()
    placed: dict[Node, Node] = {}  # what has become of the nodes that read or change such variables

    def answer(node: Node, new: Node) -> Sequence[Entry | None] | None:
        """The values in the place of `node`, which is `new` with its inputs replaced."""
        if changed:
            known.add(new)
            if any([e is not None and e[0] in changed for e in node.inputs]):
                placed[node] = new
                return None
        if new.stays & bit:
            return None
        found = rule(new)
        if found is None:
            new.stays |= bit
            return None
        values = found if isinstance(found, list) else [found]
        if changed and any([e is not None and _reads(e, changed, known) for e in values]):
            return None
        for value, spec in zip(values, node.specs or (), strict=True):
            assert value is None or spec_of(value) == spec, (node, value, spec)
        return values

    def visit(node: Node, inputs: Inputs) -> ir.Replacement | None:
        if node is first:
            return values
        if node.op is None:
            return None
        new = node if inputs is node.inputs else node.replace(inputs=inputs)
        found = answer(node, new)
        return new if found is None else found

    for i, first in enumerate(order):
        if first.op is None or (first.stays & bit and not changed):
            continue
        values = answer(first, first)
        if values is not None:
            results = transform(outputs, visit, order=order[i:])
            return results if _in_order(placed, changed, results) else list(outputs)
    return list(outputs)


def _reads(entry: Entry, changed: set[Node], known: set[Node]) -> bool:
    """Would this value, made by a rule, be read from a variable that some node changes? Where the
    node that it replaces stands, that may hold something else already."""
    node = entry[0]
    if node in changed:
        return True
    if node in known:
        return False
    known.add(node)
    return any(e is not None and _reads(e, changed, known) for e in node.inputs)


def _in_order(placed: dict[Node, Node], changed: set[Node], results: Sequence[Entry]) -> bool:
    """True if the nodes that change variables, and those that read these, run as they did."""
    if not placed:
        return True
    place = {node: i for i, node in enumerate(topological(results))}
    last: dict[Node, int] = {}
    for node, new in placed.items():
        at = place.get(new)
        if at is None:
            if node.mutated:
                return False
            continue
        for variable in {e[0] for e in node.sources if e[0] in changed}:
            if at < last.get(variable, -1):
                return False
            last[variable] = at
    return True


# -- what rules are written with -------------------------------------------------------------------


def calls(entry: Entry | None, names: Iterable[str]) -> Node | None:
    """The node of a value, if it is a call of one of these ops."""
    if entry is None or entry[0].op is None or entry[0].op.name not in names:
        return None
    return entry[0]


def call(op: str | Op, inputs: Sequence[Entry | None], like: Node, **attrs: Any) -> Entry:
    """A call of an op in the place of `like`, whose name and line it keeps."""
    op = registry[op] if isinstance(op, str) else op
    attrs = {**op.defaults, **attrs} if attrs else op.defaults
    specs = plan_of(op, [spec_of(e) for e in inputs if e is not None], attrs).outputs
    return Node(op, like.name, tuple(inputs), attrs, specs, like.labels, like.site), 0


def same(node: Node, entry: Entry | None) -> Entry | None:
    """The value `entry` for the node, if it has its shape and dtype."""
    return entry if entry is not None and [spec_of(entry)] == list(node.specs or ()) else None


class Rules(dict[str, list[Rule]]):
    """A pass that consists of rules by the name of the op that they are for.

    `@a_pass.rule("negative abs")` declares the rule for these ops. Ops may have several rules: the
    first that finds a replacement has it.
    """

    def __init__(self, name: str, means: str):
        self.__name__, self.__doc__ = name, means

    def __call__(self, outputs: Sequence[Entry]) -> list[Entry]:
        """The graph after the pass."""
        return rewritten(outputs, self.of, is_local=True)

    def rule(self, names: str) -> Callable[[Rule], Rule]:
        """Declare the rule for ops with these names."""

        def declare(rule: Rule) -> Rule:
            for name in names.split():
                self.setdefault(registry[name].name, []).append(rule)
            return rule

        return declare

    def of(self, node: Node) -> Replacement:
        """What the rules say of a node."""
        for rule in self.get(node.op.name, ()):
            found = rule(node)
            if found is not None:
                return found
        return None


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
    numbers = scalars[np][spec_of(node.inputs[0]).dtype]
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
    family = node.op.family
    a, b = node.inputs
    # A power with a number is computed in another way, which rounds otherwise; limits know no -0.0.
    exact = family is not power and family.numbers == "scalars"
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
        return super().of(node) or map_before(node, node.inputs, SPREADS)


views = _Views("views", "Chains of reshapes, and of transposes, as one.")


def map_before(node: Node, inputs: Inputs, names: Sequence[str]) -> Entry | None:
    """An elementwise op on the result of one of these ops, done before that op; None for others."""
    op, view = node.op, calls(inputs[0], names) if len(inputs) == 1 else None
    if view is None or not op.elementwise or "shape" in op.attr_names:
        return None
    if op.mutates or op.injects or len(node.outputs) > 1:
        return None
    source, *others = view.inputs
    value = call(op, (source,), node, **node.attrs)
    return call(view.op, (value, *others), node, **view.attrs)  # type: ignore[arg-type]


def is_reshape(node: Node) -> bool:
    """True if the outputs are all elements of the first input, in their order."""
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
    whole = same(node, source)
    if whole is not None:
        return whole
    shape = spec_of((node, 0)).shape
    if source == node.inputs[0] and is_plain(node, shape):
        return None
    return reshape(source, shape, node)


def is_plain(node: Node, shape: Shape) -> bool:
    """True for a reshape as `reshape` writes it."""
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
    if inner is None and node.op.name == "transpose" and node.attrs["axes"] == order:
        return None
    return call("transpose", (source,), node, axes=order)


# -- constants -------------------------------------------------------------------------------------


#: The largest constant that a program holds, in bytes.
LARGEST = 1 << 20


def constant_fold(outputs: Sequence[Entry]) -> list[Entry]:
    """With constants in the place of all values that are known."""
    return rewritten(outputs, _fold, is_local=True)


def _fold(node: Node) -> Replacement:
    op, specs = node.op, node.specs
    if op is CONSTANT or op.random or op.mutates or sum(spec.nbytes for spec in specs) > LARGEST:
        return None
    if op.name in ("zeros_like", "ones_like"):  # which read a shape alone
        return constant(np.full(specs[0].shape, uniform((node, 0)), specs[0].dtype), node.name)
    if not all(map(is_constant, node.sources)):
        return None
    if any(type(value) is Draw for value in node.attrs.values()):
        return None
    arrays = [None if e is None else array_of(e) for e in node.inputs]
    try:
        results = run_quietly(lambda: compute(np, node, arrays))
    except Exception:  # which is the run's to tell
        return None
    return [constant(y, node.name) for y in results]


# -- common subexpressions -------------------------------------------------------------------------


def cse(outputs: Sequence[Entry]) -> list[Entry]:
    """With each call made once."""
    met: dict[tuple, list[Node]] = {}

    def rule(node: Node) -> Replacement:
        op, inputs = node.op, node.inputs
        is_commutative = op.family is not None and op.family.commutative
        alike = met.setdefault((op, frozenset(inputs) if is_commutative else inputs), [])
        for first in alike:
            if _attributes(first) == _attributes(node):
                return list(first.outputs)
        alike.append(node)
        return None

    return rewritten(outputs, rule)


def _attributes(node: Node) -> str:
    """Equal for calls with the same attributes: a text tells apart 1 and 1.0, 0.0 and -0.0."""
    pairs = sorted(node.attrs.items())
    return repr([(k, v.key if isinstance(v, Constant) else v) for k, v in pairs])


# -- pooling first ---------------------------------------------------------------------------------


#: Activations that never fall: ops, and what `Activation` may be told.
RISING = ("relu", "sigmoid", "tanh", "softrelu")


def pool_before_activation(outputs: Sequence[Entry]) -> list[Entry]:
    """With largest values taken before activations, where these serve nothing else."""
    order = topological(outputs)
    changed = mutated_by(order)
    uses = Counter(entry for node in order for entry in node.inputs)
    uses.update(outputs)

    def rule(node: Node, inputs: Inputs) -> list[Entry] | None:
        if node.op is None or node.op.name != "Pooling" or node.attrs["pool_type"] != "max":
            return None
        if uses[node.inputs[0]] > 1:
            return None
        bent = calls(inputs[0], ("Activation", *RISING))
        if bent is None or bent.sources[0][0] in changed or is_half(spec_of((bent, 0)).dtype):
            return None
        if bent.attrs.get("act_type", "relu") not in RISING:
            return None
        largest = call(node.op, bent.inputs, node, **node.attrs)
        return [call(bent.op, (largest,), bent, **bent.attrs)]

    return transform(outputs, rule)


# -- all of them -----------------------------------------------------------------------------------


Pass = Callable[[Sequence[Entry]], list[Entry]]

#: In the order in which they run.
PASSES: tuple[Pass, ...] = (remove_identities, views, constant_fold, canonicalize, cse)

#: Every pass takes something away, so an end comes soon; no graph has needed as many rounds.
MOST_ROUNDS = 50


def simplify(outputs: Sequence[Entry], passes: Sequence[Pass] = PASSES) -> list[Entry]:
    """The graph after all passes, again and again until nothing changes.

    The outputs keep their shapes and dtypes, and their values to a few roundings; variables are
    changed as they were. Nodes that stay are the same objects. Gradients are to be taken before:
    afterwards `BlockGrad` is gone.
    """
    current = with_order(outputs)
    idle = 0  # passes in a row that changed nothing
    for _ in range(MOST_ROUNDS):
        for graph_pass in passes:
            after = graph_pass(current)
            if typed.checking:
                typed.verify(variables_of(current), after, like=current)
            idle = idle + 1 if after == current else 0
            if idle == len(passes):
                return current
            if idle == 0:
                current = with_order(after)
    raise AssertionError(f"{MOST_ROUNDS} rounds and no end: two passes undo each other's work")
