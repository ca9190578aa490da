"""A slider for the limit on pending bytes: how far the program may run ahead of the engine.

    def train():
        for X, y in data_iter():
            with autograd.record():
                l = loss(net(X), y)
            l.backward()
            trainer.step(X.shape[0])            # no wait: the loop is far ahead of the engine

    d2lmini.widgets.memory_dial(train, limits_mb=[1000, 50])

A loop that never waits pushes faster than the engine computes, and the pending operations take
memory. The engine pauses a push that would pass its limit on pending bytes
(`engine.limit_pending`); this slider sets that limit. Each run reports the peak of pending bytes,
the peak of array memory, and its time; during a run both curves are live, and the slider may be
moved.

In a script, a test or a saved notebook there are only the printed lines and the picture.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.device import storage
from d2lmini.device.devices import list_named
from d2lmini.engine.budget import default_limit
from d2lmini.profiler.summary import in_time
from d2lmini.widgets.background_job import BackgroundJob
from d2lmini.widgets.base import Message
from d2lmini.widgets.cached_picture import CachedPicture
from d2lmini.widgets.controls import Control
from d2lmini.widgets.panel import Panel

#: The slider's positions between two powers of ten.
LADDER = (1, 1.5, 2, 3, 5, 7)

#: This many samples are kept while nothing runs: a minute.
KEPT = 600

#: Seconds since the run began, pending bytes, bytes of arrays, the limit.
Point = tuple[float, int, int, int]


@dataclass
class DialRun:
    """A run at a limit (bytes).

    peak_pending, peak_live    peaks of the pending bytes and of the bytes in arrays (on several
                               devices: the sum of each device's peak)
    paused    pushes that had to wait for room
    turned    was the limit changed during the run?
    points    ten times a second: (seconds, pending, in arrays, limit); after the run also the
              peaks, so that every picture of the run shows the peaks that the table shows
    """

    number: int
    limit: int
    peak_pending: int = 0
    peak_live: int = 0
    seconds: float = 0.0
    paused: int = 0
    turned: bool = False
    points: list[Point] = field(default_factory=list)


class MemoryDial(Panel):
    """The slider of `memory_dial`. `runs`: the `DialRun`s since the last `clear`."""

    samples = True
    turns = True

    def __init__(self, f: Callable[[], object] | None = None):
        self.words = "memory dial"
        if f is not None:
            self.words += f" of {getattr(f, '__name__', type(f).__name__)}"
        self.runnable = f is not None
        self.runs: list[DialRun] = []
        self._f = f
        self._now: DialRun | None = None
        self._idle = DialRun(0, 0)  # samples while nothing runs
        self._begin_s = time.perf_counter()
        self._sent = 0
        budget = engine.current.budget
        self._restore = weakref.finalize(self, _set_limit, budget, budget.limit)
        self._restore.atexit = False
        super().__init__([_control((budget.limit or default_limit()) / 1e6)])
        if f is None:
            self.live()

    # -- the dial ----------------------------------------------------------------------------------

    @property
    def limit_mb(self) -> float:
        """The slider's limit in MB of a million bytes. Can be set."""
        return float(self.controls[0].value)

    @limit_mb.setter
    def limit_mb(self, megabytes: float) -> None:
        self.turned({"limit": megabytes})
        self.say_whole()

    def turned(self, values: dict[str, Any]) -> None:
        """Apply a moved slider: set the limit, in MB. ValueError for 0 and below."""
        megabytes = values["limit"]
        if not megabytes > 0:
            raise ValueError(f"memory dial: the limit must be more than 0 MB, got {megabytes}")
        if self._now is not None:
            self._now.turned = True
            self._take_peaks(self._now)  # a new limit begins a new count
        self.controls = (_control(megabytes),)
        engine.limit_pending(int(1e6 * megabytes))

    def close(self) -> None:
        """Cancel a run in progress, restore the engine's limit, close the view."""
        super().close()
        self._restore()

    # -- a run, as `Panel` asks for it -------------------------------------------------------------

    def work(self, job: BackgroundJob, values: dict[str, Any]) -> DialRun:
        if self._f is None:
            raise TypeError("memory dial: there is nothing to run; make it with memory_dial(f)")
        self.turned(values)
        run = DialRun(self.runs[-1].number + 1 if self.runs else 1, int(1e6 * values["limit"]))
        for pool in _pools():
            storage.reset_peak(pool.ctx)
        paused, self._begin_s = engine.stats().paused, time.perf_counter()
        self._sent, self._now = 0, run
        self._sample(run)
        try:
            self._f()
            engine.waitall()
        finally:
            run.seconds = time.perf_counter() - self._begin_s
            run.paused = engine.stats().paused - paused
            self._take_peaks(run)
            self._sample(run)
            self._idle, self._now = run, None
            _add_peaks(run)
        return run

    def note(self, job: BackgroundJob, values: dict[str, Any]) -> None:
        self.runs.append(job.result)

    def run(self, **values: Any) -> DialRun:
        """Run on this thread, `run(limit=50)` with a limit of 50 MB; print the result."""
        run: DialRun = super().run(**values)
        print(self.told(run))
        return run

    def told(self, run: DialRun) -> str:
        """A run in words, as printed."""
        return (
            f"{self.words}, with a limit on pending memory of {_mb(run.limit)}\n"
            f"  pending memory    at most {_mb(run.peak_pending)}\n"
            f"  memory of arrays  at most {_mb(run.peak_live)}\n"
            f"  time              {in_time(run.seconds)}"
        )

    def _take_peaks(self, run: DialRun) -> None:
        run.peak_pending = max(run.peak_pending, engine.stats().peak_pending_bytes)
        run.peak_live = max(run.peak_live, sum(pool.stats().peak for pool in _pools()))

    def _sample(self, run: DialRun) -> None:
        """Sample the counters, without a lock: integers, one at a time."""
        budget = engine.current.budget
        live = sum(pool.live for pool in _pools())
        point = time.perf_counter() - self._begin_s, budget.pending, live, budget.limit or 0
        run.points.append(point)

    # -- what is shown -----------------------------------------------------------------------------

    def table(self) -> tuple[list[str], list[list[str]]]:
        head = [
            "run",
            "limit",
            "pending at most",
            "in arrays at most",
            "time",
            "pushes that paused",
        ]
        rows = [
            [
                str(run.number), _mb(run.limit) + (", turned" if run.turned else ""),
                _mb(run.peak_pending), _mb(run.peak_live), in_time(run.seconds), f"{run.paused:,}",
            ]
            for run in list(self.runs)
        ]  # fmt: skip
        return head, rows

    def draw(self) -> CachedPicture | None:
        from d2lmini.widgets.dial_picture import picture_of

        if not self.runs:
            return None
        return CachedPicture(picture_of(self.runs, self.words))

    def picture(self) -> CachedPicture | None:
        if self._f is None and self._idle.points and not self._closed:
            from d2lmini.widgets.dial_picture import picture_of

            return CachedPicture(picture_of([self._idle], self.words))
        return super().picture()

    def forget(self) -> None:
        self.runs.clear()
        self._idle = DialRun(0, 0)

    def changes(self) -> Message | None:
        run = self._now
        if run is None:
            if self._f is not None:
                return None
            run = self._idle
        self._sample(run)
        if self._f is None:
            del run.points[:-KEPT]
            return {"state": self.state(), "points": "last"}, [_numbers(run.points[-1:])]
        fresh, self._sent = run.points[self._sent :], len(run.points)
        first = fresh and fresh[0] is run.points[0]
        header = {"state": self.state(), "points": "all" if first else "more"}
        return header, [_numbers(fresh)]

    def whole(self) -> Message | None:
        message = super().whole()
        assert message is not None
        told, images = message
        points = list((self._now or self._idle).points)
        return {**told, "curve": True}, [*images, _numbers(points)]


def memory_dial(
    f: Callable[[], object] | None = None, limits_mb: Sequence[float] | None = None
) -> MemoryDial:
    """The limit on pending bytes as a slider, with its effect on `f()`.

    f            runs a program that does not wait, such as a training loop; f runs once for each of
                 `limits_mb`, and each time that Run is pressed. None: there is only the slider, and
                 the view shows the notebook's own cells
    limits_mb    in MB of a million bytes; None: once, with the engine's present limit

    Prints for each run the peak of pending bytes, the peak of array memory, and the time. `close()`
    restores the engine's limit.
    """
    if f is not None and not callable(f):
        raise TypeError(
            f"memory_dial: expected a function without arguments, got {type(f).__name__}; "
            "did you write f() for f?"
        )
    dial = MemoryDial(f)
    if f is not None:
        for limit in limits_mb if limits_mb is not None else [dial.limit_mb]:
            dial.run(limit=limit)
    return dial


def _control(megabytes: float) -> Control:
    """A slider with positions at equal ratios, among them the present limit; its end is half of the
    available memory."""
    most = max(default_limit() / 1e6, megabytes)
    places = {float(f"{step * 10**power:.2g}") for power in range(7) for step in LADDER}
    choices = sorted({place for place in places if place < most} | {float(f"{most:.3g}")})
    nearest = min(choices, key=lambda place: abs(place / megabytes - 1))
    if abs(nearest / megabytes - 1) > 0.02:
        choices = sorted([*choices, nearest := megabytes])
    return Control("limit", "choice", nearest, choices=tuple(choices), unit="MB pending at most")


def _add_peaks(run: DialRun) -> None:
    """Insert each exact peak, which lies between two samples, after the largest sample."""
    for column, peak in ((1, run.peak_pending), (2, run.peak_live)):
        largest = max(range(len(run.points)), key=lambda index: run.points[index][column])
        if run.points[largest][column] < peak:
            seconds, pending, live, limit = run.points[largest]
            point = (seconds, peak, live, limit) if column == 1 else (seconds, pending, peak, limit)
            run.points.insert(largest + 1, point)


def _set_limit(budget: Any, limit: int | None) -> None:
    """Set the limit without a lock, as the caller may be a finalizer; waiting pushes check again
    soon."""
    budget.limit = limit


def _pools() -> list[storage.Pool]:
    return [device.pool for device in list_named() if device.pool is not None]


def _numbers(points: Sequence[Point]) -> np.ndarray:
    return np.array(points, np.float64).reshape(-1, 4)


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.4g} MB" if nbytes < 1e10 else f"{nbytes / 1e6:,.0f} MB"
