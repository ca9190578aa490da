"""A picture that is already drawn: any thread may ask for it at no cost.

    CachedPicture(timeline(...))
    CachedPicture(timeline(...), below=another)

matplotlib takes a quarter of a second for a picture, and two threads must not draw the same one.
"""

from __future__ import annotations

import io

import numpy as np

from d2lmini.draw.picture import TEXTS, Picture


class CachedPicture(Picture):
    """`png` is the picture, with `below` beneath it if there is one; `size` is that on the page."""

    def __init__(self, picture: Picture, below: Picture | None = None):
        super().__init__(picture.figure, picture.text)
        self.png, self.size = picture._repr_png_()
        if below is not None:
            self.png, self.size = _stack([self.png, below._repr_png_()[0]])

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return self.png, self.size


def _stack(images: list[bytes]) -> tuple[bytes, dict[str, int]]:
    """PNGs one below the other, at two dots for each point of the page."""
    from matplotlib import image

    arrays = [image.imread(io.BytesIO(data)) for data in images]
    wide = max(array.shape[1] for array in arrays)
    rows = [np.pad(array, ((0, 0), (0, wide - array.shape[1]), (0, 0))) for array in arrays]
    whole = np.concatenate(rows)
    file = io.BytesIO()
    image.imsave(file, np.ascontiguousarray(whole), format="png", metadata=TEXTS)
    return file.getvalue(), {"width": wide // 2, "height": whole.shape[0] // 2}
