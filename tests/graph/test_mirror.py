"""Mirroring: the same bits with fewer bytes kept. The program without mirroring is the oracle for
values, the memory pool for bytes."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import assert_close, evaluate, graphs
from hybrid_nets import NETS, NETS_ON_ENGINES, lenet, numbers, resnet18, row, run, transformer
from hypothesis import given
from hypothesis import strategies as st

from d2lmini import autograd, engine, nd, random, storage
from d2lmini.gluon import HybridBlock, nn
from d2lmini.graph.backward import cut_graph, mirror, recompute, residuals
from d2lmini.graph.passes import simplify
from d2lmini.graph.plan import KEPT
from d2lmini.graph.program import Program
from d2lmini.graph.typed import verify


def nbytes(entries) -> int:
    return sum(node.specs[i].nbytes for node, i in entries)


# -- graphs ----------------------------------------------------------------------------------------


@given(graphs(), st.booleans())
def test_drawn_graphs_keep_fewer_bytes_and_give_the_same_bits(graph, compiled):
    """Node by node, and as the programs that `CachedOp` makes."""
    joint = graph.with_gradients()
    n = len(graph.outputs)
    simple = simplify(joint.outputs)
    outputs, plain = simple[:n], recompute(simple[:n], simple[n:])
    mirrored = mirror(outputs, plain)
    verify(joint.variables, outputs + mirrored, like=joint.outputs)
    answers = []
    for grads in (plain, mirrored):
        kept = residuals(outputs, grads)
        places, backward = cut_graph(grads, kept)
        arrays, keys = joint.arrays(), joint.keys()
        if compiled:
            arrays = [np.ascontiguousarray(a) for a in arrays]
            first = Program("forward", joint.variables, outputs + kept)
            results = first.run(arrays, [None] * len(outputs + kept), keys)
            second = Program("backward", joint.variables + places, backward)
            found = second.run(arrays + results[n:], [None] * len(backward), keys)
        else:
            results, held = evaluate(joint.variables, outputs + kept, arrays, keys)
            found, _ = evaluate(joint.variables + places, backward, held + results[n:], keys)
        answers.append((nbytes(e for e in kept if e not in outputs), results[:n] + found))
    (before, expected), (after, got) = answers
    assert after <= before
    for a, b in zip(expected, got, strict=True):
        assert_close(a, b, tolerance=0)


# -- nets ------------------------------------------------------------------------------------------


def build(make, *shapes, words=False, **flags) -> tuple[HybridBlock, list]:
    random.seed(1)
    net = make()
    net.initialize()
    xs = numbers(shapes, words)
    net(*xs)
    net.hybridize(**flags)
    return net, xs


@pytest.mark.parametrize(("name", "kind"), NETS_ON_ENGINES)
def test_nets_give_the_same_bits(name, kind):
    """Outputs, gradients, moving statistics; Dropout with the same masks; what comes after."""
    make, shapes, words = NETS[name]
    answers = []
    with engine.use(kind):
        for flag in (False, True):
            net, xs = build(make, *shapes[0], words=words, backward_do_mirror=flag)
            answers.append([list(run(net, xs, train).values()) for train in (True, False, True)])
    for expected, got in zip(*answers, strict=True):
        for a, b in zip(expected, got, strict=True):
            assert a.tobytes() == b.tobytes()


def mlp() -> HybridBlock:
    net = row()
    for _ in range(3):
        net.add(nn.Dense(64), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.5))
    net.add(nn.Dense(10))
    return net


#: name -> (net, shape of a batch, largest share of the bytes that are still kept)
LARGE = {
    "mlp": (mlp, (512, 100), 0.4),
    "lenet": (lenet, (32, 1, 28, 28), 0.9),
    "resnet18": (lambda: resnet18(4), (8, 3, 32, 32), 0.7),
    "transformer": (lambda: transformer(64, 4), (8, 64, 64), 0.7),
}


def step(net, x) -> int:
    """Bytes that a training step takes at its peak besides what was there before."""
    nd.waitall()
    before = storage.stats().live
    storage.reset_peak()
    with autograd.record():
        y = net(x)
    y.backward()
    nd.waitall()
    return storage.stats().peak - before


@pytest.mark.parametrize("name", LARGE)
def test_the_peak_is_as_predicted(name):
    """What the programs say they keep and need for intermediate results is what the pool sees."""
    make, shape, share = LARGE[name]
    peaks, kept = [], []
    with engine.use("naive"):
        for flag in (False, True):
            net, (x,) = build(make, shape, backward_do_mirror=flag)
            step(net, x)  # compiles
            forward, backward = net.program()
            own = nbytes(forward.outputs)  # outputs, and what is kept
            head = forward.specs[0].nbytes
            arenas = forward.arena_nbytes, backward.arena_nbytes
            # A small arena stays from call to call, so it was there before.
            predicted = own + head + max(n if n > KEPT else 0 for n in arenas)
            assert step(net, x) == pytest.approx(predicted, rel=0.05)
            kept.append(own - head)
            peaks.append(own + head + max(arenas))
    assert kept[1] <= share * kept[0]
    assert peaks[1] < peaks[0]
