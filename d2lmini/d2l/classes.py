"""A picture of what is derived from what, drawn from the classes themselves.

    d2l.family([Block, HybridBlock, Dense], methods=["forward", "hybridize", "hybrid_forward"])

An arrow goes from a class to the one below it that is derived from it. In the box stand those of
the methods that the class writes itself; what it does not write it inherits from above.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.profiler.plot import STYLES, Picture

#: Points of a box: a line, and what is around them.
_LINE, _ROOM = 13.0, 14.0
_WIDTH, _GAP, _BETWEEN = 120.0, 14.0, 30.0


def parents(cls: type, among: Sequence[type]) -> list[type]:
    """Its nearest ancestors in the list: no other one of them is in between."""
    above = [c for c in among if c is not cls and issubclass(cls, c)]
    return [c for c in above if not any(d is not c and issubclass(d, c) for d in above)]


def own_methods(cls: type, methods: Sequence[str]) -> list[str]:
    """Those of the methods that stand in the class itself."""
    return [name for name in methods if name in vars(cls)]


def family(classes: Sequence[type], methods: Sequence[str] = ()) -> Picture:
    """Draw the classes, ancestors above, with arrows to what is derived from them.

    ValueError for an empty list.
    """
    if not classes:
        raise ValueError("family: no class to draw")
    above = {cls: parents(cls, classes) for cls in classes}
    row: dict[type, int] = {}
    for cls in sorted(classes, key=lambda c: len(c.__mro__)):
        row[cls] = 1 + max((row[c] for c in above[cls]), default=-1)
    rows = [[c for c in classes if row[c] == r] for r in range(1 + max(row.values()))]
    lines = {cls: [cls.__name__, *own_methods(cls, methods)] for cls in classes}
    heights = [_ROOM + _LINE * max(len(lines[c]) for c in each) for each in rows]

    # Upwards in points: the middle of each box.
    total = sum(heights) + _BETWEEN * (len(rows) - 1)
    width = max(len(each) for each in rows) * (_WIDTH + _GAP) - _GAP
    places: dict[type, tuple[float, float]] = {}
    top = total
    for each, height in zip(rows, heights):
        left = (width - len(each) * (_WIDTH + _GAP) + _GAP) / 2
        for i, cls in enumerate(each):
            places[cls] = (left + i * (_WIDTH + _GAP) + _WIDTH / 2, top - height / 2)
        top -= height + _BETWEEN
    return _drawn(lines, above, places, (width, total))


def _drawn(
    lines: dict[type, list[str]],
    above: dict[type, list[type]],
    places: dict[type, tuple[float, float]],
    size: tuple[float, float],
) -> Picture:
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    (width, height), margin = size, 6.0
    figure = Figure(figsize=((width + 2 * margin) / 72, (height + 2 * margin) / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-margin, width + margin), ylim=(-margin, height + margin))
    axes.set_axis_off()
    face, edge, _ = STYLES["compute"]

    def half(cls: type) -> float:
        return (_ROOM + _LINE * len(lines[cls])) / 2

    for cls, (x, y) in places.items():
        for parent in above[cls]:
            u, v = places[parent]
            axes.annotate(
                "", xy=(x, y + half(cls)), xytext=(u, v - half(parent)),
                arrowprops={"arrowstyle": "-|>", "color": edge, "shrinkA": 0, "shrinkB": 0},
            )  # fmt: skip
        axes.add_patch(
            FancyBboxPatch(
                (x - _WIDTH / 2, y - half(cls)), _WIDTH, 2 * half(cls),
                boxstyle="round,pad=0,rounding_size=4", facecolor=face, edgecolor=edge,
            )
        )  # fmt: skip
        for i, text in enumerate(lines[cls]):
            axes.text(
                x, y + half(cls) - _ROOM / 2 - _LINE * (i + 0.5), text, ha="center", va="center",
                fontsize=9 if i else 10, weight="normal" if i else "bold",
                family="monospace" if i else None,
            )  # fmt: skip
    derived = [
        f"{cls.__name__} is a {' and a '.join(p.__name__ for p in above[cls])}"
        for cls in places
        if above[cls]
    ]
    return Picture(figure, "; ".join(derived) or "classes: " + ", ".join(c.__name__ for c in lines))
