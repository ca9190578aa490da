"""Pooling first: the largest of some activations is the activation of the largest.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
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

from collections import Counter
from collections.abc import Sequence

from d2lmini.bfloat16 import is_half
from d2lmini.graph.ir import Entry, Node, spec_of, topological
from d2lmini.graph.passes.rewrite import Replacement, call, calls, rewritten

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
