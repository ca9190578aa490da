"""Does the truth lie in the band? Programs recorded in one world, predicted for another, run there.

    python tests/benchmarks/bands.py                 # every program, a few minutes if it is quiet
    python tests/benchmarks/bands.py --set judged --rounds 3

A program runs on one worker and on two, turn about. The trace of the median run with one is
replayed for two, and the other way round; a prediction is right if the median of the runs there
lies in its band. Programs for devices run on two virtual GPUs, and are predicted for one.

The model (`profiler/contention.py`) was fitted to the programs in `band_programs`; those in
`new_band_programs` were written afterwards.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from band_programs import FITTED, Programs, Run
from new_band_programs import JUDGED
from replay import MOMENT_S, others_s

from d2lmini import engine, gpu, profile, virtual_gpus
from d2lmini.context import Context

#: Runs in each world.
ROUNDS = 7
#: A program waits for so long for runs in which others use up to this share of a core.
PATIENCE_S, OTHERS_SHARE = 3.0, 0.08

SETS = {"fitted": FITTED, "judged": JUDGED}


class Answer(NamedTuple):
    """A prediction and the truth, in seconds: of a program, from so many workers or devices to so
    many; the band; the medians of the runs there and here; and by which factor the middle half of
    the runs there differ."""

    program: str
    before: int
    after: int
    low_s: float
    high_s: float
    truth_s: float
    recorded_s: float
    spread: float

    @property
    def right(self) -> bool:
        """Does the truth lie in the band?"""
        return self.low_s <= self.truth_s <= self.high_s

    @property
    def width(self) -> float:
        """How many times the low end the high end is."""
        return self.high_s / self.low_s

    def __str__(self) -> str:
        said = "right" if self.right else "WRONG"
        return (
            f"{said} {self.program:20} {self.before} -> {self.after}: recorded "
            f"{1e3 * self.recorded_s:6.1f} ms, predicted {1e3 * self.low_s:6.1f} to "
            f"{1e3 * self.high_s:6.1f} ms (x {self.width:.2f}), measured "
            f"{1e3 * self.truth_s:6.1f} ms (x {self.spread:.2f})"
        )


def _record(run: Run, workers: int | None, devices: Sequence[Context]) -> Any:
    options = {"workers": workers} if workers else {}
    with engine.use("threaded", **options), profile() as trace:
        run(devices)
    return trace


def _seconds(trace: Any) -> float:
    return (trace.end_ns - trace.begin_ns) / 1e9


def _in_turns(record: dict[int, Callable[[], Any]], rounds: int) -> dict[int, list[Any]]:
    """Traces in each world, shortest first."""
    for make in record.values():
        make(), make()  # warm
    traces: dict[int, list[Any]] = {world: [] for world in record}
    end_s = time.monotonic() + PATIENCE_S
    for _ in range(rounds):
        for world, make in record.items():
            traces[world].append(_undisturbed(make, end_s))
    return {world: sorted(each, key=_seconds) for world, each in traces.items()}


def _undisturbed(make: Callable[[], Any], end_s: float) -> Any:
    """The first trace during which other programs left the cores alone; from `end_s` on, any."""
    while True:
        wait_for_calm(end_s - time.monotonic())
        begin_s, before_s = time.monotonic(), others_s()
        trace = make()
        now_s = time.monotonic()
        if others_s() - before_s <= 0.01 + OTHERS_SHARE * (now_s - begin_s) or now_s > end_s:
            return trace


def _answer(name: str, before: list[Any], after: list[Any], change: dict[str, int]) -> Answer:
    (asked,) = change.values()
    trace = before[len(before) // 2]
    predicted = trace.replay(**change).prediction
    runs_s = list(map(_seconds, after))
    return Answer(name, 3 - asked, asked, predicted.low_ns / 1e9, predicted.high_ns / 1e9,
                  median(runs_s), _seconds(trace), runs_s[-1 - len(runs_s) // 4] /
                  runs_s[len(runs_s) // 4])  # fmt: skip


def on_workers_answers(programs: Programs, rounds: int = ROUNDS) -> Iterator[Answer]:
    """From one worker to two, and back."""
    for name, make in programs.workers.items():
        run = make()
        record = {n: lambda n=n: _record(run, n, ()) for n in (1, 2)}  # noqa: B023
        traces = _in_turns(record, rounds)
        yield _answer(name, traces[1], traces[2], {"workers": 2})
        yield _answer(name, traces[2], traces[1], {"workers": 1})


def on_devices_answers(programs: Programs, rounds: int = ROUNDS) -> Iterator[Answer]:
    """From two devices to one."""
    for name, make in programs.devices.items():
        with virtual_gpus(2):
            run = make()
            worlds = {2: [gpu(0), gpu(1)], 1: [gpu(0), gpu(0)]}
            record = {n: lambda n=n: _record(run, None, worlds[n]) for n in worlds}  # noqa: B023
            traces = _in_turns(record, rounds)
            answer = _answer(name, traces[2], traces[1], {"devices": 1})
        yield answer


def wait_for_calm(patience_s: float) -> None:
    """Wait until other programs leave the cores alone for a moment, or patience ends."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        before = others_s()
        time.sleep(MOMENT_S)
        if others_s() - before <= 0.01:
            break


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all answers, and how many are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--set", choices=SETS, help="some of the programs")
    asked = parser.parse_args(arguments)
    rows = []
    for said, programs in SETS.items():
        if asked.set in (None, said):
            for kind, answers in (("workers", on_workers_answers), ("devices", on_devices_answers)):
                found = []
                for answer in answers(programs, asked.rounds):
                    found.append(answer)
                    print(answer, flush=True)
                right = sum(answer.right for answer in found)
                width = median(answer.width for answer in found)
                spread = median(answer.spread for answer in found)
                rows.append(
                    f"| {kind}, {said} | {right} of {len(found)} | {width:.2f} | {spread:.2f} |"
                )
    print(
        "| programs | truth in the band | width of the band | spread of the truth |",
        *rows,
        sep="\n",
    )


if __name__ == "__main__":
    main()
