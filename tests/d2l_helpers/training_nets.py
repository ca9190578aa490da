"""Nets and training steps whose memory the tests predict and measure."""

from __future__ import annotations

import math

from d2lmini import autograd, d2l, gluon, init, nd
from d2lmini.contrib import amp
from d2lmini.gluon import nn

OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.01}),
    "adam": ("adam", {"learning_rate": 0.01}),
}


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(128, activation="tanh"), nn.Dense(10))
    return net, (64, 784)


def lenet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, padding=2, activation="sigmoid"),
        nn.AvgPool2D(pool_size=2, strides=2),
        nn.Conv2D(16, kernel_size=5, activation="sigmoid"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Dense(120, activation="sigmoid"),
        nn.Dropout(0.5),
        nn.Dense(10),
    )
    return net, (16, 1, 28, 28)


def resnet18():
    return d2l.resnet18(10), (4, 3, 32, 32)


class Layer(gluon.HybridBlock):
    """A layer of a transformer: attention with several heads, then two dense layers."""

    def __init__(self, units, heads):
        super().__init__()
        self.units, self.heads = units, heads
        self.qkv = nn.Dense(3 * units, flatten=False)
        self.out = nn.Dense(units, flatten=False)
        self.first, self.second = nn.LayerNorm(), nn.LayerNorm()
        self.wide = nn.Dense(4 * units, flatten=False, activation="relu")
        self.narrow = nn.Dense(units, flatten=False)
        self.drop = nn.Dropout(0.1)

    def hybrid_forward(self, F, x):
        parts = F.split(self.qkv(self.first(x)), num_outputs=3, axis=-1)
        q, k, v = (self._heads(F, part) for part in parts)
        scores = F.batch_dot(q, k, transpose_b=True) / math.sqrt(self.units / self.heads)
        seen = F.batch_dot(self.drop(F.softmax(scores, axis=-1)), v)
        seen = F.reshape(seen, shape=(-4, -1, self.heads, -2))
        seen = F.reshape(F.transpose(seen, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = x + self.out(seen)
        return x + self.narrow(self.wide(self.second(x)))

    def _heads(self, F, part):
        part = F.reshape(part, shape=(0, 0, -4, self.heads, -1))
        return F.reshape(F.transpose(part, axes=(0, 2, 1, 3)), shape=(-3, -2))


def transformer():
    net = nn.HybridSequential()
    net.add(nn.Embedding(100, 64), Layer(64, 4), Layer(64, 4), nn.Dense(10))
    return net, (8, 24)


NETS = {"mlp": mlp, "lenet": lenet, "resnet18": resnet18, "transformer": transformer}


def make_amp_step(name, hybrid=False):
    """(step, inputs, net): one step of training with scaled losses; call it within `amp.init`."""
    net, shape = NETS[name]()
    net.initialize(init.Xavier())
    net(nd.ones(shape))
    if hybrid:
        net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    amp.init_trainer(trainer)

    def step(X, y):
        with autograd.record():
            loss_of_batch = loss(net(X), y)
            with amp.scale_loss(loss_of_batch, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(X.shape[0])

    return step, (nd.ones(shape), nd.zeros(shape[0])), net


def make_step(name, optimizer="sgd", mixed=False, hybrid=False, call=None, **flags):
    """(step, inputs, net): one step of training; `mixed`: float16 weights with float32 copies;
    `call`: calls each child of the net by itself; flags: of hybridize."""
    net, shape = NETS[name]()
    net.initialize(init.Xavier())
    net(nd.ones(shape))
    dtype = "float16" if mixed else "float32"
    net.cast(dtype)
    if hybrid:
        net.hybridize(**flags)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    kind, arguments = OPTIMIZERS[optimizer]
    trainer = gluon.Trainer(net.collect_params(), kind, {**arguments, "multi_precision": mixed})

    def forward(X):
        if call is None:
            return net(X)
        for layer in net:
            X = call(layer, X)
        return X

    def step(X, y):
        with autograd.record():
            loss_of_batch = loss(forward(X), y)
        loss_of_batch.backward()
        trainer.step(X.shape[0])

    X = nd.ones(shape) if name == "transformer" else nd.ones(shape, dtype=dtype)
    return step, (X, nd.zeros(shape[0])), net
