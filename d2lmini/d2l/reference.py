"""The figures of a quiet run, shown beneath the reader's own.

A busy machine often measures no difference where there is one. So `make outputs` keeps what each
comparison and experiment of a chapter found on a quiet machine in `reference.json` beside the
chapters, and wherever the same program is measured again, its figure stands below:

    verdict: no measurable difference between a and b (0.9-1.2, 10 rounds): ...
    reference: b is 1.9 times faster than a (1.8-2.0, ...); a quiet machine
               with 2 cores, DATE

"The same program" is decided by `key_of`: the source of its functions, and the numbers, strings
and shapes of arrays that they refer to. Whoever changes one of these has a program of their own,
and sees no reference.

D2LMINI_REFERENCE names the file to write to; while it is set, nothing is shown. A figure of a busy
machine is not written: the older one of the same program stays.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from d2lmini import files
from d2lmini.d2l.load import LOADED
from d2lmini.d2l.verdict import fold
from d2lmini.ndarray import NDArray

FILE = "reference.json"


def key_of(functions: Iterable[Callable[..., object]], *words: str) -> str:
    """A short name of a program, the same in every process.

    >>> n = 3
    >>> one, two = key_of([lambda: n + 1], "a"), key_of([lambda: n + 1], "b")
    >>> len(one), one == two
    (12, False)
    """
    text = "\n".join([*words, *map(_describe_function, functions)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _describe_function(function: Callable[..., object]) -> str:
    try:
        source = inspect.getsource(function)
        names = inspect.getclosurevars(function)
    except (OSError, TypeError, ValueError):  # no source, or not a Python function
        return repr(getattr(function, "__name__", type(function).__name__))
    values = {**names.globals, **names.nonlocals}
    known = [f"{name}={_describe(values[name])}" for name in sorted(values)]
    defaults = [_describe(value) for value in getattr(function, "__defaults__", None) or ()]
    return "\n".join([source, *known, *defaults])


def _describe(value: Any) -> str:
    """A value as far as it is the same in every process."""
    if isinstance(value, NDArray):
        return f"{value.dtype.__name__}{value.shape}@{value.context}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_describe, value))}]"
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    return type(value).__name__


def keep_or_find(
    key: str, found: Callable[[], str], cores: int | None, elsewhere: float | None
) -> str:
    """The lines of a quiet run of this program, "reference: ..."; "" if there is none.

    While D2LMINI_REFERENCE is set, keep instead what `found` says, if the machine was quiet: of
    its `cores` fewer than LOADED were busy `elsewhere`. ValueError then if the file is damaged.
    """
    if path := os.environ.get("D2LMINI_REFERENCE"):
        if elsewhere is not None and elsewhere < LOADED:
            row = {"found": found(), "cores": cores, "date": time.strftime("%Y-%m-%d")}
            store(path, os.environ.get("D2LMINI_CHAPTER", ""), key, row)
        return ""
    for folder in (Path(), Path("chapters")):
        try:
            kept = _read(folder / FILE)
        except ValueError:  # damaged: the reader's own figures do not depend on it
            continue
        for rows in kept.values():
            if key in rows:
                row = rows[key]
                machine = f"a quiet machine with {row['cores']} cores, {row['date']}"
                return fold("reference: ", f"{row['found']}; {machine}")
    return ""


def store(path: str | os.PathLike[str], chapter: str, key: str, row: dict[str, Any]) -> None:
    """Write a row of a chapter to the file of references."""
    kept = _read(Path(path))
    kept.setdefault(chapter, {})[key] = row
    files.write(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
