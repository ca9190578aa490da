"""What is drawn in a picture, read back."""

from __future__ import annotations


def bars(picture) -> list[tuple[float, float, float]]:
    """(row, left, width) of every bar, in the units of the axis since the first."""
    found = []
    for several in picture.figure.axes[0].collections:
        for path in several.get_paths():
            box = path.get_extents()
            found.append((round(box.y0 + box.height / 2), box.x0, box.width))
    return found
