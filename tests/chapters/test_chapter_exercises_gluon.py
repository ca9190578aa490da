"""The exercises of the chapter on several GPUs with Gluon: their solutions and unusual right
answers pass the checks, and each typical wrong answer gets its hint."""

from __future__ import annotations

from typing import Any

import pytest
from chapter_cells import hint_of, names_in

from d2lmini import autograd, nd, virtual_gpus
from d2lmini.gluon import loss as gloss
from d2lmini.gluon import utils as gutils


@pytest.fixture(scope="module")
def with_gluon() -> dict[str, Any]:
    with virtual_gpus(2):
        return names_in(
            "multiple-gpus-gluon",
            "def conv(",
            "def backward(",
            "def one_step(",
            "def reference_loop",
            "def check_loop",
            "def step_clipped_by",
            "def typical_steps",
            "def check_clipped",
        )


# -- a training loop -------------------------------------------------------------------------------


def loop_with(
    after_step=None, after_backward=None, reduce=nd.sum, step=len, last=float, backward=None
):
    """A training loop that does something more, or less, or in another way, in each batch.

    step: the batch -> what it is divided by; None: no step. last: the sum of a device -> a number
    """

    def answer(net, trainer, batches, devices):
        loss = gloss.SoftmaxCrossEntropyLoss()
        sums = [nd.zeros((1,), ctx=ctx) for ctx in devices]
        for X, y in batches:
            Xs, ys = (gutils.split_and_load(part, devices) for part in (X, y))
            with autograd.record():
                losses = [loss(net(X_i), y_i) for X_i, y_i in zip(Xs, ys)]
            (backward or autograd.backward)(losses)
            if after_backward:
                after_backward(losses)
            if step:
                trainer.step(step(X))
            for total, l in zip(sums, losses):
                total += reduce(l)
            if after_step:
                after_step(losses)
        return sum(last(total.asscalar()) for total in sums)

    return answer


def stop_if_large(losses):
    if losses[0].sum() > 1e9:
        raise ValueError


def one_by_one_backward(losses):
    for l in losses:
        l.backward()


def kept_in_a_list(net, trainer, batches, devices):
    """All losses are kept, and added up on the first device at the end."""
    loss, kept = gloss.SoftmaxCrossEntropyLoss(), []
    for X, y in batches:
        Xs, ys = (gutils.split_and_load(part, devices) for part in (X, y))
        with autograd.record():
            losses = [loss(net(X_i), y_i) for X_i, y_i in zip(Xs, ys)]
        autograd.backward(losses)
        trainer.step(X.shape[0])
        kept += [l.sum().as_in_context(devices[0]) for l in losses]
    return nd.add_n(*kept).asscalar()


def in_two_calls(net, trainer, batches, devices):
    """The last device first, and slices made by hand."""
    loss, total = gloss.SoftmaxCrossEntropyLoss(), 0
    for X, y in batches:
        half = len(X) // 2
        rows = (slice(half, None), slice(0, half))
        with autograd.record():
            losses = [
                loss(net(X[r].as_in_context(ctx)), y[r].as_in_context(ctx))
                for r, ctx in zip(rows, reversed(devices))
            ]
        autograd.backward(losses)
        trainer.step(len(X))
        total = sum(l.sum().as_in_context(devices[0]) for l in losses) + total
    return total.asnumpy()[0]


def gives_no_number(net, trainer, batches, devices):
    loop_with()(net, trainer, batches, devices)


LOOPS_WRONG = {
    "waitall": loop_with(after_backward=lambda losses: nd.waitall()),
    "reading": loop_with(after_step=lambda losses: losses[0].asnumpy()),
    "waiting": loop_with(after_backward=lambda losses: losses[1].wait_to_read()),
    "hidden": loop_with(after_step=stop_if_large),
    "values": loop_with(reduce=nd.mean),
    "missing": loop_with(step=None),
    "weights": loop_with(step=lambda X: len(X) // 2),
}
LOOPS_RIGHT = {
    "one by one": loop_with(backward=one_by_one_backward),
    "by shape": loop_with(step=lambda X: X.shape[0]),
    "kept in a list": kept_in_a_list,
    "in two calls": in_two_calls,
    "flat": loop_with(reduce=lambda l: l.reshape((-1,)).sum(axis=0)),
}


def test_a_loop_is_right(with_gluon, capsys):
    assert with_gluon["check_loop"](with_gluon["trains"]) == "the sum is right"
    out = capsys.readouterr().out
    assert out == "at most 2 waits in all\n_conv_backward_weight may run beside CopyGPU2GPU\n"


@pytest.mark.parametrize("name", LOOPS_RIGHT)
def test_unusual_loops_pass(with_gluon, name):
    with_gluon["check_loop"](LOOPS_RIGHT[name])


@pytest.mark.parametrize("hint", LOOPS_WRONG)
def test_every_mistake_of_a_loop_has_its_hint(with_gluon, hint):
    assert hint_of(with_gluon["check_loop"], LOOPS_WRONG[hint]) == hint
    assert hint_of(with_gluon["check_loop"], gives_no_number) == "values"


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


def always(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        norm = nd.add_n(*[(g * g).sum() for g in grads]).sqrt() / batch_size
        for g in grads:
            g *= theta / norm
    trainer.update(batch_size)


def half(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        clip(grads, theta / 2, batch_size)
    trainer.update(batch_size)


def by_a_flat_array(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        flat = nd.concat(*[g.reshape((-1,)) for g in grads], dim=0)
        scale = nd.minimum(theta * batch_size / flat.norm(), nd.ones((1,), ctx=flat.context))
        for g in grads:
            g[:] = g * scale
    trainer.update(batch_size)


def by_clip(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        norm = nd.add_n(*[nd.square(g).sum() for g in grads]).sqrt()
        for g in grads:
            g[:] = nd.broadcast_mul(
                g, nd.clip(theta * batch_size / norm, 0, 1).reshape((1,) * g.ndim)
            )
    trainer.update(batch_size)


def by_where(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        norm = nd.add_n(*[(g * g).sum() for g in grads]).sqrt() / batch_size
        scale = nd.where(norm > theta, theta / norm, nd.ones_like(norm))
        for g in grads:
            g *= scale
    trainer.update(batch_size)


def one_scale_for_both(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    devices = [list(grads) for grads in of_each_device(net)]
    norm = nd.add_n(*[(g * g).sum() for g in devices[0]]).sqrt() / batch_size
    scale = nd.minimum(theta / norm, 1)
    for grads in devices:
        here = scale.as_in_context(grads[0].context)
        for g in grads:
            g *= here
    trainer.update(batch_size)


def divided_first(net, trainer, theta, batch_size):
    trainer.allreduce_grads()
    for grads in of_each_device(net):
        for g in grads:
            g /= batch_size
        clip(grads, theta, 1)
    trainer.update(1)


CLIPS_RIGHT = (by_a_flat_array, by_clip, by_where, one_scale_for_both, divided_first)


def test_clipping_is_right(with_gluon):
    said = "clipped when it is too long, and only then"
    assert with_gluon["check_clipped"](with_gluon["clips"]) == said


@pytest.mark.parametrize("answer", CLIPS_RIGHT)
def test_unusual_clipping_passes(with_gluon, answer):
    with_gluon["check_clipped"](answer)


@pytest.mark.parametrize("answer", (parts, each, batch, unclipped, still, apart, reading, always))
def test_every_mistake_of_clipping_has_its_hint(with_gluon, answer):
    assert hint_of(with_gluon["check_clipped"], answer) == answer.__name__
    assert hint_of(with_gluon["check_clipped"], half) == "norm"


@pytest.mark.parametrize("check", ["check_loop", "check_clipped"])
def test_a_misspelt_name_comes_out_there_too(with_gluon, check):
    with pytest.raises(NameError, match="nothing_of_this_name"):
        with_gluon[check](lambda *given: nothing_of_this_name)  # noqa: F821
