"""A function to be tried: change its parameters, keep and compare its results.

    def multiply(size=1000, n=10):
        x = nd.random.uniform(shape=(size, size))
        with d2l.Benchmark(sync=True, quiet=True) as clock:
            for _ in range(n):
                y = nd.dot(x, x)
        return clock.elapsed

    d2l.Experiment(multiply, size=[250, 500, 1000, 2000], n=(1, 20), unit="s", title="time")

This runs the function once, with the initial values of the controls, and prints the result. In a
notebook there is also a panel: sliders, Run, Cancel, and all runs in a table and a picture. In a
script, a test or a saved notebook there are only the printed lines and the picture; they say the
same.

>>> from d2lmini import d2l
>>> def square(x):
...     return x * x
>>> experiment = d2l.Experiment(square, x=(0, 10))
square(x=5): 25
>>> experiment.run(x=7)
square(x=7): 49
49

How a run is cancelled: see `widgets/background_job.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from d2lmini.draw.picture import DrawnPicture, Picture
from d2lmini.profiler.summary import in_time
from d2lmini.widgets.background_job import BackgroundJob
from d2lmini.widgets.panel import MISSING, Panel, control, word

#: This many runs are drawn, the last ones.
MOST = 12


@dataclass
class Run:
    """One run: the value of each parameter, what the function returned, and the same as numbers by
    name ("" for a single number)."""

    number: int
    parameters: dict[str, Any]
    value: Any
    results: dict[str, float]


class Experiment(Panel):
    """`Experiment(f, size=(100, 2000), ...)`: a panel to try `f(size=..., ...)` with.

    Each parameter is (low, high) or (low, high, step): a slider; a list: a choice; True or
    False: a switch; any other value: passed as it is. The initial value is the default of `f`, if
    it is among the values; else a slider starts in the middle, a choice at its first value.
    Parameters of `f` that are not named keep their defaults.

    unit     of the results, "s" for seconds
    title    the measured quantity: the label of the axis
             (A parameter of `f` that has one of these two names keeps its default.)

    `f` returns a number, or a dict of numbers. If `f` has a parameter `progress`, it is passed a
    function to report progress: `progress(3, 10)`. `f` measures its own time: the first call of
    anything is slow, so warm up, or leave the timing to `d2l.compare`, which warms up.

    runs     the `Run`s that succeeded since the last `clear`

    TypeError, ValueError at once for parameters that `f` does not take, or that make no control;
    errors of the first run pass through. Later runs, begun by `start` or in the panel, show their
    error there, with the line that raised it.
    """

    def __init__(
        self, f: Callable[..., Any], /, *, unit: str = "", title: str = "", **parameters: Any
    ):
        name = str(getattr(f, "__name__", type(f).__name__))
        self.name = "f" if name == "<lambda>" else name
        self.title = title
        self.unit = unit
        self.runs: list[Run] = []
        self._f = f
        wanted = inspect.signature(f)
        self._reports = "progress" in wanted.parameters and "progress" not in parameters
        try:
            wanted.bind(**parameters, **({"progress": None} if self._reports else {}))
        except TypeError as error:
            raise TypeError(
                f"Experiment: {self.name}{wanted}: {error}; give each parameter a range, a list of "
                "choices or a value"
            ) from None
        self._given = parameters
        defaults = {name: parameter.default for name, parameter in wanted.parameters.items()}
        made = [control(n, given, defaults.get(n, MISSING)) for n, given in parameters.items()]
        super().__init__(list(filter(None, made)))
        over = ", ".join(control.name for control in self.controls)
        self.words = f"experiment {self.name}" + (f" over {over}" if over else "")
        self.run()

    def work(self, job: BackgroundJob, values: dict[str, Any]) -> Run:
        given = {name: values.get(name, value) for name, value in self._given.items()}
        more = {"progress": job.progress} if self._reports else {}
        value = self._f(**given, **more)
        numbers = value if isinstance(value, Mapping) else {"": value}
        try:
            return Run(0, given, value, {str(k): _number(x) for k, x in numbers.items()})
        except (TypeError, ValueError):
            got = type(value).__name__
            raise TypeError(f"Experiment: the function gave {got}; expected numbers") from None

    def note(self, job: BackgroundJob, values: dict[str, Any]) -> None:
        run: Run = job.result
        run.number = self.runs[-1].number + 1 if self.runs else 1
        self.runs.append(run)

    def run(self, **values: Any) -> Any:
        """Run on this thread with these values, print the result, and return it; the run joins the
        others."""
        run: Run = super().run(**values)
        told = {name: word(value) for name, value in run.parameters.items()}
        # Arrays and the like are left out.
        words = ", ".join(f"{name}={text}" for name, text in told.items() if text[0] != "<")
        lines = [f"{name}: {self._amount(x)}" for name, x in run.results.items()]
        print(f"{self.name}({words})" + ("" if "" in run.results else "\n  ") + "\n  ".join(lines))
        return run.value

    def _amount(self, value: float) -> str:
        """A value with its unit: seconds as "12.30 ms", whole numbers in full."""
        if self.unit == "s":
            return in_time(value)
        number = f"{value:,.0f}" if value.is_integer() and abs(value) < 1e12 else f"{value:.4g}"
        return f"{number} {self.unit}".rstrip()

    def table(self) -> tuple[list[str], list[list[str]]]:
        names = list(dict.fromkeys(name for run in self.runs for name in run.results))
        parameters = [control.name for control in self.controls]
        head = ["run", *parameters, *(name or self.title or "result" for name in names)]
        rows = [
            [str(run.number)]
            + [word(run.parameters[name]) for name in parameters]
            + [self._amount(run.results[n]) if n in run.results else "" for n in names]
            for run in list(self.runs)
        ]
        return head, rows

    def draw(self) -> DrawnPicture | None:
        """All runs as a picture: over the one parameter that differs, if it is a number; else over
        their numbers. The last run is orange."""
        from d2lmini.draw.timeline import STYLES, figure_of

        if not self.runs:
            return None
        runs = self.runs[-MOST:]
        name, xs = "run", [run.number for run in runs]
        differing = [
            n for n in runs[0].parameters if len({word(r.parameters[n]) for r in runs}) > 1
        ]
        if len(differing) == 1:
            values = [run.parameters[differing[0]] for run in runs]
            if all(type(value) in (int, float) for value in values):
                name, xs = differing[0], values
        figure = figure_of(2.9)
        ax = figure.subplots()
        for result, value in runs[-1].results.items():
            points = [(x, run.results[result]) for x, run in zip(xs, runs) if result in run.results]
            ax.plot(*zip(*sorted(points)), "o-", color=STYLES["push"][0], label=result or None)
            ax.plot(xs[-1], value, "o", color=STYLES["accent"][0], zorder=3)
        unit = f" ({self.unit})" if self.unit else ""
        ax.set(xlabel=name, ylabel=f"{self.title or 'result'}{unit}")
        if "" not in runs[-1].results:
            ax.legend(frameon=False)
        return DrawnPicture(Picture(figure, self.words))

    def forget(self) -> None:
        self.runs.clear()


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value.item() if hasattr(value, "item") else value)
