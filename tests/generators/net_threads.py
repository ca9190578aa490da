"""One net in several threads: each gets what it would get alone, whatever the others do.

Threads train and predict with batches of their own sizes. First each story runs alone, then all at
once; the bits must be the same. A training thread with dropout draws masks in an order that depends
on the others, so of that only the shapes are looked at, and that it does not predict.
"""

from __future__ import annotations

import random

LAYERS = {
    "Dense": ("gluon.nn.Dense({n}, activation='relu')", 1),
    "wide": ("gluon.nn.Dense({n}, flatten=False)", 1),
    "LayerNorm": ("gluon.nn.LayerNorm()", 1),
    "BatchNorm": ("gluon.nn.BatchNorm()", 0),
    "Dropout": ("gluon.nn.Dropout(0.5)", 0),
    "PReLU": ("gluon.nn.PReLU()", 1),
}


def draw(seed: int) -> str:
    """A program that keeps what each thread got."""
    rng = random.Random(seed)
    names = rng.choices(list(LAYERS), k=rng.randint(1, 4))
    columns = rng.choice([3, 16, 70])
    layers = [LAYERS[name][0].format(n=rng.choice([2, 32, 100])) for name in names]
    exact = all(LAYERS[name][1] for name in names)
    options = rng.choice(["", "static_alloc=True", "static_alloc=True, static_shape=True"])
    options = rng.choice([f"net.hybridize({options})", f"net.hybridize({options})", "pass"])
    rows = rng.sample([1, 2, 3, 5, 17, 64], k=3)
    threads = []
    for number in range(rng.randint(2, 4)):
        kind = rng.choice(["predict", "predict", "record", "train", "mixed"])
        threads.append((kind, rng.choice(rows), rng.randint(3, 12), number))
    return f"""
import sys, threading

mx.random.seed({seed % 10_000})
net = gluon.nn.HybridSequential()
net.add({", ".join([*layers, "gluon.nn.Dense(4)"])})
net.initialize(init.Xavier())
{options}
exact = {exact}
threads = {threads}
inputs = [nd.random.normal(shape=(rows, {columns})) for _, rows, _, _ in threads]
problems = []


def call(kind, x, found):
    training = kind == "train"
    if kind == "predict":
        found.append(net(x).asnumpy())
        return
    x = x.copy()
    x.attach_grad()
    with autograd.record(train_mode=training):
        y = net(x)
        l = (y * y).sum()
    weight = net[-1].weight.data()
    grads = autograd.grad(l, [x, weight])
    assert y.shape == (x.shape[0], 4)
    if exact or not training:
        found.extend([y.asnumpy(), *[g.asnumpy() for g in grads]])


def story(kind, number, times, found):
    try:
        for i in range(times):
            now = ["predict", "record", "train"][(i + number) % 3] if kind == "mixed" else kind
            if now == "train" and not exact and any("BatchNorm" in str(c) for c in net):
                now = "record"
            call(now, inputs[number], found)
    except Exception as problem:
        problems.append(problem)


# All at once: the first calls trace, compile, and initialize what was put off.
interval = sys.getswitchinterval()
sys.setswitchinterval(1e-6)
together = [[] for _ in threads]
running = [
    threading.Thread(target=story, args=(kind, number, times, together[number]))
    for kind, _, times, number in threads
]
for thread in running:
    thread.start()
for thread in running:
    thread.join()
sys.setswitchinterval(interval)
if problems:
    raise problems[0]
for kind, _, times, number in threads:
    alone = []
    story(kind, number, times, alone)
    assert len(alone) == len(together[number]), (kind, number)
    for a, b in zip(alone, together[number]):
        assert a.shape == b.shape and a.tobytes() == b.tobytes(), (kind, number)
    again = []
    call("predict", inputs[number], again)
    assert not [a for a in alone[:1] if kind == "predict" and a.tobytes() != again[0].tobytes()]
# Deferred arrays draw in the order in which threads come to them, so values differ by the run.
keep(np.array([len(found) for found in together]))
"""
