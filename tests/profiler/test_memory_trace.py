"""What a trace says of memory: the books of the pool are the oracle, and who made which array."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest

from d2lmini import autograd, cpu, gluon, nd, profile, storage

MB = 1_000_000
N = (250, 1000)  # an array of 1 MB


@pytest.fixture
def books():
    """Books without anything that died before."""
    gc.collect()
    nd.waitall()
    storage.release_cached(cpu())
    storage.reset_peak(cpu())
    return storage.stats(cpu())


def test_the_peak_and_who_holds_it(books, engine_kind):
    with profile() as trace:
        x = nd.ones(N)
        ys = [x * 2 for _ in range(3)]
        h = nd.array(np.ones(N, "float32"))
        z = nd.concat(*ys, dim=0)
        z.wait_to_read()
        del ys
        w = x + 1
    seen = trace.memory()[cpu()]
    assert seen.peak_bytes == books.live + 8 * MB == storage.stats(cpu()).peak
    found = {holder.name: (holder.nbytes, holder.arrays) for holder in seen.holders}
    assert found == {
        "concat": (3 * MB, 1), "_mul_scalar": (3 * MB, 3), "_ones": (MB, 1), "": (MB, 1),
    }  # fmt: skip
    assert [holder.nbytes for holder in seen.holders] == sorted(
        (holder.nbytes for holder in seen.holders), reverse=True
    )
    lines = {holder.name: holder.where for holder in seen.holders}
    assert "ys = [x * 2" in lines["_mul_scalar"] and "z = nd.concat" in lines["concat"]
    assert "h = nd.array(" in lines[""]
    assert seen.older_bytes == seen.begin_bytes == books.live
    assert seen.live[-1][1] == storage.stats(cpu()).live == books.live + 6 * MB
    text = str(trace.memory())
    assert f"{seen.peak_bytes / 1e6:.2f} MB live at the peak" in text and "3.00 MB  3  _mul" in text
    assert h.shape == w.shape == N


@pytest.mark.parametrize("seed", range(10))
def test_live_bytes_are_those_of_the_books(seed: int, books, engine_kind: str):
    """Random programs: at each moment the program looks, and at the end; the peak too."""
    rng = random.Random(seed)
    arrays = [nd.ones((rng.choice([3, 5000, 40_000]),)) for _ in range(3)]
    storage.reset_peak(cpu())
    looked = []
    with profile() as trace:
        for _ in range(40):
            i = rng.randrange(len(arrays))
            what = rng.random()
            if what < 0.4:
                arrays.append(arrays[i] * 2)
            elif what < 0.6:
                arrays[i] += 1
            elif what < 0.7:
                arrays.append(nd.array(np.ones(rng.choice([4, 9000]))))
            elif what < 0.95 and len(arrays) > 1:
                del arrays[i]
            else:
                nd.waitall()
                looked.append((len(list(trace.memory)), storage.stats(cpu()).live))
    seen = trace.memory()[cpu()]
    for n, live in looked:  # the question itself settles the books, so what it told counts
        later = [nbytes for _, nbytes in seen.live[n : n + 40]]
        assert live in later, seed
    assert seen.live[-1][1] == storage.stats(cpu()).live
    assert seen.peak_bytes == storage.stats(cpu()).peak
    assert min(nbytes for _, nbytes in seen.live) >= 0
    held = sum(holder.nbytes for holder in seen.holders) + seen.older_bytes
    assert held == seen.peak_bytes


# -- memory by role --------------------------------------------------------------------------------


def train(net, trainer, steps):
    x = nd.ones((500, 250))
    for _ in range(steps):
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
        trainer.step(500)
    loss.wait_to_read()


@pytest.mark.parametrize("anew", [False, True])
def test_weights_gradients_and_states_are_told_apart(anew: bool, books):
    """Weights from before the trace, or made anew within it: 251000 numbers of each."""
    size = 4 * 251_000
    net = gluon.nn.Dense(1000, in_units=250)
    net.initialize()
    net.weight.grad().wait_to_read()
    with profile() as trace:
        if anew:
            net.initialize(force_reinit=True)
        train(net, gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9}), 1)
    device = trace.memory()[cpu()]
    assert sum(device.roles.values()) == device.peak_bytes
    assert sum(device.begin_roles.values()) == device.begin_bytes
    more = {role: nbytes - device.begin_roles[role] for role, nbytes in device.roles.items()}
    assert min(device.roles["weights"], device.roles["gradients"]) >= size
    assert more["weights"] == more["gradients"] == 0  # the new ones in place of the old
    assert 0 <= more["optimizer state"] <= size
    # The peak is in the forward pass or, if states are made early, at its result's gradient.
    assert more["activations"] > 0 or more["optimizer state"] > 0
    assert "at the peak: weights" in str(device)
