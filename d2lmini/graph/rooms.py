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
>>> x, a, b, y = nodes = topological(outputs)
>>> places = {(x, 0): "x", (y, 0): "y"}
>>> rooms(nodes[1:], places, str)                    # b goes where y will be
{'a': dtype('float32')}
>>> places[a, 0], places[b, 0]
('a', 'y')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from d2lmini.graph.ir import Entry, Node, spec_of, topological  # noqa: F401  (for the doctest)
from d2lmini.graph.steps import may_overwrite, steps_of


def rooms(
    nodes: Sequence[Node], places: dict[Entry, str], new_name: Callable[[str], str]
) -> dict[str, np.dtype]:
    """Give every value of the group that has none a place; the scratch arrays for that by name."""
    last = {entry: node for node in nodes for entry in node.sources}
    _go_where_it_ends(nodes, places, last)
    found: dict[str, np.dtype] = {}
    free: list[str] = []
    for node in nodes:
        entry = node, 0
        read = dict.fromkeys(node.sources)
        dying = [e for e in read if last[e] is node and places[e] in found]
        if entry not in places:
            dtype = spec_of(entry).dtype
            fit = [places[e] for e in dying if _may_lie_over(node, e)]
            fit += [name for name in free if found[name] == dtype]
            if not fit:
                fit = [new_name(node.name)]
                found[fit[0]] = dtype
            places[entry] = fit[0]
        free = [name for name in free if name != places[entry]]
        free += [places[e] for e in dying if places[e] != places[entry]]
    return found


def _go_where_it_ends(
    nodes: Sequence[Node], places: dict[Entry, str], last: dict[Entry, Node]
) -> None:
    """Let a value be computed where the one made of it is to stay, and so on backwards, as long as
    nobody needs what lies there before."""
    for result in [node for node in nodes if (node, 0) in places]:
        place = places[result, 0]
        node = result
        while True:
            found = [
                e
                for e in dict.fromkeys(node.inputs)
                if e is not None and e not in places and last[e] is node and _may_lie_over(node, e)
            ]
            source = next((e for e in found if _is_free(place, e[0], node, nodes, places)), None)
            if source is None:
                break
            places[source] = place
            node = source[0]


def _is_free(
    place: str, first: Node, after: Node, nodes: Sequence[Node], places: dict[Entry, str]
) -> bool:
    """Can `first` write into this place, with nobody reading or writing there until `after`?"""
    for node in nodes[nodes.index(first) : nodes.index(after) + 1]:
        if node not in (first, after) and places.get((node, 0)) == place:
            return False
        there = [e for e in node.sources if places.get(e) == place]
        if node is first:
            if not all(_may_lie_over(node, e) for e in there):
                return False
        elif there:
            return False
    return True


def _may_lie_over(node: Node, entry: Entry) -> bool:
    """May the result of `node` overwrite this input, which is needed no more?"""
    if spec_of(entry) != spec_of((node, 0)):
        return False
    steps = steps_of(node)
    if steps is None:  # an elementwise op may write over its inputs, others are not asked
        return node.op is not None and node.op.elementwise
    return all(may_overwrite(steps, i) for i, e in enumerate(node.inputs) if e == entry)
