"""autograd.checkpoint: the peak of a step falls by the bytes that its formula predicts."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hybrid_nets import lenet, numbers, resnet18, row, transformer
from test_activation_checkpoint import in_parts, leaf

from d2lmini import autograd, cpu, engine, nd, profile, random, storage
from d2lmini.gluon import nn

MB = 1 << 20


def chain(h, n: int = 8):
    """n megabytes of intermediate results that backward needs, for an input of one."""
    for _ in range(n):
        h = h.tanh()
    return h


def live() -> int:
    nd.waitall()
    return storage.stats().live


def test_the_peak_falls_to_the_inputs_and_one_part():
    """Four parts of eight results: 32 are kept without, 3 + 8 with `checkpoint`."""
    peaks, kept = [], []
    with engine.use("naive"):
        for checkpoint in (lambda f, *xs: f(*xs), autograd.checkpoint):
            x = leaf(np.full(MB // 4, 0.5, np.float32))
            before = live()
            storage.reset_peak()
            with autograd.record():
                h = x
                for _ in range(4):
                    h = checkpoint(chain, h)
                h = h.sum()
            kept.append((live() - before) / MB)
            h.backward()
            peaks.append((storage.stats().peak - before) / MB)
            del h
            assert live() == pytest.approx(before, abs=4096)
    # The program holds the first input, and the last result is in the sum.
    assert kept == pytest.approx([32, 3], rel=0.01)
    assert peaks == pytest.approx([32 + 2, 3 + 8 + 2], rel=0.01)  # and two gradients


def test_the_first_run_lets_go_of_each_result():
    x = leaf(np.full(MB // 4, 0.5, np.float32))
    with engine.use("naive"):
        before = live()
        storage.reset_peak()
        with autograd.record():
            y = autograd.checkpoint(chain, x)
        assert storage.stats().peak - before <= 2 * MB + 4096
        assert live() - before <= MB + 4096
        del y


def mlp():
    layers = nn.Dense, nn.BatchNorm, nn.Activation, nn.Dropout
    return row(*[row(*[layer(a) for layer, a in zip(layers, (64, 1, "relu", 0.5))])
                 for _ in range(4)])  # fmt: skip


#: name -> (net, the places where it is cut in parts, shape of a batch, largest share of the peak).
#: Convolutions of one layer make LeNet's peak: it stays.
LARGE = {
    "mlp": (mlp, (1, 2, 3), (512, 64), 0.7),
    "lenet": (lenet, (2, 4), (64, 1, 28, 28), 1.0),
    "resnet18": (lambda: resnet18(4), (3, 4, 5, 6), (8, 3, 32, 32), 0.7),
    "transformer": (lambda: transformer(64, 4), (1,), (8, 64, 64), 0.7),
}


def peak_of(call, x) -> int:
    """Bytes that a step takes at its peak besides what was there before."""
    gc.collect()
    before = live()
    storage.reset_peak()
    with autograd.record():
        y = call(x).sum()
    y.backward()
    nd.waitall()
    return storage.stats().peak - before


@pytest.mark.parametrize("name", LARGE)
def test_the_peak_of_nets_is_as_predicted(name):
    """The inputs of all parts before, and a step of one part alone, whichever is the largest."""
    make, cuts, shape, share = LARGE[name]
    with engine.use("naive"):
        random.seed(1)
        net = make()
        net.initialize()
        x = numbers([shape])[0]
        net(x)
        x.attach_grad()
        parts = [net[i:j] for i, j in zip((0, *cuts), (*cuts, len(net)))]
        before, predicted, h = 0, 0, x
        for part in parts:
            before += h.size * 4 if h is not x else 0  # the program holds its first input
            predicted = max(predicted, before + peak_of(part, h))
            h = leaf(part(h).asnumpy(), "add")  # so its gradient is a new array, as within a net
        without = peak_of(net, x)
        got = peak_of(in_parts(parts), x)
    assert got == pytest.approx(predicted, rel=0.05)
    assert got <= share * without


def test_a_dead_result_frees_everything():
    gc.disable()
    try:
        x = leaf(np.ones(MB // 4, np.float32))
        before = live()
        with autograd.record():
            y = autograd.checkpoint(chain, autograd.checkpoint(chain, x))
        node = weakref.ref(y._chunk)
        del y
        assert live() == before and node() is None
    finally:
        gc.enable()


def test_a_trace_shows_the_second_run_and_its_memory():
    x = leaf(np.full(MB // 4, 0.5, np.float32))
    with engine.use("naive"), profile() as trace:
        with autograd.record():
            y = autograd.checkpoint(chain, x)
        y.backward()
        nd.waitall()
    assert [op.name for op in trace.operations].count("tanh") == 16
    lines = {h.where.split(": ")[-1] for h in trace.memory()[cpu()].holders if h.name == "tanh"}
    assert lines == {"h = h.tanh()"}  # the function's own line, in backward too
    assert trace.memory()[cpu()].peak_bytes <= trace.memory()[cpu()].begin_bytes + 11 * MB
