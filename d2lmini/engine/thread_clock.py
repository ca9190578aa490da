"""The CPU clock of a thread, and what the kernel counts for the thread: for traces.

Wall time says how long an operation took on a machine that other programs use, too; the CPU time of
its thread says how long it computed. Linux also counts how long a thread was ready to run and had
no core, and how often it fell asleep.

>>> import time
>>> before = read()
>>> time.sleep(0.01)
>>> after = read()
>>> after.cpu_ns - before.cpu_ns < 5_000_000
True
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import NamedTuple

from d2lmini.base import forks

try:
    import resource
except ImportError:  # Windows
    _THREAD = None
else:
    _THREAD = getattr(resource, "RUSAGE_THREAD", None)  # Linux


class Reading(NamedTuple):
    """What a thread has used so far.

    cpu_ns  CPU time
    counts  of the kernel: "CPU time, time without a core, time slices"; empty: not known
    sleeps  how often it fell asleep: it slept, waited for a lock, or read a file
    """

    cpu_ns: int
    counts: bytes
    sleeps: int


class _Schedstat:
    """The kernel's counts for this thread, as a file."""

    def __init__(self) -> None:
        try:
            self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self.file = -1

    def __del__(self) -> None:
        if self.file >= 0:
            os.close(self.file)


_thread = threading.local()


def _begin_anew() -> None:
    global _thread
    _thread = threading.local()  # the files in the old one are those of the parent's threads


forks.at_fork(after_in_child=_begin_anew)


def read() -> Reading:
    """What this thread has used so far; takes about 4 us."""
    try:
        file = _thread.stat.file
    except AttributeError:
        file = (stat := _Schedstat()).file
        _thread.stat = stat
    counts = os.pread(file, 64, 0) if file >= 0 else b""
    sleeps = 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw
    return Reading(time.thread_time_ns(), counts, sleeps)


def delay_of(counts: bytes) -> int:
    """The time in ns that the thread was ready to run and had no core."""
    return int(counts.split()[1])


def counts_of_threads() -> dict[int, bytes]:
    """The kernel's counts for each thread of this process, by its number; empty: not known."""
    found = {}
    for file in glob("/proc/self/task/*/schedstat"):
        with suppress(OSError):  # the thread has ended
            found[int(file.split("/")[4])] = Path(file).read_bytes()
    return found
