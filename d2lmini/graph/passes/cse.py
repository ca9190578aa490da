"""Common subexpressions: what is computed twice is computed once.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> x = sym.var("x")
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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.graph.constant import Constant
from d2lmini.graph.ir import Entry, Node
from d2lmini.graph.passes.rewrite import Replacement, rewritten


def cse(outputs: Sequence[Entry]) -> list[Entry]:
    """With each call made once."""
    met: dict[tuple, Node] = {}

    def rule(node: Node) -> Replacement:
        first = met.setdefault(_key(node), node)
        return None if first is node else list(first.outputs)

    return rewritten(outputs, rule)


def _key(node: Node) -> tuple:
    """Equal for calls that give the same result."""
    assert node.op is not None
    inputs: Any = node.inputs
    if node.op.family is not None and node.op.family.commutative:
        inputs = frozenset(inputs)
    return (node.op, inputs, tuple([(k, _attribute(node.attrs[k])) for k in sorted(node.attrs)]))


def _attribute(value: Any) -> Any:
    """What tells apart attributes that differ: 1 and 1.0, 0.0 and -0.0, two keys."""
    if isinstance(value, Constant):
        return value.key
    if value is None or isinstance(value, (bool, int, float, str, tuple, np.dtype)):
        return type(value), repr(value)
    return type(value), id(value)
