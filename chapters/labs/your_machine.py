"""For `appendix-your-machine.ipynb`: a clock, a sentence on a limit, and the check of `flops`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from d2lmini import d2l, nd, profile
from d2lmini.gluon import nn
from labs.grading import CheckFailed


def best_s(function: Callable[[], object], rounds: int = 7) -> float:
    """Seconds of the shortest of several runs: other programs may use the machine, too."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def say_share(name: str, least_s: float, found_s: float) -> None:
    """Print how near a run came to its limit, and why it may have passed the limit."""
    print(f"{name}: at least {1e3 * least_s:.2f} ms, measured {1e3 * found_s:.2f} ms")
    share = f"measured: {100 * least_s / found_s:.0f} % of the limit"
    if least_s <= 1.05 * found_s:
        print(share)
    elif d2l.machine().busy:
        print(f"{share}: the limit is too low, it was measured on a busy machine")
    else:
        print(f"{share}: data came from a cache, or the machine is quicker now")


def counted_by_net(widths: Sequence[int], batch: int) -> float:
    """The operations that the compiled net counts."""
    net = nn.HybridSequential()
    net.add(*(nn.Dense(width) for width in widths[1:]))
    net.initialize()
    net.hybridize()
    net(nd.ones((batch, widths[0])))
    return net.program()[0].cost.flops


def check_flops(answer: Callable[[tuple[int, ...], int], Any]) -> str:
    """`answer(widths, batch)` counts the operations of a forward pass, without a net."""
    draw = np.random.RandomState()
    for layers in (3, 1, 2, 4):
        widths = tuple(int(n) for n in draw.choice(np.arange(2, 600), layers + 1, replace=False))
        batch = int(draw.randint(2, 100))
        with profile() as trace:
            found = answer(widths, batch)
        if trace.operations:
            text = "the function asks a net or an array: compute the number from the widths alone"
            raise CheckFailed("asks", text)
        if found is None:
            raise CheckFailed("none", "the function returns None: return the number of operations")
        if not isinstance(found, Real):
            text = f"the function returns {type(found).__name__}: return one number, the sum"
            raise CheckFailed("type", f"{text} over all layers")
        expected = counted_by_net(widths, batch)
        if found != expected:
            hint, text = why_flops(found, expected, widths, batch)
            raise CheckFailed(hint, f"widths {widths}, batch {batch}: got {found}. {text}")
    return "right: the compiled net counts the same"


def why_flops(found: Any, expected: float, widths: Sequence[int], batch: int) -> tuple[str, str]:
    """A hint and its text: which mistake gives this number?"""
    products = sum(2 * batch * m * n for m, n in itertools.pairwise(widths))
    biases = expected - products
    last = 2 * batch * widths[-2] * widths[-1] + batch * widths[-1]
    mistakes = {
        products: ("biases", "The biases are missing: one addition for each result of a layer"),
        products // 2 + biases: ("two", "A multiplication and an addition are two operations"),
        products // 2: ("both", "Count an addition for each multiplication, and the biases"),
        expected // batch: ("batch", "This is the number for one example; a batch has more"),
        products + biases // batch: ("each", "Each example of the batch adds the bias"),
        expected * 3: ("backward", "Forward only: do not count the two products of backward"),
        last: ("last", "This is the last layer alone: add the operations of all layers"),
    }
    return mistakes.get(found, ("other", "Try one layer and a batch of one, by hand"))
