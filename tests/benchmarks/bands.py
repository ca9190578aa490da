"""Does the truth lie in the band? Programs recorded in one world, predicted for another, run there.

    python tests/benchmarks/bands.py                 # every program, a few minutes if it is quiet
    python tests/benchmarks/bands.py --rounds 3 --kind waits speeds
    nice -n -15 python tests/benchmarks/bands.py     # beside others, but before them

A program runs in both worlds, turn about. The trace of the median run in the one is replayed for
the other; the prediction is right if the median of the runs there lies in its band, and its error
is that of the predicted trace. The questions (`QUESTIONS`):

    workers   from one worker to two, and back
    devices   from two virtual GPUs to one
    waits     without the waits at each step
    links     two virtual GPUs with links half as fast
    speeds    two slow virtual GPUs that become twice as fast

The model (`profiler/contention.py`) was fitted to the programs in `band_programs`, and judged by
others that were written afterwards: whoever changes it fits it to these, and writes new ones.
`--traces FOLDER` keeps the traces, and asks those kept, so that a changed model answers the same
questions.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
from band_programs import PROGRAMS, Run

from d2lmini import engine, gpu, profile, profiler, virtual_gpus
from d2lmini.context import Context
from d2lmini.profiler.replay import Prediction, Recording

#: Runs in each world.
ROUNDS = 7
#: How long the machine is watched before a run.
MOMENT_S = 0.1
#: A program waits for so long for runs in which others use up to this share of a core.
PATIENCE_S, OTHERS_SHARE = 3.0, 0.08
#: GB/s of the links, and GFLOP/s of the devices, that are halved and doubled.
LINK_GB_S, GFLOPS = 0.2, 1.0


#: The predicted seconds, and the band.
Foreseen = tuple[float, Prediction]


class Question(NamedTuple):
    """From one world to another: their names, and what a trace of the first predicts."""

    before: str
    after: str
    predict: Callable[[Any], Foreseen]


class Kind(NamedTuple):
    """The questions of a kind, and the worlds that they are about: a program gives a function for
    each, which returns the trace of a run."""

    worlds: Callable[[Callable[[], Any]], dict[str, Callable[[], Any]]]
    questions: tuple[Question, ...]


def _replayed(**change: Any) -> Callable[[Any], Foreseen]:
    def predict(trace: Any) -> Foreseen:
        predicted = trace.replay(**change)
        return predicted.seconds, predicted.prediction

    return predict


def _without_waits(trace: Any) -> Foreseen:
    lines = {wait.where for wait in trace.waits if wait.kind != "waitall"}
    return _replayed(without_wait_at=[line.partition(": ")[0] for line in lines])(trace)


def _twice_as_fast(trace: Any) -> Foreseen:
    recording = Recording(trace)
    run_ns = [
        ns / 2 if place.startswith("gpu") and place.endswith(")") else ns
        for ns, place in zip(recording.recorded.run_ns, recording.recorded.places, strict=True)
    ]
    run, prediction = recording.foresee(replace(recording.recorded, run_ns=run_ns))
    return run.ended / 1e9, prediction


def _on_workers(make: Callable[[], Run]) -> dict[str, Callable[[], Any]]:
    run = make()
    return {f"{n} workers": lambda n=n: _record(lambda: run(()), workers=n) for n in (1, 2)}


def _with_waits(make: Callable[[], Callable[[bool], None]]) -> dict[str, Callable[[], Any]]:
    run = make()
    return {
        name: lambda waits=waits: _record(lambda: run(waits))
        for name, waits in (("waits", True), ("no waits", False))
    }


def _on_devices(make: Callable[[], Run]) -> dict[str, Callable[[], Any]]:
    worlds = {"2 devices": [gpu(0), gpu(1)], "1 devices": [gpu(0), gpu(0)]}
    return {name: lambda on=on: _on_virtual(make, on) for name, on in worlds.items()}


def _over_links(make: Callable[[], Run]) -> dict[str, Callable[[], Any]]:
    return {
        f"{rate} GB/s": lambda rate=rate: _on_virtual(make, link_gb_s=rate)
        for rate in (LINK_GB_S, LINK_GB_S / 2)
    }


def _at_speeds(make: Callable[[], Run]) -> dict[str, Callable[[], Any]]:
    return {
        f"{rate} GFLOP/s": lambda rate=rate: _on_virtual(make, gflops=rate)
        for rate in (GFLOPS, GFLOPS * 2)
    }


KINDS = {
    "workers": Kind(
        _on_workers,
        (
            Question("1 workers", "2 workers", _replayed(workers=2)),
            Question("2 workers", "1 workers", _replayed(workers=1)),
        ),
    ),
    "devices": Kind(
        _on_devices,
        (Question("2 devices", "1 devices", _replayed(devices=1)),),
    ),
    "waits": Kind(
        _with_waits,
        (Question("waits", "no waits", _without_waits),),
    ),
    "links": Kind(
        _over_links,
        (
            Question(
                f"{LINK_GB_S} GB/s", f"{LINK_GB_S / 2} GB/s", _replayed(link_gb_s=LINK_GB_S / 2)
            ),
        ),
    ),
    "speeds": Kind(
        _at_speeds,
        (Question(f"{GFLOPS} GFLOP/s", f"{GFLOPS * 2} GFLOP/s", _twice_as_fast),),
    ),
}


class Answer(NamedTuple):
    """A prediction and the truth, in seconds: of a program, from one world to another; the
    predicted run and the band; the medians of the runs there and here; and by which factor the
    middle half of the runs there differ."""

    program: str
    before: str
    after: str
    predicted_s: float
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
    def error(self) -> float:
        """Of the predicted run, as a share of the truth."""
        return self.predicted_s / self.truth_s - 1

    @property
    def width(self) -> float:
        """How many times the low end the high end is."""
        return self.high_s / self.low_s

    def __str__(self) -> str:
        said = "right" if self.right else "WRONG"
        return (
            f"{said} {self.program:22} {self.before:>11} -> {self.after:11} recorded "
            f"{1e3 * self.recorded_s:6.1f} ms, predicted {1e3 * self.predicted_s:6.1f} ms, "
            f"{1e3 * self.low_s:6.1f} to {1e3 * self.high_s:6.1f} (x {self.width:.2f}), measured "
            f"{1e3 * self.truth_s:6.1f} ms (x {self.spread:.2f}), {self.error:+.0%}"
        )


Traces = dict[str, list[Any]]


def _record(run: Callable[[], None], workers: int | None = None) -> Any:
    options = {"workers": workers} if workers else {}
    with engine.use("threaded", **options), profile() as trace:
        run()
    return trace


def _on_virtual(
    make: Callable[[], Run], on: Sequence[Context] = (gpu(0), gpu(1)), **rates: float
) -> Any:
    with virtual_gpus(2, **rates):
        run = make()
        run(on)  # warm
        return _record(lambda: run(on))


def _in_turns(worlds: dict[str, Callable[[], Any]], rounds: int) -> Traces:
    """Traces in each world, shortest first."""
    for record in worlds.values():
        record(), record()  # warm
    traces: Traces = {world: [] for world in worlds}
    end_s = time.monotonic() + PATIENCE_S
    for _ in range(rounds):
        for world, record in worlds.items():
            traces[world].append(_undisturbed(record, end_s))
    return {world: sorted(each, key=attrgetter("seconds")) for world, each in traces.items()}


def _undisturbed(record: Callable[[], Any], end_s: float) -> Any:
    """The first trace during which other programs left the cores alone; from `end_s` on, any."""
    while True:
        wait_for_calm(end_s - time.monotonic())
        begin_s, before_s = time.monotonic(), others_s()
        trace = record()
        now_s = time.monotonic()
        if others_s() - before_s <= 0.01 + OTHERS_SHARE * (now_s - begin_s) or now_s > end_s:
            return trace


def _answer(name: str, question: Question, traces: Traces) -> Answer:
    before, after = traces[question.before], traces[question.after]
    trace = before[len(before) // 2]
    predicted_s, band = question.predict(trace)
    runs_s = [trace.seconds for trace in after]
    return Answer(name, question.before, question.after, predicted_s, band.low_ns / 1e9,
                  band.high_ns / 1e9, median(runs_s), trace.seconds,
                  runs_s[-1 - len(runs_s) // 4] / runs_s[len(runs_s) // 4])  # fmt: skip


def answers(kind: str, rounds: int, kept: Kept | None) -> Iterator[Answer]:
    """The answers to the questions of a kind, about all its programs."""
    of = KINDS[kind]
    for name, make in PROGRAMS[kind].items():
        traces = kept.traces(name) if kept is not None else {}
        if not traces:
            traces = _in_turns(of.worlds(make), rounds)
            if kept is not None:
                kept.keep(name, traces)
        for question in of.questions:
            yield _answer(name, question, traces)


class Kept:
    """Traces in a folder: `PROGRAM/WORLD-NUMBER.json.gz`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def keep(self, name: str, traces: Traces) -> None:
        """Write the traces of a program."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        for world, each in traces.items():
            for number, trace in enumerate(each):
                file = f"{world.replace('/', ' per ')}-{number}.json.gz"
                trace.save(self.folder / name / file)

    def traces(self, name: str) -> Traces:
        """The kept traces of a program, shortest first; none if it did not run yet."""
        found: Traces = defaultdict(list)
        for path in (self.folder / name).glob("*.json.gz"):
            world = path.name.rpartition("-")[0].replace(" per ", "/")
            found[world].append(profiler.load(path))
        return {world: sorted(each, key=attrgetter("seconds")) for world, each in found.items()}


def others_s() -> float:
    """Seconds for which other programs have computed so far."""
    every, mine = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(every) - every.idle - getattr(every, "iowait", 0.0) - getattr(every, "guest", 0.0)
    return busy - mine.user - mine.system


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
    parser.add_argument("--kind", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--traces", type=Path, help="a folder: keep the traces, or ask those kept")
    asked = parser.parse_args(arguments)
    kept = Kept(asked.traces) if asked.traces else None
    rows = []
    for kind in asked.kind:
        found = defaultdict(list)
        for answer in answers(kind, asked.rounds, kept):
            found[f"{answer.before} -> {answer.after}"].append(answer)
            print(answer, flush=True)
        rows += [_row(question, each) for question, each in found.items()]
    print("| programs | in the band | error, median | width, median | spread of the truth |", *rows,
          sep="\n")  # fmt: skip


def _row(said: str, found: list[Answer]) -> str:
    right = sum(answer.right for answer in found)
    error, width, spread = (
        median(column)
        for column in zip(*((abs(a.error), a.width, a.spread) for a in found), strict=True)
    )
    return f"| {said} | {right} of {len(found)} | {error:.1%} | {width:.2f} | {spread:.2f} |"


if __name__ == "__main__":
    main()
