"""The product must be over before `tanh` begins: `check.before(trace, "dot", "tanh")`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from d2lmini import engine, gpu, nd
from d2lmini.d2l import check

from .answer import Exercise, Exercises


def draw(rng: Any) -> SimpleNamespace:
    size = rng.choice([150, 200, 250])
    a, b = (nd.ones((size, size), ctx=gpu(i)) for i in range(2))
    return SimpleNamespace(a=a, b=b, times=rng.randint(1, 3))


BEFORE = Exercise(
    "before", draw, lambda inputs: None, lambda trace, inputs: check.before(trace, "dot", "tanh")
)
EXERCISES = Exercises()
right, wrong = EXERCISES.right, EXERCISES.wrong


@right(BEFORE)
def by_its_value(inputs):
    for _ in range(inputs.times):
        nd.tanh(nd.dot(inputs.a, inputs.a))


@right(BEFORE)
def two_of_each_product(inputs):
    for _ in range(inputs.times):
        c = nd.dot(inputs.a, inputs.a)
        nd.tanh(c), nd.tanh(c + 1)


@right(BEFORE)
def two_products_for_each(inputs):
    for _ in range(inputs.times):
        nd.tanh(nd.dot(inputs.a, inputs.a) + nd.dot(inputs.a, inputs.a + 1))


@right(BEFORE)
def by_room(inputs):
    for _ in range(inputs.times):
        nd.dot(inputs.a, inputs.a)
        nd.tanh(inputs.a, out=inputs.a)


@right(BEFORE)
def by_a_wait(inputs):
    nd.dot(inputs.a, inputs.a).wait_to_read()
    nd.tanh(inputs.b)


@right(BEFORE)
def by_waitall(inputs):
    nd.dot(inputs.a, inputs.a)
    nd.waitall()
    nd.tanh(inputs.b)


@right(BEFORE)
def by_a_thread_that_is_joined(inputs):
    thread = threading.Thread(target=lambda: nd.dot(inputs.a, inputs.a).wait_to_read())
    thread.start()
    thread.join()
    nd.tanh(inputs.b)


@right(BEFORE)
def by_a_future(inputs):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: nd.dot(inputs.a, inputs.a).asnumpy()).result()
    nd.tanh(inputs.b)


@right(BEFORE)
def by_starting_a_thread_after_a_wait(inputs):
    nd.dot(inputs.a, inputs.a).wait_to_read()
    thread = threading.Thread(target=lambda: nd.tanh(inputs.b))
    thread.start()
    thread.join()


@right(BEFORE, stepped=False)
def by_an_event(inputs):
    over = threading.Event()
    engine.push(over.set, reads=[nd.dot(inputs.a, inputs.a)])
    over.wait()
    nd.tanh(inputs.b)


@wrong("free", to=BEFORE)
def by_luck(inputs):
    nd.dot(inputs.a, inputs.a)
    nd.tanh(inputs.b)


@wrong("free", to=BEFORE)
def by_priority(inputs):
    with engine.prioritized(9):
        nd.dot(inputs.a, inputs.a)
    nd.tanh(inputs.b)


@wrong("late", to=BEFORE)
def upside_down(inputs):
    nd.dot(nd.tanh(inputs.a), inputs.a)


@wrong("missing", to=BEFORE)
def without_a_product(inputs):
    nd.tanh(inputs.a)


@wrong("free", to=BEFORE)
def waits_for_something_else(inputs):
    c = nd.exp(inputs.b)
    nd.dot(inputs.a, inputs.a)
    c.wait_to_read()
    nd.tanh(inputs.b)


@wrong("free", to=BEFORE)
def sleeps(inputs):
    nd.dot(inputs.a, inputs.a)
    time.sleep(0.01)
    nd.tanh(inputs.b)


@wrong("free", "late", to=BEFORE)
def a_thread_that_is_not_joined_in_time(inputs):
    thread = threading.Thread(target=lambda: nd.dot(inputs.a, inputs.a).wait_to_read())
    thread.start()
    nd.tanh(inputs.b)
    thread.join()


@wrong("free", to=BEFORE)
def a_joined_thread_that_does_not_wait(inputs):
    thread = threading.Thread(target=lambda: nd.dot(inputs.a, inputs.a))
    thread.start()
    thread.join()
    nd.tanh(inputs.b)
