"""Every line that waits must say so: `check.no_hidden_waits(trace)`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from d2lmini import nd
from d2lmini.d2l import check

from .answer import Exercise, Exercises


def draw(rng: Any) -> SimpleNamespace:
    number, size = rng.randint(1, 9), rng.randint(2, 50)
    return SimpleNamespace(number=number, size=size, x=nd.full((size,), number))


HIDDEN = Exercise(
    "hidden",
    draw,
    lambda inputs: float(inputs.number * inputs.size),
    lambda trace, inputs: check.no_hidden_waits(trace),
)
EXERCISES = Exercises()
right, wrong = EXERCISES.right, EXERCISES.wrong


@right(HIDDEN)
def by_asscalar(inputs):
    return inputs.x.sum().asscalar()


@right(HIDDEN)
def by_numpy(inputs):
    return np.sum(inputs.x.asnumpy())


@right(HIDDEN)
def by_item_in_a_thread(inputs):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(inputs.x.sum().item).result()


@right(HIDDEN)
def compares_after_reading(inputs):
    total = inputs.x.sum().asscalar()
    return total if total > 0 else -total


@wrong("float", to=HIDDEN)
def by_float(inputs):
    return float(inputs.x.sum())


@wrong("bool", to=HIDDEN)
def compares(inputs):
    total = inputs.x.sum()
    return (total if total > 0 else -total).asscalar()


@wrong("__array__", to=HIDDEN)
def by_numpy_at_once(inputs):
    return np.add.reduce(np.asarray(inputs.x))


@wrong("float", to=HIDDEN)
def in_a_pool(inputs):
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(float, [inputs.x.sum()]))


@wrong("print", to=HIDDEN)
def prints_in_a_thread(inputs):
    thread = threading.Thread(target=print, args=(inputs.x,))
    thread.start()
    thread.join()
    return inputs.x.sum().asscalar()


@wrong("float", to=HIDDEN)
def in_text_that_is_run(inputs):
    names = {"x": inputs.x}
    exec("total = float(x.sum())", names)
    return names["total"]
