"""Pictures that a notebook shows and stores: matplotlib figures and SVG drawings.

>>> from d2lmini.draw.svg import page
>>> Drawing(page(30, 20, []), "an empty page")
<an empty page>
"""

from __future__ import annotations

import io
from base64 import b64encode
from importlib.util import find_spec
from math import sqrt
from typing import Any
from xml.etree import ElementTree

from d2lmini.draw.svg import INK, png

#: A drawing larger than this (in its own pixels) gets fewer than two dots per pixel, so that the
#: stored notebook output stays below 100 kB.
DENSE = 900_000

#: A drawing wider than this is scrolled in a narrow window; timelines are as wide.
WIDE = 660

#: The text in each PNG. Without matplotlib's version the bytes are the same everywhere.
TEXTS: Any = {"Software": None}


class Picture:
    """A matplotlib Figure that a notebook shows, made without pyplot and its global state.

    `figure` is the Figure (`figure.savefig` writes it to a file); it loses its white ground, and
    its black letters and axes become grey, so that the picture is readable on a light and on a dark
    page. The text next to the image is the same in every run.
    """

    def __init__(self, figure: Any, text: str):
        self.figure = figure
        self.text = text
        if figure is not None:
            _suit_light_and_dark(figure)

    def _repr_png_(self) -> Any:
        # Two dots per point of the page: sharp on dense screens, the same size everywhere.
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=200, metadata=TEXTS)
        width, height = self.figure.get_size_inches() * 100
        return file.getvalue(), {"width": int(width), "height": int(height)}

    def bundle(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The notebook's output with this text beside the image: data and metadata by MIME type."""
        image, size = self._repr_png_()
        data = {"text/plain": text, "image/png": b64encode(image).decode("ascii")}
        return data, {"image/png": size}

    def __repr__(self) -> str:
        return f"<{self.text}>"


class Drawing(Picture):
    """A picture written as SVG, the text `svg`; a notebook stores it as PNG, with fewer dots per
    pixel for a large drawing. Without matplotlib only the SVG is stored."""

    def __init__(self, svg: str, text: str):
        super().__init__(None, text)
        self.svg = svg
        self._png: tuple[bytes, dict[str, int]] | None = None

    def _repr_png_(self) -> Any:
        if self._png is None and find_spec("matplotlib") is not None:
            root = ElementTree.fromstring(self.svg).attrib
            area = float(root["width"]) * float(root["height"])
            dense = min(2.0, max(1.0, 2 * sqrt(DENSE / area)))
            data = _reduce_colours(png(self.svg, dense))
            # A PNG begins with its size in dots.
            width, height = (int.from_bytes(data[at : at + 4], "big") / dense for at in (16, 20))
            # JupyterLab scrolls what is unconfined; else it would shrink the letters with a drawing
            # that is wider than its window.
            wide = {"unconfined": True} if width > WIDE else {}
            self._png = data, {"width": round(width), "height": round(height), **wide}
        return self._png


class DrawnPicture(Picture):
    """A picture that is already drawn: any thread may ask for it at no cost. (matplotlib takes a
    quarter of a second for a picture, and two threads must not draw the same one.)

    `png` is the picture, with `below` beneath it if there is one; `size` is that on the page.
    """

    def __init__(self, picture: Picture, below: Picture | None = None):
        super().__init__(picture.figure, picture.text)
        self.png, self.size = picture._repr_png_()
        if below is not None:
            self.png, self.size = _stack([self.png, below._repr_png_()[0]])

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return self.png, self.size


def _stack(images: list[bytes]) -> tuple[bytes, dict[str, int]]:
    """PNGs one below the other, at two dots for each point of the page."""
    from PIL import Image  # a dependency of matplotlib

    parts = [Image.open(io.BytesIO(data)) for data in images]
    whole = Image.new("RGBA", (max(p.width for p in parts), sum(p.height for p in parts)))
    low = 0
    for part in parts:
        whole.paste(part, (0, low))
        low += part.height
    file = io.BytesIO()
    whole.save(file, "PNG", optimize=True)
    return file.getvalue(), {"width": whole.width // 2, "height": whole.height // 2}


def _suit_light_and_dark(figure: Any) -> None:
    """Make the ground transparent; what is black by default becomes INK."""
    from matplotlib.text import Text

    figure.set_facecolor("none")
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.tick_params(which="both", color=INK, labelcolor=INK)
        for spine in axes.spines.values():
            spine.set_edgecolor(INK)
    for legend in [*figure.legends, *(axes.get_legend() for axes in figure.axes)]:
        if legend is not None:
            legend.get_frame().set_facecolor("none")
    for text in figure.findobj(Text):
        if text.get_color() == "black":
            text.set_color(INK)


def _reduce_colours(data: bytes) -> bytes:
    """Compress the PNG to a third of its bytes: it has a few flat colours and letters."""
    from PIL import Image  # a dependency of matplotlib

    file = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        few = image.convert("RGBA").quantize(64, dither=Image.Dither.NONE)
        few.save(file, "PNG", optimize=True)
    return file.getvalue()
