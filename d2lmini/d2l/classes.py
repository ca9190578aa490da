"""A picture of class inheritance, drawn from the classes themselves.

    d2l.family([Block, HybridBlock, Dense], methods=["forward", "hybridize", "hybrid_forward"])

An arrow goes from a class to a class below it that is derived from it. A box lists those of the
methods that the class defines itself; the other methods are inherited from above.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import Box, Look, diagram, page
from d2lmini.draw.timeline import STYLES


def parents(cls: type, among: Sequence[type]) -> list[type]:
    """The nearest ancestors in the list: no other ancestor in the list lies in between."""
    above = [c for c in among if c is not cls and issubclass(cls, c)]
    return [c for c in above if not any(d is not c and issubclass(d, c) for d in above)]


def own_methods(cls: type, methods: Sequence[str]) -> list[str]:
    """Those of the methods that the class defines itself."""
    return [name for name in methods if name in vars(cls)]


def family(classes: Sequence[type], methods: Sequence[str] = ()) -> Drawing:
    """Draw the classes, ancestors above, with arrows to what is derived from them.

    ValueError for an empty list.
    """
    if not classes:
        raise ValueError("family: no class to draw")
    given, classes = classes, sorted(classes, key=lambda cls: len(cls.__mro__))  # ancestors first
    above = {cls: parents(cls, classes) for cls in classes}
    look = Look("", STYLES["compute"][0])
    boxes = [Box([cls.__name__, *own_methods(cls, methods)], look) for cls in classes]
    edges = [(classes.index(parent), i) for i, cls in enumerate(classes) for parent in above[cls]]
    parts, width, height = diagram(boxes, edges)
    derived = [
        f"{cls.__name__} is a {' and a '.join(p.__name__ for p in above[cls])}"
        for cls in given
        if above[cls]
    ]
    text = "; ".join(derived) or "classes: " + ", ".join(cls.__name__ for cls in classes)
    return Drawing(page(width, height, parts), text)
