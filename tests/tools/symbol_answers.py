"""What the real MXNet 1.9.1 says to rows and stories about Symbols, stored for runs without it.

`data/symbol_answers.json.gz` has the answers by row, and by 'module:story'. The tests that have a
real MXNet compare them with it; `python tests/tools/symbol_answers.py` writes the file anew
(D2LMINI_MXNET_PYTHON names the interpreter).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import executor_stories
import scope_stories
import symbol_rows
from oracle import Oracle

FILE = Path(__file__).resolve().parents[1] / "data" / "symbol_answers.json.gz"
ROWS = [*symbol_rows.REASONS]
STORIES = [
    f"{module.__name__}:{name}"
    for module in (scope_stories, executor_stories)
    for name in module.STORIES
]


def stored() -> dict[str, Any]:
    """The answers by row and by story."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def as_stored(answer: Any) -> Any:
    """An answer as it comes back from the file."""
    return json.loads(json.dumps(answer, default=str))


def answers_of(mxnet: Oracle) -> dict[str, Any]:
    """The answers of a running MXNet."""
    found = {row: as_stored(mxnet.ask(symbol_rows.answer, row)) for row in ROWS}
    return {**found, **{key: as_stored(mxnet.ask(scope_stories.tell, key)) for key in STORIES}}


def same(ours: Any, theirs: Any) -> bool:
    """Equal; floating numbers nearly."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= 1e-5 + 1e-4 * abs(theirs)
    return ours == theirs


if __name__ == "__main__":
    with Oracle("mxnet") as running:
        text = json.dumps(answers_of(running), separators=(",", ":"), sort_keys=True)
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{FILE}: {FILE.stat().st_size} bytes")
