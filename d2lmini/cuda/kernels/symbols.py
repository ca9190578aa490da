"""The array module whose expressions are C: an op computes on names and so writes its kernel.

An elementwise op says once what it does, `compute(xp, *arrays)`. Given `names` for `xp` and a
proxy for each array (`ops.symbolic`), which stands for the element at one place, every call of a
ufunc becomes a line of C. So a new op needs no formula here.

>>> body = Body()
>>> x, b = body.add_input("x", "float32"), body.add_input("b", "float32")
>>> y = names.maximum(x * 2 + b, 0)
>>> print(*body.lines, sep="\\n")
const float t1 = x * 2.0f;
const float t2 = t1 + b;
const float t3 = maximum(t2, 0.0f);
>>> y
<Proxy t3 float32>

A formula may also reduce a value over the group of its element, a row or a column (`reductions`):

>>> body = Body(has_groups=True)
>>> x = body.line("x0[g * 100 + j]", np.dtype("float32"))
>>> y = names.exp(x - names.max(x))
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

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.launch import C_TYPES
from d2lmini.cuda.kernels.ufunc_to_c import ufunc_to_c
from d2lmini.ops.symbolic import NotTraceable, Proxy, SymbolicModule


def c_type(dtype: np.dtype) -> str:
    """The C type in which numbers of a dtype are computed."""
    return "float" if dtype.char == "e" else C_TYPES[dtype.char]


class Value(NamedTuple):
    """A value: the line of C that computes it (a reduction has none), the values in that line, its
    stage, and whether it differs between the elements of a group."""

    line: str
    uses: set[str]
    stage: int
    varies: bool


class Reduction(NamedTuple):
    """The sum, mean, max or min of an expression, and the dtype of the result."""

    kind: str
    source: str
    dtype: np.dtype


class Body:
    """Lines of C being written, one for each call of a ufunc.

    values      by name, in an order in which they can be computed
    reductions  by name
    """

    def __init__(self, has_groups: bool = False) -> None:
        self.values = {"j": Value("", set(), 0, True)} if has_groups else {}
        self.reductions: dict[str, Reduction] = {}
        self.has_groups = has_groups
        self._count = 0

    @property
    def lines(self) -> list[str]:
        return [value.line for value in self.values.values() if value.line]

    def add_input(self, text: str, dtype: Any) -> Proxy:
        """The proxy of an input, given as a C expression."""
        return Proxy(names, text, np.dtype(dtype), self)

    def line(self, text: str, dtype: np.dtype) -> Proxy:
        """A new name for an expression."""
        uses = self._words(text)
        varies = any(self.values[name].varies for name in uses)
        name = self._new_name()
        line = f"const {c_type(dtype)} {name} = {text};"
        self.values[name] = Value(line, uses, self._stage(uses), varies)
        return self.add_input(name, dtype)

    def reduce(self, kind: str, value: Proxy) -> Proxy:
        """The sum, mean, max or min of a value over its group."""
        if not self.has_groups or value.dtype.kind != "f":
            raise NotTraceable(f"the {kind} of {value.dtype.name}, or without groups")
        wide = np.promote_types(value.dtype, "f")
        name, uses = self._new_name(), self._words(value.expr)
        self.values[name] = Value("", uses, self._stage(uses) + 1, False)
        self.reductions[name] = Reduction(kind, value.expr, wide)
        result = self.add_input(name, wide)
        if kind == "mean":
            result = self.line(f"{name} / ({c_type(wide)}) size", wide)
        return result.astype(value.dtype)

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

    def _new_name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _words(self, text: str) -> set[str]:
        """The values in a text."""
        return set(re.findall(r"\w+", text)) & self.values.keys()

    def _stage(self, uses: set[str]) -> int:
        return max((self.values[name].stage for name in uses), default=0)


def literal(value: Any, dtype: np.dtype) -> str:
    """A number in C.

    >>> [literal(v, np.dtype("float32")) for v in (0.1, -0.0, float("-inf"))]
    ['0.1f', '-0.0f', 'float(-1 / 0.0f)']
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        value = int(np.asarray(value).astype(dtype))
        if dtype.itemsize < 4:
            return f"({c_type(dtype)}) {value}"
        suffix = "u" * (dtype.kind == "u") + "ll" * (dtype.itemsize == 8)
        if 0 > value == np.iinfo(dtype).min:  # C has no such literal
            return f"({value + 1}{suffix} - 1)"
        return f"{value}{suffix}" if value >= 0 else f"({value}{suffix})"
    rounded = dtype.type(value)
    f = "" if dtype.char == "d" else "f"
    if math.isnan(rounded):
        return f'nan{f}("")'
    if math.isinf(rounded):  # the compiler knows what it is as a float, but divides doubles
        return f"{c_type(dtype)}({'-' if rounded < 0 else ''}1 / 0.0f)"
    text = repr(float(rounded)) if dtype.char == "d" else str(np.float32(rounded))
    return f"{text}{f}"


def convert(expr: str, old: np.dtype, new: np.dtype) -> str:
    """A value of one dtype as another."""
    if old == new or (old.char, new.char) == ("e", "f"):
        return expr
    if new.char == "e":
        return f"rounded(({'double' if old.char == 'd' else 'float'}) ({expr}))"
    if new.kind == "b":
        return f"(({expr}) != 0)"
    return f"({c_type(new)}) ({expr})"


def _text(value: Any, dtype: np.dtype) -> str:
    """A proxy or a number, as a value of this dtype."""
    if isinstance(value, Proxy):
        return convert(value.expr, value.dtype, dtype)
    return literal(value, dtype)


def _parenthesize(text: str) -> str:
    """An operand that binds as tightly as a name."""
    plain = text.replace("_", "").replace(".", "").isalnum()
    return text if plain or (text[0] == "(" and text[-1] == ")") else f"({text})"


class Names(SymbolicModule):
    """The module. Each call of a ufunc is a line in the body of the trace."""

    convert = staticmethod(convert)
    constant = staticmethod(literal)

    def call(
        self, ufunc: np.ufunc, args: Sequence[Any], loop: Sequence[np.dtype], result: np.dtype
    ) -> Proxy:
        body = next((a.body for a in args if isinstance(a, Proxy) and a.body is not None), None)
        if body is None:
            raise NotTraceable(f"{ufunc.__name__} of constants alone")
        texts = [_text(arg, needed) for arg, needed in zip(args, loop)]
        text = ufunc_to_c(ufunc.__name__, loop[0].char, [_parenthesize(t) for t in texts])
        return body.line(f"rounded({text})" if result.char == "e" else text, result)

    def choose(self, condition: Proxy, x: Any, y: Any, dtype: np.dtype) -> Proxy:
        body = next(a.body for a in (condition, x, y) if isinstance(a, Proxy) and a.body)
        test, yes, no = map(_parenthesize, [condition.expr, _text(x, dtype), _text(y, dtype)])
        return body.line(f"{test} ? {yes} : {no}", dtype)

    def __getattr__(self, name: str) -> Any:
        """A ufunc; or `sum(x)`, `mean(x)`, `max(x)`, `min(x)` of a value over its group."""
        if name in ("sum", "mean", "max", "min"):
            return lambda x: x.body.reduce(name, x)
        return super().__getattr__(name)

    def index_of(self, x: Proxy) -> Proxy:
        """The number of the element in its group."""
        if not x.body.has_groups:
            raise NotTraceable("an index in a kernel without groups")
        return x.body.add_input("j", "int64")  # type: ignore[no-any-return]

    def empty(self, shape: Any, dtype: Any = float) -> Proxy:
        return Proxy(self, "0", np.dtype(dtype))

    def empty_like(self, x: Proxy) -> Proxy:
        return self.full_like(x, 0)


names = Names()
