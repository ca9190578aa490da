"""What the chapter on lazy evaluation and memory imports: counts of tasks, of bytes that move, of
pending work and of memory; a small training; the checks of its exercises."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import d2lmini
from d2lmini import cpu, engine, gluon, nd, profile, random, storage
from d2lmini.gluon import nn
from labs import shared
from labs.grading import CheckFailed, CheckPassed, at_most_waits, peak_bytes

PAGE = 4096
NO_BOUND = 10**10


def executed(function: Callable[..., Any], *args: Any) -> int:
    """How many tasks the engine runs for a function whose result is read, and then dropped."""
    nd.waitall()
    before = engine.stats().executed
    function(*args).wait_to_read()
    nd.waitall()  # other tasks may end after the one that the result needs
    return engine.stats().executed - before


def lazily(function: Callable[..., object], *args: object) -> None:
    """Call the function in a lazy scope."""
    with d2lmini.lazy():
        function(*args)


# -- bytes between memory and a cache --------------------------------------------------------------


class Cache:
    """A cache of pages; when it is full, it removes the page that was used longest ago."""

    def __init__(self, nbytes: int):
        self.most, self.moved = nbytes // PAGE, 0
        self.pages: OrderedDict[int, None] = OrderedDict()

    def touch(self, array: np.ndarray) -> None:
        """An operation reads or writes the array, from its begin to its end."""
        first = array.__array_interface__["data"][0] // PAGE
        for page in range(first, first + array.nbytes // PAGE):
            if page not in self.pages:
                self.moved += PAGE
                if len(self.pages) == self.most:
                    self.pages.popitem(last=False)
            self.pages[page] = None
            self.pages.move_to_end(page)


class Watched(np.ndarray):
    """A NumPy array whose operations tell `Watched.cache` what they read and write."""

    cache: Cache

    def __array_ufunc__(  # type: ignore[override]
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None
    ) -> Any:
        inputs = tuple(x.view(np.ndarray) if isinstance(x, Watched) else x for x in inputs)
        places = {} if out is None else {"out": out[0].view(np.ndarray)}
        y = ufunc(*inputs, **places)
        for array in (*inputs, y):
            if isinstance(array, np.ndarray):
                Watched.cache.touch(array)
        return y.view(Watched)


def steps(x: np.ndarray, h: np.ndarray, s: np.ndarray, out: np.ndarray) -> np.ndarray:
    """tanh(x * 2 + 1) * sqrt(x * x + 1) + tanh(x * 2 + 1) / (x * x + 1), written into `out`; `h`
    and `s` are places for results in between."""
    np.multiply(x, 2, out=h)
    np.add(h, 1, out=h)
    np.tanh(h, out=h)
    np.multiply(x, x, out=s)
    np.add(s, 1, out=s)
    np.sqrt(s, out=out)
    np.multiply(h, out, out=out)
    np.divide(h, s, out=h)
    return np.add(out, h, out=out)


def moved(function: Callable[..., Any], x: np.ndarray, *args: Any, cache_mb: int = 1) -> float:
    """What `function(x, *args)` moves between memory and a simulated cache, in arrays like x."""
    Watched.cache = Cache(cache_mb << 20)
    function(x.view(Watched), *args)
    return Watched.cache.moved / x.nbytes


# -- pending work ----------------------------------------------------------------------------------


def held_up(x: nd.NDArray, push: Callable[[], object], still_s: float = 0.4) -> tuple[Any, int]:
    """Call `push` while the operations that read `x` cannot begin.

    Returns what `engine.stats()` reports once nothing more is pushed, and the bytes of memory that
    arrays have taken since the call. A task that writes `x` is in front of all; it ends when
    `push` has returned or when nothing has been pushed for `still_s` seconds."""
    nd.waitall()
    release, pushed, found = threading.Event(), threading.Event(), []
    before = storage.stats(cpu()).live

    def watch() -> None:
        last = -1
        while not pushed.wait(still_s) and engine.stats().pending != last:
            last = engine.stats().pending
        found.append((engine.stats(), storage.stats(cpu()).live - before))
        release.set()

    engine.push(release.wait, writes=[x], name="blocker")
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        push()
    finally:
        pushed.set()
        watcher.join()
        nd.waitall()
    return found[0]


# -- a training, and its memory --------------------------------------------------------------------


def small_training() -> tuple[nn.Sequential, gluon.loss.L2Loss, gluon.Trainer]:
    """A net of two layers for batches of 512 numbers, its loss, and its trainer."""
    net = nn.Sequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(1))
    net.initialize()
    net(nd.zeros((1, 512)))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.005})
    return net, gluon.loss.L2Loss(), trainer


def peak(
    program: Callable[..., object], workers: int = 2, bound: int = NO_BOUND, **how: Any
) -> tuple[int, int]:
    """The most bytes that `program(**how)` takes on an engine with a virtual clock, and how many
    arrays of random numbers are alive at that moment."""
    nd.waitall()
    with engine.stepped(workers=workers), profile() as trace:
        engine.limit_pending(bound)
        program(**how)
        nd.waitall()
    report = trace.memory()[cpu()]
    drawn = sum(row.arrays for row in report.holders if row.name == "_random_normal")
    return report.peak_bytes - report.older_bytes, drawn


# -- exercises -------------------------------------------------------------------------------------


def check_bounded(answer: Callable[..., Any]) -> str:
    """Forty matrices on two workers: their product, in little memory and with one wait."""
    seed = np.random.randint(1000)

    def matrices() -> Iterator[nd.NDArray]:
        random.seed(seed)
        for _ in range(40):
            yield nd.random.normal(0, 0.04, shape=(500, 500))

    sums = np.ones(500)  # of the columns of the product
    for X in matrices():
        sums = sums @ X.asnumpy()
    with engine.stepped(), profile() as trace:
        engine.limit_pending(NO_BOUND)
        try:
            with shared.never_stuck():
                found = answer(matrices())
        except (StopIteration, RuntimeError) as error:
            if isinstance(error, StopIteration) or isinstance(error.__cause__, StopIteration):
                raise CheckFailed("ended", ENDED) from None
            raise
    if not np.isscalar(found) or isinstance(found, str):
        kind = type(found).__name__
        raise CheckFailed("type", f"return a number, not {kind}: `asscalar()` gives a number")
    # Terms of both signs nearly cancel: allow for rounding.
    if not abs(found - sums.sum()) < 0.01 * np.linalg.norm(sums):
        raise CheckFailed("value", "another number: multiply all forty matrices, in their order")
    memory = peak_bytes(trace, cpu(), 10_000_000)
    return CheckPassed(f"{memory}; {at_most_waits(trace, 1)}")


ENDED = (
    "the generator has no more matrices: it gives forty, once, and the first `next(matrices)` "
    "counts; `for X in matrices` gives those that are left"
)


def check_frugal(answer: Callable[..., Any]) -> str:
    """tanh(x * 2 + 1) * x in one new array, without a wait, one operation at a time."""
    given = np.random.uniform(-1, 1, size=250_000)
    x = nd.array(given)
    gc.collect()  # arrays of an earlier try would leave the trace, and make its peak lower
    with engine.stepped(), profile() as trace:
        engine.limit_pending(1)
        with shared.never_stuck(most=0):
            y = answer(x)
    if not isinstance(y, nd.NDArray):
        raise CheckFailed("type", f"return an NDArray with the values, not {type(y).__name__}")
    if not np.allclose(x.asnumpy(), given, atol=1e-6):
        raise CheckFailed("x", "x was changed, and the caller still reads it: write elsewhere")
    if y.shape != x.shape:
        raise CheckFailed("value", f"the shape is {y.shape}, and that of x is {x.shape}")
    if not np.allclose(y.asnumpy(), np.tanh(given * 2 + 1) * given, atol=1e-5):
        raise CheckFailed("value", "other values than those of nd.tanh(x * 2 + 1) * x")
    waits = at_most_waits(trace, 0)
    return CheckPassed(f"{waits}; {peak_bytes(trace, cpu(), 1_100_000)}")
