"""A Symbol as a picture (SVG), for notebooks: data flows from top to bottom.

>>> from d2lmini import sym
>>> net = sym.relu(sym.FullyConnected(sym.var("x"), num_hidden=10, name="fc"), name="act")
>>> svg = Picture(net, x=(32, 784)).svg
>>> ">FullyConnected<" in svg and "weight 10 × 784" in svg and "32 × 10" in svg
True

A box is a call of an op, with its name, what it was told and its parameters; rounded ones are
variables. What an edge carries is written beside it where it is known. The shade says what kind of
work a box does, as the op itself knows (`kind_of`); a bold frame marks outputs. Nothing is needed
but a browser. A Symbol that is the last value of a notebook's cell is shown this way.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import NamedTuple

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Node, topological
from d2lmini.symbol import lists, raster
from d2lmini.symbol.infer import is_known, shapes_of
from d2lmini.symbol.layered import Edge, place
from d2lmini.symbol.naming import operator_hint
from d2lmini.symbol.symbol import Symbol

#: Beyond this many boxes a picture helps nobody.
MOST = 300


class Kind(NamedTuple):
    """How a kind of work looks; the shades differ in grey, too."""

    means: str
    fill: str
    text: str
    dashes: str = ""


KINDS = {
    "variable": Kind("variable", "#ffffff", "#222222"),
    "product": Kind("products: layers with weights, dot", "#1f5f99", "#ffffff"),
    "many": Kind("many to one: norms, pooling, sums", "#7fb2dd", "#111111"),
    "each": Kind("element by element", "#d3e6f5", "#111111"),
    "move": Kind("moves elements", "#ffffff", "#222222", "4 2"),
    "chance": Kind("draws numbers", "#eeeeee", "#222222", "1 2"),
}


def kind_of(node: Node) -> str:
    """The kind of work of a node, from what its op knows of itself."""
    op = node.op
    if op is None:
        return "variable"
    if op.random:
        return "chance"
    if callable(op.flops) and len(op.input_names) > 1:
        return "product"
    if op.flops == 0:
        return "move"
    return "each" if op.elementwise else "many"


class Picture:
    """The picture of a Symbol; keywords are shapes of variables, as for `infer_shape`.

    MXNetError if the shapes do not fit, and for a graph of more than MOST boxes."""

    def __init__(self, symbol: Symbol, **shapes: tuple[int, ...]):
        nodes = topological(symbol._entries)
        known = {
            node: shapes[node.name] for node in nodes if node.op is None and node.name in shapes
        }
        self.shapes = shapes_of(symbol._entries, known)
        self.outputs = {node for node, _ in symbol._entries}
        folded = folded_into(nodes, self.outputs)
        self.nodes = [node for node in nodes if node not in folded]
        if len(self.nodes) > MOST:
            raise MXNetError(
                f"a picture of {len(self.nodes)} boxes is too large; choose a part of the graph "
                "from get_internals()"
            )
        number = {node: i for i, node in enumerate(self.nodes)}
        #: Boxes and edges; on an edge, what it carries.
        self.carried: dict[Edge, list[Entry]] = {}
        for node in self.nodes:
            for entry in node.inputs:
                if entry is not None and entry[0] in number:
                    edge = number[entry[0]], number[node]
                    self.carried.setdefault(edge, []).append(entry)
        self.words = [words_of(node, folded, self._shape) for node in self.nodes]

    def _shape(self, entry: Entry) -> str:
        shape = self.shapes.get(entry)
        return " × ".join(map(str, shape)) if shape and is_known(shape) else ""

    @property
    def svg(self) -> str:
        """The picture as an SVG element."""
        lines = [[short(line) for line in words if line] for words in self.words]
        widths = [max(_width(line, i) for i, line in enumerate(words)) + 18 for words in lines]
        heights = [10.0 + 13 * len(words) for words in lines]
        places = place(widths, list(self.carried))
        tall = [0.0] * (max(places.row, default=-1) + 1)
        for row, height in zip(places.row, heights):
            tall[row] = max(tall[row], height)
        tops = [MARGIN]
        for height in tall:
            tops.append(tops[-1] + height + BETWEEN)
        middle = [top + height / 2 for top, height in zip(tops, tall)]
        centres = [(MARGIN + x, middle[row]) for x, row in zip(places.x, places.row)]

        parts = []
        for a, b in self.carried:
            points = [(centres[a][0], centres[a][1] + heights[a] / 2)]
            for i, bend in enumerate(places.bends.get((a, b), ())):
                row = places.row[a] + 1 + i
                points += [(MARGIN + bend, tops[row]), (MARGIN + bend, tops[row] + tall[row])]
            points.append((centres[b][0], centres[b][1] - heights[b] / 2))
            parts.append(_line(points))
        for node, words, at, width, height in zip(self.nodes, lines, centres, widths, heights):
            parts.append(_box(node, words, at, width, height, node in self.outputs))
            if node.op is not None:
                shapes = dict.fromkeys(self._shape((node, i)) for i in range(node.n_outputs))
                parts.append(_label(at[0] + 5, at[1] + height / 2 + 10, ", ".join(shapes)))
        right = max([x + w / 2 for (x, _), w in zip(centres, widths)], default=0.0)
        used = [kind for kind in KINDS if any(kind_of(node) == kind for node in self.nodes)]
        for i, kind in enumerate(used):
            parts.append(_legend(kind, tops[-1] + 15 * i))
            right = max(right, MARGIN + 22 + _width(KINDS[kind].means, 1))
        return _frame(right + MARGIN + 40, tops[-1] + 15 * len(used) + 6, parts)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        # What a notebook shows of it while it is not trusted, if there is matplotlib.
        if raster.matplotlib() is None:
            return None
        data = raster.png(self.svg)
        # A PNG begins with its size, two dots for each pixel of ours.
        width, height = (int.from_bytes(data[at : at + 4], "big") // 2 for at in (16, 20))
        return data, {"width": width, "height": height}

    def __repr__(self) -> str:
        return f"<picture of {', '.join(sorted(node.name for node in self.outputs))}>"


#: Pixels around the picture, and between rows.
MARGIN, BETWEEN = 14.0, 26.0
_INK, _ACCENT = "#444444", "#c8501e"
_SIZES = ('"11" font-weight="bold"', '"9"')


def words_of(node: Node, folded: set[Node], shape_of: Callable[[Entry], str]) -> list[str]:
    """The lines in the box of a node: the op, what it was told, its parameters; some may be "".
    `folded` are the variables that go into the boxes of those who use them."""
    if node.op is None:
        return [node.name, shape_of((node, 0))]
    known = lists.attributes(node)
    told = [f"{k}={_value(known[k])}" for k in node.op.attr_names if _is_news(k, known)]
    parameters: dict[str, list[str]] = {}
    for name, entry in zip(node.op.input_names, node.inputs):
        if entry is not None and entry[0] in folded:
            parameters.setdefault(shape_of(entry), []).append(name)
    owned = [f"{', '.join(names)} {shape}".strip() for shape, names in parameters.items()]
    own_name = [] if _is_automatic(node) else [node.name]
    return [_plain(node.op.name), ", ".join(own_name + told), ", ".join(owned)]


def folded_into(nodes: list[Node], outputs: set[Node]) -> set[Node]:
    """The variables that are named after the one node that uses them: they go into its box."""
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
    """Did it get its name for want of one?"""
    assert node.op is not None
    stem = node.name.rstrip("0123456789")
    called = (node.op.name, *node.op.aliases, operator_hint(node.op.name))
    return any(stem.endswith(each.lower()) for each in called)


def _plain(name: str) -> str:
    """An op's name without what is said to tell it from others: 'add' for 'broadcast_add'."""
    for prefix in ("broadcast_", "elemwise_", "_contrib_", "_"):
        name = name.removeprefix(prefix)
    return name.removesuffix("_scalar") or name


def _is_news(name: str, known: dict[str, str]) -> bool:
    """Is the attribute given, and not one of those that say "as usual"?"""
    usual = {"stride": "1", "dilate": "1", "pad": "0"}.get(name, "")
    return name in known and set(known[name].strip("()").split(", ")) != {usual}


def _value(text: str) -> str:
    """'5×5' for '(5, 5)'."""
    return text.strip("()").replace(", ", "×").rstrip(",") if text.startswith("(") else text


def short(text: str, most: int = 40) -> str:
    """The text, or its beginning and a sign that there is more."""
    return text if len(text) <= most else text[: most - 1].rstrip(", ") + "…"


def _width(text: str, line: int) -> float:
    """About how wide a line of a box is: the first is bold and larger."""
    return (5.2 if line else 7.0) * len(text)


def smooth(points: list[tuple[float, float]]) -> str:
    """The path of a smooth line through the points, upright at each."""
    (x, y), *others = points
    path = f"M{x:g} {y:g}"
    for u, v in others:
        half = (y + v) / 2
        path += f"L{u:g} {v:g}" if x == u else f"C{x:g} {half:g} {u:g} {half:g} {u:g} {v:g}"
        x, y = u, v
    return path


def _line(points: list[tuple[float, float]]) -> str:
    """Such a line, with a head at its end."""
    path, (x, y) = smooth(points), points[-1]
    head = f"M{x - 3.5:g} {y - 6:g}L{x:g} {y:g}L{x + 3.5:g} {y - 6:g}z"
    return f'<path d="{path}" fill="none" stroke="{_INK}"/><path d="{head}" fill="{_INK}"/>'


def _label(x: float, y: float, text: str) -> str:
    """Small text that can be read above a line."""
    if not text:
        return ""
    at = f'<text x="{x:g}" y="{y:g}" font-size="9"'
    halo = f'{at} stroke="#ffffff" stroke-width="5" stroke-linejoin="round">{escape(text)}</text>'
    return f'{halo}{at} fill="{_INK}">{escape(text)}</text>'


def _box(
    node: Node, words: list[str], at: tuple[float, float], width: float, height: float,
    is_output: bool,
) -> str:  # fmt: skip
    kind, (x, y) = KINDS[kind_of(node)], at
    frame = f'stroke="{_ACCENT}" stroke-width="2.5"' if is_output else f'stroke="{_INK}"'
    if kind.dashes:
        frame += f' stroke-dasharray="{kind.dashes}"'
    corner = height / 2 if node.op is None else 3
    title = [f"{node.op.name} {node.name}" if node.op else node.name]
    title += [f"{k} = {v}" for k, v in lists.attributes(node).items()]
    title += [callsite.describe(node.site)] if node.site else []
    top = y - height / 2
    text = "".join(
        f'<text text-anchor="middle" fill="{kind.text}" x="{x:g}" y="{top + 15 + 13 * i:g}" '
        f"font-size={_SIZES[i > 0]}>{escape(line)}</text>"
        for i, line in enumerate(words)
    )
    return (
        f"<g><title>{escape(chr(10).join(title))}</title>"
        f'<rect x="{x - width / 2:g}" y="{top:g}" width="{width:g}" height="{height:g}" '
        f'rx="{corner:g}" fill="{kind.fill}" {frame}/>{text}</g>'
    )


def _legend(name: str, y: float) -> str:
    kind = KINDS[name]
    dashes = f' stroke-dasharray="{kind.dashes}"' if kind.dashes else ""
    corner = 5 if name == "variable" else 2
    return (
        f'<rect x="{MARGIN:g}" y="{y:g}" width="16" height="10" rx="{corner}" fill="{kind.fill}" '
        f'stroke="{_INK}"{dashes}/><text x="{MARGIN + 22:g}" y="{y + 9:g}" font-size="9" '
        f'fill="{_INK}">{kind.means}</text>'
    )


def _frame(width: float, height: float, parts: list[str]) -> str:
    inside = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{inside}\n</svg>'
    )


def picture(self: Symbol, **shapes: tuple[int, ...]) -> Picture:
    """Its picture, with the shapes that follow from these of its variables."""
    return Picture(self, **shapes)


def _repr_svg_(self: Symbol) -> str | None:
    try:
        return Picture(self).svg
    except MXNetError:
        return None  # too large, or its labels contradict each other: the name must do


Symbol.picture = picture  # type: ignore[attr-defined]
Symbol._repr_svg_ = _repr_svg_  # type: ignore[attr-defined]
