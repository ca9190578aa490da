"""The memory plan: intermediate results that are never alive at once share a place.

A buffer is needed from the step that writes it to the last one that reads it. Knowing this for all
of them before the program runs, we give each an offset in one piece of memory, the arena: the
largest first, each at the lowest place that is free during its life.

>>> plan = arrange([Life("conv0", 4096, 0, 1), Life("pool0", 1024, 1, 2), Life("fc0", 64, 2, 3)])
>>> plan.offsets
[0, 4096, 0]
>>> plan.nbytes, plan.separately                # of the arena, and if all had a place of their own
(5120, 5184)
>>> print(plan)
conv0         0  4096  ==
pool0      4096  1024   ==
fc0           0    64    ==
5120 bytes in place of 5184

Finding the smallest arena is hard (it is bin packing with a time axis); largest first is within a
few percent on real nets. After Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020), greedy by size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Offsets are multiples of this: a cache line, and what vector instructions like.
ALIGNMENT = 64


class Life(NamedTuple):
    """A buffer of `nbytes`, written at step `begin` and last read at step `end`."""

    name: str
    nbytes: int
    begin: int
    end: int

    def meets(self, other: Life) -> bool:
        """True if both are needed at some step."""
        return self.begin <= other.end and other.begin <= self.end


class MemoryPlan(NamedTuple):
    """Where each buffer lies in the arena, and the size of that."""

    lives: list[Life]
    offsets: list[int]
    nbytes: int

    @property
    def separately(self) -> int:
        """Bytes if every buffer had a place of its own."""
        return sum(life.nbytes for life in self.lives)

    def __str__(self) -> str:
        """A line for each buffer: name, offset, bytes, and the steps at which it is needed."""
        width = max((len(life.name) for life in self.lives), default=0)
        columns = max(len(str(self.nbytes)), 5)
        lines = [
            f"{life.name:{width}} {offset:{columns + 4}} {life.nbytes:{columns}}  "
            + " " * life.begin + "=" * (life.end + 1 - life.begin)
            for life, offset in zip(self.lives, self.offsets)
        ]  # fmt: skip
        return "\n".join([*lines, f"{self.nbytes} bytes in place of {self.separately}"])


def arrange(lives: Sequence[Life]) -> MemoryPlan:
    """Offsets such that no two buffers that are alive at once overlap."""
    offsets = [0] * len(lives)
    placed: list[int] = []  # by offset
    nbytes = 0
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, lives[i].begin)):
        offset = 0
        for j in placed:
            if lives[i].meets(lives[j]):
                if offset + lives[i].nbytes <= offsets[j]:
                    break  # it fits in the gap before j
                offset = max(offset, align(offsets[j] + lives[j].nbytes))
        offsets[i] = offset
        nbytes = max(nbytes, align(offset + lives[i].nbytes))
        placed.append(i)
        placed.sort(key=offsets.__getitem__)
    return MemoryPlan(list(lives), offsets, nbytes)


def align(nbytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
