"""What `test_dist*.py` launch: `dist_job.py WHAT FOLDER`.

`train` and `thin` write what each rank has found to FOLDER/RANK.json. The others train until rank 1
fails, and write when it does.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from d2lmini import (
    autograd,
    cpu,
    gluon,
    gpu,
    kvstore,
    nd,
    optimizer,
    random,
    virtual_gpus,
)

SIZES = (3, 5, 2)
ALONE = (cpu(),)
X = np.random.default_rng(1).normal(size=(16, SIZES[0])).astype("float32")


def net_of(sizes, contexts=ALONE, seed=0):
    net = gluon.nn.Sequential(prefix="n_")
    with net.name_scope():
        for units, inputs in zip(sizes[1:], sizes):
            net.add(gluon.nn.Dense(units, activation="tanh", in_units=inputs))
    random.seed(seed)
    net.initialize("xavier", ctx=list(contexts))
    return net


def train(kv, part, contexts=ALONE, seed=0, steps=3, **options):
    """The parameters after some steps on `part` of the data, and the Trainer."""
    net = net_of(SIZES, contexts, seed)
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=kv, **options
    )
    pieces = [nd.array(p, ctx=c) for p, c in zip(np.split(part, len(contexts)), contexts)]
    for _ in range(steps):
        with autograd.record():
            losses = [(net(x) ** 2).sum() for x in pieces]
        autograd.backward(losses)
        trainer.step(len(part))
    values = [p.data(contexts[0]).asnumpy() for p in net.collect_params().values()]
    return np.concatenate([v.reshape(-1) for v in values]), trainer


def bits(array):
    return np.asarray(array, "float32").tobytes().hex()


def store_calls(kv):
    """push, pull, pushpull, an updater, float16 on the wire, buckets: what came of each."""
    r, found = kv.rank, {}
    kv.init(["a", "b"], [nd.full(3, 7.0 + r), nd.full((2, 2), r)])
    a, b = nd.zeros(3), nd.zeros((2, 2))
    kv.pull(["a", "b"], out=[a, b])
    found["init"] = [a.asnumpy().tolist(), b.asnumpy().tolist()]
    kv.push("a", [nd.full(3, r + 1.0, ctx=cpu(0)), nd.full(3, 10.0, ctx=cpu(1))])
    kv.pull("a", out=a)
    found["push"] = a.asnumpy().tolist()
    kv.pushpull("b", nd.full((2, 2), 2.0**r), out=b)
    found["pushpull"] = b.asnumpy().tolist()
    sent = kv.buckets_sent
    big = [nd.ones(60000 + i) for i in range(12)]  # 240 kB each
    kv.broadcast([f"big{i}" for i in range(12)], big, big)
    kv.pushpull([f"big{i}" for i in range(12)], big)
    found["buckets"] = kv.buckets_sent - sent
    found["big"] = sorted({float(x.asnumpy().min()) for x in big})
    kv.barrier()
    kv.set_optimizer(optimizer.SGD(learning_rate=1.0))
    kv.broadcast("b", nd.zeros((2, 2)), b)
    kv.pushpull("b", nd.ones((2, 2)), out=b)
    found["updater"] = b.asnumpy().tolist()
    return found


def succeed(folder):
    kv = kvstore.create("dist_sync")
    part = np.split(X, kv.num_workers)[kv.rank]
    values, trainer = train("dist_sync", part, seed=kv.rank)  # rank 0's weights are for all
    own = trainer._kvstore
    found = {
        "rank": kv.rank, "n": kv.num_workers, "trained": bits(values),
        "buckets of a step": own.buckets_sent / 3,
        "two devices": bits(train("dist_device_sync", part, (cpu(0), cpu(1)))[0]),
        "updated there": bits(train("dist_sync_device", part, update_on_kvstore=True)[0]),
        "own store": bits(train(kvstore.create("dist_sync"), part, seed=kv.rank)[0]),
        "virtual GPUs": on_virtual_gpus(part),
        "unused": unused(kv),
        "wide": wide(kv),
        "calls": store_calls(kv),
        "threads": os.environ["OMP_NUM_THREADS"],
    }  # fmt: skip
    (folder / f"{kv.rank}.json").write_text(json.dumps(found))
    print("rank", kv.rank, "is done")


def thin(folder):
    """Seconds of a sum, a broadcast and a barrier on the environment's link."""
    kv = kvstore.create("dist_sync")
    x = nd.ones(1000 * kv.num_workers)
    kv.broadcast("x", x, x)
    found = {"link": kv._world._link}
    calls = {
        "sum": lambda: kv.pushpull("x", x),
        "broadcast": lambda: kv.broadcast("x", x, x),
        "barrier": lambda: None,
    }
    for name, call in calls.items():
        kv.barrier()
        begun = time.monotonic()
        call()
        kv.barrier()
        found[name] = time.monotonic() - begun
    found["value"] = float(x[0].asscalar())
    (folder / f"{kv.rank}.json").write_text(json.dumps(found))


def on_virtual_gpus(part):
    with virtual_gpus(2):
        return bits(train("dist_sync", part, (gpu(0), gpu(1)))[0])


def unused(kv):
    """A parameter that only rank 0 uses is updated alike by all."""
    w = gluon.Parameter("w", shape=(1,), init="zeros")
    v = gluon.Parameter("v", shape=(1,), init="zeros")
    for p in (w, v):
        p.initialize()
    trainer = gluon.Trainer([w, v], "sgd", {"learning_rate": 1.0}, kvstore="dist_sync")
    for step in range(2):
        with autograd.record():
            l = w.data() + v.data() if kv.rank == 0 and step == 0 else w.data()
        l.backward()
        trainer.step(1, ignore_stale_grad=True)
    return [p.data().asscalar().item() for p in (w, v)]


def wide(kv):
    """Seven buckets: after two steps every weight is what it should be, by either way."""
    found = []
    for by_step in (True, False):
        params = [gluon.Parameter(f"w{i}", shape=(60000,), init="zeros") for i in range(24)]
        for i, p in enumerate(params):
            p.initialize()
            p.lr_mult = i + 1.0
        trainer = gluon.Trainer(params, "sgd", {"learning_rate": 1.0}, kvstore="dist_sync")
        for _ in range(2):
            with autograd.record():
                l = nd.add_n(*[(p.data() * (kv.rank + 1)).sum() for p in params])
            l.backward()
            if by_step:
                trainer.step(1)
            else:
                trainer.allreduce_grads()
                trainer.update(1)
        store = trainer._kvstore
        ends = [sorted(set(p.data().asnumpy().tolist())) for p in params]
        found.append([ends, store.buckets_sent / 2, store.parts(list(range(24)))])
    return found


def fail(how, folder):
    if how == "absent" and os.environ.get("PMI_RANK", os.environ.get("PMIX_RANK")) == "1":
        note(folder)
        return
    kv = kvstore.create("dist_sync")
    odd = kv.rank == 1
    net = net_of((3, 4 if odd and how == "differ" else 5, 2))
    if odd and how == "differ":
        note(folder)
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    for step in range(100):
        with autograd.record():
            l = (net(nd.array(X)) ** 2).sum()
        l.backward()
        uneven = odd and step == 3 and how == "uneven"
        if uneven:
            note(folder)
        trainer.step(7 if uneven else 16)
        l.wait_to_read()
        if odd and step == 3 and how not in ("differ", "uneven"):
            note(folder)
            leave(how, kv)


def note(folder):
    (folder / "failed").write_text(repr(time.time()))


def leave(how, kv):
    if how == "raise":
        raise ValueError("no more")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    if how == "end":
        sys.exit(0)
    if how == "_exit":
        os._exit(0)
    kv.barrier()


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what in ("train", "thin"):
        {"train": succeed, "thin": thin}[what](where)
    else:
        fail(what, where)
