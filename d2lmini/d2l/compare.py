"""Which program is faster? A fair race, and a verdict that does not say more than was measured.

>>> from d2lmini import d2l
>>> verdict = d2l.compare({"long": lambda: sum(range(9999)), "short": lambda: sum(range(9))})
>>> verdict.faster
True

`print(verdict)` says it in a sentence such as

    verdict: asynchronous is 1.9 times faster than synchronous (1.8-2.0, 10 rounds, 2 BLAS threads)

The usual ways to fool oneself, and what is done here about each:

- the first run pays for memory, caches, thread pools       -> every candidate is warmed up
- the clock stops while work is queued                      -> the engine is idle at start and stop
- the machine slows down while the second candidate runs    -> candidates take turns, round by round
- whoever runs second finds warm caches (or a hot chip)     -> the order rotates
- a function is shorter than the clock can tell             -> it is repeated inside a round
- one lucky run                                             -> median and interval of all rounds
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from d2lmini import engine
from d2lmini.d2l import claims
from d2lmini.d2l.verdict import Verdict
from d2lmini.device import blas

Function = Callable[[], object]


def compare(
    candidates: Mapping[str, Function],
    *,
    rounds: int = 10,
    warmup: int = 1,
    min_time: float = 0.01,
    margin: float = 0.05,
    claim: str | None = None,
    holds: Callable[[Verdict], bool] | None = None,
) -> Verdict:
    """Time the candidates against each other; the first is the baseline.

    candidates: names and functions without arguments. rounds: how often each is timed; fewer than
    five allow no verdict, ten shrug off one disturbed round. warmup: untimed calls of each before.
    min_time: seconds a round lasts at least; shorter functions are called several times in a row,
    without a wait between the calls, and the time of one call is the total over their number.
    margin: a difference smaller than this fraction is not called one.

    claim: what the text around this call says, for instance "asynchronous is faster". Whether it
    is true is read from the verdict, by the small grammar of `claims.py` or by `holds(verdict)`,
    and kept in `verdict.holds`; nothing is raised when it is false, the verdict's sentence simply
    says what was found. `make claims` collects the claims of all chapters.

    ValueError for fewer than two candidates or a claim that cannot be read, at once. An error in a
    candidate, also one that comes late from the engine, ends the race: failed work is not timed.
    Cost: about len(candidates) * (rounds + 2) * max(min_time, one call).
    """
    _check(candidates, rounds, warmup)
    if claim is not None and holds is None:
        holds = claims.parse(claim, candidates)

    for function in candidates.values():
        for _ in range(warmup):
            function()
    repeats = {name: _repeats(function, min_time) for name, function in candidates.items()}

    issue: dict[str, list[float]] = {name: [] for name in candidates}
    drain: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for _ in range(rounds):
        for name in names:
            issued_s, drained_s = _measure(candidates[name], repeats[name])
            issue[name].append(issued_s / repeats[name])
            drain[name].append(drained_s / repeats[name])
        names.append(names.pop(0))

    times = {name: [i + d for i, d in zip(issue[name], drain[name], strict=True)] for name in issue}
    verdict = Verdict(times, margin, _blas_threads(), issue, drain)
    if claim is not None and holds is not None:
        verdict = replace(verdict, claim=claim, holds=bool(holds(verdict)))
        claims.record(verdict)
    return verdict


def _check(candidates: Mapping[str, Function], rounds: int, warmup: int) -> None:
    if len(candidates) < 2:
        raise ValueError(f"compare: need two or more candidates, got {list(candidates)}")
    for name, function in candidates.items():
        if not callable(function):
            raise TypeError(
                f"compare: {name} must be a function without arguments, got "
                f"{type(function).__name__}; did you write f() for f, or forget a lambda?"
            )
    if rounds < 1 or warmup < 0:
        raise ValueError(
            f"compare: need rounds >= 1 and warmup >= 0, got rounds={rounds}, warmup={warmup}"
        )


def _measure(function: Function, repeats: int) -> tuple[float, float]:
    """Seconds until all calls have returned, and seconds more until all their work is done."""
    engine.waitall()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    issued = time.perf_counter()
    engine.waitall()
    return issued - start, time.perf_counter() - issued


def _repeats(function: Function, min_time: float) -> int:
    """How many calls, a power of two, fill min_time. (Doubling costs two such rounds at most.)"""
    repeats = 1
    while sum(_measure(function, repeats)) < min_time:
        repeats *= 2
    return repeats


def _blas_threads() -> int | None:
    """Threads a matrix product may use now; None where the BLAS cannot be asked (as Apple's)."""
    import threadpoolctl

    if not any(p["user_api"] == "blas" for p in threadpoolctl.threadpool_info()):
        return None
    # Of the BLAS that this library calls: another package may have brought one of its own.
    return blas.threads()
