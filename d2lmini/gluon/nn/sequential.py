"""Layers one after the other.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Sequential()
>>> net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
>>> net.initialize()
>>> net(nd.ones((5, 3))).shape
(5, 2)
>>> net
Sequential(
  (0): Dense(3 -> 4, Activation(relu))
  (1): Dense(4 -> 2, linear)
)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock


class _Row(Block):
    """What both have in common: `add`, indexing, length."""

    _in_summary = False  # all it does is in its layers

    def add(self, *blocks: Block) -> None:
        """Append Blocks."""
        for block in blocks:
            self.register_child(block)

    def __getitem__(self, key: Any) -> Any:
        """A layer by its position; of a slice, a row of those layers under the same prefix."""
        layers = list(self._children.values())[key]
        if not isinstance(layers, list):
            return layers
        part = type(self)(prefix=self._prefix)
        part.add(*layers)
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._children.values())

    def _shown(self) -> dict[str, Block]:
        return self._children


class Sequential(_Row):
    """Blocks, each called with what the one before it gave."""

    def forward(self, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the layers that can be; warns when all can, for then HybridSequential does."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. Consider "
                "using HybridSequential for the best performance.",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


class HybridSequential(_Row, HybridBlock):
    """HybridBlocks, each called with what the one before it gave; can be hybridized as one."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x
