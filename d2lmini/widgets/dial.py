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
(`engine.limit_pending`). The slider is that limit for the runs of the dial; between its runs the
engine has its own. Each run reports the peak of pending bytes, the peak of array memory, and its
time; during a run both curves are live, and the slider may be moved.

In a script, a test or a saved notebook there are only the printed lines and the picture.

The view (`js/dial.js`) shows the state that `whole` returns, and sends button presses. Nothing
runs in a callback: presses go to the refresher's thread, which starts a run on its own thread
(`background_job`) or cancels it, so a dial responds while a cell computes. One run at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.device import storage
from d2lmini.device.devices import list_named
from d2lmini.draw.picture import DrawnPicture, Picture
from d2lmini.draw.svg import INK
from d2lmini.draw.timeline import STYLES, plot_of
from d2lmini.engine.budget import default_limit
from d2lmini.profiler.summary import in_time
from d2lmini.widgets.background_job import BackgroundJob
from d2lmini.widgets.base import Message, Widget

#: The slider's positions between two powers of ten.
LADDER = (1, 1.5, 2, 3, 5, 7)

#: This many runs are drawn, the last ones; the earlier ones in these styles.
MOST = 4
BLUES = tuple(STYLES[kind][0] for kind in ("push", "copy", "compute"))
DASHES, MARKERS = ("-", "--", "-."), "sD^"

#: Seconds since the run began, pending bytes, bytes of arrays, the limit.
Point = tuple[float, int, int, int]

#: Held while a dial runs: there is one limit, so one run at a time.
_turn = threading.Lock()


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


class MemoryDial(Widget):
    """The slider of `memory_dial`.

    runs      the `DialRun`s that succeeded, in order
    limit_mb  where the slider stands
    places    all its positions, in MB
    """

    script = "dial"

    def __init__(self, f: Callable[[], object]):
        super().__init__()
        self.words = f"memory dial of {getattr(f, '__name__', type(f).__name__)}"
        self.runs: list[DialRun] = []
        self._f = f
        self._job: BackgroundJob | None = None
        self._now: DialRun | None = None
        self._last = DialRun(0, 0)  # whose curve the view shows
        self._begin_s = 0.0
        self._drawn: DrawnPicture | None = None
        self._drawing = threading.Lock()
        self.turn((engine.current.budget.limit or default_limit()) / 1e6)

    # -- runs --------------------------------------------------------------------------------------

    def turn(self, megabytes: float) -> None:
        """Move the slider to a limit in MB, for a run in progress too. ValueError below 0."""
        if not megabytes > 0:
            raise ValueError(f"memory dial: the limit must be more than 0 MB, got {megabytes}")
        self.places, self.limit_mb = _places(megabytes), megabytes
        if self._now is not None:
            self._now.turned = True
            self._take_peaks(self._now)  # a new limit begins a new count
            engine.limit_pending(int(1e6 * megabytes))

    @property
    def running(self) -> bool:
        """True while a run is in progress in the background."""
        return self._job is not None and self._job.alive

    def start(self, limit: float | None = None) -> None:
        """Begin a run in the background with a limit in MB (None: where the slider stands), as the
        Run button does. RuntimeError while a run is in progress."""
        self._take_turn()
        self._job = BackgroundJob(lambda: self._run_at(limit), self._over)
        self._job.start()

    def run(self, limit: float | None = None) -> DialRun:
        """Run on this thread, `run(limit=50)` with a limit of 50 MB; print the result. Errors pass
        through."""
        self._take_turn()
        try:
            run = self._run_at(limit)
            self._note(run)
        finally:
            _turn.release()
            self.still()
        print(self.told(run))
        return run

    def cancel(self) -> None:
        """Cancel the run in progress, if any; see `BackgroundJob.cancel`."""
        if self._job is not None:
            self._job.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no run is in progress; False at the timeout."""
        if self._job is not None:
            self._job.join(timeout_s)
        return not self.running

    def close(self) -> None:
        """Cancel the run in progress, wait for its end, and close the view."""
        if self.running:
            self.cancel()
            self.cancel()
            self.wait(10)
        super().close()

    def _take_turn(self) -> None:
        """Before a run, of which there is one at a time."""
        if not _turn.acquire(blocking=False):
            raise RuntimeError(
                f"{self.words}: a run is going on; wait() for its end or cancel() it"
            )
        self._job = None
        self.live()

    def _run_at(self, limit: float | None) -> DialRun:
        megabytes = self.limit_mb if limit is None else limit
        self.turn(megabytes)
        run = DialRun(len(self.runs) + 1, int(1e6 * megabytes))
        before = engine.current.budget.limit
        for pool in _pools():
            storage.reset_peak(pool.ctx)
        paused, self._begin_s = engine.stats().paused, time.perf_counter()
        try:
            engine.limit_pending(run.limit)
            self._sample(run)
            self._now = self._last = run
            self._f()
            engine.waitall()
        finally:
            self._now = None
            self._take_peaks(run)
            self._sample(run)
            engine.limit_pending(before)
            run.seconds, *_ = run.points[-1]
            run.paused = engine.stats().paused - paused
            _add_peaks(run)
        return run

    def _over(self, job: BackgroundJob) -> None:
        """Called on the thread of a background run that has ended."""
        try:
            if job.state == "done":
                self._note(job.result)
        except Exception as problem:
            job.state, job.problem = "failed", f"{type(problem).__name__}: {problem}"
        finally:
            _turn.release()
            self.still()

    def _note(self, run: DialRun) -> None:
        """Keep a run that succeeded."""
        self.runs.append(run)
        self._drawn = None
        if self._front is not None:
            self.picture()  # here, because drawing would block the refresher's thread

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
        """The runs as text: the names of the columns, and a row for each run, the oldest first."""
        head = ["run", "limit", "pending at most", "in arrays at most", "time"]
        rows = [
            [
                str(run.number), _mb(run.limit) + (", turned" if run.turned else ""),
                _mb(run.peak_pending), _mb(run.peak_live), in_time(run.seconds), f"{run.paused:,}",
            ]
            for run in list(self.runs)
        ]  # fmt: skip
        return [*head, "pushes that paused"], rows

    def picture(self) -> DrawnPicture | None:
        with self._drawing:
            if self._drawn is None and self.runs:
                self._drawn = DrawnPicture(picture_of(self.runs, self.words))
            return self._drawn

    def below(self) -> str:
        """The table, if it says more than the printed lines."""
        head, rows = self.table()
        lines = ["".join(f"<th>{escape(word)}</th>" for word in head)]
        lines += ["".join(f"<td>{escape(word)}</td>" for word in row) for row in rows]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if rows[1:] else ""

    def changes(self) -> Message | None:
        if self._now is None:
            return None
        self._sample(self._now)
        return {"state": self.state(), "curve": list(self._last.points)}, []

    def whole(self) -> Message:
        head, rows = self.table()
        told = {
            "name": self.words,
            "places": [f"{place:.6g}" for place in self.places],
            "at": self.places.index(self.limit_mb),
            "state": self.state(),
            "head": head,
            "rows": rows,
            "curve": list(self._last.points),
        }
        drawn = self._drawn
        return told, [] if drawn is None else [drawn.png]

    def received(self, message: dict[str, Any]) -> None:
        # What a view sends is not trusted: `at` becomes the nearest position of the slider.
        kind = message.get("kind")
        at = min(max(int(message.get("at", 0)), 0), len(self.places) - 1)
        if kind == "turn":
            self.turn(self.places[at])
        elif kind == "run" and not _turn.locked():
            self.start(self.places[at])
            self.say({"state": self.state()})
        elif kind == "cancel":
            self.cancel()
            self.say({"state": self.state()})

    def state(self) -> dict[str, Any]:
        """The state of the run: for the view's buttons and line of text."""
        job = self._job
        if job is None:
            text = "" if self._now is None else "running in a cell, which Stop ends"
            return {"running": bool(text), "text": text, "problem": ""}
        text = self._progress(job) if job.alive else f"{job.state} in {in_time(job.elapsed_s)}"
        return {"running": job.alive, "text": text, "problem": job.problem}

    def _progress(self, job: BackgroundJob) -> str:
        if job.stopping and (pending := engine.stats().pending):
            return f"stopping: {pending} operations are still pending; Cancel again drops them"
        if job.stopping:
            return "stopping at its next wait"
        return f"running, {time.perf_counter() - job.begin_s:.1f} s"


def memory_dial(f: Callable[[], object], limits_mb: Sequence[float] | None = None) -> MemoryDial:
    """The limit on pending bytes as a slider, with its effect on `f()`.

    f            runs a program that does not wait, such as a training loop; f runs once for each of
                 `limits_mb`, and each time that Run is pressed
    limits_mb    in MB of a million bytes; None: once, with the engine's present limit

    Prints for each run the peak of pending bytes, the peak of array memory, and the time.
    """
    if not callable(f):
        raise TypeError(
            f"memory_dial: expected a function without arguments, got {type(f).__name__}; "
            "did you write f() for f?"
        )
    dial = MemoryDial(f)
    for limit in [None] if limits_mb is None else limits_mb:
        dial.run(limit)
    return dial


def _places(megabytes: float) -> list[float]:
    """The slider's positions, at equal ratios up to half of the available memory, and this limit
    among them."""
    most = default_limit() / 1e6
    steps = {float(f"{step * 10**power:.2g}") for power in range(7) for step in LADDER}
    return sorted({place for place in steps if place < most} | {float(f"{most:.3g}"), megabytes})


def _add_peaks(run: DialRun) -> None:
    """Insert each exact peak, which lies between two samples, after the largest sample."""
    for column, peak in ((1, run.peak_pending), (2, run.peak_live)):
        largest = max(range(len(run.points)), key=lambda index: run.points[index][column])
        if run.points[largest][column] < peak:
            seconds, pending, live, limit = run.points[largest]
            point = (seconds, peak, live, limit) if column == 1 else (seconds, pending, peak, limit)
            run.points.insert(largest + 1, point)


def _pools() -> list[storage.Pool]:
    return [device.pool for device in list_named() if device.pool is not None]


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.4g} MB" if nbytes < 1e10 else f"{nbytes / 1e6:,.0f} MB"


# -- the picture -----------------------------------------------------------------------------------


def picture_of(runs: Sequence[DialRun], words: str) -> Picture:
    """Pending MB of each run over its seconds, with a marker at its peak; of the last run, which is
    orange and filled, also array memory and the limit."""
    figure, axes = plot_of(3.1, xlabel="seconds", ylabel="MB")
    columns = [np.array(run.points, float).T / [[1], [1e6], [1e6], [1e6]] for run in runs[-MOST:]]
    *earlier, last = runs[-MOST:]
    for at, run in enumerate(earlier):
        seconds, pending, _, _ = columns[at]
        axes.plot(
            seconds, pending, color=BLUES[at], linestyle=DASHES[at], marker=MARKERS[at],
            markevery=[int(np.argmax(pending))], label=f"pending, {_name(run)}",
        )  # fmt: skip
    seconds, pending, live, limit = columns[-1]
    face, edge, _ = STYLES["accent"]
    filled = {"facecolor": face, "edgecolor": edge, "alpha": 0.75}
    axes.fill_between(seconds, pending, **filled, label=f"pending, {_name(last)}")
    n = f"run {last.number}"
    axes.plot(seconds, live, color=INK, linewidth=1, label=f"in arrays, {n}")
    top = 1.12 * max(*(pending.max() for _, pending, _, _ in columns), live.max(), 1.0)
    if limit.min() <= top:
        axes.plot(seconds, limit, ":", color=edge, linewidth=1.8, label=f"limit of {n}")
    axes.set(ylim=(0, top), xlim=(0, None))
    figure.legend(loc="outside lower center", frameon=False, fontsize=8, ncols=2)
    return Picture(figure, words)


def _name(run: DialRun) -> str:
    turned = " at first" if run.turned else ""
    return f"run {run.number} (limit {run.limit / 1e6:,.4g} MB{turned})"
