"""A stopwatch that reports whether it stopped too early.

Operations return before they are computed, so a clock around them may measure only how long it took
to push them. `Benchmark` prints what any stopwatch prints, and also records how many operations
were still pending when the clock stopped.

>>> from d2lmini import d2l
>>> with d2l.Benchmark("Nothing is left.", sync=True, quiet=True) as timer:
...     total = sum(range(100))
>>> timer.in_flight, timer.elapsed > 0
(0, True)

`repeat`, whose times are meant to be compared, warns of pending work; a block warns only with
`warn=True`, because the moment at which its clock stops is often the point of an example, and its
printed line is the book's.

Two stopwatches cannot show that one program is faster than another: see `compare`.
"""

import functools
import inspect
import math
import statistics
import time
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from d2lmini import engine
from d2lmini.base import callsite

P = ParamSpec("P")
R = TypeVar("R")


class Benchmark:
    """Time a `with` block, every call of a decorated function, or repetitions of a function.

        with Benchmark("Workloads are queued."):        # Workloads are queued. time: 0.0009 sec
            y = nd.dot(x, x).sum()

        @Benchmark("train_batch")                       # one line for each call
        def train_batch(X, y): ...

        times = Benchmark("dot", sync=True).repeat(lambda: nd.dot(x, x), n=10)

    prefix: printed before the time. sync: wait for the engine before the clock stops. quiet: print
    nothing. warn: a UserWarning if the clock stops with work in flight; None, the default, does so
    in `repeat` only. After the block, `elapsed` holds its seconds (nan before) and `in_flight` the
    number of engine operations that were still pending; after `repeat`, `elapsed` is the median and
    `times` holds all of them. An exception passes through; the time until it is kept and printed.
    """

    def __init__(
        self,
        prefix: str | None = None,
        *,
        sync: bool = False,
        quiet: bool = False,
        warn: bool | None = None,
    ) -> None:
        if prefix is not None and not isinstance(prefix, str):
            raise TypeError(
                f"Benchmark: prefix must be a str or None, got {type(prefix).__name__}; "
                "as a decorator write @Benchmark() or @Benchmark('name'), with parentheses"
            )
        self.prefix = prefix or ""
        self.sync = sync
        self.quiet = quiet
        self.warn = warn
        self.elapsed: float = math.nan
        self.in_flight: int = 0
        self.times: list[float] = []

    def __enter__(self) -> "Benchmark":
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # Do not wait for a block that failed: its own error is the one to report.
            if self.sync and error is None:
                engine.waitall()
        finally:
            self.elapsed = time.perf_counter() - self._start
            self.in_flight = engine.stats().pending
            self.times = [self.elapsed]
            self._print()
        if self.warn and error is None:
            self._warn()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate: each call is timed and printed, this object keeps the latest call's figures.

        TypeError for generator and coroutine functions, whose body runs after the call.
        """
        later = (
            inspect.isgeneratorfunction(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        )
        if later:
            raise TypeError(
                f"Benchmark: {function.__name__} is a generator or coroutine function, its call "
                "returns before its body runs; put `with Benchmark():` around the loop or await"
            )

        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            # Each call has its own clock, so that recursion and threads do not share one.
            clock = type(self)(self.prefix, sync=self.sync, quiet=self.quiet, warn=self.warn)
            try:
                with clock:
                    return function(*args, **kwargs)
            finally:
                self.elapsed, self.in_flight = clock.elapsed, clock.in_flight
                self.times = clock.times

        return timed

    def repeat(self, function: Callable[[], object], n: int = 10) -> list[float]:
        """Call `function` n times and return the n times in seconds.

        Each clock starts with an idle engine, so that no run pays for the previous one; with `sync`
        the clock also stops with an idle engine; without, a warning reports work still in flight,
        unless `warn` is False. Prints one line with the median, which `elapsed` keeps. `in_flight`
        is that of the last run. ValueError for n below 1.
        """
        if n < 1:
            raise ValueError(f"repeat: n must be at least 1, got {n}")
        clock = Benchmark(sync=self.sync, quiet=True)
        times = []
        for _ in range(n):
            engine.waitall()
            with clock:
                function()
            times.append(clock.elapsed)
        self.times, self.in_flight = times, clock.in_flight
        self.elapsed = statistics.median(times)
        self._print(f" (median of {n})")
        if self.warn is not False:
            self._warn()
        return list(times)

    def _warn(self) -> None:
        if self.in_flight:
            callsite.warn(
                f"Benchmark: the clock stopped with {self.in_flight} "
                f"operation{'s' * (self.in_flight != 1)} in flight: {self.elapsed:.4f} sec is the "
                "time to queue the work, not to do it. Benchmark(sync=True) waits for it; "
                "warn=False says that this is meant."
            )

    def _print(self, note: str = "") -> None:
        if not self.quiet:
            prefix = self.prefix + " " if self.prefix else ""
            print(f"{prefix}time: {self.elapsed:.4f} sec{note}")

    def __repr__(self) -> str:
        if math.isnan(self.elapsed):
            return f"Benchmark({self.prefix!r}, not run)"
        return (
            f"Benchmark({self.prefix!r}, elapsed={self.elapsed:.4f} sec, "
            f"in_flight={self.in_flight})"
        )


def get_mem() -> float:
    """Resident set size of this process in MB (10**6 bytes), by the operating system's view:
    Python, NumPy, buffers in use and those that the pool has cached. `storage.stats(ctx)` gives the
    exact bytes of the arrays of one device.

    The book's first version asked `ps`, whose kilobytes have 1024 bytes: its MB were 2.4 % larger.
    """
    # Imported here: `import d2lmini` must stay quick, and few programs ask.
    import psutil

    return psutil.Process().memory_info().rss / 1e6
