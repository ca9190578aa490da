"""Padding as a layer.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> nn.ReflectionPad2D(1)(nd.arange(4).reshape((1, 1, 2, 2)))
<BLANKLINE>
[[[[3. 2. 3. 2.]
   [1. 0. 1. 0.]
   [3. 2. 3. 2.]
   [1. 0. 1. 0.]]]]
<NDArray 1x1x4x4 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

from d2lmini.gluon.hybrid_block import HybridBlock


class ReflectionPad2D(HybridBlock):
    """Images (N, C, H, W) padded by reflection at their edges.

    padding: the padding of every side, less than H and W; or eight numbers, (before, after) for
    each of the four axes, the first four 0.
    """

    def __init__(self, padding: int | tuple[int, ...] = 0, **kwargs: Any):
        super().__init__(**kwargs)
        if isinstance(padding, int):
            padding = (0, 0, 0, 0, padding, padding, padding, padding)
        assert isinstance(padding, (tuple, list)) and len(padding) == 8, (
            f"padding must be a number or eight of them, (before, after) for N, C, H, W; got "
            f"{padding!r}"
        )
        self._padding = padding

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
