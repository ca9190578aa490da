"""A program of somebody else's, in a folder of its own, who installed the library and no more.

It trains with `Trainer`, times with `Benchmark` and looks with `profile`; run it anywhere.
"""

from pathlib import Path

import d2lmini
from d2lmini import autograd, gluon, nd, profile
from d2lmini.d2l import Benchmark
from d2lmini.gluon import Trainer

assert not (Path(d2lmini.__file__).parents[1] / "pyproject.toml").exists(), (
    f"the library of the tree is running, not an installed one: {d2lmini.__file__}"
)
X = nd.random.normal(shape=(64, 3))
y = nd.dot(X, nd.array([[1.0], [2.0], [3.0]]))
net = gluon.nn.Dense(1)
net.initialize()
trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
loss = gluon.loss.L2Loss()
with Benchmark("trained in"), profile() as trace:
    for _ in range(50):
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(64)
    print("weights", net.weight.data().asnumpy().round(1).tolist())
assert net.weight.data().asnumpy().round(1).tolist() == [[1.0, 2.0, 3.0]]
assert any(operation.name == "FullyConnected" for operation in trace.operations)
print(trace.summary())
