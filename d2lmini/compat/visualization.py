"""`mxnet.viz`: a Symbol as a table and as a picture.

>>> from d2lmini import sym
>>> from d2lmini.compat import visualization
>>> net = sym.FullyConnected(sym.var("data"), num_hidden=10, name="fc")
>>> visualization.print_summary(net, shape={"data": (1, 28, 28)}, line_length=80)
________________________________________________________________________________
Layer (type)                       Output Shape    Param # Previous Layer
================================================================================
data(null)                         28x28           0
________________________________________________________________________________
fc(FullyConnected)                 10              7850    data
================================================================================
Total params: 7850
________________________________________________________________________________

After `mxnet.visualization`, whose pictures need graphviz. `symbol.picture` draws them as SVG: a
notebook shows them, and `Picture.svg` is the text for a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from d2lmini.graph.ir import Node, topological, variables_of
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import is_known, shapes_of
from d2lmini.symbol.naming import variables
from d2lmini.symbol.picture import Picture, fold_variables

Shapes = Mapping[str, tuple[int, ...]]


def plot_network(
    symbol: Symbol, title: str = "plot", save_format: str = "svg", shape: Shapes | None = None,
    dtype: Any = None, node_attrs: Any = None, hide_weights: bool = True,
) -> Picture:  # fmt: skip
    """The picture of a Symbol; `shape` gives shapes of its variables by name.

    The other arguments are graphviz's, and ignored. TypeError if `symbol` is not a Symbol.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"plot_network: expected a Symbol, got {type(symbol).__name__}")
    return Picture(symbol, **dict(shape or {}))


def print_summary(symbol: Symbol, shape: Shapes | None = None, line_length: int = 120) -> None:
    """Print a line for each node but the parameters: name and op, output shape without the batch,
    number of its parameters' elements (auxiliary states not counted), the nodes of its inputs.

    shape: shapes of variables by name; without them only parameters of known size are counted.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"print_summary: expected a Symbol, got {type(symbol).__name__}")
    given = shape or {}
    known = {n: given[n.name] for n in variables_of(symbol._entries) if n.name in given}
    found = shapes_of(symbol._entries, known)
    ends = [int(line_length * part) for part in (0.44, 0.64, 0.74, 1.0)]

    def size(node: Node) -> tuple[int, ...] | None:
        sizes = found.get((node, 0))
        return sizes if sizes is not None and is_known(sizes) else None

    nodes = topological(symbol._entries)
    data = set(known) or {n for n in nodes if n.op is None} - fold_variables(nodes, set())
    parameters = {
        n for n in variables(symbol._entries)[0] if n not in data and not n.name.endswith("_label")
    }
    print("_" * line_length)
    print(_line(["Layer (type)", "Output Shape", "Param #", "Previous Layer"], ends))
    rule, total = "=" * line_length, 0
    for node in nodes:
        if node.op is None and node not in data:
            continue
        inputs = list(dict.fromkeys(entry[0] for entry in node.sources))
        count = sum(prod(size(n) or (0,)) for n in inputs if n in parameters)
        total += count
        shown = "x".join(map(str, (size(node) or ())[1:]))
        kind = "null" if node.op is None else node.op.mxnet_name or node.op.name
        before = [n.name for n in inputs if n.op is not None or n in data]
        print(rule)
        print(_line([f"{node.name}({kind})", shown, str(count), *before[:1]], ends))
        for name in before[1:]:
            print(_line(["", "", "", name], ends))
        rule = "_" * line_length
    print("=" * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


def _line(fields: Sequence[str], ends: Sequence[int]) -> str:
    """The fields in their columns, cut where they are too long."""
    line = ""
    for field, end in zip(fields, ends):
        line = (line + field)[: end - (end < ends[-1])].ljust(end)
    return line.ljust(ends[-1])
