"""Containers that call layers one after another.

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

from d2lmini import symbol
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock


class _Row(Block):
    """What both containers share: `add`, indexing, length."""

    def add(self, *blocks: Block) -> None:
        """Append Blocks."""
        for block in blocks:
            self.register_child(block)

    def __getitem__(self, key: Any) -> Any:
        """The layer at a position; for a slice, a container of its layers with this prefix."""
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

    def _repr_children(self) -> dict[str, Block]:
        return self._children

    def _layers(self, traced: bool = False) -> Iterator[Block]:
        """The layers in order, with those of containers inside, which so may be nested deep. A
        container with hooks, or a program of its own, is called as a layer; `traced`: the program
        is that of the whole net."""
        todo = [iter(self._children.values())]
        while todo:
            for block in todo[-1]:
                if type(block) in _CONTAINERS and not (
                    block._forward_hooks
                    or block._forward_pre_hooks
                    or ("forward" in block.__dict__ and not traced)
                ):
                    todo.append(iter(block._children.values()))
                    break
                yield block
            else:
                todo.pop()


class Sequential(_Row):
    """Blocks called one after another, each on the output of the one before."""

    def forward(self, x: Any) -> Any:
        for block in self._layers():
            x = block(x)
        return x

    def _activate(self, active: bool, flags: dict[str, Any]) -> None:
        """Warn to use HybridSequential instead, if all layers are HybridBlocks."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. Consider "
                "using HybridSequential for the best performance.",
                stacklevel=3,
            )


class HybridSequential(_Row, HybridBlock):
    """HybridBlocks called one after another, as `Sequential`; hybridized as one graph."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self._layers(F is symbol):
            x = block(x)
        return x


#: Containers of which only the layers matter.
_CONTAINERS = (Sequential, HybridSequential)
