"""A problem for pipeline schedules: the net, the devices, the lower bounds, the form of an entry.

>>> from d2lmini.d2l import pipeline
>>> problem = Problem(devices=2, microbatches=4, widths=(32, 32, 32))
>>> problem.forward_us, problem.backward_us, problem.copy_us
([1000.0, 1000.0], [2000.0, 2000.0], [250.0])
>>> bounds_of(problem, pipeline.gpipe(2, 4))
Bounds(work=12000.0, chain=6500.0, link=1000.0, device=15500.0)

The second device receives its first input after 1250 us, works for 12000 us, and sends its last
result back: 250 us for the copy, 2000 us for the backward pass on the first device.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from d2lmini.d2l.check import Wrong
from d2lmini.d2l.pipeline import Pass, Schedule


@dataclass(frozen=True)
class Problem:
    """A net of Dense layers, one layer a stage, and the devices for it.

    widths        features before, between and after the stages
    devices       number of devices
    microbatches  number of microbatches, of `rows` examples each
    gflops        of a device: a forward pass takes the time for its matrix product, a backward pass
                  twice that time; other operations take no time
    link_gb_s     of each link in each direction
    keep          forward passes whose activations a device may keep at once, at most
    """

    devices: int = 4
    microbatches: int = 8
    widths: tuple[int, ...] = (32,) * 9
    rows: int = 16
    gflops: float = 0.032768
    link_gb_s: float = 0.008192
    keep: int = 10

    def __post_init__(self) -> None:
        counts = {"devices": self.devices, "microbatches": self.microbatches, "keep": self.keep}
        counts |= {"rows": self.rows} | {f"widths[{i}]": w for i, w in enumerate(self.widths)}
        for name, count in counts.items():
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"Problem: {name} is an integer, 1 or more, got {count!r}")
        if len(self.widths) < 2:
            raise ValueError(f"Problem: widths are those of 1 stage or more, got {self.widths!r}")
        for name, rate in (("gflops", self.gflops), ("link_gb_s", self.link_gb_s)):
            if not rate > 0:
                raise ValueError(f"Problem: {name} is a rate above 0, got {rate!r}")

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.widths) - 1

    @property
    def forward_us(self) -> list[float]:
        """The time of a forward pass, for each stage."""
        pairs = pairwise(self.widths)
        return [2 * self.rows * a * b / self.gflops / 1e3 for a, b in pairs]

    @property
    def backward_us(self) -> list[float]:
        """The time of a backward pass, for each stage."""
        return [2 * us for us in self.forward_us]

    @property
    def copy_us(self) -> list[float]:
        """The time of a copy between stage s and s + 1, forward or backward, for each s."""
        return [4 * self.rows * width / self.link_gb_s / 1e3 for width in self.widths[1:-1]]

    def us_of(self, step: Pass) -> float:
        """The time of a pass."""
        return (self.forward_us if step.kind == "F" else self.backward_us)[step.stage]


# -- the lower bounds ------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """Times that no order of the passes beats, in us.

    work    all passes, divided equally among the devices
    chain   one microbatch through all stages and back, with its copies between devices
    link    the copies into the device that receives most
    device  the way of a microbatch to the first stage of a device, the passes of the device, and
            the way back from that stage; the largest of all devices

    `chain`, `link` and `device` depend on which stages a device has.
    """

    work: float
    chain: float
    link: float
    device: float

    @property
    def least(self) -> float:
        """The largest of the bounds."""
        return max(self)


class Share(NamedTuple):
    """What a device must do and wait for, in us.

    head, tail  the ways of a microbatch to the first stage of the device, and back from there
    work        the passes of the device
    received    the copies into the device
    """

    head: float
    work: float
    tail: float
    received: float

    @property
    def least(self) -> float:
        """No order of the passes of this device ends earlier."""
        return self.head + self.work + self.tail


def shares_of(problem: Problem, schedule: Schedule) -> list[Share]:
    """The share of each device that has a stage."""
    m, forward, backward = problem.microbatches, problem.forward_us, problem.backward_us
    place = places_of(schedule)
    copies = [us if place[s] != place[s + 1] else 0.0 for s, us in enumerate(problem.copy_us)]
    found = []
    for device in sorted(set(place.values())):
        own = [s for s in range(problem.stages) if place[s] == device]
        way = sum(copies[: own[0]])
        received = sum(us for s, us in enumerate(copies) if device in (place[s], place[s + 1]))
        found.append(
            Share(
                sum(forward[: own[0]]) + way,
                m * sum(forward[s] + backward[s] for s in own),
                sum(backward[: own[0]]) + way,
                m * received,
            )
        )
    return found


def bounds_of(problem: Problem, schedule: Schedule) -> Bounds:
    """The bounds for the devices on which `schedule` has the stages."""
    place, shares = places_of(schedule), shares_of(problem, schedule)
    copies = [us for s, us in enumerate(problem.copy_us) if place[s] != place[s + 1]]
    return Bounds(
        sum(share.work for share in shares) / problem.devices,
        sum(problem.forward_us) + sum(problem.backward_us) + 2 * sum(copies),
        max(share.received for share in shares),
        max(share.least for share in shares),
    )


def places_of(schedule: Schedule) -> dict[int, int]:
    """stage -> device."""
    return {step.stage: device for device, passes in enumerate(schedule) for step in passes}


# -- the form of a schedule ------------------------------------------------------------------------


def read_schedule(problem: Problem, entry: Any) -> Schedule:
    """The schedule as passes; Wrong unless every pass is there once, on a device of its stage."""
    if type(entry) not in (list, tuple):
        raise Wrong("form", f"a schedule is a list with a list for each device, got {_kind(entry)}")
    if len(entry) > problem.devices:
        raise Wrong("device", f"{len(entry)} devices, there are {problem.devices}")
    schedule: Schedule = []
    at: dict[Pass, int] = {}
    home: dict[int, int] = {}
    for device, passes in enumerate(entry):
        if type(passes) not in (list, tuple):
            raise Wrong("form", f"device {device}: a list of passes, got {_kind(passes)}")
        schedule.append([_read_pass(problem, step) for step in passes])
        for step in schedule[-1]:
            if step in at:
                raise Wrong("twice", f"{step} is on device {at[step]} and again on device {device}")
            if home.setdefault(step.stage, device) != device:
                raise Wrong(
                    "moved",
                    f"{step} is on device {device}, other passes of stage {step.stage} are on "
                    f"device {home[step.stage]}: its weights are only there",
                )
            at[step] = device
    for stage in range(problem.stages):
        for microbatch in range(problem.microbatches):
            for kind in "FB":
                if (step := Pass(kind, stage, microbatch)) not in at:
                    raise Wrong("missing", f"no device runs {step}: {_words(step)}")
    return schedule


def _read_pass(problem: Problem, step: Any) -> Pass:
    parts = tuple(step) if type(step) in (tuple, list, Pass) else ()
    if [type(part) for part in parts] != [str, int, int] or parts[0] not in ("F", "B"):
        raise Wrong("form", f'a pass is ("F" or "B", stage, microbatch), got {_kind(step)}')
    found = Pass(*parts)
    if found.stage not in range(problem.stages):
        raise Wrong("unknown", f"{parts}: stages are 0 to {problem.stages - 1}")
    if found.microbatch not in range(problem.microbatches):
        raise Wrong("unknown", f"{parts}: microbatches are 0 to {problem.microbatches - 1}")
    return found


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:60]!r}"


def _words(step: Pass) -> str:
    kind = "forward" if step.kind == "F" else "backward"
    return f"the {kind} pass of stage {step.stage} for microbatch {step.microbatch}"
