"""A board of pipeline schedules: your schedule runs on the virtual clock, and bounds judge it.

    problem = Problem(devices=4, microbatches=8)
    result = judge(problem, my_schedule)
    print(result)
    print(board(problem, mine=my_schedule))

`my_schedule(problem)` returns a schedule: for each device the list of its passes, as tuples
("F" or "B", stage, microbatch). It decides which stages a device has, and the order of its passes.
It is data and nothing else; the board makes the net, the batch, the copies and the clock, and runs
the passes. A schedule that is refused raises `check.Wrong`, with a hint:

    form      not lists of tuples of a string and two integers, or something in addition to them
    device    more devices than there are
    unknown   a stage or a microbatch that does not exist
    missing   a pass was left out
    twice     a pass was to run twice
    moved     the stage of a pass is on another device: weights would have to be copied
    order     the devices wait for each other
    memory    a device would keep too many activations
    replaced  a function of the library is not the one that was imported, or a listener was added
    slow      more time than asked for (only from `reach`)
    clock     the times of the run are shorter than the problem says
    values    the gradients are not those that NumPy computes

To judge the schedule of someone else, let their function run in a process of its own and pass the
lists to `judge`: lists run no code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini import engine, gluon, instrument, profile
from d2lmini import ndarray as nd
from d2lmini.d2l import pipeline
from d2lmini.d2l.check import Sentence, Wrong
from d2lmini.d2l.idle_gaps import IdleGap, find_gaps
from d2lmini.d2l.links import Traffic, traffic
from d2lmini.d2l.originals import Originals
from d2lmini.d2l.pipeline import Pass, Pipeline, Schedule, Span
from d2lmini.d2l.schedule_problem import (
    Bounds,
    Problem,
    bounds_of,
    places_of,
    read_schedule,
    shares_of,
)
from d2lmini.device.virtual_device import virtual_gpus
from d2lmini.ndarray import NDArray

if TYPE_CHECKING:
    from d2lmini.draw.picture import Picture
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.tracing import Trace

#: A schedule, or a function that makes one for a problem.
Entry = Callable[[Problem], Any] | Sequence[Any]


# -- a run -----------------------------------------------------------------------------------------


@dataclass
class Result:
    """A schedule that was judged.

    spans  when each pass ran
    trace  of the step, on the virtual clock
    links  the copies

    It prints as text; `draw()` is the picture.
    """

    problem: Problem
    schedule: Schedule
    spans: list[Span]
    trace: Trace = field(repr=False)
    links: Traffic

    @cached_property
    def bounds(self) -> Bounds:
        """What no order of the passes beats."""
        return bounds_of(self.problem, self.schedule)

    @property
    def time_us(self) -> float:
        """The time of the step, from the first begin to the last end."""
        return max(span.end_ns for span in self.spans) / 1000

    @property
    def idle(self) -> float:
        """The share of the time in which the devices of the problem are idle."""
        return 1 - self.bounds.work / self.time_us

    @property
    def kept(self) -> int:
        """The most forward passes whose activations a device kept at once."""
        return max(pipeline.kept_microbatches(self.schedule))

    def label(self, operation: Operation) -> str:
        """The name of the pass of an operation: for `check.busy`, and for timelines."""
        names = {span.number: str(span.step) for span in self.spans}
        return names.get(operation.number, str(operation))

    @cached_property
    def gap(self) -> IdleGap | None:
        """The idle gap that costs most: the longest of the device with the largest bound. The time
        that this device must wait at the begin and at the end does not count. None: there is no
        such gap, and no other order of the passes takes less time."""
        shares = shares_of(self.problem, self.schedule)
        places = sorted(set(places_of(self.schedule).values()))
        share, device = max(zip(shares, places), key=lambda pair: pair[0].least)
        begin_ns = round(1000 * share.head)
        end_ns = round(1000 * (self.time_us - share.tail))
        found = []
        for gap in find_gaps(self.trace, self.label):
            if gap.place == f"gpu({device})":
                begin = max(gap.begin_ns, begin_ns)
                found.append(gap._replace(begin_ns=begin, end_ns=min(gap.end_ns, end_ns)))
        longest = max(found, key=lambda gap: gap.length_ns, default=None)
        return longest if longest is not None and longest.length_ns > 0 else None

    def draw(self) -> Picture:
        """The picture of the schedule."""
        return pipeline.draw(self.spans)

    def __str__(self) -> str:
        least, work = self.bounds.least / 1000, self.bounds.work / 1000
        lines = [
            pipeline.to_text(self.spans, round(1000 * min(self.problem.forward_us))),
            f"{self.time_us / 1000:.2f} ms; with the stages on these devices no order of the "
            f"passes takes less than {least:.2f} ms, no schedule at all less than {work:.2f} ms",
        ]
        if self.gap is not None:
            lines.append(f"the idle gap that costs most: {self.gap}")
        return "\n".join(lines)


def reach(problem: Problem, entry: Entry, most_us: float) -> Sentence:
    """Check that a schedule takes at most `most_us`; Wrong("slow") names the idle gap that costs
    most, other hints are those of `judge`."""
    result = judge(problem, entry)
    time = f"{result.time_us / 1000:.2f} ms"
    if result.time_us <= most_us:
        return Sentence(f"{time}: at most {most_us / 1000:.2f} ms")
    advice = f"The idle gap that costs most: {result.gap}"
    if result.gap is None:
        advice = "No other order of these passes takes less: move stages to other devices"
    raise Wrong("slow", f"{time}, asked are at most {most_us / 1000:.2f} ms. {advice}")


def judge(problem: Problem, entry: Entry) -> Result:
    """Run a schedule, or the schedule that a function makes for the problem, and check it. Wrong,
    with a hint, if it is refused; an error of the function comes out as it is."""
    own = Problem(**asdict(problem))  # not the one that the function gets
    _refuse_replaced("before the call")
    listeners = instrument.listeners
    schedule = read_schedule(own, entry(problem) if callable(entry) else entry)
    if instrument.listeners is not listeners:
        raise Wrong("replaced", "the function added a listener to the engine, or removed one")
    _refuse_replaced("by the function")
    most = max(pipeline.kept_microbatches(schedule))
    if most > own.keep:
        raise Wrong(
            "memory",
            f"a device would keep the activations of {most} passes, it has room for {own.keep}. "
            "Run backward passes earlier",
        )
    try:
        pipeline.merge(schedule)
    except ValueError as error:
        raise Wrong("order", str(error)) from None
    result = _run(own, schedule)
    _refuse_replaced("during the run")
    return result


def _refuse_replaced(when: str) -> None:
    if changed := _ORIGINALS.replaced():
        raise Wrong("replaced", f"replaced {when}: {', '.join(changed[:3])}")


def _run(problem: Problem, schedule: Schedule) -> Result:
    """One step on the virtual clock; Wrong if its times or its values are not as they must be."""
    place = places_of(schedule)
    times = pipeline.pass_times(problem.forward_us, problem.backward_us, copy_us=None)
    n, m, rows = problem.devices, problem.microbatches, problem.rows
    draw = np.random.default_rng()
    X = draw.normal(size=(m * rows, problem.widths[0])).astype("float32")
    Y = draw.normal(size=(m * rows, problem.widths[-1])).astype("float32")
    with (
        virtual_gpus(n, link_gb_s=problem.link_gb_s) as ctxs,
        engine.stepped(times=times, remember=0),
    ):
        homes = [ctxs[place[s]] for s in range(problem.stages)]
        stages = pipeline.dense_stages(problem.widths, homes)
        pipe = Pipeline(stages, gluon.loss.L2Loss(), ctxs)
        xs = [nd.array(part, ctx=homes[0]) for part in np.split(X, m)]
        ys = [nd.array(part, ctx=homes[-1]) for part in np.split(Y, m)]
        pipe.run(schedule, xs, ys)  # the first step compiles the stages
        for stage in stages:
            stage.collect_params().zero_grad()
        nd.waitall()
        with traffic() as links, profile() as trace:
            pipe.run(schedule, xs, ys)
        weights = [[w.data() for w in stage.collect_params().values()] for stage in stages]
        _check_values(weights, X, Y)
        spans = _find_spans(trace, schedule, ctxs)
    _check_times(problem, spans)
    return Result(problem, schedule, spans, trace, links)


def _find_spans(trace: Trace, schedule: Schedule, ctxs: Sequence[Any]) -> list[Span]:
    try:
        return pipeline.find_spans(trace, schedule, ctxs)
    except ValueError as error:
        raise Wrong("clock", str(error)) from None


def _check_times(problem: Problem, spans: Sequence[Span]) -> None:
    """Compute the earliest times anew, from the problem alone."""
    at = {span.step: span for span in spans}
    free_ns: dict[int, int] = {}
    for span in spans:
        least_ns = free_ns.get(span.device, 0)
        for need in pipeline.needs_of(span.step, problem.stages):
            other = at[need]
            copy_us = 0.0
            if other.device != span.device:
                copy_us = problem.copy_us[min(need.stage, span.step.stage)]
            least_ns = max(least_ns, other.end_ns + round(1000 * copy_us))
        length_ns = round(1000 * problem.us_of(span.step))
        if span.begin_ns < least_ns - 1 or span.end_ns - span.begin_ns < length_ns - 1:
            raise Wrong(
                "clock",
                f"{span.step} ran from {span.begin_ns} to {span.end_ns} ns on the clock, but it "
                f"takes {length_ns} ns and cannot begin before {least_ns} ns",
            )
        free_ns[span.device] = span.end_ns


def _check_values(weights: Sequence[Sequence[NDArray]], X: np.ndarray, Y: np.ndarray) -> None:
    """Compute the gradients anew, with NumPy in float64 and for the whole batch."""
    values = [[w.asnumpy().astype("float64") for w in stage] for stage in weights]
    inputs = [X.astype("float64")]
    for s, (weight, bias) in enumerate(values):
        y = inputs[-1] @ weight.T + bias
        inputs.append(y * (y > 0) if s < len(values) - 1 else y)
    g = (inputs[-1] - Y) / Y.shape[1]
    for s in reversed(range(len(values))):
        if s < len(values) - 1:
            g = g * (inputs[s + 1] > 0)
        for name, array, expected in zip(
            ("weights", "bias"), weights[s], (g.T @ inputs[s], g.sum(axis=0))
        ):
            grad = array.grad
            assert grad is not None
            found = grad.asnumpy()
            if not np.allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max()):
                raise Wrong("values", f"the gradient of the {name} of stage {s} is wrong")
        g = g @ values[s][0]


# -- the board -------------------------------------------------------------------------------------


def by_device(schedule: Schedule, stages: int) -> Schedule:
    """The schedule for `stages` stages a device where there was one: device d has the stages
    d * stages and following; a pass becomes the passes of these."""
    spread: Schedule = []
    for passes in schedule:
        row: list[Pass] = []
        for kind, device, microbatch in passes:
            own = range(device * stages, (device + 1) * stages)
            row += [Pass(kind, s, microbatch) for s in (own if kind == "F" else reversed(own))]
        spread.append(row)
    return spread


def library_schedules(problem: Problem) -> dict[str, Schedule]:
    """The library's own schedules for a problem, where each device has equally many stages."""
    p, m = problem.devices, problem.microbatches
    share, rest = divmod(problem.stages, p)
    if rest:
        return {}
    found = {
        "GPipe": by_device(pipeline.gpipe(p, m), share),
        "1F1B": by_device(pipeline.one_f_one_b(p, m), share),
    }
    if m % p == 0 and share > 1:
        found["interleaved"] = pipeline.interleaved(p, m, share)
    return found


def board(problem: Problem, **entries: Entry) -> str:
    """A table of the entries and of the library's own schedules, the shortest first; schedules that
    are refused come last, with the reason."""
    rows, refused = [], []
    for name, entry in {**library_schedules(problem), **entries}.items():
        try:
            result = judge(problem, entry)
        except Wrong as wrong:
            refused.append(f"{name:<12} refused ({wrong.hint}): {wrong}")
            continue
        rows.append((
            result.time_us,
            f"{name:<12} {result.time_us / 1000:8.2f} ms {result.bounds.least / 1000:8.2f} ms "
            f"{result.idle:6.1%} {result.kept:5} {result.links.nbytes:9}",
        ))  # fmt: skip
    head = f"{'schedule':<12} {'time':>11} {'bound':>11} {'idle':>6} {'kept':>5} {'bytes':>9}"
    return "\n".join([head, *(row for _, row in sorted(rows)), *refused])


#: Kept last, when all functions of this module exist, too.
_ORIGINALS = Originals()
