"""Python as text: literals, assignments, lines that are not too long.

>>> for line in fit_line("y = f(x, pad=(0, 0), kernel=(5, 5), out=y)", 24):
...     print(line)
y = f(x, pad=(0, 0),
    kernel=(5, 5), out=y)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

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


def broken(begin: str, items: Sequence[str], end: str) -> list[str]:
    """A line, or if it is too long, one for what is between the brackets."""
    return fit_line(begin + ", ".join(items) + end, WIDTH - 4)


def fit_line(line: str, width: int) -> list[str]:
    """The line broken after commas, outside of inner brackets if possible."""
    if line.endswith(" = arrays") and len(line) > width:
        line = f"({line[:-9]}) = arrays"
    parts: list[str] = []
    while len(line) > width:
        depth, quoted = int(bool(parts)), False
        at = {1: -1, 2: -1, 3: -1}  # by depth, the last comma there
        for i, char in enumerate(line[:width]):
            quoted ^= char == "'"
            depth += (char in "([") - (char in ")]")
            if line[i : i + 2] == ", " and depth in at and not quoted:
                at[depth] = i
        cut = next((i for i in at.values() if i > width // 2), max(at.values()))
        if cut < 0:
            break
        parts.append(line[: cut + 1])
        line = "    " + line[cut + 2 :]
    return [*parts, line]
