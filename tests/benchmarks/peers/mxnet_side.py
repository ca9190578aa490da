"""Apache MXNet 1.9.1: calls return at once, `nd.waitall()` waits for all of them."""

from __future__ import annotations

import os
from typing import Any

import compiled
import loading
import numpy as np
import resnet
from peers import gluon_nets
from peers.side import Side, Turn


class MXNet(Side):
    library = "mxnet"
    module = "mxnet"
    statement = "from mxnet import nd"

    def __init__(self) -> None:
        super().__init__()
        self.nd = self.lib.nd

    def array(self, x: np.ndarray) -> Any:
        return self.nd.array(x)

    def to_numpy(self, x: Any) -> np.ndarray:
        return x.asnumpy()

    def wait(self, last: Any) -> None:
        self.nd.waitall()

    def threads(self) -> str:
        workers = os.environ.get("MXNET_CPU_WORKER_NTHREADS", "1")
        threads = os.environ.get("OMP_NUM_THREADS", os.cpu_count())
        return f"{workers} engine worker(s), {threads} OpenMP threads"

    def add_sync(self, calls: int, x: Any) -> Turn:
        def loop() -> Any:
            for _ in range(calls):
                y = x + 1
                y.wait_to_read()
            return y

        return self.timed(loop, calls)

    def issue_dot(self, calls: int, a: Any) -> Turn:
        return self.issue(calls, lambda: self.nd.dot(a, a))

    def issue_dots(self, calls: int, a: Any) -> Turn:
        return self.issue_many(calls, lambda: self.nd.dot(a, a))

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.dot(a, b), sync=True)

    def exp(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.exp(x))

    def broadcast(self, calls: int, x: Any, row: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.broadcast_add(x, row.reshape((1, -1))))

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T)

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.concat(a, b, dim=1))

    def normal(self, calls: int, n: int) -> Turn:
        return self.repeat(calls, lambda: self.nd.random.normal(shape=(1000, n)))

    def mlp_train(self, calls: int, x: Any, y: Any, *weights: Any, hybrid: bool = False) -> Turn:
        net, loss = self.net("dense", 2048, 512, 1, hybrid=hybrid), self.lib.gluon.loss.L2Loss()
        return self.train(calls, net, loss, 1e-6, x, y, weights)

    def mlp_train__hybrid(self, calls: int, *arrays: Any) -> Turn:
        return self.mlp_train(calls, *arrays, hybrid=True)

    def lenet_train(self, calls: int, x: Any, y: Any, *weights: Any, hybrid: bool = False) -> Turn:
        net, loss = self.net("lenet", hybrid=hybrid), self.cross_entropy()
        return self.train(calls, net, loss, 0.05, x, y, weights)

    def lenet_train__hybrid(self, calls: int, *arrays: Any) -> Turn:
        return self.lenet_train(calls, *arrays, hybrid=True)

    def resnet_train(self, calls: int, x: Any, y: Any, *weights: Any, hybrid: bool = False) -> Turn:
        net, loss = self.net("resnet18", hybrid=hybrid), self.cross_entropy()
        return self.train(calls, net, loss, resnet.LEARNING_RATE, x, y, weights)

    def resnet_train__hybrid(self, calls: int, *arrays: Any) -> Turn:
        return self.resnet_train(calls, *arrays, hybrid=True)

    def cross_entropy(self) -> Any:
        return self.lib.gluon.loss.SoftmaxCrossEntropyLoss()

    def net(self, name: str, *sizes: int, hybrid: bool) -> Any:
        net = getattr(gluon_nets, name)(self.lib.gluon.nn, *sizes)
        if hybrid:
            net.hybridize(static_alloc=True, static_shape=True)
        return net

    def net_call(self, calls: int, x: Any, *weights: Any) -> Turn:
        net = self.net("dense", *(len(w) for w in weights), hybrid=True)
        return self.calls(calls, net, x, weights)

    def net_call__eager(self, calls: int, x: Any, *weights: Any) -> Turn:
        net = self.net("dense", *(len(w) for w in weights), hybrid=False)
        return self.calls(calls, net, x, weights)

    def calls(self, calls: int, net: Any, x: Any, weights: Any) -> Turn:
        net.initialize()
        net(x)
        gluon_nets.start(list(net.collect_params().values()), weights, self.nd)
        self.wait(None)

        def loop() -> Any:
            for _ in range(calls):
                y = net(x)
            return y

        return self.timed(loop, calls)

    def chain(self, calls: int, x: Any) -> Turn:
        net = self.lib.gluon.nn.HybridLambda(lambda F, x: compiled.chain(x, F.tanh))
        net.hybridize(static_alloc=True, static_shape=True)
        return self.repeat(calls, lambda: net(x))

    def chain__eager(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: compiled.chain(x, self.nd.tanh))

    def train(
        self, calls: int, net: Any, loss: Any, lr: float, x: Any, y: Any, weights: Any
    ) -> Turn:
        autograd, gluon = self.lib.autograd, self.lib.gluon
        net.initialize()
        net(x)
        parameters = list(net.collect_params().values())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})

        def reset() -> None:
            gluon_nets.start(parameters, weights, self.nd)

        def step() -> Any:
            with autograd.record():
                l = loss(net(x), y)
            l.backward()
            trainer.step(len(x))
            return l

        def result(first: Any, last: Any) -> Any:
            return self.nd.concat(first.mean().reshape((1,)), last.mean().reshape((1,)), dim=0)

        return self.steps(calls, reset, step, result)

    def gru_cell(self, calls: int, x: Any, i2h: Any, h2h: Any) -> Turn:
        def unroll(cell: Any) -> Any:
            y, _ = cell.unroll(len(x), x, layout="TNC", merge_outputs=True)
            return y

        return self.cell_steps(calls, i2h, h2h, unroll)

    def gru_cell__loop(self, calls: int, x: Any, i2h: Any, h2h: Any) -> Turn:
        """The same with a call of the cell for every step."""

        def loop(cell: Any) -> Any:
            states, outputs = cell.begin_state(batch_size=x.shape[1]), []
            for each in x:
                y, states = cell(each, states)
                outputs.append(y)
            return self.nd.stack(*outputs)

        return self.cell_steps(calls, i2h, h2h, loop)

    def cell_steps(self, calls: int, i2h: Any, h2h: Any, forward: Any) -> Turn:
        cell = self.lib.gluon.rnn.GRUCell(h2h.shape[1], input_size=i2h.shape[1])
        cell.initialize()
        cell.i2h_weight.set_data(i2h)
        cell.h2h_weight.set_data(h2h)

        def step() -> Any:
            with self.lib.autograd.record():
                y = forward(cell)
            y.backward()

        def result(*_: Any) -> Any:
            grads = [w.grad().reshape((-1,)) for w in (cell.i2h_weight, cell.h2h_weight)]
            return self.nd.concat(*grads, dim=0)

        return self.steps(calls, lambda: None, step, result)

    def load(self, calls: int, x: Any, workers: int = 0) -> Turn:
        data = self.lib.gluon.data
        transforms = data.vision.transforms
        prepare = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize(loading.MEAN, loading.STD)]
        )
        pictures = data.ArrayDataset(x.astype("uint8"), self.nd.arange(len(x)))
        loader = data.DataLoader(
            pictures.transform_first(prepare), loading.BATCH, num_workers=workers
        )
        return self.repeat(
            calls, lambda: self.nd.concat(*[X.mean().reshape((1,)) for X, _ in loader], dim=0)
        )

    def load__workers(self, calls: int, x: Any) -> Turn:
        return self.load(calls, x, loading.WORKERS)


sides = (MXNet,)
