"""The splits of the chapter "Split anything": after 20 steps on 2, 4 and 8 devices each has the
weights of one device, sent exactly the bytes of theory, and keeps exactly those of ZeRO's formulas.

Three references: the same sums on one device, to the bit; NumPy in float64, and PyTorch's autograd
if it is installed, to a tolerance.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from chapter_cells import hint_of, names_in
from oracle import Oracle

from d2lmini import d2l, virtual_gpus

COUNTS = [2, 4, 8]
STEPS = 20
ATOL = 1e-5


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    return names_in(
        "split-anything", "def draw_weights", "def adam", "class DataParallel", "def step",
        "class Trained", "class Zero1", "class Zero3", "def kept_of", "def alone",
        "class Unsummed", "def check_values", "def check_split", "class Split", "def block",
        "def train_block", "def attention",
    )  # fmt: skip


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


def train_in_torch(torch, name, values, batches):
    """The weights after a step on each batch, by PyTorch's autograd in float64."""

    def attention(X, Q, K, V, O):
        q, k, v = [(X @ W).reshape(-1, 8, W.shape[1] // 8, 8).transpose(1, 2) for W in (Q, K, V)]
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(len(X), -1) @ O

    def net(X, *weights):
        for w in weights[:-1]:
            X = torch.relu(X @ w)
        return X @ weights[-1]

    forward = {"attention": attention, "net": net}[name]
    weights = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    states = [[0.0, 0.0] for _ in weights]
    for batch in batches:
        X = torch.tensor(batch, dtype=torch.float64)
        ((forward(X, *weights) - X) ** 2).sum().div(2 * len(X)).backward()
        with torch.no_grad():
            for w, state in zip(weights, states):
                state[0] = 0.9 * state[0] + 0.1 * w.grad
                state[1] = 0.999 * state[1] + 0.001 * w.grad**2
                w -= 0.01 * state[0] / (state[1].sqrt() + 1e-3)
                w.grad = None
    return [w.detach().numpy() for w in weights]


@pytest.fixture(scope="module")
def torch():
    if not os.environ.get("D2LMINI_TORCH_PYTHON"):
        pytest.skip("D2LMINI_TORCH_PYTHON names no interpreter")
    with Oracle("torch") as library:
        yield library


def assert_near(found, expected):
    for W, V in zip(found, expected, strict=True):
        np.testing.assert_allclose(W, V, rtol=0, atol=ATOL)


# -- data parallelism and ZeRO ---------------------------------------------------------------------


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("name", ["DataParallel", "Zero1", "Zero2", "Zero3"])
def test_twenty_steps_are_those_of_one_device(chapter, name, k):
    values, batches = (
        chapter["draw_weights"]([32, 64, 32, 32]),
        chapter["draw_batches"](STEPS, 32, 32),
    )
    with virtual_gpus(k) as ctxs:
        found = chapter["train"](chapter[name], ctxs, batches, values)
        in_parts = chapter["alone"](values, batches, ctxs[0], parts=k)
        whole = chapter["alone"](values, batches, ctxs[0])
    for row, W in zip(found.weights, in_parts, strict=True):
        assert len(row) == k and all((copy == W).all() for copy in row)
    firsts = [row[0] for row in found.weights]
    assert_near(firsts, whole)
    assert_near(firsts, train_in_numpy(values, batches, net_backward))
    assert max(abs(W - v).max() for W, v in zip(firsts, values)) > 0.01
    N, first = sum(v.nbytes for v in values), values[0].nbytes
    assert found.sent == (k - 1) * (3 * N - first if name == "Zero3" else 2 * N)
    assert found.kept == [chapter["kept_of"](k)[name] * N / 4] * k


@pytest.mark.parametrize("name", ["DataParallel", "Zero3"])
def test_twenty_steps_are_those_of_pytorch(chapter, torch, name):
    values, batches = chapter["draw_weights"]([32] * 4), chapter["draw_batches"](STEPS, 32, 32)
    with virtual_gpus(4) as ctxs:
        found = chapter["train"](chapter[name], ctxs, batches, values)
    expected = torch.ask(train_in_torch, "net", values, batches)
    assert_near([row[0] for row in found.weights], expected)


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("mistake", ["Unsummed", "Stale"])
def test_planted_mistakes_are_found(chapter, mistake, k):
    hint = hint_of(chapter["check_split"], chapter[mistake], k)
    assert hint == {"Unsummed": "values", "Stale": "stale"}[mistake]


# -- within layers ---------------------------------------------------------------------------------


def block_backward(weights, X):
    A, B = weights
    h = np.maximum(X @ A, 0)
    d = (h @ B - X) / len(X)
    return [X.T @ ((d @ B.T) * (h > 0)), h.T @ d]


PIECES = {"block": ((1, 0), [32, 64, 32]), "attention": ((1, 1, 1, 0), [64] * 5)}


@pytest.fixture(scope="module")
def on_one_device(chapter) -> dict[str, Any]:
    """name -> weights at first, batches, weights after 20 steps in one piece."""
    found = {}
    for name, (cuts, sizes) in PIECES.items():
        values = chapter["draw_weights"](sizes)
        batches = chapter["draw_batches"](STEPS, 32, sizes[0])
        with virtual_gpus(1) as ctxs:
            weights, sent = chapter["train_block"](chapter[name], cuts, values, batches, ctxs)
        assert sent == 0
        found[name] = values, batches, weights
    return found


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("name", PIECES)
def test_a_split_block_is_that_of_one_device(chapter, on_one_device, name, k):
    values, batches, whole = on_one_device[name]
    arguments = chapter[name], PIECES[name][0], values, batches
    with virtual_gpus(k) as ctxs:
        pieces, _ = chapter["train_block"](*arguments, ctxs[:1] * k)
        found, sent = chapter["train_block"](*arguments, ctxs)
    assert all((W == V).all() for W, V in zip(found, pieces, strict=True))
    assert_near(found, whole)
    assert sent == 4 * (k - 1) * batches[0].nbytes


def test_the_block_in_one_piece_is_that_of_numpy(on_one_device):
    values, batches, whole = on_one_device["block"]
    assert_near(whole, train_in_numpy(values, batches, block_backward))


def test_attention_in_one_piece_is_that_of_pytorch(on_one_device, torch):
    values, batches, whole = on_one_device["attention"]
    assert_near(whole, torch.ask(train_in_torch, "attention", values, batches))


def no_sum_forward(chapter):
    class Unsummed(chapter["Split"]):
        def forward(self, Xs):
            super().forward(Xs)
            return [part.detach() for part in self.parts]

    return Unsummed


def no_sum_backward(chapter):
    """Matters to the block before this one only: the gradient of X."""

    class Unsummed(chapter["Split"]):
        def backward(self, dys):
            super().backward(dys)
            return [X.grad for X in self.Xs]

    return Unsummed


@pytest.mark.parametrize("mistake", [no_sum_forward, no_sum_backward])
def test_a_missing_sum_of_a_block_is_found(chapter, on_one_device, mistake):
    """The output, or the gradient of the input, is no longer that of one device."""
    values, [X, *_], _ = on_one_device["block"]

    def pass_through(make, ctxs):
        cuts = [chapter["cut"](v, axis, ctxs) for v, axis in zip(values, PIECES["block"][0])]
        split = make(chapter["block"], cuts)
        Xs = [chapter["nd"].array(X, ctx=ctx) for ctx in ctxs]
        ys = split.forward(Xs)
        return [a.asnumpy() for a in (ys[0], split.backward(ys)[0])]

    with virtual_gpus(4) as ctxs:
        one = pass_through(chapter["Split"], ctxs[:1])
        assert_near(pass_through(chapter["Split"], ctxs), one)
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            assert_near(pass_through(mistake(chapter), ctxs), one)


@pytest.mark.parametrize("k", COUNTS)
def test_a_ring_agrees_to_the_bit_with_two_devices_only(chapter, k):
    """What the answer to exercise 4 says: another order of sums, other bits."""

    class Ring(chapter["Zero1"]):
        def update(self):
            for l, parts in enumerate(self.gradients):
                mine = chapter["own_shards"](self.weights[l])
                chapter["adam"](mine, d2l.reduce_scatter(parts, ring=True), self.states[l])
                self.weights[l] = d2l.all_gather(mine, ring=True)

    values, batches = chapter["draw_weights"]([32] * 4), chapter["draw_batches"](5, 32, 32)
    with virtual_gpus(k) as ctxs:
        found = chapter["train"](Ring, ctxs, batches, values).weights
        in_parts = chapter["alone"](values, batches, ctxs[0], parts=k)
    assert all((copy == row[0]).all() for row in found for copy in row)
    assert_near([row[0] for row in found], in_parts)
    assert all((row[0] == W).all() for row, W in zip(found, in_parts)) == (k == 2)
