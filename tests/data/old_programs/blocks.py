"""Blocks, parameters, files: an old program, in the manner of the book's chapters on them."""

import os
import tempfile

import mxnet as mx
from mxnet import autograd, gluon, init, nd
from mxnet.gluon import nn


class MLP(nn.Block):
    def __init__(self, **kwargs):
        super(MLP, self).__init__(**kwargs)  # noqa: UP008
        self.hidden = nn.Dense(256, activation="relu")
        self.output = nn.Dense(10)

    def forward(self, x):
        return self.output(self.hidden(x))


print("-- a block, and a Sequential of one's own")
net = MLP()
net.initialize()
print(net)
print(net(nd.ones((2, 20))).shape)


class MySequential(nn.Block):
    def add(self, block):
        self._children[block.name] = block

    def forward(self, x):
        for block in self._children.values():
            x = block(x)
        return x


net = MySequential()
net.add(nn.Dense(8, activation="relu"))
net.add(nn.Dense(3))
net.initialize(init.Constant(0.5))
print(net(nd.ones((2, 4))))
print(net.collect_params())


print("-- a constant, a shared layer and control flow")


class FancyMLP(nn.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.rand_weight = self.params.get_constant("rand_weight", nd.ones((20, 20)) * 0.1)
        self.dense = nn.Dense(20, activation="relu")

    def forward(self, x):
        x = self.dense(x)
        x = nd.relu(nd.dot(x, self.rand_weight.data()) + 1)
        x = self.dense(x)
        while x.norm().asscalar() > 1:
            x /= 2
        if x.norm().asscalar() < 0.8:
            x *= 10
        return x.sum()


net = FancyMLP()
net.initialize(init.Constant(0.01))
print(net(nd.ones((2, 20))))


class NestMLP(nn.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.net = nn.Sequential()
        self.net.add(nn.Dense(64, activation="relu"), nn.Dense(32, activation="relu"))
        self.dense = nn.Dense(16, activation="relu")

    def forward(self, x):
        return self.dense(self.net(x))


net = nn.Sequential()
net.add(NestMLP(), nn.Dense(20), FancyMLP())
net.initialize(init.Constant(0.01))
print(net(nd.ones((2, 20))))
print(net)

print("-- parameters: their names, gradients, initialization")
net = nn.Sequential()
net.add(nn.Dense(4, activation="relu"))
net.add(nn.Dense(2))
net.initialize()
net(nd.ones((2, 3)))
print(net[0].params, type(net[0].params).__name__)
print(net[0].params[net[0].name + "_weight"] is net[0].weight, net[0].weight.shape)
print(net[0].weight.grad())
print(net[1].bias.data())
print(net.collect_params(".*weight"))
net.initialize(init=init.Normal(sigma=0.01), force_reinit=True)
net[0].weight.initialize(init=init.Xavier(), force_reinit=True)


class MyInit(init.Initializer):
    def _init_weight(self, name, data):
        print("Init", name, data.shape)
        data[:] = nd.arange(data.size).reshape(data.shape)
        data *= data.abs() >= 5


net.initialize(MyInit(), force_reinit=True)
print(net[0].weight.data()[0])
net[0].weight.set_data(net[0].weight.data() + 1)
print(net[0].weight.data()[0])

net = nn.Sequential()
shared = nn.Dense(8, activation="relu")
net.add(
    nn.Dense(8, activation="relu"),
    shared,
    nn.Dense(8, activation="relu", params=shared.params),
    nn.Dense(10),
)
net.initialize()
net(nd.ones((2, 20)))
print(net[1].weight.data()[0] == net[2].weight.data()[0])

print("-- deferred initialization")
net = nn.Sequential()
net.add(nn.Dense(6, activation="relu"), nn.Dense(2))
net.initialize(init=MyInit())
print("nothing so far")
net(nd.ones((2, 5)))
net(nd.ones((2, 5)))
net.initialize(init=MyInit(), force_reinit=True)
net = nn.Sequential()
net.add(nn.Dense(6, in_units=5), nn.Dense(2, in_units=6))
net.initialize(init=MyInit())
try:
    nn.Dense(3).weight.data()
except RuntimeError:
    print("a RuntimeError")

print("-- layers of one's own")


class CenteredLayer(nn.Block):
    def forward(self, x):
        return x - x.mean()


print(CenteredLayer()(nd.array([1, 2, 3, 4, 5])))
params = gluon.ParameterDict()
params.get("param2", shape=(2, 3))
print(params)


class MyDense(nn.Block):
    def __init__(self, units, in_units, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get("weight", shape=(in_units, units))
        self.bias = self.params.get("bias", shape=(units,))

    def forward(self, x):
        return nd.relu(nd.dot(x, self.weight.data()) + self.bias.data())


dense = MyDense(units=3, in_units=5)
print(dense.params)
dense.initialize(init.One())
print(dense(nd.ones((2, 5))))

print("-- files")
os.chdir(tempfile.mkdtemp())
x = nd.ones(3)
nd.save("x", x)
print(nd.load("x"))
nd.save("xy", [x, nd.zeros(4)])
print(nd.load("xy"))
nd.save("mydict", {"x": x, "y": nd.zeros(4)})
print(nd.load("mydict"))
net = MLP()
net.initialize(init.Constant(0.1))
Y = net(nd.ones((2, 20)))
net.save_parameters("mlp.params")
net2 = MLP()
net2.load_parameters("mlp.params")
print((net2(nd.ones((2, 20))) == Y).sum().asscalar())

print("-- places")
print(mx.cpu(), mx.gpu(), mx.gpu(1), nd.array([1, 2, 3]).context)
try:
    nd.ones((2, 3), ctx=mx.gpu(99))
except mx.base.MXNetError:
    print("there is no such GPU")

print("-- gradients of a function with control flow")


def f(a):
    b = a * 2
    while b.norm().asscalar() < 1000:
        b = b * 2
    return b if b.sum().asscalar() > 0 else 100 * b


a = nd.array([0.3])
a.attach_grad()
with autograd.record():
    c = f(a)
c.backward()
print(a.grad == c / a)
print(autograd.is_training())
with autograd.record():
    print(autograd.is_training())
