"""Differences that are wanted: the sweep counts them apart, docs/migration.md says why."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple


class Listed(NamedTuple):
    """Cases of `names` (patterns, split at blanks) whose kind of difference matches and whose
    program and words match, each where given."""

    reason: str
    names: str
    kind: str = ""
    program: str = ""
    words: str = ""


LISTED: list[Listed] = []

#: Names that are not drawn: files, pointers, what only waits, and what ends the real MXNet.
NOT_DRAWN = {
    f"nd.{name}"
    for name in "save load load_frombuffer from_dlpack to_dlpack_for_read to_dlpack_for_write "
    "from_numpy NDArray imdecode waitall reset_arrays".split()
} | {
    f"nd.NDArray.{name}"
    for name in "to_dlpack_for_read to_dlpack_for_write wait_to_read handle writable "
    "as_nd_ndarray as_in_ctx backward".split()
}


def reason(path: str, text: str, kind: str, words: str) -> str | None:
    """Why this difference is wanted, or None."""
    for row in LISTED:
        named = any(fnmatchcase(path, pattern) for pattern in row.names.split())
        if named and all(
            re.search(pattern, value, re.S)
            for pattern, value in ((row.kind, kind), (row.program, text), (row.words, words))
        ):
            return row.reason
    return None
