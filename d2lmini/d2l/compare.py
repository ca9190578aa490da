"""Which program is faster? Fair rounds, and a verdict that says no more than was measured.

>>> from d2lmini import d2l
>>> verdict = d2l.compare({"long": lambda: sum(range(9999)), "short": lambda: sum(range(9))})
>>> verdict.faster
True

`print(verdict)` says it in a sentence such as

    verdict: asynchronous is 1.9 times faster than synchronous (1.8-2.0, 10
             rounds, 2 BLAS threads)

or, if no difference is measurable, with the reason as far as it was measured:

    verdict: no measurable difference between a and b (0.97-1.02, 10 rounds,
             2 BLAS threads): both wait at train.py:12 in every step

`print(verdict.table)` shows where the time goes: in the call, in its waits, in draining the work in
flight after it returned. To find out, each candidate runs once more after the timed rounds, under
`profile()`; the timed rounds run undisturbed.

Common measurement errors, and how each is avoided:

- the first run pays for memory, caches, thread pools       -> every candidate is warmed up
- the clock stops while work is queued                      -> the engine is idle at start and stop
- the machine slows down while the second candidate runs    -> candidates take turns, round by round
- the second candidate finds warm caches (or a hot chip)    -> the order rotates
- a function is too short for the clock                     -> it is repeated inside a round
- one lucky run                                             -> median and interval of all rounds
- too few rounds to tell                                    -> more, while the answer is open
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from d2lmini import engine
from d2lmini.d2l import load
from d2lmini.d2l.explain import Observed, summarize
from d2lmini.d2l.verdict import MIN_ROUNDS, Verdict
from d2lmini.device import blas
from d2lmini.profiler import profile

Function = Callable[[], object]

#: How many times the rounds may become while the answer is open, and the seconds that this may
#: take. `verdict.MISSED` allows for so many looks at the answer.
MOST_TIMES, PATIENCE_S = 4, 5.0

#: By name, functions of each verdict and its candidates; the lines that they return stand below the
#: verdict. So a course can say what was found elsewhere, and a test can keep what a text claims.
remarks: dict[str, Callable[[Verdict, Mapping[str, Function]], str]] = {}


def compare(
    candidates: Mapping[str, Function] | Function,
    *others: Function,
    rounds: int = 10,
    min_time: float = 0.01,
    margin: float = 0.05,
    explain: bool = True,
    claim: str | None = None,
) -> Verdict:
    """Time the candidates against each other; the first is the baseline.

    candidates: names and functions without arguments, or the functions themselves, as in
    `compare(f, g)`, which then have their own names. rounds: how often each is timed; fewer than
    five allow no verdict, ten tolerate one disturbed round. While they leave open whether there is
    a difference, twice and then four times as many, if that takes less than five seconds in all.
    min_time: seconds a round lasts at least; shorter functions are called several times in a row,
    without a wait between the calls, and the time of one call is the total over their number.
    margin: a difference smaller than this fraction counts as none. explain: run each once more
    under a trace, to separate its waits from its other time and to find why there is no difference.

    claim: what the surrounding text says, for instance "asynchronous is faster"; kept in
    `verdict.claim` for those who ask whether it is true here (`make claims`).

    ValueError for fewer than two candidates, at once. An error in a candidate, also a delayed one
    from the engine, ends the comparison: failed work is not timed.
    Cost: about len(candidates) * (rounds + 3) * max(min_time, one call), and the further rounds.
    """
    if not isinstance(candidates, Mapping):
        candidates = _by_name([candidates, *others])
    elif others:
        raise ValueError("compare: give a dictionary or functions, not both")
    _check(candidates, rounds)
    for function in candidates.values():  # a warm-up
        function()
    repeats = {name: _repeats(function, min_time) for name, function in candidates.items()}

    laps: dict[str, list[Lap]] = {name: [] for name in candidates}
    names = list(candidates)
    begin, most = load.snapshot(), MOST_TIMES * rounds
    while True:
        for _ in range(rounds):
            for name in names:
                laps[name].append(_measure(candidates[name], repeats[name]))
            names.append(names.pop(0))
        now = load.snapshot()
        rounds = len(laps[names[0]])
        elsewhere = load.cores_elsewhere(begin, now)
        more = {"margin": margin, "cores": begin.cores, "elsewhere": elsewhere}
        slow = 2 * (now.now_s - begin.now_s) > PATIENCE_S
        if slow or rounds == most or rounds < MIN_ROUNDS:
            break
        if not _verdict_on(laps, repeats, {}, **more).is_open:
            break

    seen = {n: _observe(candidates[n], repeats[n]) for n in candidates} if explain else {}
    verdict = _verdict_on(laps, repeats, seen, claim=claim, **more)
    said = [remark(verdict, candidates) for remark in remarks.values()]
    return replace(verdict, remark="\n".join(filter(None, said)))


class Lap(NamedTuple):
    """A timed round of one candidate: seconds until its calls had returned, seconds more until all
    their work was done, and the processor time of both."""

    returned_s: float
    drain_s: float
    cpu_s: float


def _verdict_on(
    laps: Mapping[str, list[Lap]],
    repeats: Mapping[str, int],
    seen: dict[str, Observed],
    **more: Any,
) -> Verdict:
    """The laps as times of one call. The observed round gives the fraction of the call's time spent
    waiting; the timed, undisturbed rounds give the length. (Operations of a few microseconds take
    longer under a trace, so waits between them are underestimated.)"""

    def of_one_call(part: Callable[[Lap, float], float]) -> dict[str, list[float]]:
        shares = {name: row.wait_s / max(row.returned_s, 1e-9) for name, row in seen.items()}
        return {
            name: [part(lap, shares.get(name, 0.0)) / repeats[name] for lap in rounds]
            for name, rounds in laps.items()
        }

    return Verdict(
        of_one_call(lambda lap, share: lap.returned_s + lap.drain_s),
        blas_threads=_blas_threads(),
        issue=of_one_call(lambda lap, share: lap.returned_s * (1 - share)),
        drain=of_one_call(lambda lap, share: lap.drain_s),
        wait=of_one_call(lambda lap, share: lap.returned_s * share) if seen else {},
        cpu=of_one_call(lambda lap, share: lap.cpu_s),
        observed=seen,
        **more,
    )


def _by_name(functions: Sequence[Function]) -> dict[str, Function]:
    """Functions by their own names, which have to differ."""
    named = {getattr(f, "__name__", type(f).__name__): f for f in functions}
    if len(named) < len(functions) or "<lambda>" in named:
        raise ValueError('compare: the functions need names: compare({"a": f, "b": g})')
    return named


def _check(candidates: Mapping[str, Function], rounds: int) -> None:
    if len(candidates) < 2:
        raise ValueError(f"compare: need two or more candidates, got {list(candidates)}")
    for name, function in candidates.items():
        if not callable(function):
            raise TypeError(
                f"compare: {name} must be a function, got {type(function).__name__}; "
                "write f, not f()"
            )
    if rounds < 1:
        raise ValueError(f"compare: need rounds >= 1, got {rounds}")


def _measure(function: Function, repeats: int) -> Lap:
    """Time `repeats` calls in a row, from an idle engine to an idle engine."""
    engine.waitall()
    cpu = time.process_time()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    returned = time.perf_counter()
    engine.waitall()
    return Lap(returned - start, time.perf_counter() - returned, time.process_time() - cpu)


def _repeats(function: Function, min_time: float) -> int:
    """How many calls, a power of two, fill min_time. (Doubling costs two such rounds at most.)"""
    repeats = 1
    while sum(_measure(function, repeats)[:2]) < min_time:
        repeats *= 2
    return repeats


def _observe(function: Function, repeats: int) -> Observed:
    """A round like the timed ones, under a trace."""
    marks = []
    with profile() as trace:
        begin = time.perf_counter()
        for _ in range(repeats):
            function()
            marks.append(len(trace.operations))
        returned = time.perf_counter()
    return summarize(trace, begin, returned, marks)


def _blas_threads() -> int | None:
    """Threads a matrix product may use now; None where the BLAS cannot be asked (as Apple's)."""
    import threadpoolctl

    if not any(p["user_api"] == "blas" for p in threadpoolctl.threadpool_info()):
        return None
    # The BLAS that this library calls: another package may have loaded its own.
    return blas.threads()
