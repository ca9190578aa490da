"""The result of a run of an experiment: values, curves, pictures from what the function returned.

>>> from d2lmini.d2l.experiment_results import result_of
>>> result_of({"loss": 0.5, "error": 0.25}, [], 1.0).values
{'loss': 0.5, 'error': 0.25}
>>> result_of(None, [3, 2, 1], 1.0).curves
{'': [3.0, 2.0, 1.0]}

    a number                  one value
    a dict of numbers         one for each name
    a list of numbers         a curve
    points of a generator     curves too, if the function returns nothing
    d2l.Verdict               the median time of each candidate, with its spread
    d2lmini.profile()'s trace its time, and its timeline
    None                      the time until everything that the run had pushed was computed
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from d2lmini.d2l.verdict import Verdict
from d2lmini.draw.picture import Picture
from d2lmini.ndarray import NDArray
from d2lmini.profiler.summary import in_time
from d2lmini.profiler.tracing import Trace

#: The name of a value or curve without a name.
UNNAMED = ""


@dataclass
class Result:
    """values    name -> number; of a curve its last
    curves    name -> the numbers in order, if there are several
    spread    name -> (low, high), where known: the middle half of the times
    timed     are the values seconds, because the function returned times?
    text      a line to print beneath; ""
    picture   an additional picture; None
    """

    values: dict[str, float]
    curves: dict[str, list[float]] = field(default_factory=dict)
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    timed: bool = False
    text: str = ""
    picture: Picture | None = None


def result_of(value: Any, points: list[Any], elapsed_s: float) -> Result:
    """The result of a value. `points`: what a generator has yielded. TypeError for anything
    else."""
    if value is None:
        return _curves(points) if points else Result({"time": elapsed_s}, timed=True)
    if isinstance(value, Verdict):
        return _of_verdict(value)
    if isinstance(value, Trace):
        seconds = (value.end_ns - value.begin_ns) / 1e9
        picture = value.timeline() if any(operation.ran for operation in value.operations) else None
        text = f"{len(value.operations)} operations in the trace"
        return Result({"time": seconds}, timed=True, text=text, picture=picture)
    result = _numbers(value)
    if points:
        result.curves = {**_curves(points).curves, **result.curves}
    return result


def _of_verdict(verdict: Verdict) -> Result:
    spread = {}
    for name, times in verdict.times.items():
        low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        spread[name] = low, high
    return Result(verdict.medians, spread=spread, timed=True, text=str(verdict))


def _numbers(value: Any) -> Result:
    if isinstance(value, Mapping):
        return Result({str(name): _number(number) for name, number in value.items()})
    if isinstance(value, (list, tuple)) and value:
        return _curves(list(value))
    return Result({UNNAMED: _number(value)})


def _curves(points: Iterable[Any]) -> Result:
    """The curves of points, each a number or a dict of numbers."""
    curves: dict[str, list[float]] = {}
    for point in points:
        for name, value in _numbers(point).values.items():
            curves.setdefault(name, []).append(value)
    return Result({name: curve[-1] for name, curve in curves.items()}, curves)


def _number(value: Any) -> float:
    if isinstance(value, NDArray) and value.size == 1:
        value = value.asscalar()
    if getattr(value, "shape", None) in ((), (1,)) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (int, float)):
        return float(value)
    raise TypeError(
        f"Experiment: the function gave {type(value).__name__}; expected a number, a dict or a "
        "list of numbers, a d2l.Verdict, a trace, or None"
    )


def amount(value: float, unit: str) -> str:
    """A value with its unit: seconds as "12.30 ms", whole numbers in full, others to 4 digits.

    >>> amount(0.0123, "s"), amount(12345, ""), amount(0.123456, "MB")
    ('12.30 ms', '12,345', '0.1235 MB')
    """
    if unit == "s":
        return in_time(value)
    number = f"{value:,.0f}" if value == int_or_none(value) else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def int_or_none(value: float) -> int | None:
    """A whole number that is not too long to be written in full; else None."""
    return int(value) if abs(value) < 1e12 and value == value // 1 else None
