"""What d2lmini does differently from MXNet 1.9.1 on purpose: the rows of `differences.txt`.

docs/migration.md shows the rows as a table; `d2lmini info --for FILE` shows those that concern the
names that a program uses. A paragraph of the file is a row:

    a failed operation
      MXNet: raises once, at a wait
      d2lmini: raises at every wait that meets it
      names: nd.arange(dtype) nd.mean

The names are those of MXNet that the row is about, if any; "nd.arange(dtype)" is a call of
`nd.arange` with the keyword `dtype`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Difference(NamedTuple):
    """A row: what differs, what MXNet does, what d2lmini does; in Markdown."""

    what: str
    mxnet: str
    here: str
    names: str = ""


_PATTERN = re.compile(r"(.*?) MXNet: (.*?) d2lmini: (.*?)(?: names: (.*))?")


def _read(paragraph: str) -> Difference:
    found = _PATTERN.fullmatch(" ".join(paragraph.split()))
    assert found is not None, paragraph
    return Difference(*found.groups(default=""))


_TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
DIFFERENCES = [_read(paragraph) for paragraph in _TEXT.split("\n\n")]
