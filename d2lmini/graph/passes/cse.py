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
