"""Scratch memory of a fusion group: few block-sized arrays, used over and over.

The ops of a group run one after the other, so a result that is needed no more gives its room to
the next one. A value that others than the group will read is written where it is to stay.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import typed
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> a = sym.exp(x, name="a")
>>> y = sym.elemwise_add(sym.square(a, name="b"), a, name="y")
>>> v, outputs = typed(y._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> x, a, square, y = nodes = topological(outputs)
>>> places = {(x, 0): "x", (y, 0): "y"}
>>> rooms(nodes[1:], places, str)
{'a': dtype('float32'), 'b': dtype('float32')}
>>> list(places.values())
['x', 'y', 'a', 'b']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from d2lmini.graph.expressions import may_overwrite, steps_of
from d2lmini.graph.lower import spec_of
from d2lmini.symbol.node import Entry, Node, topological  # noqa: F401  (for the doctest)


def rooms(
    nodes: Sequence[Node], places: dict[Entry, str], new_name: Callable[[str], str]
) -> dict[str, np.dtype]:
    """Give every value of the group that has none a place; the scratch arrays for that by name."""
    last = {entry: node for node in nodes for entry in node.inputs if entry is not None}
    found: dict[str, np.dtype] = {}
    free: list[str] = []
    for node in nodes:
        read = dict.fromkeys(e for e in node.inputs if e is not None)
        dying = [e for e in read if last[e] is node and places[e] in found]
        entry = node, 0
        dtype = spec_of(entry).dtype
        if entry not in places:
            over = [places[e] for e in dying if _may_lie_over(node, e)]
            fit = over or [name for name in free if found[name] == dtype]
            if not fit:
                fit = [new_name(node.name)]
                found[fit[0]] = dtype
            places[entry] = fit[0]
        free = [name for name in free if name != places[entry]]
        free += [places[e] for e in dying if places[e] != places[entry]]
    return found


def _may_lie_over(node: Node, entry: Entry) -> bool:
    """May the result of `node` overwrite this input, which is needed no more?"""
    if spec_of(entry).dtype != spec_of((node, 0)).dtype:
        return False
    steps = steps_of(node)
    return steps is None or all(
        may_overwrite(steps, i) for i, e in enumerate(node.inputs) if e == entry
    )
