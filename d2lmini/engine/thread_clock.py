"""The CPU clock of a thread, and what the kernel counts for the thread: for traces, and for the
durations that the stepped engine measures.

Wall time says how long an operation took on a machine that other programs use, too; the CPU time of
its thread says how long it computed.

>>> import time
>>> stopwatch = Stopwatch(sleeps=False)
>>> time.sleep(0.01)
>>> stopwatch.read_us() < 5000
True
"""

from __future__ import annotations

import os
import threading
import time


class _Schedstat:
    """The kernel's counts for a thread: "CPU time, time without a core, time slices"."""

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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def read_clocks(long: bool) -> tuple[int, bytes]:
    """The CPU time of this thread in ns, and, if `long`, the kernel's counts for the thread."""
    if not long:
        return time.thread_time_ns(), b""
    try:
        file = _thread.stat.file
    except AttributeError:
        file = (stat := _Schedstat()).file
        _thread.stat = stat
    return time.thread_time_ns(), os.pread(file, 64, 0) if file >= 0 else b""


def delay_of(counts: bytes) -> int:
    """The time in ns that the thread was ready to run and had no core."""
    return int(counts.split()[1])


class Stopwatch:
    """Measures what this thread does from now on, as if it had a core to itself: its CPU time. If
    the thread also `sleeps` or reads files: the elapsed time, less the time in which the thread was
    ready to run and had no core (known on Linux only)."""

    __slots__ = ("cpu_ns", "elapsed_ns", "counts", "sleeps")

    def __init__(self, sleeps: bool):
        self.sleeps = sleeps
        _, self.counts = read_clocks(sleeps)
        self.elapsed_ns = time.perf_counter_ns()
        self.cpu_ns = time.thread_time_ns()

    def read_us(self) -> float:
        """The microseconds since the stopwatch was made."""
        cpu_ns = time.thread_time_ns() - self.cpu_ns
        if not self.sleeps:
            return cpu_ns / 1e3
        elapsed_ns = time.perf_counter_ns() - self.elapsed_ns
        _, counts = read_clocks(True)
        delayed_ns = delay_of(counts) - delay_of(self.counts) if counts else 0
        return max(cpu_ns, elapsed_ns - delayed_ns) / 1e3
