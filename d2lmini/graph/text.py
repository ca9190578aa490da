"""Python as text: literals, assignments, lines that are not too long.

>>> for line in fit_line("y = f(x, pad=(0, 0), kernel=(5, 5), out=y)", 24):
...     print(line)
y = f(x, pad=(0, 0),
    kernel=(5, 5), out=y)

**Views**, ops that only look at memory in another way, as NumPy writes them:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> specs = {x._entry[0]: Spec((2, 3), "float32")}
>>> _, [(node, _)] = infer_types(sym.transpose(x)._entries, specs, False)
>>> view_text(node)
'.T'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.graph.ir import Node, spec_of
from d2lmini.graph.passes import order_of
from d2lmini.ops.core import Shape
from d2lmini.ops.subscript import is_at

#: Lines are broken before this column.
WIDTH = 100


def literal(value: Any) -> str | None:
    """The value as Python would write it; None if there is no such text."""
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float:
        return repr(value) if np.isfinite(value) else f"float('{value}')"
    if type(value) in (tuple, list):
        items = [literal(item) for item in value]
        if any(item is None for item in items):
            return None
        inner = ", ".join(map(str, items))
        if type(value) is list:
            return f"[{inner}]"
        return f"({inner},)" if len(items) == 1 else f"({inner})"
    return "..." if value is ... else None


def unpack_text(names: Sequence[str]) -> str:
    """The left side of an assignment that takes a sequence apart."""
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def assign_lines(names: Sequence[str], values: Sequence[str]) -> list[str]:
    """Lines that give `names` their values, several in one."""
    lines: list[str] = []
    while names:
        n = len(names)
        while n > 1 and len(f"{', '.join(names[:n])} = {', '.join(values[:n])}") > WIDTH - 4:
            n -= 1
        lines.append(f"{', '.join(names[:n])} = {', '.join(values[:n])}")
        names, values = names[n:], values[n:]
    return lines


def plain(name: str) -> str:
    """The name of a node, without what would end a comment or a string."""
    return re.sub(r"[^\w.:/-]", "_", name)


def list_text(names: Sequence[str]) -> str:
    """A few names, or the first and the last of many."""
    names = [plain(name) for name in names]
    return (
        ", ".join(names) if len(names) < 5 else f"{names[0]}, ..., {names[-1]} ({len(names)} ops)"
    )


def indent(lines: Iterable[str]) -> list[str]:
    """The lines one step to the right; empty ones stay empty."""
    return ["    " + line if line else "" for line in lines]


#: What may end a part of a line, and what must not be parted.
_MARKS = re.compile(r"'|[(\[]|[)\]]|, ")


def fit_line(line: str, width: int) -> list[str]:
    """The line broken after commas, outside of inner brackets if possible."""
    if len(line) <= width:
        return [line]
    if line.endswith(" = arrays"):
        line = f"({line[:-9]}) = arrays"
    parts: list[str] = []
    while len(line) > width:
        depth, quoted = int(bool(parts)), False
        at = {1: -1, 2: -1, 3: -1}  # by depth, the last comma there
        for mark in _MARKS.finditer(line, 0, width + 1):
            text, i = mark.group(), mark.start()
            quoted ^= text == "'"
            depth += (text in "([") - (text in ")]")
            if text == ", " and depth in at and not quoted and i < width:
                at[depth] = i
        cut = next((i for i in at.values() if i > width // 2), max(at.values()))
        if cut < 0:
            break
        parts.append(line[: cut + 1])
        line = "    " + line[cut + 2 :]
    return [*parts, line]


# -- views -----------------------------------------------------------------------------------------


def view_text(node: Node) -> str | None:
    """What to write behind the name of the first input to have this op's result, which perhaps is
    a view of it (`try_view` says so); None for ops that compute."""
    text = _VIEWS.get(node.op.name)
    return None if text is None else text(node)


def try_view(base: np.ndarray, text: str) -> np.ndarray | None:
    """`base` looked at in this way, if that is a view and no copy: NumPy is asked."""
    view = _look(text)(base)
    return view if np.may_share_memory(view, base) or not base.size else None


@lru_cache
def _look(text: str) -> Callable[[np.ndarray], np.ndarray]:
    return eval(f"lambda base: base{text}")  # type: ignore[no-any-return]


def reshape_text(shape: Shape) -> str:
    """The text that brings an array into a shape."""
    return f".reshape({', '.join(map(str, shape)) or '()'})"


def _to_shape(node: Node) -> str | None:
    data = node.inputs[0]
    shape = node.specs[0].shape
    return reshape_text(shape) if prod(shape) == spec_of(data).size else None


def _transpose(node: Node) -> str:
    axes = order_of(node)
    reverse = axes == tuple(range(len(axes)))[::-1]
    return ".T" if reverse else f".transpose({', '.join(map(str, axes))})"


def _slice(node: Node) -> str:
    begin, end = node.attrs["begin"], node.attrs["end"]
    steps = node.attrs.get("step") or (None,) * len(begin)
    return _subscript(map(_bounds, begin, end, steps))


def _slice_axis(node: Node) -> str:
    axis = node.attrs["axis"] % len(node.specs[0].shape)
    part = _bounds(node.attrs["begin"], node.attrs["end"], None)
    return _subscript([":"] * axis + [part])


def _item(node: Node) -> str | None:
    key = node.attrs["key"]
    if any(is_at(item) for item in key) or not any(type(item) is tuple for item in key):
        return None  # index arrays copy, and a single element is no array
    return _subscript(
        _bounds(*item) if type(item) is tuple else "..." if item is ... else str(item)
        for item in key
    )


def _bounds(begin: int | None, end: int | None, step: int | None) -> str:
    forwards = step is None or step > 0
    first = "" if begin is None or (begin == 0 and forwards) else begin
    return f"{first}:{'' if end is None else end}" + ("" if step in (None, 1) else f":{step}")


def _subscript(items: Any) -> str:
    return f"[{', '.join(items) or '...'}]"


_VIEWS: dict[str, Callable[[Node], str | None]] = {
    **dict.fromkeys("reshape flatten expand_dims squeeze reshape_like _spread".split(), _to_shape),
    "transpose": _transpose,
    "swapaxes": _transpose,
    "slice": _slice,
    "slice_axis": _slice_axis,
    "_getitem": _item,
}
