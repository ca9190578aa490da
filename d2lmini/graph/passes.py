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
take more than a megabyte is left to the run, but for elementwise ops on arrays that are the same
number everywhere: such an array is that number, whatever its size.

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

A pass says what it promises: results equal to the bit, or to a rounding. `rules.py` has the passes
that consist of rules. With `D2LMINI_VERIFY=1` in the environment `verify` (`typed.py`) looks at the
result of each pass. docs/add-a-pass.md is a guide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.base.dtypes import is_half
from d2lmini.device.errstate import run_quietly
from d2lmini.graph import typed
from d2lmini.graph.constant import (
    CONSTANT,
    Constant,
    array_of,
    constant,
    is_constant,
    make_filled,
    uniform,
)
from d2lmini.graph.ir import (
    Draw,
    Entry,
    Node,
    compute,
    spec_of,
    topological,
    variables_of,
    with_order,
)
from d2lmini.graph.rewrite import Replacement, call, calls, rewritten
from d2lmini.graph.rules import (
    SPREADS,
    TRANSPOSES,
    canonicalize,
    is_reshape,
    remove_identities,
    views,
)

# -- constants -------------------------------------------------------------------------------------


#: The largest constant that a program holds, in bytes.
LARGEST = 1 << 20

#: Calls whose result is everywhere what their input is everywhere.
SPREADING = (
    *SPREADS, *TRANSPOSES, "slice", "slice_axis", "tile", "repeat", "reverse",
    "_getitem", "max", "min",
)  # fmt: skip


def constant_fold(outputs: Sequence[Entry]) -> list[Entry]:
    """With constants in the place of all values that are known."""
    return rewritten(outputs, _fold, is_local=True)


def _fold(node: Node) -> Replacement:
    op, specs = node.op, node.specs
    assert op is not None and specs is not None
    if op is CONSTANT or op.random or op.mutates:
        return None
    if any(type(value) is Draw for value in node.attrs.values()):
        return None
    if op.name in ("zeros_like", "ones_like"):
        return _everywhere(node, uniform((node, 0)))
    numbers = [uniform(e) for e in node.inputs]
    if numbers and all(number is not None for number in numbers):
        if op.name in SPREADING or is_reshape(node):
            return _everywhere(node, numbers[0])
        if op.elementwise and len(specs) == 1:
            one = [
                np.full((1,) * len(spec_of(e).shape), number, spec_of(e).dtype)
                for e, number in zip(node.inputs, numbers)
                if e is not None
            ]
            results = _compute(node, one)
            if results is not None and results[0].size == 1:
                return _everywhere(node, results[0].reshape(-1)[0].item())
    known = node.sources
    if sum(spec.nbytes for spec in specs) > LARGEST:
        return None
    if not all(is_constant(e) for e in known):
        return None
    results = _compute(node, [array_of(e) for e in known])
    if results is None:
        return None
    return [constant(y, node.name) for y in results]


def _everywhere(node: Node, number: Any) -> Entry | None:
    spec = spec_of((node, 0))
    if spec.nbytes <= LARGEST:
        return constant(np.full(spec.shape, number, spec.dtype), node.name)
    assert node.op is not None
    return None if node.op.name == "_full" else make_filled(spec, number, node.name)


def _compute(node: Node, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """What the op makes of these arrays; None if it fails, which is then the run's to tell."""
    given = iter(arrays)
    inputs = [None if e is None else next(given) for e in node.inputs]
    try:
        return run_quietly(lambda: compute(np, node, inputs))
    except Exception:
        return None


# -- common subexpressions -------------------------------------------------------------------------


def cse(outputs: Sequence[Entry]) -> list[Entry]:
    """With each call made once."""
    met: dict[tuple, list[Node]] = {}

    def rule(node: Node) -> Replacement:
        op, inputs = node.op, node.inputs
        assert op is not None
        is_commutative = op.family is not None and op.family.commutative
        alike = met.setdefault((op, frozenset(inputs) if is_commutative else inputs), [])
        for first in alike:
            if _attributes(first) == _attributes(node):
                return list(first.outputs)
        alike.append(node)
        return None

    return rewritten(outputs, rule)


def _attributes(node: Node) -> dict[str, Any]:
    """Equal for calls with the same attributes."""
    return {name: _attribute(value) for name, value in node.attrs.items()}


def _attribute(value: Any) -> Any:
    """What tells apart attributes that differ: 1 and 1.0, 0.0 and -0.0, two keys."""
    if isinstance(value, Constant):
        return value.key
    if value is None or isinstance(value, (bool, int, float, str, tuple, np.dtype)):
        return type(value), repr(value)
    return type(value), id(value)


# -- pooling first ---------------------------------------------------------------------------------


#: Activations that never fall: ops, and what `Activation` may be told.
RISING = ("relu", "sigmoid", "tanh", "softrelu")


def pool_before_activation(outputs: Sequence[Entry]) -> list[Entry]:
    """With largest values taken before activations, where these serve nothing else."""
    order = topological(outputs)
    uses = Counter(entry for node in order for entry in node.inputs)
    uses.update(outputs)
    alone = {node for node in order if uses[node, 0] == 1}

    def meet(before: Node, now: Node) -> None:
        if before in alone:
            alone.add(now)

    def rule(node: Node) -> Replacement:
        assert node.op is not None
        if node.op.name != "Pooling" or node.attrs["pool_type"] != "max":
            return None
        bent = calls(node.inputs[0], ("Activation", *RISING))
        if bent is None or bent not in alone or not _rises(bent):
            return None
        largest = call(node.op, bent.inputs, node, **node.attrs)
        assert bent.op is not None
        return call(bent.op, (largest,), bent, **bent.attrs)

    return rewritten(outputs, rule, meet)


def _rises(node: Node) -> bool:
    return node.attrs.get("act_type", "relu") in RISING and not is_half(spec_of((node, 0)).dtype)


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
