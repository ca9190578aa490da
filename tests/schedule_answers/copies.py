"""Copy the next batch while the GPU computes: `overlaps(trace, "copy", "dot")`."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from labs.grading import overlaps

from d2lmini import cpu, engine, gpu, nd

from .answer import Exercise, Exercises


def draw(rng: Any) -> SimpleNamespace:
    """A few square batches of constants on the CPU."""
    size = rng.choice([300, 350, 400])
    numbers = [rng.randint(1, 4) for _ in range(rng.randint(5, 7))]
    batches = [nd.full((size, size), number) for number in numbers]
    return SimpleNamespace(size=size, numbers=numbers, batches=batches)


def expected(inputs: SimpleNamespace) -> float:
    """The sum of the first elements of the products."""
    return float(sum(inputs.size * number**2 for number in inputs.numbers))


COPIES = Exercise("copies", draw, expected, lambda trace, inputs: overlaps(trace, "copy", "dot"))
EXERCISES = Exercises()
right, wrong = EXERCISES.right, EXERCISES.wrong


def total(results: list[Any]) -> float:
    return sum(result[0, 0].asscalar() for result in results)


@right(COPIES)
def straight(inputs):
    results = []
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        results.append(nd.dot(X, X))
    return total(results)


@right(COPIES)
def all_copies_first(inputs):
    there = [X.as_in_context(gpu(0)) for X in inputs.batches]
    return total([nd.dot(X, X) for X in there])


@right(COPIES)
def one_batch_ahead(inputs):
    results, following = [], inputs.batches[0].as_in_context(gpu(0))
    for i in range(len(inputs.batches)):
        X = following
        if i + 1 < len(inputs.batches):
            following = inputs.batches[i + 1].as_in_context(gpu(0))
        results.append(nd.dot(X, X))
    return total(results)


@right(COPIES)
def with_two_buffers(inputs):
    buffers = [nd.zeros(inputs.batches[0].shape, ctx=gpu(0)) for _ in range(2)]
    results = []
    for i, X in enumerate(inputs.batches):
        X.copyto(buffers[i % 2])
        results.append(nd.dot(buffers[i % 2], buffers[i % 2]))
    return total(results)


@right(COPIES)
def waits_for_the_copy_only(inputs):
    results = []
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        X.wait_to_read()
        results.append(nd.dot(X, X))
    return total(results)


@right(COPIES)
def another_thread_reads(inputs):
    done: queue.Queue = queue.Queue()
    sums: list[float] = []

    def read():
        while (result := done.get()) is not None:
            sums.append(result[0, 0].asscalar())

    reader = threading.Thread(target=read)
    reader.start()
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        done.put(nd.dot(X, X))
    done.put(None)
    reader.join()
    return sum(sums)


@right(COPIES)
def a_pool_reads_and_is_asked_at_the_end(inputs):
    with ThreadPoolExecutor(1) as pool:
        futures = []
        for X in inputs.batches:
            X = X.as_in_context(gpu(0))
            futures.append(pool.submit(nd.dot(X, X)[0, 0].asscalar))
        return sum(future.result() for future in futures)


@wrong("waits", to=COPIES)
def waits_for_each(inputs):
    results = []
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        results.append(nd.dot(X, X))
        results[-1].wait_to_read()
    return total(results)


@wrong("waits", to=COPIES)
def reads_each(inputs):
    number = 0
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        number += float(nd.dot(X, X)[0, 0])
    return number


@wrong("room", to=COPIES)
def one_buffer(inputs):
    buffer, results = nd.zeros(inputs.batches[0].shape, ctx=gpu(0)), []
    for X in inputs.batches:
        X.copyto(buffer)
        results.append(nd.dot(buffer, buffer))
    return total(results)


@wrong("needs", to=COPIES)
def depends_on_the_last(inputs):
    results, zero = [], nd.zeros((1, 1), ctx=gpu(0))
    for X in inputs.batches:
        X = (X + zero.as_in_context(cpu())).as_in_context(gpu(0))
        results.append(nd.dot(X, X))
        zero = results[-1][0:1, 0:1] * 0
    return total(results)


@wrong("missing", to=COPIES)
def stays_on_the_cpu(inputs):
    return total([nd.dot(X, X) for X in inputs.batches])


@wrong("waits", to=COPIES)
def a_thread_for_each_batch(inputs):
    results = []

    def step(X):
        X = X.as_in_context(gpu(0))
        results.append(nd.dot(X, X))
        results[-1].wait_to_read()

    for X in inputs.batches:
        thread = threading.Thread(target=step, args=(X,))
        thread.start()
        thread.join()
    return total(results)


@wrong("waits", to=COPIES)
def asks_a_future_for_each(inputs):
    number = 0
    with ThreadPoolExecutor(2) as pool:
        for X in inputs.batches:
            X = X.as_in_context(gpu(0))
            number += pool.submit(nd.dot(X, X)[0, 0].asscalar).result()
    return number


@wrong("waits", to=COPIES, stepped=False)
def an_event_for_each(inputs):
    results = []
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        results.append(nd.dot(X, X))
        done = threading.Event()
        engine.push(done.set, reads=[results[-1]])
        done.wait()
    return total(results)


@wrong("waits", to=COPIES, stepped=False)
def a_queue_for_each(inputs):
    results, done = [], queue.Queue()
    for X in inputs.batches:
        X = X.as_in_context(gpu(0))
        results.append(nd.dot(X, X))
        engine.push(lambda: done.put(1), reads=[results[-1]])
        done.get()
    return total(results)
