"""A Symbol as a picture (SVG), for notebooks: data flows from top to bottom.

>>> from d2lmini import sym
>>> net = sym.relu(sym.FullyConnected(sym.var("x"), num_hidden=10, name="fc"), name="act")
>>> svg = Picture(net, x=(32, 784)).svg
>>> ">FullyConnected<" in svg and "weight 10 × 784" in svg and "32 × 10" in svg
True

A box is a call of an op, with its name, its attributes and its parameters; rounded boxes are
variables. An edge is labelled with the shape of its value, where known; a bold frame marks outputs.
A notebook shows a Symbol that is the last value of a cell this way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from d2lmini.base import MXNetError, callsite
from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import Box, diagram, shorten
from d2lmini.graph.ir import Entry, Node, topological, variables_of
from d2lmini.ops.fluent import shown_name, shown_with_number
from d2lmini.symbol import naming
from d2lmini.symbol.infer import is_known, shapes_of
from d2lmini.symbol.symbol import Symbol

#: Pictures with more boxes are refused: they would be unreadable.
MOST = 300

VARIABLE, OPERATION = "#ffffff", "#d3e6f5"


class Picture(Drawing):
    """The picture of a Symbol; keywords are shapes of variables, as for `infer_shape`.

    MXNetError if the shapes do not fit, and for a graph of more than MOST boxes."""

    def __init__(self, symbol: Symbol, **shapes: tuple[int, ...]):
        nodes = topological(symbol._entries)
        known = {n: shapes[n.name] for n in variables_of(symbol._entries) if n.name in shapes}
        found = shapes_of(symbol._entries, known)
        outputs = {node for node, _ in symbol._entries}
        folded = fold_variables(nodes, outputs)
        shown = [node for node in nodes if node not in folded]
        if len(shown) > MOST:
            raise MXNetError(f"{len(shown)} boxes are too many; choose a part by get_internals()")

        def shape_of(entry: Entry) -> str:
            shape = found.get(entry)
            return " × ".join(map(str, shape)) if shape and is_known(shape) else ""

        number = {node: i for i, node in enumerate(shown)}
        edges = {(number[e[0]], number[n]): True
                 for n in shown for e in n.sources if e[0] in number}  # fmt: skip
        boxes = [box_of(node, folded, node in outputs, shape_of) for node in shown]
        svg = diagram(boxes, edges, right=40, low=20)  # room for labels
        super().__init__(svg, f"picture of {', '.join(sorted(node.name for node in outputs))}")

    def _repr_svg_(self) -> str:
        return self.svg


def box_of(node: Node, folded: set[Node], is_output: bool, shape_of: Callable[[Entry], str]) -> Box:
    """The box of a node: the op, its attributes, its parameters. `folded` are the variables that
    are drawn inside the boxes of their consumers."""
    known = naming.attributes(node)
    title = [f"{node.op.name} {node.name}" if node.op else node.name]
    title += [f"{k} = {v}" for k, v in known.items()]
    title += [callsite.describe(node.site)] if node.site else []
    if node.op is None:
        lines = [node.name, shape_of((node, 0))]
        return Box([x for x in lines if x], VARIABLE, True, is_output, "\n".join(title), "")
    stem = node.name.rstrip("0123456789")
    names = (node.op.name, *node.op.aliases, naming.operator_hint(node.op.name))
    is_automatic = stem.startswith("_") or any(stem.endswith(name.lower()) for name in names)
    head = shown_with_number(node.op.name, known["scalar"]) if "scalar" in known else ""
    told = [] if is_automatic else [node.name]
    usual = {"stride": {"1"}, "dilate": {"1"}, "pad": {"0"}}
    for key in node.op.attr_names if not head else ():
        if key in known and set(known[key].strip("()").split(", ")) != usual.get(key):
            told.append(f"{key}={known[key]}")
    parameters: dict[str, list[str]] = {}
    for name, entry in zip(node.op.input_names, node.inputs):
        if entry is not None and entry[0] in folded:
            parameters.setdefault(shape_of(entry), []).append(name)
    owned = [f"{', '.join(names)} {shape}".strip() for shape, names in parameters.items()]
    lines = [head or shown_name(node.op.name), ", ".join(told), ", ".join(owned)]
    label = ", ".join(dict.fromkeys(shape_of((node, i)) for i in range(node.n_outputs)))
    shortened = [shorten(line) for line in lines if line]
    return Box(shortened, OPERATION, False, is_output, "\n".join(title), label)


def fold_variables(nodes: list[Node], outputs: set[Node]) -> set[Node]:
    """The variables named after their only consumer: they are drawn inside its box."""
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for variable, _ in node.sources:
            users.setdefault(variable, []).append(node)
    return {
        variable
        for variable, (first, *others) in users.items()
        if variable.op is None and variable not in outputs and not others
        if variable.name.startswith(f"{first.name.removesuffix('_fwd')}_")
    }


def _repr_svg_(self: Symbol) -> str | None:
    with suppress(MXNetError):  # too large, or its labels contradict each other: show the name
        return Picture(self).svg
    return None


def picture(self: Symbol, **shapes: tuple[int, ...]) -> Picture:
    """The picture of the Symbol, with shapes inferred from these shapes of its variables."""
    return Picture(self, **shapes)


Symbol.picture = picture  # type: ignore[attr-defined]
Symbol._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]
