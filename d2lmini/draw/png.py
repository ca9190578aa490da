"""A drawing as PNG, for pages that show no SVG: a notebook that is not trusted yet.

Supports only the rectangles, lines and texts that `svg.py` writes, drawn by matplotlib.

>>> from d2lmini import sym
>>> png(sym.relu(sym.var("x")).picture().svg)[:4] if matplotlib() else b"\\x89PNG"
b'\\x89PNG'
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from typing import Any
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_POINTS_PER_PIXEL = 72 / 96


def matplotlib() -> Any:
    """The package matplotlib; None if it is not installed."""
    try:
        return import_module("matplotlib")
    except ImportError:
        return None


def png(svg: str, dots_per_pixel: float = 2.0) -> bytes:
    """The PNG of an SVG, with `dots_per_pixel` dots for each pixel of the SVG."""
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    figure = Figure(figsize=(width / 96, height / 96))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for order, part in enumerate(root.iter()):
        draw = {"rect": _rectangle, "path": _path, "text": _text}.get(part.tag.removeprefix(_SVG))
        if draw is not None:
            draw(axes, part, order)
    file = io.BytesIO()
    figure.savefig(
        file, format="png", dpi=96 * dots_per_pixel, transparent=True, metadata={"Software": None}
    )
    return file.getvalue()


def _number(part: ElementTree.Element, name: str, default: float = 0.0) -> float:
    return float(part.get(name, default))


def _line_style(part: ElementTree.Element) -> Any:
    dashes = [float(n) for n in part.get("stroke-dasharray", "").split()]
    return (0, dashes) if dashes else "-"


def _rectangle(axes: Any, part: ElementTree.Element, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    width, height = _number(part, "width"), _number(part, "height")
    corner = min(_number(part, "rx"), height / 2)
    axes.add_patch(
        FancyBboxPatch(
            (_number(part, "x"), _number(part, "y")), width, height,
            boxstyle=f"round,pad=0,rounding_size={corner}", zorder=order,
            facecolor=part.get("fill"), edgecolor=part.get("stroke"),
            linewidth=_number(part, "stroke-width", 1) * _POINTS_PER_PIXEL,
            linestyle=_line_style(part),
        )
    )  # fmt: skip


def _path(axes: Any, part: ElementTree.Element, order: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    kinds = {"M": Path.MOVETO, "L": Path.LINETO, "C": Path.CURVE4}
    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    for letter, text in re.findall(r"([MLCz])([^MLCz]*)", part.attrib["d"]):
        if letter == "z":
            points.append((0.0, 0.0))
            codes.append(Path.CLOSEPOLY)
            continue
        numbers = [float(n) for n in text.split()]
        pairs = list(zip(numbers[::2], numbers[1::2]))
        points += pairs
        codes += [kinds[letter]] * len(pairs)
    axes.add_patch(
        PathPatch(
            Path(points, codes), zorder=order, linewidth=_POINTS_PER_PIXEL,
            facecolor=part.get("fill", "none"), edgecolor=part.get("stroke", "none"),
            linestyle=_line_style(part),
        )
    )  # fmt: skip


def _text(axes: Any, part: ElementTree.Element, order: int) -> None:
    axes.text(
        _number(part, "x"), _number(part, "y"), part.text, zorder=order,
        color=part.get("fill"), parse_math=False,
        fontsize=_number(part, "font-size") * _POINTS_PER_PIXEL * 0.92,
        fontweight=part.get("font-weight", "normal"), va="baseline",
        ha="center" if part.get("text-anchor") == "middle" else "left",
    )  # fmt: skip
