"""The values of a formula with reductions, and which of them must be known before which.

>>> from d2lmini.cuda.kernels.symbols import names
>>> body = Stages()
>>> x = body.line("x0[g * 100 + j]", np.dtype("float32"))
>>> largest = names.max(x)
>>> y = names.exp(x - largest)
>>> for name, value in body.values.items():
...     print(value.stage, value.varies, value.line or name)
0 True j
0 True const float t1 = x0[g * 100 + j];
1 False t2
1 True const float t3 = t1 - t2;
1 True const float t4 = expf(t3);

`j` is the number of an element in its group. A value's *stage* is the number of loops over the
elements that must end before the value is known; reductions of the same stage share a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from d2lmini.cuda.kernels.symbols import Body, c_type
from d2lmini.ops.symbolic import NotTraceable, Proxy


class Value(NamedTuple):
    """A value: the line of C that computes it (a reduction has none), the values in that line, its
    stage, and whether it differs between the elements of a group."""

    line: str
    uses: set[str]
    stage: int
    varies: bool


class Reduction(NamedTuple):
    """A reduction: sum, mean, max or min of an expression, and the dtype of the result."""

    kind: str
    source: str
    dtype: np.dtype


class Stages(Body):
    """Values by name, in an order in which they can be computed."""

    def __init__(self) -> None:
        super().__init__()
        self.values = {"j": Value("", set(), 0, True)}
        self.reductions: dict[str, Reduction] = {}

    def line(self, text: str, dtype: np.dtype) -> Proxy:
        made = super().line(text, dtype)
        uses = self._words(text)
        varies = any(self.values[name].varies for name in uses)
        self.values[made.expr] = Value(self.lines[-1], uses, self._stage(uses), varies)
        return made

    def reduce(self, kind: str, value: Proxy) -> Proxy:
        if value.dtype.kind != "f":
            raise NotTraceable(f"the {kind} of {value.dtype.name}")
        wide = np.promote_types(value.dtype, "f")
        name, uses = self.new_name(), self._words(value.expr)
        self.values[name] = Value("", uses, self._stage(uses) + 1, False)
        self.reductions[name] = Reduction(kind, value.expr, wide)
        result = self.add_input(name, wide)
        if kind == "mean":
            result = self.line(f"{name} / ({c_type(wide)}) size", wide)
        return result.astype(value.dtype)

    def index(self) -> Proxy:
        return self.add_input("j", "int64")

    def needed(
        self, texts: Iterable[str], known: int = 0, of_elements: bool = False
    ) -> dict[str, Value]:
        """The values that these texts need, where reductions up to the stage `known` are given;
        `of_elements`: only those that differ between elements."""
        found: set[str] = set()
        rest = {name for text in texts for name in self._words(text)}
        while rest:
            name = rest.pop()
            value = self.values[name]
            if name in found or (of_elements and not value.varies):
                continue
            found.add(name)
            if name not in self.reductions or value.stage > known:
                rest |= value.uses
        return {name: value for name, value in self.values.items() if name in found}

    def _words(self, text: str) -> set[str]:
        """The values in a text."""
        return set(re.findall(r"\w+", text)) & self.values.keys()

    def _stage(self, uses: set[str]) -> int:
        return max((self.values[name].stage for name in uses), default=0)
