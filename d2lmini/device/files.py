"""Files that are written whole or not at all.

A disk may be full, and Ctrl-C may come at any line. So writers write to a temporary file in the
same folder, which replaces the target in one step when it is complete. Until then the old file is
unchanged; a failure leaves nothing behind.

>>> import tempfile
>>> from pathlib import Path
>>> path = Path(tempfile.mkdtemp(), "notes.txt")
>>> write(path, "all of it")
>>> with replace_atomically(path) as [temporary]:
...     _ = Path(temporary).write_text("half of")
...     raise OSError("no space left")
Traceback (most recent call last):
    ...
OSError: no space left
>>> path.read_text(), [file.name for file in path.parent.iterdir()]
('all of it', ['notes.txt'])

Every writer of the library uses this module; `test_files.py` fills the disk under each.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator

from d2lmini.base.scopes import contextmanager
from d2lmini.engine import signals

FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def write(fname: FileName, content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file: text as UTF-8, bytes, or pieces of bytes in sequence. OSError if the system
    refuses."""
    if isinstance(content, str):
        content = content.encode()
    pieces = [content] if isinstance(content, bytes) else content
    with replace_atomically(fname) as [path], open(path, "wb") as file:
        file.writelines(pieces)


@contextmanager
def replace_atomically(*fnames: FileName, ending: bool = False) -> Iterator[list[str]]:
    """A scope with a temporary path for each of `fnames`; at its end the written files replace
    these together, and none does if an exception ends the scope. `ending`: the paths end as the
    names do, for writers that choose a format by the ending; else they end in .tmp, so that no
    program takes one for a complete file.

    The permissions of a replaced file are kept, links are followed, and a special file
    (`/dev/null`, a pipe) is its own path. Errors name the files themselves.
    """
    targets = [os.path.realpath(os.fsdecode(os.fspath(fname))) for fname in fnames]
    paths = [_neighbour(target, ending) for target in targets]
    try:
        yield paths
        with signals.held():
            for path, target in zip(paths, targets):
                _replace(path, target)
    except BaseException as problem:
        for path, target, fname in zip(paths, targets, fnames):
            if path != target:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                _rename_in(problem, path, os.fsdecode(os.fspath(fname)))
        raise


def _neighbour(target: str, ending: bool) -> str:
    """A short temporary name: the target's name plus a suffix could exceed the limit."""
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        return target
    suffix = os.path.splitext(target)[1] if ending else ".tmp"
    return os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}{suffix}")


def _replace(path: str, target: str) -> None:
    if path != target:
        if os.path.exists(target):
            os.chmod(path, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(path, target)


def _rename_in(problem: BaseException, path: str, fname: str) -> None:
    if isinstance(problem, OSError) and problem.filename == path:
        problem.filename = fname
    problem.args = tuple(a.replace(path, fname) if isinstance(a, str) else a for a in problem.args)
