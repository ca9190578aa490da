"""Boxes and arrows from top to bottom: what the drawings of programs and graphs have in common.

>>> found = arranged([(40, 20), (40, 20), (60, 30)], [(0, 2), (1, 2)])
>>> found.x, found.y, found.width
([20.0, 84.0, 52.0], [10.0, 10.0, 60.0], 124.0)
>>> found.arrows[0, 2]
('M30 30C30 44.5 62 44.5 62 59', 'M58 52L62 59L66 52z')

The places come from `symbol.layered`. The live views draw SVG from them; what a notebook stores is
the same as PNG, which it shows untrusted, too (`symbol.raster`).
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from html import escape
from math import sqrt
from typing import NamedTuple
from xml.etree import ElementTree

from d2lmini import files
from d2lmini.profiler.plot import Picture
from d2lmini.symbol import raster
from d2lmini.symbol.layered import Edge, place
from d2lmini.symbol.picture import smooth

#: Pixels: between rows, around all.
BETWEEN, MARGIN = 30.0, 10.0
INK, QUIET = "#222222", "#666666"

#: Pictures larger than this (in pixels of ours) get less than two dots for a pixel: what is stored
#: in a notebook stays at 100 kB.
DENSE = 900_000


class Arranged(NamedTuple):
    """Where boxes stand: `x` of their middles (without the margin), `y` of their upper edges; for
    each edge the path of its line and that of its head; the size of all."""

    x: list[float]
    y: list[float]
    arrows: dict[Edge, tuple[str, str]]
    width: float
    height: float


def arranged(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> Arranged:
    """Places for boxes of these widths and heights; every edge leads to a higher number."""
    places = place([width for width, _ in sizes], edges)
    tall = [0.0] * (max(places.row, default=-1) + 1)
    for row, (_, height) in zip(places.row, sizes):
        tall[row] = max(tall[row], height)
    tops = [MARGIN]
    for height in tall:
        tops.append(tops[-1] + height + BETWEEN)
    # A box that is lower than its row stands in the row's middle.
    y = [tops[row] + (tall[row] - height) / 2 for row, (_, height) in zip(places.row, sizes)]
    arrows = {}
    for a, b in dict.fromkeys(edges):
        points = [(MARGIN + places.x[a], y[a] + sizes[a][1])]
        for i, bend in enumerate(places.bends.get((a, b), ())):
            row = places.row[a] + 1 + i
            points += [(MARGIN + bend, tops[row]), (MARGIN + bend, tops[row] + tall[row])]
        points.append((MARGIN + places.x[b], y[b] - 1))
        arrows[a, b] = smooth(points), _head(*points[-1])
    right = max([x + width / 2 for x, (width, _) in zip(places.x, sizes)], default=0.0)
    return Arranged(places.x, y, arrows, right + 2 * MARGIN, tops[-1] - BETWEEN + MARGIN)


def _head(x: float, y: float) -> str:
    return f"M{x - 4:g} {y - 7:g}L{x:g} {y:g}L{x + 4:g} {y - 7:g}z"


class Drawing(Picture):
    """A picture that was written as SVG; a notebook shows it as PNG, as dense as is not too much to
    store."""

    def __init__(self, svg: str, text: str):
        super().__init__(None, text)
        self.svg = svg
        self._png: tuple[bytes, dict[str, int]] | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: SVG where the name ends in .svg, else PNG."""
        as_svg = os.fspath(path).endswith(".svg")
        files.write(path, self.svg if as_svg else self._repr_png_()[0])

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        if self._png is None:
            root = ElementTree.fromstring(self.svg).attrib
            area = float(root["width"]) * float(root["height"])
            dense = min(2.0, max(1.0, 2 * sqrt(DENSE / area)))
            data = _in_few_colours(raster.png(self.svg, dense))
            # A PNG begins with its size in dots.
            width, height = (int.from_bytes(data[at : at + 4], "big") / dense for at in (16, 20))
            self._png = data, {"width": round(width), "height": round(height)}
        return self._png


def _in_few_colours(png: bytes) -> bytes:
    """The picture in a third of the bytes: it has a few flat colours and letters."""
    from PIL import Image  # matplotlib's own

    file = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(48, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def page(width: float, height: float, parts: Sequence[str]) -> str:
    """An SVG of this size."""
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{inside}\n</svg>'
    )


def text_at(
    x: float, y: float, text: str, size: int, color: str = INK, bold: bool = False,
    middle: bool = False,
) -> str:  # fmt: skip
    """A line of text."""
    how = ' font-weight="bold"' if bold else ""
    how += ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}"{how}>{escape(text)}</text>'


def arrow(path: str, head: str, color: str, dashed: bool = False) -> str:
    """A line with its head."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    line = f'<path d="{path}" fill="none" stroke="{color}"{dashes}/>'
    return line + f'<path d="{head}" fill="{color}"/>'


def box(x: float, y: float, width: float, height: float, face: str, edge: str, corner: float = 4,
        wide: float = 1, dashes: str = "") -> str:  # fmt: skip
    """A rectangle with round corners, around `x`, below `y`."""
    how = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect x="{x - width / 2:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{corner:g}" fill="{face}" stroke="{edge}" stroke-width="{wide:g}"{how}/>'
    )


def broken(text: str, width: float, letter: float = 6.2) -> list[str]:
    """The text in lines that fit the width, broken between words."""
    lines = [""]
    for word in text.split(" "):
        if letter * (len(lines[-1]) + len(word)) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [line for line in lines if line]
