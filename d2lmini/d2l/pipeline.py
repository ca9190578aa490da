"""Pipelines: a net cut into stages, each stage on a device, small batches on their way through.

A batch is cut into m microbatches. A *pass* is the forward ("F") or backward ("B") computation of
one stage for one microbatch. A *schedule* is plain data: for each device the list of its passes, in
their order. Three schedules of the literature are here; `Pipeline.run` issues the operations of
any schedule.

>>> for passes in one_f_one_b(2, 3):
...     print(*passes)
F0.0 F0.1 B0.0 F0.2 B0.1 B0.2
F1.0 B1.0 F1.1 B1.1 F1.2 B1.2

F1.2 is the forward pass of stage 1 for microbatch 2.

With p devices, equal stages and copies that take no time, GPipe and 1F1B idle for the same share of
the time, the *bubble* (p - 1) / (m + p - 1). They differ in memory: a device of GPipe keeps the
activations of m microbatches, device d of 1F1B those of min(m, p - d). The interleaved schedule
gives each device v small stages, so that a microbatch reaches the last device sooner: its bubble is
(p - 1) / (v * m + p - 1), with v times the copies.

Sources: Huang et al. 2019, "GPipe"; Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN
Training" (1F1B with flush) and "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (interleaved).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import autograd, engine
from d2lmini import ndarray as nd
from d2lmini.context import Context
from d2lmini.draw.timeline import timeline
from d2lmini.engine.core import Task
from d2lmini.engine.stepped_records import predict_us
from d2lmini.gluon import HybridBlock, Parameter, nn
from d2lmini.ndarray import NDArray

if TYPE_CHECKING:
    from d2lmini.draw.picture import Picture
    from d2lmini.profiler.tracing import Trace


class Pass(NamedTuple):
    """The forward ("F") or backward ("B") computation of a stage for a microbatch."""

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.microbatch}"


#: For each device its passes, in their order.
Schedule = list[list[Pass]]


# -- schedules -------------------------------------------------------------------------------------


def gpipe(p: int, m: int) -> Schedule:
    """GPipe: stage d on device d; first all forward passes, then all backward passes."""
    _check_counts(p=p, m=m)
    return [
        [Pass(kind, device, microbatch) for kind in "FB" for microbatch in range(m)]
        for device in range(p)
    ]


def one_f_one_b(p: int, m: int) -> Schedule:
    """1F1B (PipeDream-flush): stage d on device d. After p - 1 - d forward passes, which fill the
    pipeline, each forward pass is followed by the backward pass of the oldest microbatch."""
    _check_counts(p=p, m=m)
    schedule = []
    for device in range(p):
        ahead = min(p - 1 - device, m)
        passes = [Pass("F", device, microbatch) for microbatch in range(ahead)]
        for microbatch in range(ahead, m):
            passes.append(Pass("F", device, microbatch))
            passes.append(Pass("B", device, microbatch - ahead))
        passes += [Pass("B", device, microbatch) for microbatch in range(m - ahead, m)]
        schedule.append(passes)
    return schedule


def interleaved(p: int, m: int, v: int) -> Schedule:
    """Interleaved 1F1B: stage s on device s % p, v stages a device. Forward passes run in groups of
    p microbatches through one stage of the device after the other, backward passes likewise from
    the last stage. ValueError unless m is a multiple of p."""
    _check_counts(p=p, m=m, v=v)
    if m % p:
        raise ValueError(f"interleaved: m is a multiple of the number of devices {p}, got {m}")
    groups = [range(first, first + p) for first in range(0, m, p)]
    schedule = []
    for device in range(p):
        stages = range(device, v * p, p)
        forward = [Pass("F", s, i) for group in groups for s in stages for i in group]
        backward = [Pass("B", s, i) for group in groups for s in reversed(stages) for i in group]
        # The first microbatch returns to the device when it has been through all v * p stages.
        ahead = min(2 * (p - 1 - device) + (v - 1) * p, len(forward))
        passes = forward[:ahead]
        for following, oldest in zip(forward[ahead:], backward):
            passes += [following, oldest]
        schedule.append(passes + backward[len(forward) - ahead :])
    return schedule


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            what = {"p": "devices", "m": "microbatches", "v": "stages on each device"}[name]
            raise ValueError(f"pipeline: {name} is a number of {what}, 1 or more, got {count!r}")


def bubble(p: int, m: int, v: int = 1) -> Fraction:
    """The share of the time in which p devices are idle: (p - 1) / (v * m + p - 1), for m
    microbatches, v equal stages on each device, and copies that take no time.

    Let a forward and a backward pass of one stage together take 1. A device works v * m. The last
    device begins p - 1 forward passes late, and p - 1 backward passes follow its end: it is idle
    for p - 1. The other devices are idle as long.
    """
    _check_counts(p=p, m=m, v=v)
    return Fraction(p - 1, v * m + p - 1)


def kept_microbatches(schedule: Schedule) -> list[int]:
    """For each device, the largest number of forward passes whose backward pass is still to come:
    as many passes keep their activations at once."""
    most = []
    for passes in schedule:
        kept = [0]
        for step in passes:
            kept.append(kept[-1] + (1 if step.kind == "F" else -1))
        most.append(max(kept))
    return most


# -- one order for the program ---------------------------------------------------------------------


def needs_of(step: Pass, stages: int) -> list[Pass]:
    """The passes whose results a pass uses."""
    kind, stage, microbatch = step
    if kind == "F":
        return [Pass("F", stage - 1, microbatch)] if stage else []
    own = Pass("F", stage, microbatch)
    return [own] if stage == stages - 1 else [own, Pass("B", stage + 1, microbatch)]


def merge(schedule: Schedule) -> list[tuple[int, Pass]]:
    """All passes as (device, pass) in one order for the program: the order of each device is kept,
    and each pass comes after those whose results it uses. ValueError if the devices would wait for
    each other."""
    stages = 1 + max((step.stage for passes in schedule for step in passes), default=-1)
    merged: list[tuple[int, Pass]] = []
    done: set[Pass] = set()
    at = [0] * len(schedule)
    while True:
        before = len(merged)
        for device, passes in enumerate(schedule):
            if at[device] < len(passes) and done.issuperset(needs_of(passes[at[device]], stages)):
                merged.append((device, passes[at[device]]))
                done.add(passes[at[device]])
                at[device] += 1
        if len(merged) == before:
            break
    stuck = [
        f"device {device} waits before {passes[i]} for "
        + " and ".join(str(need) for need in needs_of(passes[i], stages) if need not in done)
        for device, (passes, i) in enumerate(zip(schedule, at))
        if i < len(passes)
    ]
    if stuck:
        raise ValueError(f"schedule: the devices wait for each other: {'; '.join(stuck)}")
    return merged


# -- running a schedule ----------------------------------------------------------------------------


def dense_stages(
    widths: Sequence[int], ctxs: Sequence[Context | list[Context]]
) -> list[HybridBlock]:
    """A net of Dense layers cut into stages of one layer: stage s maps `widths[s]` features to
    `widths[s + 1]`, and lies on `ctxs[s % len(ctxs)]`, a device or a list of devices with a copy of
    the stage each. ReLU follows every stage but the last. Gradients are added up (`grad_req`)."""
    stages: list[HybridBlock] = []
    for s, (inputs, units) in enumerate(pairwise(widths)):
        activation = "relu" if s < len(widths) - 2 else None
        stage = nn.Dense(units, activation, in_units=inputs, prefix=f"stage{s}_")
        stage.initialize(ctx=ctxs[s % len(ctxs)])
        stage.collect_params().setattr("grad_req", "add")
        stage.hybridize()
        stages.append(stage)
    return stages


class Pipeline:
    """Issues the operations of a schedule: computations, copies between devices, and the order.

    stages  hybridized blocks named stage0, stage1, ... (`prefix="stage0_"`), on their devices,
            with grad_req "add"
    loss    (output of the last stage, labels) -> losses
    ctxs    the devices

    A device runs its passes strictly in their order, as a stream of a GPU does. The engine would
    start whatever is ready first; so before each pass stands an empty task, "turn", which reads
    what the pass before has written, and writes what this pass reads.
    """

    def __init__(
        self, stages: Sequence[HybridBlock], loss: Callable[..., NDArray], ctxs: Sequence[Context]
    ):
        self.stages = list(stages)
        self.loss = loss
        self.ctxs = list(ctxs)

    def run(
        self, schedule: Schedule, xs: Sequence[NDArray], ys: Sequence[NDArray]
    ) -> list[NDArray]:
        """Issue all passes for the microbatches `xs` and labels `ys`; returns the losses of each
        microbatch, and adds the gradients to those of the weights. Does not wait. ValueError if the
        schedule needs other stages, devices or microbatches."""
        self._check(schedule, len(xs), len(ys))
        self.kept: dict[tuple[int, int], tuple[NDArray, NDArray]] = {}
        self.sent: dict[Pass, NDArray] = {}
        self.before: list[list[NDArray]] = [[] for _ in self.ctxs]
        losses: dict[int, NDArray] = {}
        for device, (kind, stage, microbatch) in merge(schedule):
            if kind == "B":
                self._backward(device, stage, microbatch)
            elif stage < len(self.stages) - 1:
                self._forward(device, stage, microbatch, xs)
            else:
                y = ys[microbatch].as_in_context(self.ctxs[device])
                losses[microbatch] = self._forward(device, stage, microbatch, xs, y)
        return [losses[microbatch] for microbatch in sorted(losses)]

    def _check(self, schedule: Schedule, inputs: int, labels: int) -> None:
        steps = {step for passes in schedule for step in passes}
        needed = len({step.stage for step in steps}), len({step.microbatch for step in steps})
        if inputs != labels or needed != (len(self.stages), inputs):
            raise ValueError(
                f"Pipeline.run: the schedule has {needed[0]} stages and {needed[1]} microbatches; "
                f"given are {len(self.stages)} stages, {inputs} inputs and {labels} labels"
            )
        if len(schedule) > len(self.ctxs):
            raise ValueError(
                f"Pipeline.run: the schedule is for {len(schedule)} devices, there are "
                f"{len(self.ctxs)}: {', '.join(map(str, self.ctxs))}"
            )

    def _forward(
        self, device: int, stage: int, microbatch: int, xs: Sequence[NDArray], y: Any = None
    ) -> NDArray:
        source = self.sent.pop(Pass("F", stage - 1, microbatch)) if stage else xs[microbatch]
        x = source.copyto(self.ctxs[device])  # also on one device: `_take_turn` writes it
        self._take_turn(device, x)
        if stage:
            x.attach_grad()
        with autograd.record():
            output = self.stages[stage](x)
            result = output if y is None else self.loss(output, y)
        self.kept[stage, microbatch] = x, result
        if y is None:
            self.sent[Pass("F", stage, microbatch)] = output
        self.before[device] = [output]
        return result

    def _backward(self, device: int, stage: int, microbatch: int) -> None:
        x, result = self.kept.pop((stage, microbatch))
        ctx = self.ctxs[device]
        if stage == len(self.stages) - 1:
            head = nd.ones(result.shape, ctx=ctx, dtype=result.dtype)
        else:
            head = self.sent.pop(Pass("B", stage + 1, microbatch)).as_in_context(ctx)
        self._take_turn(device, head)
        result.backward(head)
        written = [weight.grad(ctx) for weight in _weights(self.stages[stage])]
        if x.grad is not None:
            self.sent[Pass("B", stage, microbatch)] = x.grad
            written.append(x.grad)
        self.before[device] = written

    def _take_turn(self, device: int, array: NDArray) -> None:
        before = [other for other in self.before[device] if other is not array]
        engine.push(_nothing, before, [array], self.ctxs[device], name="turn")


def _weights(stage: HybridBlock) -> list[Parameter]:
    return [weight for weight in stage.collect_params().values() if weight.grad_req != "null"]


def _nothing() -> None:
    """The work of a turn: only its place in the order counts."""


# -- the virtual clock -----------------------------------------------------------------------------


def pass_times(
    forward_us: float | Sequence[float] = 1000,
    backward_us: float | Sequence[float] = 2000,
    copy_us: float | None = 0,
) -> Callable[[Task], float]:
    """A clock for `engine.stepped(times=...)` that counts passes: the microseconds of a forward and
    of a backward pass, for all stages or for each; of a copy, or None for the time of the link.
    Other operations take no time."""

    def of_stage(us: float | Sequence[float], stage: int) -> float:
        return us if isinstance(us, (int, float)) else us[stage]

    def times(task: Task) -> float:
        if task.lane in ("in", "out"):
            return predict_us(task) if copy_us is None else copy_us
        kind = _pass_of(task.name)
        if kind is None:
            return 0
        return of_stage(forward_us if kind[0] == "F" else backward_us, kind[1])

    return times


def _pass_of(name: str) -> tuple[str, int] | None:
    """("F", 1) of "stage1", ("B", 1) of "stage1_backward"; None for other operations."""
    found = re.fullmatch(r"stage(\d+)(_backward)?", name)
    return found and ("B" if found[2] else "F", int(found[1]))


class Span(NamedTuple):
    """When a device computed a pass, in nanoseconds since the begin of the trace; `number` is that
    of the operation."""

    device: int
    step: Pass
    begin_ns: int
    end_ns: int
    number: int = 0


def find_spans(trace: Trace, schedule: Schedule, ctxs: Sequence[Context]) -> list[Span]:
    """The passes of one step in a trace, device by device. ValueError if the trace has others than
    the schedule; the first step of a hybridized net has no passes yet, so it is not traced."""
    found = []
    for device, (ctx, passes) in enumerate(zip(ctxs, schedule)):
        ran = [
            operation
            for operation in trace.operations
            if operation.place == str(ctx) and operation.ran and _pass_of(operation.name)
        ]
        ran.sort(key=lambda operation: operation.began_ns)
        if [_pass_of(operation.name) for operation in ran] != [step[:2] for step in passes]:
            raise ValueError(
                f"find_spans: {ctx} was to run {' '.join(map(str, passes))}, the trace has "
                f"{' '.join(operation.name for operation in ran)}"
            )
        for operation, step in zip(ran, passes):
            begin_ns, end_ns = (
                ns - trace.begin_ns for ns in (operation.began_ns, operation.ended_ns)
            )
            found.append(Span(device, step, begin_ns, end_ns, operation.number))
    return found


def idle_share(found: Sequence[Span]) -> Fraction:
    """The share of the time in which the devices are idle, from the first begin to the last end."""
    devices = {span.device for span in found}
    length_ns = max(span.end_ns for span in found) - min(span.begin_ns for span in found)
    busy_ns = sum(span.end_ns - span.begin_ns for span in found)
    return 1 - Fraction(busy_ns, length_ns * len(devices))


def activation_peaks(trace: Trace) -> Counter[str]:
    """For each device the largest number of bytes of activations at any moment: memory that the
    forward operations of the trace allocate."""
    live, peak, sizes = Counter[str](), Counter[str](), dict[int, int]()
    for change in trace.memory:
        place, number = str(change.ctx), change.operation
        if change.nbytes > 0 and number and trace.recording[number - 1]:
            sizes[change.serial] = change.nbytes
            live[place] += change.nbytes
            peak[place] = max(peak[place], live[place])
        elif change.nbytes < 0:
            live[place] -= sizes.pop(change.serial, 0)
    return peak


def draw(found: Sequence[Span], title: str = "") -> Picture:
    """The schedule as a picture with a row for each device. Forward passes are light, backward
    passes have the accent colour; the numbers are those of the microbatches."""
    rows: dict[int, list[tuple[str, float, float]]] = {}
    for device, step, begin_ns, end_ns, _ in found:
        kind = "compute" if step.kind == "F" else "accent"
        rows.setdefault(device, []).append((kind, begin_ns / 1e9, end_ns / 1e9))
    lanes = [(f"gpu({device})", row) for device, row in sorted(rows.items())]
    picture = timeline(lanes, title, unit="ms")
    axes = picture.figure.axes[0]
    for label in axes.get_legend().get_texts():
        label.set_text({"compute": "forward", "accent": "backward"}[label.get_text()])
    zero_ns = min(span.begin_ns for span in found)
    for device, step, begin_ns, end_ns, _ in found:
        middle_ms = ((begin_ns + end_ns) / 2 - zero_ns) / 1e6
        row = sorted(rows).index(device)
        axes.text(middle_ms, row, step.microbatch, ha="center", va="center", fontsize=7)
    return picture


def to_text(found: Sequence[Span], column_ns: int = 1_000_000) -> str:
    """The schedule as text, a line for each device and a column for each `column_ns`: the number of
    the microbatch in its last digit, forward as a digit, backward as a letter from "a"; "." is
    idle."""
    zero_ns = min(span.begin_ns for span in found)
    columns = round((max(span.end_ns for span in found) - zero_ns) / column_ns)
    lines = {device: ["."] * columns for device in sorted({span.device for span in found})}
    for device, step, begin_ns, end_ns, _ in found:
        first, last = (round((ns - zero_ns) / column_ns) for ns in (begin_ns, end_ns))
        symbols = "0123456789" if step.kind == "F" else "abcdefghij"
        lines[device][first:last] = symbols[step.microbatch % 10] * (last - first)
    return "\n".join(f"gpu({device}) {''.join(line)}" for device, line in lines.items())
