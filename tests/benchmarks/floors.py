"""How fast a row could be at best with NumPy's own calls on this machine: its floor.

A row's program in plain NumPy is run once on arrays that count what is asked of them: products of
matrices (FLOPs), the elements that each other function computes, the calls. The machine's rates
come from `d2l.machine()` and from timing those very functions in a cache. So:

    arithmetic   FLOPs / the rate of products on all cores, and elements x the time of one / cores
    traffic      what must be read and written once, inputs and answer, / the memory's bandwidth
    calls        NumPy calls x the time of the smallest one: they hold the interpreter in turns

At best the three overlap, so the floor is the longest of them:

>>> a = np.ones((200, 300), np.float32)
>>> work = count(lambda a: np.tanh(a @ a.T), a)
>>> work.flops, dict(work.elements), work.calls, work.nbytes
(24000000, {'tanh': 40000}, 2, 400000)
>>> limits = Limits(gflops_per_s=100, gb_per_s=10, cores=2, call_s=1e-6, element_s={"tanh": 1e-9})
>>> [f"{1e6 * s:.0f} us" for s in (limits.arithmetic_s(work), limits.traffic_s(work))]
['260 us', '0 us']
>>> f"{1e6 * limits.floor_s(work):.0f} us"
'260 us'

What NumPy does in other ways than by its functions (copies that `reshape` makes, indexing) is not
counted: the floor is one. A library with faster functions than NumPy's can be below it, and that
is then the reason why it is ahead.
"""

from __future__ import annotations

import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Less traffic than this may stay within a core's caches, and counts as none.
CACHE_BYTES = 4 << 20
#: Elements of the blocks on which functions are timed: 128 KB of float32.
BLOCK = 32 << 10
#: Many short rounds, of which the fastest counts: others may use the machine.
ROUNDS, ROUND_S = 25, 0.001


@dataclass
class Work:
    """What a program asks of NumPy, and the bytes that it cannot help moving."""

    flops: int = 0
    elements: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    nbytes: int = 0
    first_flops: int = 0  # of the first product

    def trained(self) -> Work:
        """Of a training step, given its forward part: for each product backward has two, but not
        for the gradient of the input."""
        elements = Counter({name: 2 * n for name, n in self.elements.items()})
        return Work(3 * self.flops - self.first_flops, elements, 3 * self.calls, 2 * self.nbytes)


@dataclass
class Limits:
    """This machine at its best, all cores; of an element the seconds on one core."""

    gflops_per_s: float
    gb_per_s: float
    cores: int
    call_s: float
    element_s: dict[str, float]

    def arithmetic_s(self, work: Work) -> float:
        others = sum(n * self.element_s[name] for name, n in work.elements.items())
        return work.flops / (self.gflops_per_s * 1e9) + others / self.cores

    def traffic_s(self, work: Work) -> float:
        return work.nbytes / (self.gb_per_s * 1e9) if work.nbytes > CACHE_BYTES else 0.0

    def calls_s(self, work: Work) -> float:
        return work.calls * self.call_s

    def floor_s(self, work: Work) -> float:
        return max(self.arithmetic_s(work), self.traffic_s(work), self.calls_s(work))


class Counting(np.ndarray):
    """An array that counts the NumPy calls it meets, in `Counting.work`."""

    work = Work()

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if out is not None:
            options["out"] = tuple(_plain(each) for each in out)
        y = getattr(ufunc, method)(*map(_plain, inputs), **options)
        if ufunc is np.matmul:
            self.product(inputs[0], y)
        else:
            # A reduction reads more than it writes.
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            self.note(name, np.size(_plain(y if method == "__call__" else inputs[0])))
        return _counted(y)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function is np.dot:
            y = np.dot(*map(_plain, arguments))
            self.product(arguments[0], y)
            return _counted(y)
        before = self.work.calls
        y = super().__array_function__(function, types, arguments, options)
        # Nothing but a copy, say, if there was no call of a function within it.
        self.work.calls += self.work.calls == before
        return y

    def product(self, a: Any, y: Any) -> None:
        flops = 2 * a.shape[-1] * y.size
        self.work.first_flops = self.work.first_flops or flops
        self.work.flops += flops
        self.work.calls += 1

    def note(self, name: str, elements: int) -> None:
        self.work.elements[name] += elements
        self.work.calls += 1


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Counting) else x


def _counted(y: Any) -> Any:
    return y.view(Counting) if isinstance(y, np.ndarray) else y


def count(program: Callable[..., Any], *inputs: np.ndarray) -> Work:
    """Run the program on these numbers, and tell what it asked of NumPy."""
    Counting.work = work = Work()
    result = program(*(x.view(Counting) for x in inputs))
    work.nbytes = sum(x.nbytes for x in inputs) + getattr(result, "nbytes", 0)
    return work


def function_s(name: str) -> float:
    """Seconds of one element of the function so named, float32 in a cache, on one core."""
    if name == "standard_normal":
        rng, out = np.random.default_rng(0), np.empty(BLOCK, np.float32)
        return _best_s(lambda: rng.standard_normal(dtype=np.float32, out=out)) / BLOCK
    name, _, method = name.partition(".")
    ufunc = getattr(np, name)
    inputs = [np.linspace(0.1, 1, BLOCK, dtype=np.float32) for _ in range(ufunc.nin)]
    if method:
        return _best_s(lambda: getattr(ufunc, method)(inputs[0])) / BLOCK
    out = ufunc(*inputs)
    return _best_s(lambda: ufunc(*inputs, out=out)) / BLOCK


def smallest_call_s() -> float:
    four, place = np.ones(4, np.float32), np.empty(4, np.float32)
    return _best_s(lambda: np.add(four, four, out=place))


def _best_s(call: Callable[[], Any]) -> float:
    begin_s = time.perf_counter()
    call()
    n = max(1, int(ROUND_S / max(1e-7, time.perf_counter() - begin_s)))
    return min(timeit.repeat(call, number=n, repeat=ROUNDS)) / n


def limits(machine: dict[str, float], works: Iterable[Work]) -> Limits:
    """With the rates that d2lmini's process found (`Peer.limits`), and those of the functions in
    these works, timed here."""
    names = sorted({name for work in works for name in work.elements})
    return Limits(
        machine["gflops_per_s"], machine["gb_per_s"], int(machine["cores"]),
        smallest_call_s(), {name: function_s(name) for name in names},
    )  # fmt: skip
