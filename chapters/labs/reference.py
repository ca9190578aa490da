"""The figures of a quiet run, shown beneath the reader's own.

A busy machine often measures no difference where there is one. So `make outputs` keeps what each
comparison of a chapter found on a quiet machine in `reference.json` beside the
chapters, and wherever the same program is measured again, its figure stands below:

    verdict: no measurable difference between a and b (0.9-1.2, 10 rounds): ...
    reference: b is 1.9 times faster than a (1.8-2.0, ...); a quiet machine
               with 2 cores, DATE

"The same program" is decided by `key_of`: the source of its functions and of the functions of the
same module that they call, and the numbers, strings and shapes of arrays that they refer to. A
reader who changes one of these has a program of their own, and sees no reference.

D2LMINI_REFERENCE names the file in which a run keeps what it finds; while it is set, nothing is
shown. `make outputs` then puts the finds into the file beside the chapters. A find of a busy
machine is an empty row: the older one of the same program stays.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import time
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d2lmini.d2l.load import LOADED
from d2lmini.d2l.verdict import Verdict, fold
from d2lmini.device import files
from d2lmini.ndarray import NDArray

FILE = "reference.json"


def remark(verdict: Verdict, candidates: Mapping[str, Callable[..., object]]) -> str:
    """The reference of a comparison, for `d2l.compare`."""
    key = key_of(candidates.values(), *candidates)
    return keep_or_find(key, lambda: verdict.sentence, verdict.cores, verdict.elsewhere)


def key_of(functions: Iterable[Callable[..., object]], *words: str) -> str:
    """A short name of a program, the same in every process.

    >>> n = 3
    >>> one, two = key_of([lambda: n + 1], "a"), key_of([lambda: n + 1], "b")
    >>> len(one), one == two
    (12, False)
    """
    text = "\n".join([*words, *map(_describe_function, functions)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _describe_function(function: Callable[..., object], known: tuple[object, ...] = ()) -> str:
    """A function's source and what it refers to; `known` are the functions that refer to it."""
    if isinstance(function, functools.partial):
        given = [*function.args, *sorted(function.keywords.items())]
        described = _describe_function(function.func, known)
        return f"{described}\n{_describe(given, (*known, function.func))}"
    try:
        source = inspect.getsource(function)
        names = inspect.getclosurevars(function)
    except (OSError, TypeError, ValueError):  # no source, or not a Python function
        return repr(getattr(function, "__name__", type(function).__name__))
    known = (*known, function)
    values = {**names.globals, **names.nonlocals}
    parts = [f"{name}={_describe(values[name], known)}" for name in sorted(values)]
    defaults = getattr(function, "__defaults__", None) or ()
    return "\n".join([source, *parts, *(_describe(value, known) for value in defaults)])


def _describe(value: Any, known: tuple[Any, ...]) -> str:
    """A value as far as it is the same in every process."""
    if isinstance(value, NDArray):
        return f"{value.dtype.__name__}{value.shape}@{value.context}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_describe(item, known) for item in value)}]"
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    # Functions of a library change with its version; those of the chapter are part of the program.
    if isinstance(value, types.FunctionType) and value.__module__ == known[0].__module__:
        return value.__name__ if value in known else _describe_function(value, known)
    return str(getattr(value, "__name__", type(value).__name__))


def keep_or_find(
    key: str, found: Callable[[], str], cores: int | None, elsewhere: float | None
) -> str:
    """The lines of a quiet run of this program, "reference: ..."; "" if there is none.

    While D2LMINI_REFERENCE is set, keep instead what `found` says, if the machine was quiet: of
    its `cores` fewer than LOADED were busy `elsewhere`. ValueError then if the file is damaged.
    """
    if path := os.environ.get("D2LMINI_REFERENCE"):
        row = {}
        if elsewhere is not None and elsewhere < LOADED:
            row = {"found": found(), "cores": cores, "date": time.strftime("%Y-%m-%d")}
        store(path, os.environ.get("D2LMINI_CHAPTER", ""), key, row)
        return ""
    for folder in (Path(), Path("chapters")):
        try:
            kept = read_file(folder / FILE)
        except ValueError:  # damaged: the reader's own figures do not depend on it
            continue
        for rows in kept.values():
            if key in rows:
                row = rows[key]
                machine = f"a quiet machine with {row['cores']} cores, {row['date']}"
                return fold("reference: ", f"{row['found']}; {machine}")
    return ""


def store(path: str | os.PathLike[str], chapter: str, key: str, row: dict[str, Any]) -> None:
    """Write a row of a chapter to the file of a run; {} if there is no find. Programs of a run that
    have one key cannot be told apart: their row is None."""
    kept = read_file(Path(path))
    rows = kept.setdefault(chapter, {})
    rows[key] = None if key in rows else row
    write_file(path, kept)


def write_file(path: str | os.PathLike[str], kept: dict[str, Any]) -> None:
    files.write(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def read_file(path: Path) -> dict[str, dict[str, Any]]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
