"""autograd.checkpoint on several devices: the same bits as without it."""

from __future__ import annotations

from gpu_kinds import some_gpus
from hybrid_nets import numbers, row

from d2lmini import autograd, nd, random
from d2lmini.gluon import nn


def test_a_function_may_use_two_devices(gpu_kind):
    """With a normalization and a mask on each."""
    answers = []
    with some_gpus(gpu_kind, 2) as (first, second):
        for checkpoint in (lambda f, *xs: f(*xs), autograd.checkpoint):
            random.seed(1)
            x = numbers([(4, 3)])[0].as_in_context(first)
            w = nd.array([3, 4, 5], ctx=second)
            nets = [row(nn.BatchNorm(), nn.Dropout(0.5)) for _ in "ab"]
            for net, ctx in zip(nets, (first, second)):
                net.initialize(ctx=ctx)
                net.hybridize(ctx is second)
            for array in (x, w):
                array.attach_grad()

            def f(x, nets=nets, w=w, second=second):
                return nets[1](nets[0](x).as_in_context(second) * w)

            with autograd.record():
                y = checkpoint(f, x) ** 2
            y.backward()
            means = [net[0].running_mean.data() for net in nets]
            answers.append([v.asnumpy() for v in (y, x.grad, w.grad, *means)])
            assert (x.grad.context, w.grad.context) == (first, second)
    for a, b in zip(*answers, strict=True):
        assert a.tobytes() == b.tobytes() and a.any()
