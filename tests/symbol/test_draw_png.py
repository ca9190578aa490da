"""The PNG of a Symbol's picture shows what its SVG says, where it says it."""

import io
import re

import numpy as np
import pytest
from matplotlib.image import imread

from d2lmini import sym
from d2lmini.draw import picture as pictures


def net():
    hidden = sym.FullyConnected(sym.var("x"), num_hidden=10, name="fc")
    return sym.relu(hidden + hidden * 2 + sym.random.normal(shape=(32, 10)), name="act")


def pixels(png: bytes) -> np.ndarray:
    return imread(io.BytesIO(png))[..., :3]


def rgb(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def test_every_box_has_its_colour_at_its_place():
    picture = net().picture(x=(32, 784))
    data, size = picture._repr_png_()
    image = pixels(data)
    assert image.shape[:2] == (2 * size["height"], 2 * size["width"])
    assert f'width="{size["width"]}" height="{size["height"]}"' in picture.svg
    boxes = re.findall(
        r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="[\d.]+" '
        r'fill="(#\w+)"',
        picture.svg,
    )
    assert len(boxes) > 5
    for x, y, width, height, colour in boxes:
        # Below its words, above its frame.
        row, column = float(y) + float(height) - 2.5, float(x) + float(width) / 2
        found = image[round(2 * row), round(2 * column)]
        assert found == pytest.approx(rgb(colour), abs=0.02)


def test_without_matplotlib_there_is_the_svg(monkeypatch):
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    assert net().picture()._repr_png_() is None
    assert repr(net().picture()) == "<picture of act>"
