"""A graph in two: what runs forward, what runs backward, and what the one keeps for the other.

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = x.exp()
...     dx = y * 2                       # for instance
>>> kept = residuals(y._entries, dx._entries)
>>> kept == [y._entry]
True
>>> variables, (dx,) = cut_graph(dx._entries, kept)
>>> variables, dx[0].inputs
([<variable kept_exp0>], ((<variable kept_exp0>, 0),))
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.graph.ir import Entry, Node, topological, transform


def residuals(forward: Sequence[Entry], backward: Sequence[Entry]) -> list[Entry]:
    """The values of the forward graph that the backward graph uses, variables apart, in the order
    in which they are computed."""
    before = set(topological(forward))
    used = dict.fromkeys(e for e in backward if e[0] in before)
    for node in topological(backward):
        if node not in before:
            used.update(dict.fromkeys(e for e in node.sources if e[0] in before))
    return [entry for entry in used if entry[0].op is not None]


def cut_graph(entries: Sequence[Entry], at: Sequence[Entry]) -> tuple[list[Node], list[Entry]]:
    """The graph behind `entries` with variables in the place of the values `at`; the variables."""
    replaced: dict[Entry, Entry] = {}
    variables = []
    names: set[str] = set()
    for node, i in at:
        assert node.op is not None
        name = f"kept_{node.name}" + (f"_{i}" if len(node.specs or ()) > 1 else "")
        while name in names:  # a layer that is called twice gives two nodes of its name
            name += "_"
        names.add(name)
        specs = None if node.specs is None else (node.specs[i],)
        variable = Node(None, name, specs=specs, site=node.site)
        variables.append(variable)
        replaced[node, i] = (variable, 0)
    return variables, transform(entries, given=replaced)
