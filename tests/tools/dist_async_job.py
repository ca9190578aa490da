"""What `test_dist_async.py` launches: `dist_async_job.py WHAT FOLDER`.

`calls` writes what each rank has found to FOLDER/RANK.json; the others fail on the way. Gradients
are powers of two: in whatever order they come, their sum is the same to the bit.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from dist_job import SIZES, X, net_of, note

from d2lmini import autograd, cpu, gluon, kvstore, nd, optimizer


def value(kv, key, n=2):
    out = nd.zeros(n)
    kv.pull(key, out)
    return out.asnumpy().tolist()


def calls(folder):
    kv = kvstore.create("dist_async")
    found = {
        "who": [kv.type, kv.rank, kv.num_workers],
        "refused": refused(kv),
        "init": init(kv),
        "alone": alone(kv, folder),
        "pushes": pushes(kv),
        "rates": rates(kv),
        "big": big(kv),
        "states": states(kv, folder),
        "updater": updater(),
        "losses": train(kv),
    }
    (folder / f"{kv.rank}.json").write_text(json.dumps(found))


def told(call):
    try:
        call()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"


def refused(kv):
    kv.init("early", nd.ones(2))
    return [
        told(lambda: kv.push("early", nd.ones(2))),
        told(lambda: kv.pull("early")),
        told(lambda: trainer_of([], update_on_kvstore=False)),
        told(lambda: trainer_of([]).allreduce_grads()),
    ]


def trainer_of(params, **options):
    rates = {"learning_rate": 1.0}
    return gluon.Trainer(params, "sgd", rates, kvstore="dist_async", **options)


def init(kv):
    kv.init(["a", "b"], [nd.full(2, 7.0 + kv.rank), nd.zeros(2)])
    kv.set_optimizer(optimizer.SGD(learning_rate=1.0))
    return value(kv, "a")


def alone(kv, folder):
    """The last rank goes on while all others wait for a file, which it writes after its steps."""
    done = folder / "alone"
    if kv.rank == kv.num_workers - 1:
        seen = []
        for _ in range(5):
            kv.push("a", nd.ones(2))
            seen.append(value(kv, "a")[0])
        done.write_text("")
        return seen
    while not done.exists():
        time.sleep(0.01)
    return None


def pushes(kv):
    """Of one array, of two devices' arrays, and compressed: the second term is cut off."""
    kv.barrier()
    before = kv.updates
    kv.barrier()
    for _ in range(3):
        kv.push("b", [nd.full(2, 2.0**kv.rank), nd.full(2, 1.0, ctx=cpu(1))])
    kv.barrier()
    found = [value(kv, "b")]
    stale = sum(kv.staleness.values())
    out = nd.zeros(2)
    kv.barrier()
    kv.pushpull("b", nd.ones(2), out)
    kv.barrier()
    found.append(value(kv, "b"))
    kv.barrier()
    kv.set_gradient_compression({"type": "fp16"})
    kv.push("b", nd.full(2, 1 + 2.0**-11))
    kv.barrier()
    found.append(value(kv, "b"))
    return found, kv.updates - before, stale


def rates(kv):
    """Each push is divided by the batch of who pushes, and counts by its learning rate now."""
    w = gluon.Parameter("w", shape=(2,), init="zeros")
    w.initialize(ctx=[cpu(0), cpu(1)])
    trainer = trainer_of([w])
    found = []
    for batch_size, lr in [(2, 1.0), (2, 0.5), (4, 0.5)]:
        trainer.set_learning_rate(lr)
        with autograd.record():
            losses = [w.data(ctx).sum() for ctx in w.list_ctx()]
        autograd.backward(losses)
        trainer.step(batch_size)
        trainer._kvstore.barrier()
        found.append(value(trainer._kvstore, 0))
        trainer._kvstore.barrier()
    return found


def big(kv):
    """Several buckets, of several dtypes."""
    store = kvstore.create("dist_async")
    keys = list(range(8))
    dtypes = ["float32"] * 5 + ["float64", "float16", "float32"]
    arrays = [nd.ones(60000 + i, dtype=d) for i, d in enumerate(dtypes)]
    store.init(keys, arrays)
    store.set_optimizer(optimizer.SGD(learning_rate=1.0))
    store.push(keys, arrays)
    store.barrier()
    store.pull(keys, arrays)
    ends = sorted({float(f(x.asnumpy())) for x in arrays for f in (np.min, np.max)})
    return ends, store.buckets_sent


def states(kv, folder):
    """Rank 0 has them. Momentum that was saved is that after loading."""
    w = gluon.Parameter("w", shape=(1,), init="zeros")
    w.initialize()
    trainer = gluon.Trainer([w], "sgd", {"learning_rate": 1.0, "momentum": 0.5}, "dist_async")
    file = str(folder / "states")
    if kv.rank > 0:
        found = [told(lambda: trainer.save_states(file)), told(lambda: trainer.load_states(file))]
    else:
        for step in range(2):
            with autograd.record():
                l = w.data() * 1
            l.backward()
            trainer.step(1)
            if step == 0:
                trainer.save_states(file)
        trainer.load_states(file)
        found = [float(trainer._kvstore._updater.states[0].asscalar()), trainer.learning_rate]
    trainer._kvstore.barrier()
    return found


def updater():
    """A function, that of rank 0."""
    kv = kvstore.create("dist_async")
    kv.init(3, nd.full(2, 100.0))
    by = 10.0 if kv.rank == 0 else 1.0

    def subtract(key, grad, stored):
        stored -= by * key * grad

    kv.set_updater(subtract)
    kv.push(3, nd.ones(2))
    kv.barrier()
    found = value(kv, 3)
    kv.barrier()
    return found


def train(kv, steps=30, how=None, folder=None):
    """The loss at the begin and at the end, each rank with its part of the data."""
    part = nd.array(np.array_split(X, kv.num_workers)[kv.rank])
    net = net_of(SIZES, seed=kv.rank)
    sgd = Failing(folder) if how == "server" else optimizer.SGD(learning_rate=0.02)
    trainer = gluon.Trainer(net.collect_params(), sgd, kvstore="dist_async")
    losses = []
    for step in range(steps):
        with autograd.record():
            l = ((net(part) - 0.5) ** 2).mean()
        l.backward()
        if how == "kill" and kv.rank == 1 and step == 3:
            note(folder)
            os.kill(os.getpid(), signal.SIGKILL)
        trainer.step(1)
        losses.append(float(l.asscalar()))
    return losses[0], losses[-1]


class Failing(optimizer.SGD):
    """Of which the server's thread fails."""

    def __init__(self, folder):
        super().__init__(learning_rate=0.02)
        self.folder = folder

    def step(self, index, lr, wd):
        if threading.current_thread().name == "d2lmini-server" and self.num_update > 5:
            note(self.folder)
            raise ValueError("no more updates")
        return super().step(index, lr, wd)


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "calls":
        calls(where)
    else:
        train(kvstore.create("dist_async"), 10**6, what, where)
