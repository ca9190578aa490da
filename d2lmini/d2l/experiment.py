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

How a run is cancelled: see `widgets/background_job.py`. Allowed results of the function: see
`experiment_results.py`; how they are drawn: see `experiment_plot.py`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from d2lmini import engine
from d2lmini.d2l.experiment_results import UNNAMED, Result, amount, result_of
from d2lmini.draw.picture import DrawnPicture
from d2lmini.widgets.background_job import BackgroundJob
from d2lmini.widgets.controls import MISSING, Control, control, word
from d2lmini.widgets.panel import Panel


@dataclass
class Run:
    """One run: the value of each parameter, the function's result, and the result as numbers."""

    number: int
    parameters: dict[str, Any]
    value: Any
    result: Result
    elapsed_s: float


class Experiment(Panel):
    """`Experiment(f, size=(100, 2000), ...)`: a panel to try `f(size=..., ...)` with.

    Each parameter is (low, high) or (low, high, step): a slider; a list: a choice; True or
    False: a switch; any other value: passed as it is. The initial value is the default of `f`, if
    it is among the values; else a slider starts in the middle, a choice at its first value.
    Parameters of `f` that are not named keep their defaults.

    unit     of the results, "s" for seconds; {"time": "s", "memory": "MB"} if they differ.
             Times of verdicts and traces, and of functions that return None, are in "s" anyway
    title    the measured quantity: the label of the axis
             (A parameter of `f` that has one of these two names keeps its default.)

    `f` returns one of the results in `experiment_results`. If `f` is a generator, the values that
    it yields are a curve. If `f` has a parameter `progress`, it is passed a function to report
    progress: `progress(3, 10)`. The run ends when everything that it
    has pushed is computed. `f` measures its own time: the first call of anything is slow, so warm
    up, or leave the timing to `d2l.compare`, which warms up.

    runs     the `Run`s that succeeded since the last `clear`

    TypeError, ValueError at once for parameters that `f` does not take, or that make no control;
    errors of the first run pass through. Later runs, begun by `start` or in the panel, show their
    error there, with the line that raised it.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        /,
        *,
        unit: str | Mapping[str, str] | None = None,
        title: str = "",
        **parameters: Any,
    ):
        if not callable(f):
            raise TypeError(
                f"Experiment: expected a function, got {type(f).__name__}; "
                "did you write f(...) for f?"
            )
        self.name = _name(f)
        self.title = title
        self.unit = unit
        self.runs: list[Run] = []
        self._f = f
        controls, self._fixed = _split_parameters(f, parameters)
        self._order = tuple(parameters)
        super().__init__(controls)
        over = ", ".join(control.name for control in controls)
        self.words = f"experiment {self.name}" + (f" over {over}" if over else "")
        self.run()

    # -- a run, as `Panel` asks for it -------------------------------------------------------------

    def work(self, job: BackgroundJob, values: dict[str, Any]) -> Run:
        given = {name: (self._fixed | values)[name] for name in self._order}
        own = _takes(self._f, "progress") and "progress" not in given
        value = self._f(**given, progress=job.progress) if own else self._f(**given)
        points: list[Any] = []
        if inspect.isgenerator(value):
            value = _follow(value, points, lambda: job.progress(len(points)))
        if value is None and not points:
            engine.waitall()
        elapsed_s = time.perf_counter() - job.begin_s
        return Run(0, given, value, result_of(value, points, elapsed_s), elapsed_s)

    def note(self, job: BackgroundJob, values: dict[str, Any]) -> None:
        run: Run = job.result
        run.number = self.runs[-1].number + 1 if self.runs else 1
        run.elapsed_s = job.elapsed_s
        self.runs.append(run)

    def run(self, **values: Any) -> Any:
        """Run on this thread with these values, print the result, and return it; the run joins the
        others."""
        run: Run = super().run(**values)
        print(self.told(run))
        return run.value

    def told(self, run: Run) -> str:
        """A run in words, as printed."""
        result, head = run.result, f"{self.name}({_arguments(run.parameters)})"
        lines = {name: self._told(run, name) for name in result.values}
        if list(lines) == [UNNAMED]:
            text = f"{head}: {lines[UNNAMED]}"
        else:
            width = max(map(len, lines))
            text = "\n".join([head, *(f"  {n.ljust(width)}  {line}" for n, line in lines.items())])
        return "\n".join(filter(None, [text, result.text]))

    def _told(self, run: Run, name: str) -> str:
        curve = run.result.curves.get(name, ())
        steps = f" at the end of {len(curve)} steps" if len(curve) > 1 else ""
        return amount(run.result.values[name], self.unit_of(run, name)) + steps

    def unit_of(self, run: Run, name: str) -> str:
        """The unit of one of the results; "" for none."""
        if run.result.timed:
            return "s"
        if isinstance(self.unit, Mapping):
            return self.unit.get(name, "")
        return self.unit or ""

    # -- what is shown of the runs -----------------------------------------------------------------

    def table(self) -> tuple[list[str], list[list[str]]]:
        runs = list(self.runs)
        names = list(dict.fromkeys(name for run in runs for name in run.result.values))
        parameters = [control.name for control in self.controls]
        head = ["run", *parameters, *(name or self.title or "result" for name in names)]
        rows = []
        for run in runs:
            values = run.result.values
            rows.append(
                [str(run.number)]
                + [word(run.parameters[name]) for name in parameters]
                + [amount(values[n], self.unit_of(run, n)) if n in values else "" for n in names]
            )
        return head, rows

    def draw(self) -> DrawnPicture | None:
        """All runs as a picture; the timeline of the last run beneath, if it has one."""
        from d2lmini.d2l.experiment_plot import picture_of

        if not self.runs:
            return None
        return DrawnPicture(picture_of(self), self.runs[-1].result.picture)

    def forget(self) -> None:
        self.runs.clear()


def _name(f: Callable[..., Any]) -> str:
    name = str(getattr(f, "__name__", type(f).__name__))
    return "f" if name == "<lambda>" else name


def _takes(f: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(f).parameters


def _arguments(parameters: dict[str, Any]) -> str:
    """The arguments as in a call; arrays and the like are left out."""
    words = {name: word(value) for name, value in parameters.items()}
    return ", ".join(f"{name}={told}" for name, told in words.items() if told[0] != "<")


def _follow(generator: Any, points: list[Any], step: Callable[[], object]) -> Any:
    """Collect what a generator yields, and its return value. `step` is called after each value."""
    try:
        while True:
            try:
                points.append(next(generator))
            except StopIteration as end:
                return end.value
            step()
    finally:
        generator.close()


def _split_parameters(
    f: Callable[..., Any], parameters: dict[str, Any]
) -> tuple[list[Control], dict[str, Any]]:
    """The parameters with a control, and the values that are passed as they are. TypeError unless
    `f` can be called with them."""
    signature = inspect.signature(f)
    wanted = signature.parameters
    reports = {"progress": None} if "progress" in wanted else {}
    try:
        signature.bind(**(reports | parameters))
    except TypeError as error:
        raise TypeError(
            f"Experiment: {_name(f)}{signature}: {error}; give each parameter a range, a list of "
            f"choices or a value, as in Experiment({_name(f)}, {next(iter(wanted), 'n')}=(1, 10))"
        ) from None
    controls: list[Control] = []
    fixed: dict[str, Any] = {}
    for name, given in parameters.items():
        made = control(name, given, wanted[name].default if name in wanted else MISSING)
        if made is None:
            fixed[name] = given
        else:
            controls.append(made)
    return controls, fixed
