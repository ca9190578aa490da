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

from d2lmini.base import MXNetError, callsite
from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import Box, diagram, page, shorten
from d2lmini.graph.ir import Entry, Node, topological, variables_of
from d2lmini.ops.shown import shown_name, shown_with_number
from d2lmini.symbol import lists
from d2lmini.symbol.infer import is_known, shapes_of
from d2lmini.symbol.naming import operator_hint
from d2lmini.symbol.symbol import Symbol

#: Pictures with more boxes are refused: they would be unreadable.
MOST = 300


#: The colours of boxes.
VARIABLE, OPERATION = "#ffffff", "#d3e6f5"


class Picture(Drawing):
    """The picture of a Symbol; keywords are shapes of variables, as for `infer_shape`.

    MXNetError if the shapes do not fit, and for a graph of more than MOST boxes."""

    def __init__(self, symbol: Symbol, **shapes: tuple[int, ...]):
        nodes = topological(symbol._entries)
        known = {n: shapes[n.name] for n in variables_of(symbol._entries) if n.name in shapes}
        self.shapes = shapes_of(symbol._entries, known)
        outputs = {node for node, _ in symbol._entries}
        folded = fold_variables(nodes, outputs)
        self.nodes = [node for node in nodes if node not in folded]
        if len(self.nodes) > MOST:
            raise MXNetError(
                f"a picture of {len(self.nodes)} boxes is too large; choose a part of the graph "
                "from get_internals()"
            )
        number = {node: i for i, node in enumerate(self.nodes)}
        edges = [
            (number[entry[0]], number[node])
            for node in self.nodes
            for entry in node.inputs
            if entry is not None and entry[0] in number
        ]
        boxes = [self._box(node, folded, node in outputs) for node in self.nodes]
        parts, width, height = diagram(boxes, edges)
        svg = page(width + 40, height + 20, parts)
        super().__init__(svg, f"picture of {', '.join(sorted(node.name for node in outputs))}")

    def _box(self, node: Node, folded: set[Node], is_output: bool) -> Box:
        lines = [shorten(line) for line in words_of(node, folded, self._shape) if line]
        title = [f"{node.op.name} {node.name}" if node.op else node.name]
        title += [f"{k} = {v}" for k, v in lists.attributes(node).items()]
        title += [callsite.describe(node.site)] if node.site else []
        shapes = dict.fromkeys(self._shape((node, i)) for i in range(node.n_outputs))
        label = ", ".join(shapes) if node.op is not None else ""
        fill = VARIABLE if node.op is None else OPERATION
        return Box(lines, fill, node.op is None, is_output, "\n".join(title), label)

    def _shape(self, entry: Entry) -> str:
        shape = self.shapes.get(entry)
        return " × ".join(map(str, shape)) if shape and is_known(shape) else ""

    def _repr_svg_(self) -> str:
        return self.svg


def words_of(node: Node, folded: set[Node], shape_of: Callable[[Entry], str]) -> list[str]:
    """The lines in the box of a node: the op, its attributes, its parameters; some may be "".
    `folded` are the variables that are drawn inside the boxes of their consumers."""
    if node.op is None:
        return [node.name, shape_of((node, 0))]
    known = lists.attributes(node)
    told = [f"{k}={_value(known[k])}" for k in node.op.attr_names if _is_news(k, known)]
    parameters: dict[str, list[str]] = {}
    for name, entry in zip(node.op.input_names, node.inputs):
        if entry is not None and entry[0] in folded:
            parameters.setdefault(shape_of(entry), []).append(name)
    owned = [f"{', '.join(names)} {shape}".strip() for shape, names in parameters.items()]
    head = shown_with_number(node.op.name, known["scalar"]) if "scalar" in known else ""
    if head:
        told.remove(f"scalar={known['scalar']}")
    own_name = [] if _is_automatic(node) else [node.name]
    return [head or _plain(node.op.name), ", ".join(own_name + told), ", ".join(owned)]


def fold_variables(nodes: list[Node], outputs: set[Node]) -> set[Node]:
    """The variables named after their only consumer: they are drawn inside its box."""
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for entry in node.inputs:
            if entry is not None and entry[0].op is None:
                users.setdefault(entry[0], []).append(node)
    found = set()
    for variable, (first, *others) in users.items():
        stem = first.name.removesuffix("_fwd")
        if not others and variable not in outputs and variable.name.startswith(f"{stem}_"):
            found.add(variable)
    return found


def _is_automatic(node: Node) -> bool:
    """True if the node's name was generated: its stem is the op's, or that of an operator."""
    assert node.op is not None
    stem = node.name.rstrip("0123456789")
    if stem.startswith("_"):
        return True
    called = (node.op.name, *node.op.aliases, operator_hint(node.op.name))
    return any(stem.endswith(op_name.lower()) for op_name in called)


def _plain(name: str) -> str:
    """What a program writes: '+' for 'broadcast_add', 'ones' for '_ones'."""
    name = shown_name(name).removeprefix("nd.")
    for prefix in ("broadcast_", "elemwise_", "_contrib_", "_"):
        name = name.removeprefix(prefix)
    return name.removesuffix("_scalar") or name


def _is_news(name: str, known: dict[str, str]) -> bool:
    """True if the attribute is given and differs from its usual value."""
    usual = {"stride": "1", "dilate": "1", "pad": "0"}.get(name, "")
    return name in known and set(known[name].strip("()").split(", ")) != {usual}


def _value(text: str) -> str:
    """'5×5' for '(5, 5)'."""
    return text.strip("()").replace(", ", "×").rstrip(",") if text.startswith("(") else text


def picture(self: Symbol, **shapes: tuple[int, ...]) -> Picture:
    """The picture of the Symbol, with shapes inferred from these shapes of its variables."""
    return Picture(self, **shapes)


def _repr_svg_(self: Symbol) -> str | None:
    try:
        return Picture(self).svg
    except MXNetError:
        return None  # too large, or its labels contradict each other: show the name instead


Symbol.picture = picture  # type: ignore[attr-defined]
Symbol._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]
