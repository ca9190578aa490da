"""Differences from MXNet that are wanted: the sweep (`generators/sweep`) counts them apart, and
docs/migration.md shows them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple


class Listed(NamedTuple):
    """Cases of `names` (patterns, split at blanks) whose kind of difference matches and whose
    program and words match, each where given."""

    reason: str
    names: str
    kind: str = ""
    program: str = ""
    words: str = ""


FILE = Path(__file__).resolve().parents[1] / "data" / "listed_differences.txt"


def read() -> list[Listed]:
    """The rows of `data/listed_differences.txt`: a reason, and below it what a case must match."""
    found: list[dict[str, str]] = []
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith(" "):
            field, _, value = line.strip().partition(": ")
            found[-1][field] = value
        else:
            found.append({"reason": line})
    return [Listed(**row) for row in found]


LISTED = read()

#: Names that are not drawn: files, pointers, what only waits, and what ends the real MXNet.
NOT_DRAWN = {
    f"nd.{name}"
    for name in "save load load_frombuffer from_dlpack from_numpy NDArray imdecode waitall".split()
} | {
    f"nd.NDArray.{name}"
    for name in "wait_to_read handle writable as_nd_ndarray as_in_ctx backward".split()
}


def table() -> str:
    """The differences as Markdown."""
    places: dict[str, list[str]] = {}
    for row in LISTED:
        places.setdefault(row.reason, []).extend(row.names.split())
    lines = ["| differs | where |", "| --- | --- |"]
    for words, names in sorted(places.items()):
        where = "any call" if "*" in names else " ".join(f"`{name}`" for name in names)
        lines.append(f"| {words} | {where} |")
    return "\n".join(lines) + "\n"


def find_row(path: str, text: str, kind: str, words: str) -> Listed | None:
    """The row that says why this difference is wanted, or None."""
    for row in LISTED:
        named = any(fnmatchcase(path, pattern) for pattern in row.names.split())
        if named and all(
            re.search(pattern, value, re.S)
            for pattern, value in ((row.kind, kind), (row.program, text), (row.words, words))
        ):
            return row
    return None
