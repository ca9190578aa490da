"""Collectives over devices: values, the order of sums, bytes, gradients, errors."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import autograd, cpu, d2l, kv, nd, virtual_gpus

COUNTS = [1, 2, 4, 8]


def draw(k, shape=(16, 3), dtype="float32"):
    """An array of NumPy for each of k devices."""
    return list(np.random.default_rng(k).normal(size=(k, *shape)).astype(dtype))


def sum_in_order(values):
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total


def arrays_on(ctxs, values):
    return [nd.array(value, ctx=ctx, dtype=value.dtype) for value, ctx in zip(values, ctxs)]


def sum_in_ring(values):
    """Shard i is summed from device i + 1 on, once around."""
    k = len(values)
    shards = [np.split(value, k) for value in values]
    return np.concatenate(
        [sum_in_order([shards[(i + 1 + s) % k][i] for s in range(k)]) for i in range(k)]
    )


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_to_the_bit_and_bytes(k, ring, dtype):
    values = draw(k, dtype=dtype)
    total = sum_in_ring(values) if ring else sum_in_order(values)
    nbytes = values[0].nbytes
    with virtual_gpus(k) as ctxs:
        parts = arrays_on(ctxs, values)
        nd.waitall()
        with d2l.traffic() as links:
            shards = d2l.reduce_scatter(parts, ring=ring)
        assert links.nbytes == (k - 1) * nbytes
        assert all(links.into[str(ctx)] == (k - 1) * nbytes // k for ctx in ctxs)
        assert all(links.out_of[str(ctx)] == (k - 1) * nbytes // k for ctx in ctxs)
        assert [x.context for x in shards] == list(ctxs)
        np.testing.assert_array_equal(np.concatenate([x.asnumpy() for x in shards]), total)
        with d2l.traffic() as links:
            wholes = d2l.all_gather(shards, ring=ring)
        assert links.nbytes == (k - 1) * nbytes
        with d2l.traffic() as links:
            sums = d2l.all_reduce(parts, ring=ring)
        assert all(links.into[str(ctx)] == 2 * (k - 1) * nbytes // k for ctx in ctxs)
        for x, ctx in zip(wholes + sums, [*ctxs, *ctxs]):
            assert x.context == ctx and x.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(x.asnumpy(), total)
        for part, value in zip(parts, values):
            np.testing.assert_array_equal(part.asnumpy(), value)


def test_a_ring_uses_neighbours_only():
    with virtual_gpus(4) as ctxs:
        parts = arrays_on(ctxs, draw(4))
        with d2l.traffic() as links:
            d2l.all_reduce(parts, ring=True)
    assert set(links.between) == {(f"gpu({i})", f"gpu({(i + 1) % 4})") for i in range(4)} | {
        way for way in links.between if way[0] == "cpu"
    }


def test_the_sum_has_the_bits_of_the_kvstore():
    values = draw(4)
    with virtual_gpus(4) as ctxs:
        parts, outs = arrays_on(ctxs, values), arrays_on(ctxs, values)
        store = kv.create("device")
        store.init("g", nd.zeros(values[0].shape))
        store.pushpull("g", outs)
        for one, other in zip(d2l.all_reduce(parts), outs):
            np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_one_device_may_stand_for_all():
    values = draw(4)
    with virtual_gpus(1) as (one,):
        parts = arrays_on([one] * 4, values)
        with d2l.traffic() as links:
            shards = d2l.reduce_scatter(parts)
            wholes = d2l.all_gather(shards)
        assert links.nbytes == 0
        for x in wholes:
            np.testing.assert_array_equal(x.asnumpy(), sum_in_order(values))


@pytest.mark.parametrize("ring", [False, True])
def test_shards_are_arrays_of_their_own(ring):
    """Writing to a shard changes no part, and the other way round; also on one device."""
    for k in (1, 2):
        parts = arrays_on([cpu(0)] * k, draw(k))
        shards = d2l.reduce_scatter(parts, ring=ring)
        expected = [x.asnumpy() for x in shards]
        for part in parts:
            part[:] = 0
        for shard, value in zip(shards, expected):
            np.testing.assert_array_equal(shard.asnumpy(), value)


def test_autograd_records_an_all_reduce():
    """The gradient of a sum over devices: what arrives at all copies, at each part."""
    with virtual_gpus(2) as ctxs:
        parts = arrays_on(ctxs, draw(2))
        for x in parts:
            x.attach_grad()
        with autograd.record():
            sums = d2l.all_reduce(parts)
        heads = [nd.full(x.shape, i + 1.0, ctx=x.context) for i, x in enumerate(sums)]
        autograd.backward(sums, heads)
        assert all((x.grad.asnumpy() == 3).all() for x in parts)


def ones(*shape, **options):
    return nd.ones(shape, **options)


@pytest.mark.parametrize(
    ("call", "arrays", "error", "says"),
    [
        ("reduce_scatter", [], ValueError, "the list is empty"),
        ("reduce_scatter", [ones(3), ones(3)], ValueError, r"\(3,\) has no 2 equal shards"),
        ("all_reduce", [ones(4), ones(2, 2)], ValueError, "the arrays differ"),
        ("all_gather", [ones(4), ones(4, dtype="float64")], ValueError, "the arrays differ"),
        ("all_gather", [nd.array(np.ones(()))] * 2, ValueError, "a number has no first axis"),
        ("all_gather", ones(4), TypeError, "a list with an NDArray for each device"),
        ("all_reduce", [1.0, 2.0], TypeError, "a list with an NDArray for each device"),
    ],
)
def test_errors(call, arrays, error, says):
    with pytest.raises(error, match=f"^{call}: .*{says}"):
        getattr(d2l, call)(arrays)
