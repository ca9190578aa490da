"""How much work an operation is for a GPU: what is put on its stream, counted by the fake.

An operation is a kernel, a product or a copy; a launch costs the host some microseconds, whatever
it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from gpu_kinds import fake_gpus

from d2lmini import autograd, engine, gluon, gpu, nd
from d2lmini.gluon import nn, rnn

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")

#: No kernels: marks on streams, copies, what the fake does to memory that is given back.
NO_LAUNCH = {"record", "wait_event", "copy", "set", "get", "setitem", "poison"}


def entropy(x: Any) -> Any:
    return gluon.loss.SoftmaxCrossEntropyLoss()(x, nd.zeros(x.shape[:1], ctx=x.ctx))


def layer(block: Any) -> Callable[[Any], Any]:
    block.initialize(ctx=gpu(0))
    return block


#: What is called, on which shape, and how many kernels and products it may be: (kernels forward,
#: with backward; products forward, with backward).
TABLE = {
    "softmax cross-entropy": (lambda: entropy, (8, 5), (1, 2), (0, 0)),
    "BatchNorm": (lambda: layer(nn.BatchNorm(in_channels=3)), (4, 3, 5, 5), (1, 2), (0, 0)),
    "LayerNorm": (lambda: layer(nn.LayerNorm(in_channels=5)), (4, 3, 5), (1, 4), (0, 0)),
    "softmax": (lambda: nd.softmax, (4, 5), (1, 2), (0, 0)),
    "AvgPool": (lambda: layer(nn.AvgPool2D(2, 2)), (2, 3, 6, 6), (2, 4), (0, 0)),
    "padded AvgPool": (lambda: layer(nn.AvgPool2D(3, 2, 1)), (2, 3, 7, 7), (2, 4), (0, 0)),
    "LSTM": (lambda: layer(rnn.LSTM(4, input_size=3)), (16, 2, 3), (40, 90), (17, 36)),
    "GRU": (lambda: layer(rnn.GRU(4, input_size=3)), (16, 2, 3), (40, 90), (18, 39)),
    "Conv2D": (lambda: layer(nn.Conv2D(4, 3, in_channels=3)), (2, 3, 6, 6), (2, 8), (1, 3)),
    "Dense": (lambda: layer(nn.Dense(4, in_units=3)), (2, 3), (1, 3), (1, 3)),
    "batch_dot": (lambda: lambda x: nd.batch_dot(x, x), (2, 3, 3), (0, 1), (1, 3)),
}


def launched(issued: Counter[str]) -> Counter[str]:
    return Counter({name: n for name, n in issued.items() if name not in NO_LAUNCH})


@pytest.mark.parametrize("what", TABLE)
def test_an_operation_is_so_many_launches(what):
    make, shape, kernels, products = TABLE[what]
    with fake_gpus() as fake:
        function = make()
        x = nd.array(np.ones(shape), ctx=gpu(0))
        x.attach_grad()
        for _ in range(2):  # parameters are made at the first call
            nd.waitall()
            before = fake.machine.issued.copy()
            with autograd.record():
                y = function(x)
            nd.waitall()
            forward = launched(fake.machine.issued - before)
            head = nd.ones_like(y)
            nd.waitall()
            before = fake.machine.issued.copy()
            y.backward(head)
            nd.waitall()
            both = forward + launched(fake.machine.issued - before)
        for found, most, multiplied in zip((forward, both), kernels, products):
            assert found["gemm"] == multiplied, found
            assert found.total() - found["gemm"] <= most, found
        engine.waitall()
