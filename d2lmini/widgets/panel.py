"""A panel: controls, Run, Cancel, Clear; beneath them progress, the result, earlier runs.

    class Doubling(Panel):
        words = "doubling"
        def work(self, job, values):        # on its own thread; may raise, wait, be cancelled
            return 2 * values["x"]
        def note(self, job, values):        # after a run that succeeded, on that thread
            self.rows.append([str(values["x"]), str(job.result)])
        def table(self):                    # what the view shows of all runs
            return ["x", "2 x"], self.rows

    panel = Doubling([control("x", (0, 10))])
    panel.start(x=3)
    panel.wait()

The view (`js/panel.js`) shows the state that `whole` returns, and sends button presses. Nothing
runs in a callback: presses go to the refresher's thread, which starts a run on its own thread
(`background_job`) or cancels it, so a panel responds while a cell computes. One run at a time.

A control is made from a plain value:

    (low, high), (low, high, step)    a slider; low and high are included
    [a, b, c]     a choice of these values; rising numbers get a slider
    True, False   a switch
    other values  are fixed: no control

Input from a view is not trusted: `Control.take` returns the nearest value that the control allows.

>>> control("size", (100, 2000, 100))
Control(name='size', kind='slider', value=1100, low=100, high=2000, step=100, choices=(), unit='')
>>> control("size", (100, 2000, 100), default=500).value
500
>>> control("where", ["host", "device"]).value
'host'
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from typing import Any

from d2lmini import engine
from d2lmini.draw.picture import DrawnPicture
from d2lmini.profiler.summary import in_time
from d2lmini.widgets.background_job import BackgroundJob
from d2lmini.widgets.base import Message, Widget

#: The number of steps of a slider over fractions without a given step.
STEPS = 100

#: Marks that no default was given.
MISSING: Any = object()


@dataclass(frozen=True)
class Control:
    """A parameter with a control.

    kind     "slider" (from `low` to `high` in steps of `step`), "choice" (one of `choices`),
             "switch"
    value    the initial value
    unit     text behind the value
    """

    name: str
    kind: str
    value: Any
    low: Any = None
    high: Any = None
    step: Any = None
    choices: tuple[Any, ...] = ()
    unit: str = ""

    def take(self, sent: Any) -> Any:
        """The allowed value for input from a view: a number, the index of a choice, a bool."""
        if self.kind == "switch":
            return bool(sent)
        if self.kind == "choice":
            return self.choices[min(max(int(sent), 0), len(self.choices) - 1)]
        return self.nearest(sent)

    def nearest(self, value: Any) -> Any:
        """The nearest value on a slider's steps."""
        most = math.floor((self.high - self.low) / self.step + 1e-9)
        steps = min(max(round((value - self.low) / self.step), 0), most)
        found = self.low + steps * self.step
        return found if isinstance(found, int) else float(f"{found:.12g}")

    def describe(self) -> dict[str, Any]:
        """The control as plain data for a view."""
        told: dict[str, Any] = {"name": self.name, "kind": self.kind, "value": self.value}
        told["unit"] = self.unit
        if self.kind == "choice":
            told["value"] = next(i for i, c in enumerate(self.choices) if _same(c, self.value))
            told["choices"] = [word(choice) for choice in self.choices]
            told["rising"] = _rises(self.choices)
        elif self.kind == "slider":
            told |= {"low": self.low, "high": self.high, "step": self.step}
        return told


def control(name: str, given: Any, default: Any = MISSING) -> Control | None:
    """The control for a value; None if the value is fixed. See above.

    default: the initial value, if the control allows it; else a slider starts in the middle, a
    choice at its first value. TypeError, ValueError for a tuple or list that makes no control.
    """
    if isinstance(given, bool):
        return Control(name, "switch", given)
    if isinstance(given, list):
        if not given:
            raise ValueError(f"{name}: an empty list leaves no choice; name one value at least")
        at = next((i for i, value in enumerate(given) if _same(value, default)), 0)
        return Control(name, "choice", given[at], choices=tuple(given))
    if not isinstance(given, tuple):
        return None
    if len(given) not in (2, 3) or not all(map(_is_number, given)):
        wanted = "expected (low, high) or (low, high, step), a list of choices, or one value"
        raise TypeError(f"{name}: a slider is made of two or three numbers, got {given}; {wanted}")
    low, high = given[:2]
    if not low <= high or not all(map(math.isfinite, given)):
        raise ValueError(f"{name}: low must be at most high, both finite, got {given}")
    whole = isinstance(low, int) and isinstance(high, int)
    step = given[2] if len(given) == 3 else 1 if whole else (high - low) / STEPS or 1.0
    if not step > 0:
        raise ValueError(f"{name}: the step must be more than 0, got {given}")
    slider = Control(name, "slider", low, low, high, step)
    is_allowed = _is_number(default) and low <= default <= high
    return replace(slider, value=slider.nearest(default if is_allowed else (low + high) / 2))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Equality as a bool: the == of arrays returns arrays."""
    return one is other or (type(one) is type(other) and _is_plain(one) and one == other)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _rises(choices: tuple[Any, ...]) -> bool:
    return all(map(_is_number, choices)) and all(a < b for a, b in pairwise(choices))


def word(value: Any) -> str:
    """A value as a short text without an address: 0.25, relu, <NDArray>."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if _is_plain(value):
        return str(value)
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return name if isinstance(name, str) else f"<{type(value).__name__}>"


# -- the panel -------------------------------------------------------------------------------------


class Panel(Widget):
    """Controls and runs; a subclass defines what a run does.

    controls    the controls of the parameters
    """

    script = "panel"
    words = "panel"

    #: Call `turned` as soon as a control changes?
    turns = False

    #: Call `changes` during runs even if no view is shown?
    samples = False

    def __init__(self, controls: Sequence[Control] = ()):
        super().__init__()
        self.controls = tuple(controls)
        self._job: BackgroundJob | None = None
        self._door = threading.Lock()
        self._drawn: DrawnPicture | None = None
        self._drawing = threading.Lock()

    # -- what a subclass overrides -----------------------------------------------------------------

    def work(self, job: BackgroundJob, values: dict[str, Any]) -> Any:
        """One run, with a value for each control."""
        raise NotImplementedError

    def note(self, job: BackgroundJob, values: dict[str, Any]) -> None:
        """Called after a successful run; `job.result` is the result of `work`."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The runs as text: the names of the columns, and a row for each run, the oldest first."""
        return [], []

    def draw(self) -> DrawnPicture | None:
        """A picture of the runs; None if there are none."""
        return None

    def forget(self) -> None:
        """Called when Clear is pressed, and by `clear`."""

    def turned(self, values: dict[str, Any]) -> None:
        """Called when a control changes, with the new values."""

    # -- running -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True while a run is in progress."""
        return self._job is not None and self._job.alive

    def start(self, **values: Any) -> None:
        """Begin a run in the background, as the Run button does; other controls keep their initial
        values. RuntimeError while a run is in progress; TypeError for a name without a control.
        """
        self._begin(values)[0].start()

    def run(self, **values: Any) -> Any:
        """Run on this thread: errors pass through, the result is returned."""
        job, values = self._begin(values)
        try:
            result = job.run()
            self._note_run(job, values)
        finally:
            if self._front is not None or self.samples:
                self.still()
        return result

    def cancel(self) -> None:
        """Cancel the run in progress, if any; see `BackgroundJob.cancel`."""
        if self._job is not None:
            self._job.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no run is in progress; False at the timeout."""
        return self._job is None or self._job.join(timeout_s)

    def clear(self) -> None:
        """Forget the runs, as the Clear button does."""
        with self._drawing:
            self.forget()
            self._drawn = None
        if self._front is not None:
            self.still()

    def close(self) -> None:
        """Cancel the run in progress, wait for its end, and close the view."""
        if self.running:
            self.cancel()
            self.cancel()
            self.wait(10)
        super().close()

    def _begin(self, given: dict[str, Any]) -> tuple[BackgroundJob, dict[str, Any]]:
        """A job for a run, and a value for each control."""
        values = {control.name: control.value for control in self.controls}
        unknown = sorted(given.keys() - values.keys())
        if unknown:
            names = [*values]
            raise TypeError(f"{self.words}: there is no control {unknown[0]!r}; there are {names}")
        values |= given
        with self._door:
            if self.running:
                raise RuntimeError(
                    f"{self.words}: a run is going on; wait() for its end or cancel() it"
                )
            job = BackgroundJob(
                lambda job: self.work(job, values), lambda job: self._over(job, values)
            )
            job.enter()
            self._job = job
        if self._front is not None or self.samples:
            self.live()
        return job, values

    def _over(self, job: BackgroundJob, values: dict[str, Any]) -> None:
        """Called on the thread of a background run that has ended."""
        try:
            if job.state == "done":
                self._note_run(job, values)
        except Exception as problem:
            job.state, job.problem = "failed", f"{type(problem).__name__}: {problem}"
        finally:
            job.leave()
            self.still()

    def _note_run(self, job: BackgroundJob, values: dict[str, Any]) -> None:
        self.note(job, values)
        self._drawn = None
        if self._front is not None:
            self.picture()  # here, because drawing would block the refresher's thread

    # -- the view ----------------------------------------------------------------------------------

    def picture(self) -> DrawnPicture | None:
        with self._drawing:
            if self._drawn is None:
                self._drawn = self.draw()
            return self._drawn

    def below(self) -> str:
        """The table, if it says more than the printed lines."""
        head, rows = self.table()
        lines = ["".join(f"<th>{escape(word)}</th>" for word in head)]
        lines += ["".join(f"<td>{escape(word)}</td>" for word in row) for row in rows]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if rows[1:] else ""

    def changes(self) -> Message | None:
        return ({"state": self.state()}, []) if self.running else None

    def whole(self) -> Message:
        head, rows = self.table()
        told = {
            "name": self.words,
            "controls": [control.describe() for control in self.controls],
            "state": self.state(),
            "head": head,
            "rows": rows,
            "turns": self.turns,
        }
        drawn = self._drawn
        return told, [] if drawn is None else [drawn.png]

    def received(self, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        sent = message.get("values", {})
        values = {c.name: c.take(sent[c.name]) for c in self.controls if c.name in sent}
        if kind == "turn":
            self.turned(values)
        elif kind == "run" and not self.running:
            self.start(**values)
            self.say({"state": self.state()})
        elif kind == "cancel":
            self.cancel()
            self.say({"state": self.state()})
        elif kind == "clear" and not self.running:
            self._job = None
            self.clear()

    def state(self) -> dict[str, Any]:
        """The state of the run: for the view's buttons, bar and line of text."""
        job = self._job
        if job is None:
            return {"running": False, "text": "", "problem": ""}
        text = self._progress(job) if job.alive else f"{job.state} in {in_time(job.elapsed_s)}"
        told = {"running": job.alive, "text": text, "problem": job.problem}
        return {**told, "done": job.done, "total": job.total}

    def _progress(self, job: BackgroundJob) -> str:
        if job.stopping and (pending := engine.stats().pending):
            return f"stopping: {pending} operations are still pending; Cancel again drops them"
        if job.stopping:
            return "stopping at its next wait, yield or report of progress"
        seconds = f"{time.perf_counter() - job.begin_s:.1f} s"
        if job.total:
            return f"{job.done:g} of {job.total:g}, {seconds}"
        return f"{job.done:g} steps, {seconds}" if job.done else f"running, {seconds}"
