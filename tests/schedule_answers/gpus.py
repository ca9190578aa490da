"""Two GPUs, each with half of the work: `check.parallel`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from d2lmini import autograd, cpu, engine, gluon, gpu, nd
from d2lmini.d2l import check

from .answer import Exercise, Exercises


def draw(rng: Any) -> SimpleNamespace:
    """A weight of constants on each GPU, and for each batch a half for each GPU."""
    size, number = rng.choice([200, 250, 300]), rng.randint(1, 3)
    ctxs = [gpu(0), gpu(1)]
    weights = [nd.full((size, size), number, ctx=ctx) for ctx in ctxs]
    for weight in weights:
        weight.attach_grad()
    batches = [[nd.ones((size, size), ctx=ctx) for ctx in ctxs] for _ in range(rng.randint(2, 4))]
    return SimpleNamespace(size=size, number=number, ctxs=ctxs, weights=weights, batches=batches)


def expected(inputs: SimpleNamespace) -> float:
    """The first elements of all gradients of the sum of X @ W, added up."""
    return float(2 * len(inputs.batches) * inputs.size)


GPUS = Exercise(
    "gpus", draw, expected, lambda trace, inputs: check.parallel(trace, "gpu(0)", "gpu(1)")
)
PRODUCTS = Exercise(
    "products", draw, lambda inputs: None, lambda trace, inputs: check.parallel(trace, "dot")
)
EXERCISES = Exercises()
right, wrong = EXERCISES.right, EXERCISES.wrong


def forward(X: Any, weight: Any) -> Any:
    with autograd.record():
        return nd.dot(X, weight).sum()


def first(grads: list[Any]) -> float:
    return sum(grad[0, 0].asscalar() for grad in grads)


@right(GPUS)
def in_two_loops(inputs):
    grads = []
    for halves in inputs.batches:
        losses = [forward(X, w) for X, w in zip(halves, inputs.weights)]
        for loss in losses:
            loss.backward()
        grads += [weight.grad.copy() for weight in inputs.weights]
    return first(grads)


@right(GPUS)
def in_one_loop(inputs):
    grads = []
    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            forward(X, weight).backward()
            grads.append(weight.grad.copy())
    return first(grads)


@right(GPUS)
def waits_at_the_end_of_a_batch(inputs):
    number = 0
    for halves in inputs.batches:
        losses = [forward(X, w) for X, w in zip(halves, inputs.weights)]
        for loss in losses:
            loss.backward()
        nd.waitall()
        number += first([weight.grad for weight in inputs.weights])
    return number


@right(GPUS)
def a_thread_for_each_gpu(inputs):
    grads = []

    def work(i):
        for halves in inputs.batches:
            forward(halves[i], inputs.weights[i]).backward()
            inputs.weights[i].grad.wait_to_read()
            grads.append(inputs.weights[i].grad.copy())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return first(grads)


@right(GPUS)
def a_pool_for_both_gpus(inputs):
    def work(X, weight):
        forward(X, weight).backward()
        return weight.grad.copy()

    grads = []
    with ThreadPoolExecutor(2) as pool:
        for halves in inputs.batches:
            grads += pool.map(work, halves, inputs.weights)
    return first(grads)


@right(GPUS)
def with_a_sum_over_the_gpus(inputs):
    number = 0
    for halves in inputs.batches:
        for loss in [forward(X, w) for X, w in zip(halves, inputs.weights)]:
            loss.backward()
        grads = [weight.grad for weight in inputs.weights]
        number = number + (grads[0] + grads[1].as_in_context(gpu(0)))[0, 0]
    return number.asscalar()


@wrong("waits", to=GPUS)
def backward_and_wait(inputs):
    grads = []
    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            l = forward(X, weight)
            l.backward()
            l.wait_to_read()
            grads.append(weight.grad.copy())
    return first(grads)


@wrong("waits", to=GPUS)
def waits_for_the_gradient(inputs):
    grads = []
    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            forward(X, weight).backward()
            weight.grad.wait_to_read()
            grads.append(weight.grad.copy())
    return first(grads)


@wrong("waits", to=GPUS)
def prints_each_loss(inputs):
    grads = []
    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            l = forward(X, weight)
            l.backward()
            f"loss {float(l):.3f}"
            grads.append(weight.grad.copy())
    return first(grads)


@wrong("waits", to=GPUS)
def waitall_for_each_gpu(inputs):
    grads = []
    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            forward(X, weight).backward()
            nd.waitall()
            grads.append(weight.grad.copy())
    return first(grads)


@wrong("waits", to=GPUS)
def threads_in_turn(inputs):
    grads = []

    def work(X, weight):
        forward(X, weight).backward()
        weight.grad.wait_to_read()
        grads.append(weight.grad.copy())

    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            thread = threading.Thread(target=work, args=(X, weight))
            thread.start()
            thread.join()
    return first(grads)


@wrong("waits", to=GPUS)
def futures_in_turn(inputs):
    def work(X, weight):
        forward(X, weight).backward()
        return weight.grad[0, 0].asscalar()

    with ThreadPoolExecutor(2) as pool:
        return sum(
            pool.submit(work, X, weight).result()
            for halves in inputs.batches
            for X, weight in zip(halves, inputs.weights)
        )


@wrong("waits", to=GPUS, stepped=False)
def polls_for_each_gpu(inputs):
    grads = []
    for halves in inputs.batches:
        for X, weight in zip(halves, inputs.weights):
            forward(X, weight).backward()
            while engine.stats().pending > 0:
                time.sleep(1e-5)
            grads.append(weight.grad.copy())
    return first(grads)


@wrong("missing", to=GPUS)
def all_on_one_gpu(inputs):
    grads = []
    weight = inputs.weights[0]
    for halves in inputs.batches:
        for _ in halves:
            forward(halves[0], weight).backward()
            grads.append(weight.grad.copy())
    return first(grads)


# -- two products ----------------------------------------------------------------------------------


@right(PRODUCTS)
def one_on_each(inputs):
    return [nd.dot(w, w) for w in inputs.weights]


@right(PRODUCTS)
def one_on_each_then_waits(inputs):
    a, b = (nd.linalg_gemm2(w, w) for w in inputs.weights)
    a.wait_to_read()
    b.wait_to_read()


@right(PRODUCTS)
def two_dense_layers(inputs):
    nets = [gluon.nn.Dense(3, in_units=inputs.size) for _ in inputs.ctxs]
    for net, weight in zip(nets, inputs.weights):
        net.initialize(ctx=weight.context)
    nd.waitall()
    return [net(weight) for net, weight in zip(nets, inputs.weights)]


@wrong("waits", to=PRODUCTS)
def waits_between(inputs):
    a = nd.dot(inputs.weights[0], inputs.weights[0])
    a.wait_to_read()
    return a, nd.dot(inputs.weights[1], inputs.weights[1])


@wrong("waits", to=PRODUCTS)
def looks_between(inputs):
    a = nd.dot(inputs.weights[0], inputs.weights[0])
    if a[0, 0] > 0:
        return nd.dot(inputs.weights[1], inputs.weights[1])
    return a


@wrong("needs", "waits", to=PRODUCTS)
def one_after_the_other(inputs):
    a = nd.dot(inputs.weights[0], inputs.weights[0])
    return nd.dot(a.as_in_context(gpu(1)), inputs.weights[1])


@wrong("worker", to=PRODUCTS)
def both_on_one(inputs):
    return [nd.dot(inputs.weights[0], inputs.weights[0]) for _ in range(2)]


@wrong("missing", to=PRODUCTS)
def only_one(inputs):
    return nd.dot(inputs.weights[0], inputs.weights[0]).as_in_context(cpu())


@wrong("waits", to=PRODUCTS)
def waits_before_it_starts_a_thread(inputs):
    nd.dot(inputs.weights[0], inputs.weights[0]).wait_to_read()
    thread = threading.Thread(target=lambda: nd.dot(inputs.weights[1], inputs.weights[1]))
    thread.start()
    thread.join()
