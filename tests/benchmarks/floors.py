"""How fast a row could be at best with NumPy's own calls on this machine: its floor.

A row's program in plain NumPy is run once on arrays that count what is asked of them: products of
matrices, the elements that each other function computes, the calls. These very products, of the
same shapes and layouts, are timed with BLAS on all cores, the functions in a cache; how much memory
moves in a second comes from `d2l.machine()`. So:

    arithmetic   the time of the products, and elements x the time of one / cores
    traffic      what must be read and written once, inputs and answer, / the memory's bandwidth
    calls        NumPy calls x the time of the smallest one: they hold the interpreter in turns

At best the three overlap, so the floor is the longest of them:

>>> a = np.ones((200, 300), np.float32)
>>> work = count(lambda a: np.tanh(a @ a.T), a)
>>> work.flops, dict(work.elements), work.calls, work.nbytes
(24000000, {'tanh': 40000}, 2, 400000)
>>> (product,) = work.products
>>> product
Product(m=200, k=300, n=200, across_a=False, across_b=True)
>>> limits = Limits(10, 2, call_s=1e-6, element_s={"tanh": 1e-9}, product_s={product: 240e-6})
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

#: Less traffic than this may stay within a core's caches, and counts as none.
CACHE_BYTES = 4 << 20
#: Elements of the blocks on which functions are timed: 128 KB of float32.
BLOCK = 32 << 10
#: Many short rounds, of which the fastest counts: others may use the machine. Fewer of long calls.
ROUNDS, ROUND_S, LEAST_ROUNDS, LONG_S = 25, 0.001, 5, 0.2


class Product(NamedTuple):
    """An m by k matrix times a k by n one; `across`: it lies in memory transposed."""

    m: int
    k: int
    n: int
    across_a: bool
    across_b: bool

    @property
    def flops(self) -> int:
        return 2 * self.m * self.k * self.n

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """Two float32 matrices like these."""
        sides = ((self.m, self.k, self.across_a), (self.k, self.n, self.across_b))
        a, b = (np.ones((n, m) if across else (m, n), np.float32) for m, n, across in sides)
        return a.T if self.across_a else a, b.T if self.across_b else b

    def backward(self) -> tuple[Product, Product]:
        """The gradients of the right matrix and of the left."""
        m, k, n, across_a, across_b = self
        return Product(k, m, n, not across_a, False), Product(m, n, k, False, not across_b)


@dataclass
class Work:
    """What a program asks of NumPy, and the bytes that it cannot help moving."""

    products: Counter[Product] = field(default_factory=Counter)
    elements: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    nbytes: int = 0

    @property
    def flops(self) -> int:
        """Of the products."""
        return sum(n * product.flops for product, n in self.products.items())

    def trained(self) -> Work:
        """Of a training step, given its forward part: for each product backward has two, but not
        for the gradient of the input."""
        elements = Counter({name: 2 * n for name, n in self.elements.items()})
        products = self.products.copy()
        for product, n in self.products.items():
            for_weight, for_input = product.backward()
            products[for_weight] += n
            products[for_input] += n
        if self.products:
            products[next(iter(self.products)).backward()[1]] -= 1
        return Work(products, elements, 3 * self.calls, 2 * self.nbytes)


@dataclass
class Limits:
    """This machine at its best: memory and products on all cores, of an element the seconds on
    one."""

    gb_per_s: float
    cores: int
    call_s: float
    element_s: dict[str, float]
    product_s: dict[Product, float]

    def arithmetic_s(self, work: Work) -> float:
        products = sum(n * self.product_s[product] for product, n in work.products.items())
        others = sum(n * self.element_s[name] for name, n in work.elements.items())
        return products + others / self.cores

    def traffic_s(self, work: Work) -> float:
        return work.nbytes / (self.gb_per_s * 1e9) if work.nbytes > CACHE_BYTES else 0.0

    def calls_s(self, work: Work) -> float:
        return work.calls * self.call_s

    def parts_s(self, work: Work) -> list[tuple[float, str]]:
        return [
            (self.arithmetic_s(work), "arithmetic"),
            (self.traffic_s(work), "traffic"),
            (self.calls_s(work), "calls"),
        ]

    def floor_s(self, work: Work) -> float:
        return max(self.parts_s(work))[0]


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
            self.product(*inputs)
        else:
            # A reduction reads more than it writes.
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            self.note(name, np.size(_plain(y if method == "__call__" else inputs[0])))
        return _counted(y)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function is np.dot:
            y = np.dot(*map(_plain, arguments))
            self.product(*arguments)
            return _counted(y)
        before = self.work.calls
        y = super().__array_function__(function, types, arguments, options)
        # Nothing but a copy, say, if there was no call of a function within it.
        self.work.calls += self.work.calls == before
        return y

    def product(self, a: Any, b: Any) -> None:
        """Of matrices, or of as many in a row as a has before its last two axes."""
        m, k, n = *a.shape[-2:], b.shape[-1]
        how_often = prod(a.shape[:-2])
        self.work.products[Product(m, k, n, _across(a), _across(b))] += how_often
        self.work.calls += 1

    def note(self, name: str, elements: int) -> None:
        self.work.elements[name] += elements
        self.work.calls += 1


def _across(x: Any) -> bool:
    return x.strides[-1] > x.strides[-2]


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


def product_s(product: Product) -> float:
    """Seconds of NumPy's product into a given place, with as many threads as BLAS has."""
    a, b = product.operands()
    place = np.empty((product.m, product.n), np.float32)
    return _best_s(lambda: np.dot(a, b, out=place))


def smallest_call_s() -> float:
    four, place = np.ones(4, np.float32), np.empty(4, np.float32)
    return _best_s(lambda: np.add(four, four, out=place))


def _best_s(call: Callable[[], Any]) -> float:
    begin_s = time.perf_counter()
    call()
    once_s = max(1e-7, time.perf_counter() - begin_s)
    n = max(1, int(ROUND_S / once_s))
    rounds = min(ROUNDS, max(LEAST_ROUNDS, int(LONG_S / once_s)))
    return min(timeit.repeat(call, number=n, repeat=rounds)) / n


def limits(machine: dict[str, float], works: Sequence[Work]) -> Limits:
    """With the rates that d2lmini's process found (`Peer.limits`), and those of the functions and
    products in these works, timed here."""
    names = sorted({name for work in works for name in work.elements})
    products = {product for work in works for product in work.products}
    return Limits(
        machine["gb_per_s"], int(machine["cores"]), smallest_call_s(),
        {name: function_s(name) for name in names},
        {product: product_s(product) for product in products},
    )  # fmt: skip
