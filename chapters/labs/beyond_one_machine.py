"""For "Beyond one machine": jobs, sums played message by message, a fit, and two checks.

The programs that the chapter writes into files import from here too: `launch` lets them.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from d2lmini import autograd, engine, gluon, nd
from d2lmini.d2l import Picture
from d2lmini.draw.timeline import plot_of, timeline
from labs.grading import CheckFailed, CheckPassed

#: What a job of the chapter leaves for the notebook.
FOUND = Path("found.json")

# -- jobs ------------------------------------------------------------------------------------------


def new_folder() -> None:
    """Go to an empty folder, the same one for the whole session; say if no job can run."""
    if not Path.cwd().name.startswith("jobs-"):
        os.chdir(tempfile.mkdtemp(prefix="jobs-"))
    if not has_mpi():
        print("jobs need mpi4py and an MPI: pip install 'd2lmini[dist]', then restart the kernel")


def has_mpi() -> bool:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return bool(importlib.util.find_spec("mpi4py")) and bool(shutil.which("mpiexec", path=places))


class Job(NamedTuple):
    """status  the exit status; None: there is no MPI, nothing was run
    lines   what the processes printed, sorted
    found   what rank 0 saved; None if it saved nothing"""

    status: int | None
    lines: list[str]
    found: Any = None


def launch(n: int, file: str, argument: Any = None, gb_s: float = 0, latency_s: float = 0) -> Job:
    """Run a program as a job of n processes, over a link of this rate and latency."""
    if not has_mpi():
        print("nothing was run: there is no MPI")
        return Job(None, [])
    FOUND.unlink(missing_ok=True)
    link = {"D2LMINI_LINK_GB_S": str(gb_s), "D2LMINI_LINK_LATENCY_S": str(latency_s)}
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", "launch", "-n", str(n), file, json.dumps(argument)],
        capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(link if gb_s else {})},
    )  # fmt: skip
    lines = sorted((done.stdout + done.stderr).splitlines())
    return Job(done.returncode, lines, json.loads(FOUND.read_text()) if FOUND.exists() else None)


# -- what the programs of the jobs import ----------------------------------------------------------


def argument() -> Any:
    """What `launch` was given for the program."""
    return json.loads(sys.argv[1])


def save(kv: Any, found: Any) -> None:
    """Leave what rank 0 has found for the notebook."""
    if kv.rank == 0:
        FOUND.write_text(json.dumps(found))


def ms_of(kv: Any, run: Callable[..., object], *given: Any, rounds: int = 5) -> float:
    """The median time of a call, in which all processes take part, until its work is done."""
    found = []
    for _ in range(rounds):
        kv.barrier()
        begin_s = time.perf_counter()
        run(*given)
        nd.waitall()
        found.append(1e3 * (time.perf_counter() - begin_s))
    return float(np.median(found))


def draw_examples(count: int, part: slice) -> tuple[nd.NDArray, nd.NDArray]:
    """Part of so many examples, which are the same in each process, and their labels."""
    X = np.random.RandomState(0).normal(size=(count, 20)).astype("float32")
    y = (X[:, :1] > 0).astype("float32")
    return nd.array(X[part]), nd.array(y[part])


def make_net(units: int = 32) -> gluon.nn.Sequential:
    """A small net with initial weights."""
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(units, activation="tanh", in_units=20))
    net.add(gluon.nn.Dense(1, in_units=units))
    net.initialize("xavier")
    return net


def train(net: Any, trainer: gluon.Trainer, X: nd.NDArray, y: nd.NDArray, steps: int) -> None:
    """Train with these examples; the size that `trainer.step` gets is theirs."""
    loss = gluon.loss.SigmoidBCELoss()
    for _ in range(steps):
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))


def save_weights(net: Any, name: str) -> None:
    """Write all weights as one array to `name`.npy."""
    weights = [p.data().asnumpy().reshape(-1) for p in net.collect_params().values()]
    np.save(name, np.concatenate(weights))


def backward(gradients: Sequence[nd.NDArray], ms: float = 4) -> None:
    """Make the gradients one by one, the last one first, each in some ms of sleep: a device that
    computes while the cores of this machine are free. Does not wait."""
    activation = nd.zeros((1,))
    for gradient in reversed(gradients):
        engine.push(lambda: time.sleep(ms / 1000), writes=[activation, gradient])


# -- sums, message by message ----------------------------------------------------------------------


class Counts(NamedTuple):
    """rounds    of messages, one round after the other
    passes    arrays that pass the busiest process in all rounds, in or out
    messages  most messages that a process sends or receives in one round"""

    rounds: int
    passes: float
    messages: int

    def __str__(self) -> str:
        return f"{self.passes:6.4g} N in {self.rounds:3} rounds, up to {self.messages:2} messages"


def count(schedule: list, n: int) -> Counts:
    """Play a schedule of messages; it has to give each of the n processes the sum."""
    assert (play(schedule, n) == 1).all()
    pieces, messages = 0, 0
    for row in schedule:
        sizes: list[Counter] = [Counter(), Counter()]
        numbers: list[Counter] = [Counter(), Counter()]
        for source, target, some, _ in row:
            for end, rank in enumerate((source, target)):
                sizes[end][rank] += len(some)
                numbers[end][rank] += 1
        pieces += max(max(size.values()) for size in sizes)
        messages = max(messages, *(max(number.values()) for number in numbers))
    return Counts(len(schedule), pieces / n, messages)


def play(schedule: list, n: int) -> np.ndarray:
    """How often each process's part is in each piece of each process: (process, piece, part)."""
    have = np.zeros((n, n, n), dtype=int)
    have[range(n), :, range(n)] = 1
    for row in schedule:
        before = have.copy()
        for source, target, pieces, add in row:
            places = list(pieces)
            have[target, places] = before[source, places] + (have[target, places] if add else 0)
    return have


# -- the cost of a sum -----------------------------------------------------------------------------


class Cost(NamedTuple):
    """A sum of some kB takes `alpha` ms, and `beta` ms for each kB."""

    alpha: float
    beta: float

    def ms(self, kb: Any) -> Any:
        return self.alpha + self.beta * kb

    def agrees_with(self, latency_ms: float, ms_a_kb: float) -> bool:
        """Is this about what three messages in a row cost, and the program's own part?"""
        return 3 <= self.alpha / latency_ms < 6 and 0.8 < self.beta / ms_a_kb < 1.3

    def draw(self, sums: Iterable[tuple[float, float]] | None) -> Picture:
        """Measured sums as dots, the fitted line."""
        figure, axes = plot_of(2.8, xlabel="kB", ylabel="ms", xscale="log", yscale="log")
        line = np.geomspace(4, 256)
        axes.plot(line, self.ms(line))
        for kb, ms in sums or ():
            axes.plot(kb, ms, "o", color="#f0a04b")
        return Picture(figure, "time of a sum over its size, measured and fitted")

    def __str__(self) -> str:
        return f"{self.alpha:.2f} ms, and {self.beta:.3f} ms for each kB"


def fit(sums: Iterable[tuple[float, float]] | None) -> Cost:
    """The line through measured sums (kB, ms) with the least relative errors; without measured
    sums that of a link of 1 ms and 0.01 GB/s, which three messages pass."""
    if not sums:
        return Cost(3.0, 0.1)
    kb, ms = np.array(sums).T
    beta, alpha = np.polyfit(kb, ms, 1, w=1 / ms)
    return Cost(max(alpha, 0.0), max(beta, 1e-6))


def draw(plans: dict[str, list], exist_ms: Sequence[float]) -> Picture:
    """When backward makes the gradients, and when the buckets of each plan travel."""
    ends = sorted(exist_ms)
    lanes = [("backward", [("compute", a / 1e3, b / 1e3) for a, b in zip([0, *ends], ends)])]
    for name, spans in plans.items():
        lanes.append((name, [("copy", a / 1e3, b / 1e3) for a, b in spans]))
    return timeline(lanes, unit="ms")


# -- exercise 7 ------------------------------------------------------------------------------------


def check_plan(answer: Callable[..., Any]) -> None:
    """A plan gives the earliest end, for a given net and random ones."""
    for exist_ms, kb, alpha, beta in draw_steps():
        plan = read_plan(answer(list(exist_ms), list(kb), alpha, beta), len(kb))
        found, best = end_ms(plan, exist_ms, kb, alpha, beta), best_ms(exist_ms, kb, alpha, beta)
        if found > best * (1 + 1e-9):
            hint, advice = improve(plan, found, (exist_ms, kb, alpha, beta))
            raise CheckFailed(
                hint,
                f"gradients of {kb} kB that exist after {exist_ms} ms; alpha {alpha} ms, beta "
                f"{beta} ms for each kB: {plan} ends after {found:.1f} ms, {best:.1f} ms are "
                f"possible. {advice}",
            )
    print(CheckPassed("no plan ends earlier, for a given net and seven random ones"))


def draw_steps() -> Iterable[tuple[list[float], list[int], float, float]]:
    """When gradients exist (ms), their kB, alpha (ms) and beta (ms for each kB)."""
    yield [28, 24, 20, 16, 12, 8, 4], [90, 10, 4, 40, 26, 3, 2], 6.0, 0.1
    for _ in range(7):
        n = random.randint(5, 8)
        ready, now = [], 0
        for _ in range(n):
            now += random.randint(1, 6)
            ready.append(now)
        kb = [random.randint(2, 90) for _ in range(n)]
        yield ready[::-1], kb, random.choice([0.5, 2.0, 5.0, 9.0]), random.choice([0.02, 0.1])


def read_plan(plan: Any, n: int) -> list[list[int]]:
    """The plan as lists, without empty buckets; CheckFailed unless each gradient travels once."""
    if plan is None:
        raise CheckFailed("none", "plan returns None: return buckets, such as [[2, 1], [0]]")
    try:
        buckets = [[int(i) for i in islice(bucket, 1000)] for bucket in islice(plan, 1000)]
    except (TypeError, ValueError):
        text = f"a plan is a list of buckets, a bucket a list of positions; got {plan!r:.80}"
        raise CheckFailed("form", text) from None
    places = [i for bucket in buckets for i in bucket]
    if left := sorted(set(range(n)) - set(places)):
        raise CheckFailed("left", f"gradients {left} of {n} never travel: put each in a bucket")
    if sorted(places) != list(range(n)):
        raise CheckFailed("twice", f"each of {n} gradients travels once, got {buckets}")
    return [bucket for bucket in buckets if bucket]


def end_ms(plan: list, exist_ms: Sequence, kb: Sequence, alpha: float, beta: float) -> float:
    """When the last bucket has arrived."""
    free_ms = 0.0
    for bucket in plan:
        begin_ms = max(free_ms, *(exist_ms[i] for i in bucket))
        free_ms = begin_ms + alpha + beta * sum(kb[i] for i in bucket)
    return free_ms


def best_ms(exist_ms: Sequence, kb: Sequence, alpha: float, beta: float) -> float:
    """The earliest end of all plans."""
    n = len(kb)
    best = [0.0]  # the earliest end of the last 0, 1, 2, ... gradients
    for end in range(1, n + 1):
        ends = (
            max(best[begin], exist_ms[n - end]) + alpha + beta * sum(kb[n - end : n - begin])
            for begin in range(end)
        )
        best.append(min(ends))
    return best[-1]


def improve(plan: list[list[int]], found: float, step: tuple) -> tuple[str, str]:
    """A hint and its sentence: which small change makes the plan end earlier?"""
    flat = [i for bucket in plan for i in bucket]
    order = sorted(flat, reverse=True)
    if [sorted(bucket, reverse=True) for bucket in plan] != deal(order, map(len, plan)):
        return "order", "Gradients exist from the last to the first: let them travel in this order"
    changes = []
    for at in range(len(plan) - 1):
        one, other = plan[at : at + 2]
        changes.append(("merge", plan[:at] + [one + other] + plan[at + 2 :], f"{one} and {other}"))
    for at, bucket in enumerate(plan):
        for cut in range(1, len(bucket)):
            parts = [bucket[:cut], bucket[cut:]]
            changes.append(("split", plan[:at] + parts + plan[at + 1 :], f"{parts[0]}"))
    hint, changed, what = min(changes, key=lambda change: end_ms(change[1], *step))
    ms = end_ms(changed, *step)
    if ms >= found:
        return "late", "Merging or splitting one bucket is not enough: try all cuts"
    if hint == "merge":
        return hint, f"Each bucket pays alpha: {what} in one bucket would end after {ms:.1f} ms"
    return hint, f"A bucket waits for its last gradient: {what} before the rest: {ms:.1f} ms"


def deal(order: list[int], sizes: Iterable[int]) -> list[list[int]]:
    """The list cut into buckets of these sizes."""
    rest = iter(order)
    return [list(islice(rest, size)) for size in sizes]


# -- exercise 8 ------------------------------------------------------------------------------------


def check_halving(answer: Callable[[int], Any]) -> None:
    """Each process gets each sum, in 2 log2 n rounds of one message each, with 2 (n - 1) pieces."""
    sizes = [4, 2, 8, random.choice([16, 32])]
    for n in sizes:
        schedule = read_schedule(answer(n), n)
        have = play(schedule, n)
        if not (have == 1).all():
            raise CheckFailed(*why_no_sum(have, schedule, n))
        rounds = 2 * int(math.log2(n))
        if len(schedule) != rounds:
            text = f"{n} processes: {len(schedule)} rounds, 2 log2 n = {rounds} are asked"
            raise CheckFailed("rounds", f"{text}. Exchange half of what is left in each round")
        sent = Counter[int]()
        for source, _, pieces, _ in (message for row in schedule for message in row):
            sent[source] += len(pieces)
        if max(sent.values()) > 2 * (n - 1):
            text = f"{n} processes: one sends {max(sent.values())} pieces, {2 * (n - 1)} are enough"
            raise CheckFailed("bytes", f"{text}. Send only what the partner keeps")
    print(CheckPassed(f"{', '.join(map(str, sizes))} processes: each has each sum"))


def read_schedule(schedule: Any, n: int) -> list:
    """The schedule as lists; CheckFailed unless each process sends and receives at most one message
    in a round."""
    if schedule is None:
        raise CheckFailed("none", "halving(n) returns None: return a list of rounds")
    rounds = []
    try:
        for row in islice(schedule, 1000):
            rounds.append([])
            for source, target, pieces, add in islice(row, 1000):
                some = [int(p) for p in islice(pieces, 1000)]
                rounds[-1].append((int(source), int(target), some, bool(add)))
    except (TypeError, ValueError):
        text = "a schedule is a list of rounds, a round a list of (source, target, pieces, add)"
        raise CheckFailed("form", f"{text}; got {schedule!r:.80}") from None
    for number, row in enumerate(rounds):
        for source, target, pieces, _ in row:
            if not {source, target, *pieces} <= set(range(n)) or source == target:
                text = f"{n} processes, round {number}: a message from {source} to {target} with"
                raise CheckFailed("range", f"{text} pieces {pieces}: ranks and pieces are 0 to n-1")
        for what, end in (("sends", 0), ("receives", 1)):
            most = Counter(message[end] for message in row).most_common(1)
            if most and most[0][1] > 1:
                text = f"{n} processes, round {number}: rank {most[0][0]} {what} {most[0][1]}"
                raise CheckFailed("busy", f"{text} messages, one is allowed. Let pairs exchange")
    return rounds


def why_no_sum(have: np.ndarray, schedule: list, n: int) -> tuple[str, str]:
    """A hint and its text: what is wrong with the first piece that is no sum?"""
    rank, piece, part = (int(place[0]) for place in np.nonzero(have != 1))
    where = f"{n} processes: at the end piece {piece} of rank {rank}"
    if not any(add for row in schedule for *_, add in row):
        return "add", f"{where} is no sum: no message is added"
    if have[rank, piece].max() > 1:
        part = int(have[rank, piece].argmax())
        return "counted", f"{where} has the part of rank {part} more than once: add sums only once"
    return "missing", f"{where} lacks the part of rank {part}: follow this piece round by round"
