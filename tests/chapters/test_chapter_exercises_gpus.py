"""The exercises of the two chapters on several GPUs: their solutions pass their own checks, and
each typical wrong answer gets a hint of its own."""

from __future__ import annotations

from typing import Any

import pytest
from chapter_cells import hint_of, names_in

from d2lmini import autograd, d2l, nd, virtual_gpus
from d2lmini.gluon import loss as gloss
from d2lmini.gluon import utils as gutils


@pytest.fixture(scope="module")
def by_hand() -> dict[str, Any]:
    return names_in(
        "multiple-gpus", "def stages(", "shapes = [", "def check_buckets", "def check_by_layers"
    )


@pytest.fixture(scope="module")
def with_gluon() -> dict[str, Any]:
    with virtual_gpus(2):
        return names_in(
            "multiple-gpus-gluon",
            "def conv(",
            "def backward(",
            "def one_step(",
            "def check_loop",
            "def step_clipped_by",
            "def check_clipped",
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


def one_by_one(grads, nbytes):
    for same in zip(*grads):
        sum_up(list(same))


def all_in_one(grads, nbytes):
    indices = range(len(grads[0]))
    write_back(grads, indices, flat_sums(grads, indices))


def not_written(grads, nbytes):
    for indices in ([0, 1], [2, 3], [4], [5, 6, 7]):
        flat = flat_sums(grads, indices)
        for part, whole in zip(grads, flat):
            at = 0
            for i in indices:
                part[i] = whole[at : at + part[i].size].reshape(part[i].shape)
                at += part[i].size


def without_the_last(grads, nbytes):
    for indices in ([0], [1], [2, 3], [4]):
        write_back(grads, indices, flat_sums(grads, indices))


def mean_of_both(grads, nbytes):
    for indices in ([0, 1], [2], [3], [4], [5, 6, 7]):
        flat = [whole / 2 for whole in flat_sums(grads, indices)]
        write_back(grads, indices, flat)


def waits_for_each(grads, nbytes):
    for indices in ([0, 1], [2], [3], [4], [5, 6, 7]):
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


def test_buckets_are_right(by_hand, capsys):
    by_hand["check_buckets"](by_hand["bucketed"])
    assert capsys.readouterr().out.splitlines()[-1].endswith("copies each way, 8 gradients")


def test_every_mistake_with_buckets_has_its_hint(by_hand):
    answers = (
        one_by_one, all_in_one, not_written, without_the_last, mean_of_both, waits_for_each,
        through_numpy, adds_nothing,
    )  # fmt: skip
    assert {each.__name__: hint_of(by_hand["check_buckets"], each) for each in answers} == {
        "one_by_one": "many",
        "all_in_one": "one",
        "not_written": "lost",
        "without_the_last": "left",
        "mean_of_both": "values",
        "waits_for_each": "waitall",
        "through_numpy": "reading",
        "adds_nothing": "nothing",
    }


# -- a net cut by layers ---------------------------------------------------------------------------

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


def test_a_net_by_layers_is_right(by_hand, capsys):
    by_hand["check_by_layers"](by_hand["by_layers"])
    assert capsys.readouterr().out.endswith("gpu(0) may run beside gpu(1)\n")


def test_every_mistake_by_layers_has_its_hint(by_hand):
    answers = (
        waits_at_the_cut, waits_for_all, by_way_of_numpy, on_one_device, forgets_relu,
    )  # fmt: skip
    assert {each.__name__: hint_of(by_hand["check_by_layers"], each) for each in answers} == {
        "waits_at_the_cut": "waiting",
        "waits_for_all": "waitall",
        "by_way_of_numpy": "reading",
        "on_one_device": "place",
        "forgets_relu": "values",
    }


# -- a training loop -------------------------------------------------------------------------------


def loop_with(after_step=None, after_backward=None, reduce=nd.sum, step=True):
    """A training loop that does something more, or less, in each batch."""

    def answer(net, trainer, batches, devices):
        loss = gloss.SoftmaxCrossEntropyLoss()
        sums = [nd.zeros((1,), ctx=ctx) for ctx in devices]
        for X, y in batches:
            Xs, ys = (gutils.split_and_load(part, devices) for part in (X, y))
            with autograd.record():
                losses = [loss(net(X_i), y_i) for X_i, y_i in zip(Xs, ys)]
            autograd.backward(losses)
            if after_backward:
                after_backward(losses)
            if step:
                trainer.step(len(X))
            for total, l in zip(sums, losses):
                total += reduce(l)
            if after_step:
                after_step(losses)
        return sum(total.asscalar() for total in sums)

    return answer


def stop_if_large(losses):
    if losses[0].sum() > 1e9:
        raise ValueError


LOOPS = {
    "waitall": loop_with(after_backward=lambda losses: nd.waitall()),
    "reading": loop_with(after_step=lambda losses: losses[0].asnumpy()),
    "waiting": loop_with(after_backward=lambda losses: losses[1].wait_to_read()),
    "hidden": loop_with(after_step=stop_if_large),
    "values": loop_with(reduce=nd.mean),
    "missing": loop_with(step=False),
}


def test_a_loop_is_right(with_gluon, capsys):
    assert with_gluon["check_loop"](with_gluon["trains"]) == "the sum is right"
    out = capsys.readouterr().out
    assert out == "at most 2 waits in all\n_conv_backward_weight may run beside CopyGPU2GPU\n"


@pytest.mark.parametrize("hint", LOOPS)
def test_every_mistake_of_a_loop_has_its_hint(with_gluon, hint):
    assert hint_of(with_gluon["check_loop"], LOOPS[hint]) == hint


# -- clipping --------------------------------------------------------------------------------------


def clip(grads, theta, batch_size):
    norm = nd.add_n(*[(g * g).sum() for g in grads]).sqrt() / batch_size
    for g in grads:
        g *= nd.minimum(theta / norm, 1)


def of_each_device(net):
    return zip(*(p.list_grad() for p in net.collect_params().values()))


def parts(net, trainer, theta, batch_size):
    for grads in of_each_device(net):
        clip(grads, theta, batch_size)
    trainer.allreduce_grads()
    trainer.update(batch_size)


def each(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for p in net.collect_params().values():
        for g in p.list_grad():
            clip([g], theta, batch_size)
    trainer.update(batch_size)


def batch(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        clip(grads, theta, 1)
    trainer.update(batch_size)


def unclipped(net, trainer, theta, batch_size):
    trainer.step(batch_size)


def still(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        clip(grads, theta, batch_size)


def apart(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    clip(next(of_each_device(net)), theta, batch_size)
    trainer.update(batch_size)


def reading(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        norm = sum((g * g).sum().asscalar() for g in grads) ** 0.5 / batch_size
        if norm > theta:
            for g in grads:
                g *= theta / norm
    trainer.update(batch_size)


def test_clipping_is_right(with_gluon):
    assert with_gluon["check_clipped"](with_gluon["clips"]) == "a step of norm 0.10"


@pytest.mark.parametrize("answer", (parts, each, batch, unclipped, still, apart, reading))
def test_every_mistake_of_clipping_has_its_hint(with_gluon, answer):
    assert hint_of(with_gluon["check_clipped"], answer) == answer.__name__


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
