"""Sum up without keeping: `peak_bytes(trace, ctx, nbytes)`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from labs.grading import peak_bytes

from d2lmini import autograd, cpu, gpu, nd

from .answer import Exercise, Exercises

#: One array, of 1 MB.
SHAPE = (250, 1000)


def draw(rng: Any) -> SimpleNamespace:
    return SimpleNamespace(numbers=[rng.randint(1, 9) for _ in range(rng.randint(8, 12))])


def expected(inputs: SimpleNamespace) -> float:
    return float(sum(250_000 * number**2 for number in inputs.numbers))


ON_CPU = Exercise(
    "memory", draw, expected, lambda trace, inputs: peak_bytes(trace, cpu(), 4_000_000)
)
ON_GPU = Exercise(
    "memory of a GPU",
    draw,
    expected,
    lambda trace, inputs: peak_bytes(trace, gpu(0), 4_000_000),
)
EXERCISES = Exercises()
right, wrong = EXERCISES.right, EXERCISES.wrong


@right(ON_CPU)
def reads_each_sum(inputs):
    return sum(nd.square(nd.full(SHAPE, n)).sum().asscalar() for n in inputs.numbers)


@right(ON_CPU)
def copies_one_at_a_time(inputs):
    total = 0.0
    for n in inputs.numbers:
        total += nd.square(nd.full(SHAPE, n)).asnumpy().sum()
    return total


@right(ON_CPU)
def waits_after_each(inputs):
    total = nd.zeros((1,))
    for n in inputs.numbers:
        total += nd.square(nd.full(SHAPE, n)).sum()
        total.wait_to_read()
    return total.asscalar()


@right(ON_GPU)
def keeps_copies_on_the_host(inputs):
    kept = []
    for n in inputs.numbers:
        kept.append(nd.square(nd.full(SHAPE, n, ctx=gpu(0))).asnumpy())
    return sum(array.sum() for array in kept)


@wrong("kept", to=ON_CPU)
def keeps_the_arrays(inputs):
    kept = []
    for n in inputs.numbers:
        kept.append(nd.square(nd.full(SHAPE, n)))
        nd.waitall()
    return sum(array.sum().asscalar() for array in kept)


@wrong("kept", to=ON_CPU)
def keeps_numpy_copies(inputs):
    kept = []
    for n in inputs.numbers:
        kept.append(nd.square(nd.full(SHAPE, n)).asnumpy())
    return sum(array.sum() for array in kept)


@wrong("kept", "ahead", "many", to=ON_CPU)
def records_all_and_goes_back_at_the_end(inputs):
    total = nd.zeros((1,))
    w = nd.ones((1,))
    w.attach_grad()
    with autograd.record():
        for n in inputs.numbers:
            total = total + nd.square(w * nd.full(SHAPE, n)).sum()
            nd.waitall()
    total.backward()
    return total.asscalar()


@wrong("large", to=ON_CPU)
def all_at_once(inputs):
    numbers = nd.array(inputs.numbers).reshape((-1, 1, 1))
    return nd.square(nd.broadcast_mul(nd.ones((1, *SHAPE)), numbers)).sum().asscalar()


@wrong("kept", "ahead", "many", to=ON_GPU)
def keeps_them_on_the_gpu(inputs):
    kept = []
    for n in inputs.numbers:
        kept.append(nd.square(nd.full(SHAPE, n, ctx=gpu(0))))
        kept[-1].wait_to_read()
    return sum(array.sum().asscalar() for array in kept)


@wrong("missing", to=ON_GPU)
def on_the_cpu(inputs):
    return sum(nd.square(nd.full(SHAPE, n)).sum().asscalar() for n in inputs.numbers)
