"""What chapter 5 imports: programs on paper and in slow motion, and two checks.

`steps(on_paper(program, workers=2))` is the number of steps of a program.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from d2lmini import MXNetError, engine, gpu, nd, profile, virtual_gpus
from d2lmini.profiler.tracing import Trace
from labs.grading import CheckFailed, overlaps
from labs.shared import never_stuck, watch


def on_paper(program: Callable[[], object], workers: int = 2, **steps: float) -> Trace:
    """The trace of a run on the virtual clock. Each operation takes one step, which is a
    millisecond, or as many as `steps` says by its name; `nd.ones` takes none. There are four GPUs.
    """
    times = {name: 1000 * n for name, n in {"_ones": 0, **steps}.items()}
    with (
        virtual_gpus(4),
        engine.stepped(workers=workers, times=lambda task: times.get(task.name, 1000)),
        profile() as trace,
    ):
        program()
    return trace


def steps(trace: Trace) -> float:
    """The length of a run on paper; whole if it is a whole number."""
    length = round(1e3 * trace.seconds, 3)
    return int(length) if length == int(length) else length


def run_slowly(name: str, program: Callable[[], object]) -> Trace:
    """The trace of a run in slow motion. Prints how long the program takes by the engine's rules,
    on the virtual clock, and whether the run agrees."""
    with engine.stepped(), profile() as paper:
        program()
    print(f"{name}: {1e3 * paper.seconds:.0f} ms on the virtual clock")
    with watch() as load, profile() as trace:
        program()
    found = f"{1e3 * trace.seconds:.0f} ms"
    near = 0.95 < trace.seconds / paper.seconds < 1.1
    load.say(f"does {name} take as long on the real clock?", found, holds=near)
    return trace


# -- checks ----------------------------------------------------------------------------------------

_PRODUCTS = {"dot", "batch_dot", "linalg_gemm", "linalg_gemm2"}


def check_behind(answer: Callable[[Any, int], object]) -> None:
    """Each value is read when one more product has been pushed, and no other; on paper. The number
    of rounds, the size and the value are drawn."""
    n, size, value = (int(number) for number in np.random.default_rng().integers(5, 10, 3))
    expected = n * size * value**2
    given = f"x of shape {(size, size)} on gpu(0), n={n}"
    found, trace = _run(lambda: answer(nd.full((size, size), value, ctx=gpu(0)), n), given)
    gave = _number(found)
    if not np.allclose(gave, expected):
        said = f"{gave:g}" if gave == gave else f"no number: {type(found).__name__}"
        raise CheckFailed("values", f"for n={n} the sum is {expected:g}, the answer gave {said}")
    products = [op for op in trace.operations if op.name.lstrip("_") in _PRODUCTS]
    if len(products) != n:
        raise CheckFailed("count", f"n={n} rounds need {n} products, the trace has {len(products)}")
    away = next((op for op in products if op.place != "gpu(0)"), None)
    if away is not None:
        raise CheckFailed(
            "place",
            f"{away} runs on {away.place}, x is on gpu(0): {away.where}. Copy the results, not x",
        )
    overlaps(trace, "copy", "dot")
    _check_rounds(trace, [op.number for op in products])
    print("each value is read one round later, and the copies overlap with the products")


def _run(program: Callable[[], object], given: str) -> tuple[Any, Trace]:
    """An answer's result and its trace on paper; CheckFailed for an error of the library."""
    found = []
    try:
        with never_stuck():
            trace = on_paper(lambda: found.append(program()), _full=0)
    except MXNetError as error:
        raise CheckFailed("error", f"with {given} the answer raises {error}") from error
    return found[0], trace


def _number(found: object) -> float:
    """`found` as a number; NaN if it is none, or lies on a device that has gone."""
    try:
        return float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError, MXNetError):
        return np.nan


def _check_rounds(trace: Trace, products: list[int]) -> None:
    """CheckFailed if the value of a round is not read in the next one."""
    n = len(products)
    waits = []  # the wait, the newest round that it waits for, the round in which it stands
    for wait in trace.waits:
        now = sum(p <= wait.pushed for p in products)
        last = wait.operation
        seen = [i for i, p in enumerate(products, 1) if p == last or _before(trace, p, last)]
        waits.append((wait, now if wait.target is None else max(seen, default=0), now))
    reads = [row for row in waits if not row[0].kind.startswith(("wait", "stats"))]
    for i in range(1, n):
        for wait, newest, now in waits:
            if newest >= i == now:
                raise CheckFailed(
                    "waits",
                    f"round {i} waits for its own product at {wait.where} ({wait.kind}): push the "
                    "next product first",
                )
        first = next((row for row in reads if row[1] >= i), None)
        if first is None:
            raise CheckFailed("late", f"round {i} is not read: read its value in round {i + 1}")
        wait, _, now = first
        said = f"the value of round {i} is read in round {now} of {n} ({wait.where})"
        if now == n > i + 1:
            hint = "late" if i == 1 else "rest"
            raise CheckFailed(hint, f"{said}, when all is pushed: read it in round {i + 1}")
        if now > i + 1:
            raise CheckFailed("behind", f"{said}, {now - i} rounds later: read it in round {i + 1}")


def _before(trace: Trace, a: int, b: int) -> bool:
    return a < b and trace.ordered(a, b)


def check_halves(answer: Callable[[Any, int], object]) -> None:
    """Two parts of the rows, neither larger than half, may be computed at the same time; on paper.
    The shape, the values and n are drawn. The number of columns is a prime above the number of
    rows, so that the size of an operation tells whether it computes whole rows."""
    draw = np.random.default_rng()
    rows, columns, n = 2 * draw.integers(2, 6), draw.choice([11, 13, 17]), int(draw.integers(3, 7))
    value = draw.uniform(-2, 2, (rows, columns)).astype("float32")
    expected = value
    for _ in range(n):
        expected = np.tanh(expected)
    x = nd.array(value)
    y, trace = _run(lambda: answer(x, n), f"x of shape {value.shape}, n={n},")
    if not isinstance(y, nd.NDArray) or y.shape != value.shape:
        got = f"shape {y.shape}" if isinstance(y, nd.NDArray) else type(y).__name__
        raise CheckFailed("shape", f"return an array {value.shape}, got {got}: join the parts")
    if (x.asnumpy() != value).any():
        raise CheckFailed("x", "x has other values afterwards: write to arrays of your own")
    if not np.allclose(y.asnumpy(), expected, atol=1e-5):
        raise CheckFailed("values", f"not the values of tanh, applied {n} times to each element")
    for wait in trace.waits:
        if wait.kind != "backpressure":
            text = f"the program waits at {wait.where} ({wait.kind}), and pushes the rest only then"
            raise CheckFailed("waits", f"{text}. No step needs a value: leave the wait out")
    tanhs = [op for op in trace.operations if op.name in ("tanh", "Activation")]
    sizes = [op.nbytes / 8 for op in tanhs]  # each reads and writes float32
    if sum(sizes) < n * value.size:
        raise CheckFailed(
            "missing",
            f"nd.tanh computed {sum(sizes):g} elements; {n} rounds of {value.size} need "
            f"{n * value.size}: apply nd.tanh in each round",
        )
    for op, size in zip(tanhs, sizes):
        if size > value.size / 2:
            text = f"{op} computes {size:g} of {value.size} elements at once: {op.where}"
            raise CheckFailed("whole", f"{text}. Cut x into two halves first")
        if size % columns:
            text = f"{op} computes {size:g} elements, no whole rows of {columns}: {op.where}"
            raise CheckFailed("columns", f"{text}. Cut x between rows, not between columns")
    for op in tanhs:
        others = [other for other in tanhs if other is not op]
        if all(trace.ordered(*sorted((op.number, other.number))) for other in others):
            first, second = _ordered_pair(trace, tanhs)
            raise CheckFailed(
                "views",
                f"{second} ({second.where}) must wait for {first} ({first.where}), because it uses "
                "its values, or because both parts go through one array: for the engine a view is "
                "its whole array. Give each half an array of its own (copy); join them at the end",
            )
    print("the upper and the lower half may be computed at the same time")


def _ordered_pair(trace: Trace, operations: list[Any]) -> tuple[Any, Any]:
    """The first two operations in a row with an order between them, of different lines if there
    are such."""
    pairs = [(a, b) for a, b in pairwise(operations) if trace.ordered(a.number, b.number)]
    return next((pair for pair in pairs if pair[0].where != pair[1].where), pairs[0])
