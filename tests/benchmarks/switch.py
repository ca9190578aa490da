"""Rule 11, waiting for the interpreter: what a loop that only pushes costs the workers.

Threads share one interpreter lock. NumPy lets go of it inside a call; to go on afterwards, a worker
takes it back from the thread that issues work, which gives it up only every 5 ms
(`sys.getswitchinterval()`). Three remedies are measured beside doing nothing: a shorter interval,
and yielding in the push (`time.sleep(0)`), always or only while little is queued.

    python tests/benchmarks/switch.py

For each it prints: how long a push takes; how long a worker waits after each NumPy call (the time
of the call while the front end pushes, less its time alone); how many such calls a worker ends per
second meanwhile; and the time of a whole program (push 2000 operations, then wait).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from d2lmini import engine

SECONDS = 0.4


def yield_never() -> None:
    """What the engine does."""


def yield_always() -> None:
    """Offer the interpreter after every push."""
    time.sleep(0)


def yield_when_short() -> None:
    """Offer it while a worker runs and fewer than four tasks are queued."""
    current = engine.current
    if current.running and len(current.pending) < 4:
        time.sleep(0)


VARIANTS: dict[str, tuple[float, Callable[[], None]]] = {
    "5 ms, as it is": (5e-3, yield_never),
    "1 ms": (1e-3, yield_never),
    "0.2 ms": (0.2e-3, yield_never),
    "yield if queue is short": (5e-3, yield_when_short),
    "yield at every push": (5e-3, yield_always),
}


def operation(n: int) -> Callable[[], None]:
    """A NumPy call on n float32 that lets go of the interpreter."""
    x, y = np.ones(n, np.float32), np.empty(n, np.float32)
    return lambda: np.add(x, 1, out=y)  # type: ignore[return-value]


def alone_us(n: int) -> float:
    """Its time when nobody else runs, microseconds."""
    call, times = operation(n), []
    for _ in range(50):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def beside_a_pushing_loop(n: int, after_push: Callable[[], None]) -> tuple[float, float, float]:
    """(push in us, time of a call on the worker in us, calls per second), while the front end only
    pushes. The worker's calls are one chain; what is pushed meanwhile waits behind it."""
    call, times = operation(n), []
    chain, stop = engine.new_var(), [False]

    def step() -> None:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
        if not stop[0]:
            engine.push(step, writes=[chain])

    engine.push(step, writes=[chain])
    pushes, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        engine.push(int, reads=[chain], writes=[engine.new_var()])
        after_push()
        pushes += 1
        if not pushes & 1023:
            engine.cancel_pending()  # keeps the queue bounded; the chain is pushed anew
            stop[0] = True
            engine.current.wait_idle("switch")
            stop[0] = False
            engine.push(step, writes=[chain])
    elapsed = time.perf_counter() - begin
    stop[0] = True
    engine.current.wait_idle("switch")
    return elapsed / pushes * 1e6, statistics.mean(times) * 1e6, len(times) / elapsed


def whole_program_s(n: int, after_push: Callable[[], None]) -> float:
    """Push 2000 operations on two Vars, then wait: seconds."""
    calls, tags = [operation(n) for _ in range(2)], [engine.new_var() for _ in range(2)]
    engine.waitall()
    begin = time.perf_counter()
    for i in range(2000):
        engine.push(calls[i & 1], writes=[tags[i & 1]])
        after_push()
    engine.waitall()
    return time.perf_counter() - begin


def main() -> None:
    before = sys.getswitchinterval()
    try:
        for n in (30_000, 300_000, 3_000_000):
            alone = alone_us(n)
            print(f"\nan operation of {alone:.0f} us")
            print(f"{'':26}{'push us':>10}{'waits us':>10}{'ops/s':>10}{'2000 ops s':>12}")
            rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in VARIANTS}
            for _ in range(3):
                for name, (interval_s, after_push) in VARIANTS.items():
                    sys.setswitchinterval(interval_s)
                    with engine.use("threaded", workers=2):
                        push_us, call_us, rate = beside_a_pushing_loop(n, after_push)
                        total_s = whole_program_s(n, after_push)
                    rows[name].append((push_us, call_us - alone, rate, total_s))
            for name, runs in rows.items():
                push_us, waits_us, rate, total_s = map(statistics.median, zip(*runs))
                print(f"{name:26}{push_us:10.1f}{waits_us:10.0f}{rate:10.0f}{total_s:12.3f}")
    finally:
        sys.setswitchinterval(before)


if __name__ == "__main__":
    main()
