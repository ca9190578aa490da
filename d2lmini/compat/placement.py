"""Where the nodes of a graph run, for `group2ctx`: models whose layers are on several devices.

>>> from d2lmini import AttrScope, cpu, sym
>>> with AttrScope(ctx_group="first"):
...     x = sym.var("x")
>>> with AttrScope(ctx_group="second"):
...     y = sym.exp(x, name="y")
>>> places = place_nodes(sym.sqrt(y, name="z"), cpu(0), {"first": cpu(1), "second": cpu(2)})
>>> {node.name: place for node, place in places.items()}
{'x': cpu(1), 'y': cpu(2), 'z': cpu(2)}

After MXNet's pass PlaceDevice, where arrays on other devices are copied.
"""

from __future__ import annotations

from collections.abc import Mapping

from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.graph.ir import Node, topological
from d2lmini.symbol import Symbol


def place_nodes(
    symbol: Symbol, ctx: Context, group2ctx: Mapping[str, Context] | None
) -> dict[Node, Context]:
    """The context of each node; {} if all nodes are on `ctx`.

    A node with a label `ctx_group` is on the context of that group. Another variable is on `ctx`,
    another op where its first input is, and a variable that an op changes is with that op.
    MXNetError for a group without a context.
    """
    if not group2ctx:
        return {}
    places: dict[Node, Context] = {}
    for node in topological(symbol._entries):
        group = node.labels.get("ctx_group")
        if group is None:
            sources = node.sources
            places[node] = places[sources[0][0]] if sources else ctx
        elif group in group2ctx:
            places[node] = group2ctx[group]
        else:
            raise MXNetError(
                f"The device assignment not found for group {group} of node {node.name!r}; "
                f"group2ctx has {sorted(group2ctx)}"
            )
        for variable, _ in node.mutated:  # BatchNorm's statistics change in place
            places[variable] = places[node]
    return {} if set(places.values()) == {ctx} else places
