"""The splits of the chapter "Split anything": after 20 steps on 2, 4 and 8 devices each has the
weights of one device, sent exactly the bytes of theory, and keeps exactly those of ZeRO's formulas.

Three references: the same sums on one device, to the bit; NumPy in float64, and PyTorch's autograd
if it is installed, to a tolerance.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from chapter_cells import hint_of, names_in
from labs import split_anything as lab

from d2lmini import d2l, nd, virtual_gpus

COUNTS = [2, 4, 8]
STEPS = 20
ATOL = 1e-5


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    return names_in(
        "split-anything", "DataParallel", "Zero1", "Zero2", "Zero3", "Unsummed", "Stale",
        "forward_and_back", "gpipe", "one_f_one_b",
    )  # fmt: skip


#: Bytes for each weight that each of k devices keeps.
KEPT = {
    "DataParallel": lambda k: 16,
    "Zero1": lambda k: 8 + 8 / k,
    "Zero2": lambda k: 4 + 12 / k,
    "Zero3": lambda k: 16 / k,
}


def adam_in_numpy(weights, gradients, states):
    for w, g, state in zip(weights, gradients, states):
        state[0] = 0.9 * state[0] + 0.1 * g
        state[1] = 0.999 * state[1] + 0.001 * g * g
        w -= 0.01 * state[0] / (np.sqrt(state[1]) + 1e-3)


def train_in_numpy(values, batches, backward):
    """Float64, no devices; backward(weights, X) returns the gradients."""
    weights = [v.astype("float64") for v in values]
    states: list[Any] = [[0.0, 0.0] for _ in weights]
    for X in batches:
        adam_in_numpy(weights, backward(weights, X.astype("float64")), states)
    return weights


def net_backward(weights, X):
    hs = [X]
    for w in weights[:-1]:
        hs.append(np.maximum(hs[-1] @ w, 0))
    d = (hs[-1] @ weights[-1] - X) / len(X)
    gradients = []
    for h, w in zip(hs[::-1], weights[::-1]):
        gradients.append(h.T @ d)
        d = (d @ w.T) * (h > 0)
    return gradients[::-1]


def assert_near(found, expected):
    for W, V in zip(found, expected, strict=True):
        np.testing.assert_allclose(W, V, rtol=0, atol=ATOL)


# -- collectives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, *COUNTS])
def test_collectives_sum_up_and_send_the_bytes_of_theory(k):
    """Values, places, and bytes between devices."""
    X = np.random.default_rng(k).normal(size=(k, 16, 3)).astype("float32")
    total = sum(X[1:], X[0])
    with virtual_gpus(k) as ctxs:
        parts = [nd.array(x, ctx=ctx) for x, ctx in zip(X, ctxs)]
        shards = np.split(total, k)
        for collective, given, expected, passes in (
            (lab.reduce_scatter, parts, shards, 1),
            (lab.all_gather, lab.own_shards(parts), [np.concatenate(_own_rows(X))] * k, 1),
            (lab.all_reduce, parts, [total] * k, 2),
        ):
            with d2l.traffic() as links:
                result = collective(given)
            assert [x.context for x in result] == list(ctxs)
            for x, value in zip(result, expected):
                np.testing.assert_allclose(x.asnumpy(), value, rtol=1e-6, atol=1e-6)
            assert links.nbytes == passes * (k - 1) * X[0].nbytes


def _own_rows(X):
    """Of each device's array the rows that belong to it."""
    return [np.split(x, len(X))[i] for i, x in enumerate(X)]


# -- data parallelism and ZeRO ---------------------------------------------------------------------


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("name", KEPT)
def test_twenty_steps_are_those_of_one_device(chapter, name, k):
    values, batches = lab.draw_weights([32, 64, 32, 32]), lab.draw_batches(STEPS, 32, 32)
    with virtual_gpus(k) as ctxs:
        found = lab.train(chapter[name], ctxs, batches, values)
        in_parts = lab.alone(values, batches, ctxs[0], parts=k)
        whole = lab.alone(values, batches, ctxs[0])
    for row, W in zip(found.weights, in_parts, strict=True):
        assert len(row) == k and all((copy == W).all() for copy in row)
    firsts = [row[0] for row in found.weights]
    assert_near(firsts, whole)
    assert_near(firsts, train_in_numpy(values, batches, net_backward))
    assert max(abs(W - v).max() for W, v in zip(firsts, values)) > 0.01
    N, first = sum(v.nbytes for v in values), values[0].nbytes
    assert found.sent == (k - 1) * (3 * N - first if name == "Zero3" else 2 * N)
    assert found.kept == [KEPT[name](k) * N / 4] * k


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("mistake", ["Unsummed", "Stale"])
def test_planted_mistakes_are_found(chapter, mistake, k):
    hint = hint_of(lab.judge, chapter[mistake], k)
    assert hint == {"Unsummed": "values", "Stale": "stale"}[mistake]


# -- within layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, *COUNTS])
def test_a_split_block_is_that_of_numpy(chapter, k):
    """The output, the gradients of X, A and B; the target is X."""
    A, B = lab.draw_weights([32, 64, 32])
    [X] = lab.draw_batches(1, 32, 32)
    h = np.maximum(X @ A, 0)
    Y = h @ B
    dA = X.T @ (((Y - X) @ B.T) * (h > 0))
    dX = (((Y - X) @ B.T) * (h > 0)) @ A.T
    with virtual_gpus(k) as ctxs:
        Xs = [nd.array(X, ctx=ctx) for ctx in ctxs]
        As, Bs = lab.cut(A, 1, ctxs), lab.cut(B, 0, ctxs)
        with d2l.traffic() as links:
            ys, dxs = chapter["forward_and_back"](Xs, As, Bs)
        assert lab.sent_between(links) == 4 * (k - 1) * X.nbytes
        for y, dx in zip(ys, dxs):
            np.testing.assert_allclose(y.asnumpy(), Y, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(dx.asnumpy(), dX, rtol=1e-4, atol=1e-3)
        found = np.concatenate([x.grad.asnumpy() for x in As], axis=1)
        np.testing.assert_allclose(found, dA, rtol=1e-4, atol=1e-3)
        found = np.concatenate([x.grad.asnumpy() for x in Bs], axis=0)
        np.testing.assert_allclose(found, h.T @ (Y - X), rtol=1e-4, atol=1e-3)


# -- between layers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (4, 8), (8, 8), (4, 32), (5, 2)])
def test_bubbles_and_activations_are_those_of_the_literature(chapter, p, m):
    for name, kept in (("gpipe", [m] * p), ("one_f_one_b", [min(m, p - d) for d in range(p)])):
        timeline = lab.run(chapter[name](p, m))
        assert timeline.idle == Fraction(p - 1, m + p - 1) and timeline.kept == kept
        assert timeline.length == 3 * (m + p - 1)


def test_devices_that_wait_for_each_other_are_named():
    backward_first = [[("B", 0, 0), ("F", 0, 0)], [("F", 1, 0), ("B", 1, 0)]]
    assert hint_of(lab.run, backward_first) == "order"
