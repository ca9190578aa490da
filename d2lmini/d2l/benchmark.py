"""A stopwatch that reports whether it stopped too early.

Operations return before they are computed, so a clock around them may measure only how long it took
to push them. `Benchmark` prints what any stopwatch prints, and also records how many operations
were still pending when the clock stopped.

>>> from d2lmini import d2l
>>> with d2l.Benchmark("Nothing is left.", sync=True, quiet=True) as timer:
...     total = sum(range(100))
>>> timer.in_flight, timer.elapsed > 0
(0, True)

Two stopwatches cannot show that one program is faster than another: see `compare`.
"""

import math
import time
from types import TracebackType

from d2lmini import engine


class Benchmark:
    """Time a `with` block.

        with Benchmark("Workloads are queued."):        # Workloads are queued. time: 0.0009 sec
            y = nd.dot(x, x).sum()

    prefix: printed before the time. sync: wait for the engine before the clock stops. quiet: print
    nothing. After the block, `elapsed` holds its seconds (nan before) and `in_flight` the number of
    engine operations that were still pending. An exception passes through; the time until it is
    kept and printed.
    """

    def __init__(
        self, prefix: str | None = None, *, sync: bool = False, quiet: bool = False
    ) -> None:
        if prefix is not None and not isinstance(prefix, str):
            raise TypeError(
                f"Benchmark: prefix must be a str or None, got {type(prefix).__name__}; "
                "write `with Benchmark('name'):` around what is timed"
            )
        self.prefix = prefix or ""
        self.sync = sync
        self.quiet = quiet
        self.elapsed: float = math.nan
        self.in_flight: int = 0

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
            self._print()

    def _print(self) -> None:
        if not self.quiet:
            prefix = self.prefix + " " if self.prefix else ""
            print(f"{prefix}time: {self.elapsed:.4f} sec")

    def __repr__(self) -> str:
        if math.isnan(self.elapsed):
            return f"Benchmark({self.prefix!r}, not run)"
        time = f"{self.elapsed:.4f} sec"
        return f"Benchmark({self.prefix!r}, elapsed={time}, in_flight={self.in_flight})"


def get_mem() -> float:
    """Resident set size of this process in MB (10**6 bytes), by the operating system's view:
    Python, NumPy, buffers in use and those that the pool has cached. `storage.stats(ctx)` gives the
    exact bytes of the arrays of one device.

    The book's first version asked `ps`, whose kilobytes have 1024 bytes: its MB were 2.4 % larger.
    """
    # Imported here: `import d2lmini` must stay quick, and few programs ask.
    import psutil

    return psutil.Process().memory_info().rss / 1e6
