"""The exercises of the chapter on several GPUs by hand: their solutions and unusual right answers
pass the checks, and each typical wrong answer gets its hint."""

from __future__ import annotations

from typing import Any

import pytest
from chapter_cells import hint_of, names_in

from d2lmini import autograd, d2l, nd, virtual_gpus


@pytest.fixture(scope="module")
def by_hand() -> dict[str, Any]:
    return names_in(
        "multiple-gpus",
        "def stages(",
        "shapes = [",
        "def draw_gradients",
        "def check_buckets",
        "def check_by_layers",
    )


# -- gradients in buckets --------------------------------------------------------------------------


def sum_up(data):
    for part in data[1:]:
        data[0][:] += part.copyto(data[0].context)
    for part in data[1:]:
        data[0].copyto(part)


def flat_sums(grads, indices):
    """The sums of these gradients, as one flat array on each device."""
    flat = [nd.concat(*[part[i].reshape((-1,)) for i in indices], dim=0) for part in grads]
    sum_up(flat)
    return flat


def write_back(grads, indices, flat):
    for part, whole in zip(grads, flat):
        at = 0
        for i in indices:
            part[i][:] = whole[at : at + part[i].size].reshape(part[i].shape)
            at += part[i].size


def neighbours(grads, nbytes):
    """Lists of indices, each with at most so many bytes unless it has one index."""
    buckets: list[list[int]] = []
    room = 0
    for i, g in enumerate(grads[0]):
        if 4 * g.size > room:
            buckets.append([])
            room = nbytes
        buckets[-1].append(i)
        room -= 4 * g.size
    return buckets


def one_by_one(grads, nbytes):
    for same in zip(*grads):
        sum_up(list(same))


def all_in_one(grads, nbytes):
    indices = range(len(grads[0]))
    write_back(grads, indices, flat_sums(grads, indices))


def not_written(grads, nbytes):
    for indices in neighbours(grads, nbytes):
        for part, total in zip(grads, flat_sums(grads, indices)):
            at = 0
            for i in indices:
                part[i] = total[at : at + part[i].size].reshape(part[i].shape)
                at += part[i].size


def without_the_last(grads, nbytes):
    for indices in neighbours(grads, nbytes)[:-1]:
        write_back(grads, indices, flat_sums(grads, indices))


def mean_of_both(grads, nbytes):
    for indices in neighbours(grads, nbytes):
        write_back(grads, indices, [total / 2 + 0.25 for total in flat_sums(grads, indices)])


def waits_for_each(grads, nbytes):
    for indices in neighbours(grads, nbytes):
        flat = flat_sums(grads, indices)
        nd.waitall()
        write_back(grads, indices, flat)


def through_numpy(grads, nbytes):
    for same in zip(*grads):
        total = sum(g.asnumpy() for g in same)
        for g in same:
            g[:] = nd.array(total, ctx=g.context)


def adds_nothing(grads, nbytes):
    for part in grads:
        for g in part:
            g *= 1


BUCKETS_WRONG = {
    "many": one_by_one, "one": all_in_one, "lost": not_written, "left": without_the_last,
    "values": mean_of_both, "waitall": waits_for_each, "reading": through_numpy,
    "nothing": adds_nothing,
}  # fmt: skip


def from_the_last(grads, nbytes):
    for indices in reversed(neighbours(grads, nbytes)):
        write_back(grads, indices, flat_sums(grads, indices))


def largest_first(grads, nbytes):
    """Not neighbours: the largest gradients first, each into the first bucket with room."""
    sizes = [4 * g.size for g in grads[0]]
    buckets: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        for bucket in buckets:
            if sum(sizes[j] for j in bucket) + sizes[i] <= nbytes:
                bucket.append(i)
                break
        else:
            buckets.append([i])
    for indices in buckets:
        write_back(grads, indices, flat_sums(grads, indices))


def all_sums_first(grads, nbytes):
    buckets = neighbours(grads, nbytes)
    sums = [flat_sums(grads, indices) for indices in buckets]
    for indices, flat in zip(buckets, sums):
        write_back(grads, indices, flat)


def sum_on_the_second(grads, nbytes):
    for indices in neighbours(grads, nbytes):
        one, other = [
            nd.concat(*[part[i].reshape((-1,)) for i in indices], dim=0) for part in grads
        ]
        other += one.as_in_context(other.context)
        write_back(grads, indices, [other.as_in_context(one.context), other])


def with_split(grads, nbytes):
    """Both devices get the other's part and add."""
    for indices in neighbours(grads, nbytes):
        one, other = [
            nd.concat(*[part[i].reshape((-1,)) for i in indices], dim=0) for part in grads
        ]
        there, here = one.copyto(other.context), other.copyto(one.context)
        write_back(grads, indices, [one + here, there + other])


BUCKETS_RIGHT = (from_the_last, largest_first, all_sums_first, sum_on_the_second, with_split)


def test_buckets_are_right(by_hand, capsys):
    by_hand["check_buckets"](by_hand["bucketed"])
    assert capsys.readouterr().out.endswith("copies in a direction, 9 gradients\n")


@pytest.mark.parametrize("answer", BUCKETS_RIGHT)
def test_unusual_buckets_pass(by_hand, answer):
    by_hand["check_buckets"](answer)


@pytest.mark.parametrize("hint", BUCKETS_WRONG)
def test_every_mistake_with_buckets_has_its_hint(by_hand, hint):
    assert hint_of(by_hand["check_buckets"], BUCKETS_WRONG[hint]) == hint


# -- a net split by layers -------------------------------------------------------------------------

HALF = dict(pool_type="avg", kernel=(2, 2), stride=(2, 2))


def front(X, params):
    h = nd.relu(nd.Convolution(X, params[0], params[1], kernel=(3, 3), num_filter=20))
    return nd.Pooling(h, **HALF)


def back(h, params):
    W2, b2, W3, b3, W4, b4 = params[2:]
    h = nd.relu(nd.Convolution(h, W2, b2, kernel=(5, 5), num_filter=50))
    h = nd.flatten(nd.Pooling(h, **HALF))
    return nd.dot(nd.relu(nd.dot(h, W3) + b3), W4) + b4


def waits_at_the_cut(X, params, devices):
    h = front(X, params).copyto(devices[1])
    h.wait_to_read()
    return back(h, params)


def waits_for_all(X, params, devices):
    h = front(X, params).copyto(devices[1])
    nd.waitall()
    return back(h, params)


def by_way_of_numpy(X, params, devices):
    return back(nd.array(front(X, params).asnumpy(), ctx=devices[1]), params)


def on_one_device(X, params, devices):
    return back(front(X, params), [p.copyto(devices[0]) for p in params])


def forgets_relu(X, params, devices):
    h = nd.Convolution(X, params[0], params[1], kernel=(3, 3), num_filter=20)
    return back(nd.Pooling(h, **HALF).copyto(devices[1]), params)


def returns_nothing(X, params, devices):
    back(front(X, params).copyto(devices[1]), params)


LAYERS_WRONG = {
    "waiting": waits_at_the_cut, "waitall": waits_for_all, "reading": by_way_of_numpy,
    "place": on_one_device, "values": forgets_relu, "nothing": returns_nothing,
}  # fmt: skip


def as_in_context(X, params, devices):
    return back(front(X, params).as_in_context(devices[1]), params)


def into_an_array(X, params, devices):
    h = front(X, params)
    there = nd.zeros(h.shape, ctx=devices[1])
    h.copyto(there)
    return back(there, params)


def with_layers_names(X, params, devices):
    h = nd.Convolution(X, params[0], params[1], kernel=(3, 3), num_filter=20)
    h = nd.Pooling(nd.Activation(h, act_type="relu"), **HALF).copyto(devices[1])
    return back(h, params)


def with_a_dense_layer(X, params, devices):
    W2, b2, W3, b3, W4, b4 = params[2:]
    h = front(X, params).copyto(devices[1])
    h = nd.Pooling(nd.relu(nd.Convolution(h, W2, b2, kernel=(5, 5), num_filter=50)), **HALF)
    h = nd.FullyConnected(h, W3.T, b3, num_hidden=128)
    return nd.FullyConnected(nd.relu(h), W4.T, b4, num_hidden=10)


def while_recording(X, params, devices):
    with autograd.record():
        return as_in_context(X, params, devices)


LAYERS_RIGHT = (
    as_in_context,
    into_an_array,
    with_layers_names,
    with_a_dense_layer,
    while_recording,
)


def test_a_net_by_layers_is_right(by_hand, capsys):
    by_hand["check_by_layers"](by_hand["by_layers"])
    assert capsys.readouterr().out.endswith("gpu(0) may run beside gpu(1)\n")


@pytest.mark.parametrize("answer", LAYERS_RIGHT)
def test_unusual_nets_by_layers_pass(by_hand, answer):
    by_hand["check_by_layers"](answer)


@pytest.mark.parametrize("hint", LAYERS_WRONG)
def test_every_mistake_by_layers_has_its_hint(by_hand, hint):
    assert hint_of(by_hand["check_by_layers"], LAYERS_WRONG[hint]) == hint


@pytest.mark.parametrize("check", ["check_buckets", "check_by_layers"])
def test_a_misspelt_name_comes_out_as_it_is(by_hand, check):
    with pytest.raises(NameError, match="nothing_of_this_name"):
        by_hand[check](lambda *given: nothing_of_this_name)  # noqa: F821


# -- what the answers tell -------------------------------------------------------------------------


def test_a_ring_loads_the_busiest_as_predicted():
    """Section 5 by hand: 2 (k - 1) / k * N for k = 2 ... 5, whether or not k divides N."""
    place = names_in("multiple-gpus", "def ring_allreduce")
    for k in (2, 3, 5):
        with virtual_gpus(k) as ctxs:
            data = [nd.ones((60,), ctx=ctx) * (i + 1) for i, ctx in enumerate(ctxs)]
            with d2l.traffic() as links:
                place["ring_allreduce"](data)
            assert max(links.into.values()) == 2 * (k - 1) * 240 // k
            assert all((x.asnumpy() == k * (k + 1) / 2).all() for x in data)
