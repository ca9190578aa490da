"""Pictures: what is drawn is what was measured, and drawing leaves no trace behind."""

import io

import pytest
from matplotlib.text import Text
from pictures import bars
from PIL import Image

from d2lmini import d2l, sym
from d2lmini.draw.svg import INK

SYNCHRONOUS = [
    ("front end", [("push", 5.0, 5.1), ("wait", 5.1, 5.4)]),
    ("worker", [("compute", 5.2, 5.3)]),
]


def test_spans_become_bars_from_the_first_begin_on():
    drawn = bars(d2l.timeline(SYNCHRONOUS))
    rows, lefts, widths = zip(*drawn)
    assert rows == (0, 0, 1)
    assert lefts == pytest.approx([0, 100_000, 200_000])
    assert widths == pytest.approx([100_000, 300_000, 100_000])


def test_a_notebook_shows_a_png_and_always_the_same_text():
    picture = d2l.timeline(SYNCHRONOUS)
    data, size = picture._repr_png_()
    assert data.startswith(b"\x89PNG") and b"matplotlib" not in data
    assert int.from_bytes(data[16:20], "big") == 2 * size["width"]
    assert repr(picture) == "<timeline of front end, worker>"


def test_a_picture_has_no_ground_and_its_words_one_colour():
    timeline = d2l.timeline(SYNCHRONOUS, title="A title")
    for picture in (timeline, sym.relu(sym.var("x") * 2).picture()):
        image = Image.open(io.BytesIO(picture._repr_png_()[0])).convert("RGBA")
        assert image.getpixel((0, 0))[3] == image.getpixel((image.width - 1, 0))[3] == 0
    words = [text for text in timeline.figure.findobj(Text) if text.get_text()]
    assert len(words) > 6 and {text.get_color() for text in words} == {INK}


def test_what_cannot_be_drawn_is_named():
    with pytest.raises(ValueError, match=r"kinds \['rest'\] have no style"):
        d2l.timeline([("worker", [("rest", 0, 1)])])
    with pytest.raises(ValueError, match="no lane has a span"):
        d2l.timeline([("worker", [])])
