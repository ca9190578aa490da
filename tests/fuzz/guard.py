"""What a reader may do with a hostile file, and who watches that it does no more.

    with Guard(folder) as guard:
        failure = guard.judge(lambda: read_idx(path), len(data), limits, (MXNetError,))

A reader may succeed, or raise one of the errors that its target names, with a message that is short
and names the file. Everything else is a failure: another exception, going on for ever,
more memory at once than `Limits` allows for a file of that size (tracemalloc counts, NumPy's arrays
included), running code, importing, opening any file for writing or renaming one outside the
folder it was given, starting a process, opening a socket. The latter are seen by an audit hook
(PEP 578), which Python calls before each such thing, whoever asks for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

#: Seconds of CPU time after which a reader is taken to go on for ever.
HANGS_AFTER = 30.0
#: Of an error's message, in characters: a screenful.
MOST_WORDS = 2000

#: Audit events that mean: code runs, or something outside the process changes.
FORBIDDEN = (
    "exec", "import", "pickle.", "marshal.", "ctypes.", "code.", "subprocess.", "socket.",
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "os.kill",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "os.utime", "os.putenv", "os.unsetenv", "shutil.", "compile",
    "builtins.input", "setopencodehook", "sys.addaudithook", "webbrowser.",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Of these the arguments say which files they concern.
_ON_FILES = frozenset({"os.remove", "os.rename", "os.mkdir", "os.chmod"})


class Limits(NamedTuple):
    """The most memory at once for a file of n bytes: base + per_byte * n."""

    base: int
    per_byte: float

    def of(self, nbytes: int) -> float:
        return self.base + self.per_byte * nbytes


class Failure(NamedTuple):
    """kind: what tells failures apart; words: of the one that was seen."""

    kind: str
    words: str


class Hang(BaseException):
    """Raised in a reader that goes on far beyond its time."""


class _Watch(threading.local):
    """What the audit hook, which can't be taken down again, has seen in this thread."""

    seen: list[str] | None = None
    folder = ""
    allowed: frozenset[str] = frozenset()


_watch = _Watch()


def _inside(path: Any) -> bool:
    folder = _watch.folder
    if not folder or not isinstance(path, (str, bytes, os.PathLike)):
        return False
    real = os.path.realpath(os.fsdecode(path))
    return real == folder or real.startswith(folder + os.sep)


def _hook(event: str, args: tuple) -> None:
    seen = _watch.seen
    if seen is None:
        return
    if event == "open":
        path, mode, flags = args
        if isinstance(flags, int) and flags & _WRITING and not _inside(path):
            seen.append(f"open {path!r} for writing ({mode or flags})")
    elif event.startswith(FORBIDDEN):
        event = f"import {args[0]}" if event == "import" else event
        if event in _watch.allowed:
            return
        if event in _ON_FILES and all(_inside(x) for x in args if isinstance(x, (str, bytes))):
            return
        seen.append(event if event.startswith("import ") else f"{event} {str(args)[:100]}")


class Guard:
    """Watches calls on this thread while it is entered. folder: where the reader may write;
    allowed: audit events that belong to the reader's work."""

    _hooked = False

    def __init__(self, folder: str = "", allowed: frozenset[str] = frozenset()):
        self.folder = os.path.realpath(folder) if folder else ""
        self.allowed = allowed

    def __enter__(self) -> Guard:
        if not Guard._hooked:
            sys.addaudithook(_hook)
            Guard._hooked = True
        self._traced = tracemalloc.is_tracing()
        if not self._traced:
            tracemalloc.start(1)
        self._handler = None
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
            self._handler = signal.signal(signal.SIGPROF, _hang)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGPROF, self._handler)
        if not self._traced:
            tracemalloc.stop()

    def judge(
        self,
        read: Callable[[], Any],
        nbytes: int,
        limits: Limits,
        errors: tuple[type[Exception], ...],
        name: str = "",
        again: bool = False,
    ) -> Failure | None:
        """Call `read` on a file of `nbytes`; None if it behaved. name: what messages must hold."""
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        _watch.folder, _watch.allowed, _watch.seen = self.folder, self.allowed, []
        problem = None
        if self._handler is not None:
            signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER)
        try:
            read()
        except errors as error:
            problem = _of_message(error, name)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            problem = _of(error, type(error).__name__)
        finally:
            if self._handler is not None:
                signal.setitimer(signal.ITIMER_PROF, 0)
            seen, _watch.seen = _watch.seen, None
        peak = tracemalloc.get_traced_memory()[1] - before
        if seen and not again and _is_lazy(seen[0]):
            return self.judge(read, nbytes, limits, errors, name, again=True)
        if seen:
            return Failure("did what a reader must not", seen[0])
        if peak > limits.of(nbytes) and (peak := self._peak(read)) > limits.of(nbytes):
            words = f"{peak} bytes for a file of {nbytes}, allowed {limits.of(nbytes):.0f}"
            return Failure("held too much memory", words)
        return problem

    def _peak(self, read: Callable[[], Any]) -> int:
        """Once more: caches of Python's own, that grow now and then, have grown."""
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with contextlib.suppress(Hang, Exception):
            read()
        return tracemalloc.get_traced_memory()[1] - before


def _is_lazy(event: str) -> bool:
    """Does Python's library load a part of its own, which it does once, when it is first used?"""
    words = event.partition("import ")
    return not words[0] and words[2].partition(".")[0] in sys.stdlib_module_names


def _of_message(error: Exception, name: str) -> Failure | None:
    message = str(error)
    if name not in message:
        return _of(error, f"{type(error).__name__} without the file's name")
    if len(message) > MOST_WORDS:
        return _of(error, f"{type(error).__name__} of {MOST_WORDS} characters and more")
    return None


def _of(error: BaseException, kind: str) -> Failure:
    return Failure(f"{kind} at {_place(error)}", str(error)[:200])


def _place(error: BaseException) -> str:
    """The innermost line of the library, which tells failures apart."""
    found = "elsewhere"
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if f"{os.sep}d2lmini{os.sep}" in file:
            found = f"{file.rpartition('d2lmini' + os.sep)[2]}:{frame.tb_lineno}"
        frame = frame.tb_next
    return found


def _hang(*_: Any) -> None:
    raise Hang("still running")
