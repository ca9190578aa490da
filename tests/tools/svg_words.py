"""What a drawing says, read from its SVG."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree


class Word(NamedTuple):
    """A line of text, and where it stands."""

    text: str
    x: float
    y: float


def words_of(drawing) -> list[Word]:
    """The lines of text of a `Drawing`, in the order in which they are drawn."""
    found = ElementTree.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}text")
    return [Word(each.text, float(each.get("x")), float(each.get("y"))) for each in found]


def arrows_of(drawing) -> tuple[int, int]:
    """How many arrows a `Drawing` has, and how many of them are dashed."""
    paths = ElementTree.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}path")
    lines = [each for each in paths if each.get("fill") == "none"]
    return len(lines), sum("stroke-dasharray" in line.attrib for line in lines)
