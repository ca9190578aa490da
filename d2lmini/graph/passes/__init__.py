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

The file of a pass has its idea, an example and what it promises: results equal to the bit, or to a
rounding. One more, `pool_before_activation`, runs before gradients are
taken. `verify` says what a typed graph is; with `D2LMINI_VERIFY=1` in the environment it looks at
the result of each pass. docs/add-a-pass.md is a guide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from d2lmini.graph import verify as checker
from d2lmini.graph.ir import Entry, variables_of, with_order
from d2lmini.graph.passes.constant_fold import bind_values as bind_values
from d2lmini.graph.passes.constant_fold import constant_fold
from d2lmini.graph.passes.cse import cse
from d2lmini.graph.passes.rules import canonicalize, remove_identities, signs
from d2lmini.graph.passes.views import views

Pass = Callable[[Sequence[Entry]], list[Entry]]
Watch = Callable[[Pass, list[Entry], list[Entry]], None]

#: In the order in which they run.
PASSES: tuple[Pass, ...] = (remove_identities, views, constant_fold, canonicalize, signs, cse)

#: Every pass takes something away, so an end comes soon; no graph has needed as many rounds.
MOST_ROUNDS = 50


def simplify(
    outputs: Sequence[Entry], passes: Sequence[Pass] = PASSES, watch: Watch | None = None
) -> list[Entry]:
    """The graph after all passes, again and again until nothing changes.

    The outputs keep their shapes and dtypes, and their values to a few roundings; variables are
    changed as they were. Nodes that stay are the same objects. Gradients are to be taken before:
    afterwards `BlockGrad` is gone. watch: called with each pass that changes something, and the
    graph before and after.
    """
    current = with_order(outputs)
    idle = 0  # passes in a row that changed nothing
    for _ in range(MOST_ROUNDS):
        for graph_pass in passes:
            after = graph_pass(current)
            if checker.checking:
                checker.verify(variables_of(current), after, like=current)
            idle = idle + 1 if after == current else 0
            if idle == len(passes):
                return current
            if idle == 0:
                if watch is not None:
                    watch(graph_pass, current, after)
                current = with_order(after)
    raise AssertionError(f"{MOST_ROUNDS} rounds and no end: two passes undo each other's work")
