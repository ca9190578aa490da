"""One net, imperative and compiled: a program in the manner of the book's second edition."""

from pathlib import Path

import numpy as onp
from d2l import mxnet as d2l
from mxnet import np, npx
from mxnet.gluon import nn

npx.set_np()
rng = onp.random.RandomState(0)


def set_weights(net):
    """Weights that do not depend on MXNet's generator."""
    for param in net.collect_params().values():
        param.set_data(np.array(rng.normal(scale=0.1, size=param.shape).astype("float32")))


def get_net():
    net = nn.HybridSequential()
    net.add(nn.Dense(64, activation="relu"), nn.Dense(32, activation="relu"), nn.Dense(2))
    net.initialize()
    return net


print("-- a net of layers, before and after")
x = np.array(rng.normal(size=(1, 128)).astype("float32"))
net = get_net()
net(x)
set_weights(net)
eager = net(x)
net.hybridize()
print(eager.shape, eager)
print("the same result:", bool((np.abs(net(x) - eager) < 1e-5).min()))

print("-- time")
net = get_net()
with d2l.Benchmark("imperative"):
    for _ in range(50):
        net(x)
    npx.waitall()
net.hybridize()
net(x)
with d2l.Benchmark("compiled"):
    for _ in range(50):
        net(x)
    npx.waitall()

print("-- files that other programs can load")
net.export("my_mlp")
print(sorted(path.name for path in Path().glob("my_mlp*")))
print("heads" in Path("my_mlp-symbol.json").read_text())

print("-- a class that says what it sees")


class HybridNet(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(4)
        self.output = nn.Dense(2)

    def hybrid_forward(self, F, x):
        print("F is", "symbol" if "symbol" in F.__name__ else "ndarray")
        print("x is an array:", isinstance(x, np.ndarray))
        x = F.npx.relu(self.hidden(x))
        print("hidden is an array:", isinstance(x, np.ndarray))
        return F.np.abs(self.output(x))


net = HybridNet()
net.initialize()
x = np.array(rng.normal(size=(1, 3)).astype("float32"))
net(x)
set_weights(net)
print("first call:", net(x))
net.hybridize()
print("hybridized:", net(x))
print("and again:", net(x))
