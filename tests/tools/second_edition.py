"""Experiments with the second edition's helpers, which run on d2lmini and on the real MXNet alike.

Each takes the library and returns numbers, lists and NumPy arrays. What is random comes from NumPy.
"""

import contextlib
import io
import re
import sys

import numpy as np


def helpers(library):
    """`d2l.mxnet` over this library, in np mode."""
    library.npx.set_np()
    if library.__name__ != "mxnet":
        from d2lmini.d2l import mxnet as d2l

        return d2l
    import peer_d2l

    return sys.modules.get("d2l.mxnet") or peer_d2l.install(library)


class Draw:
    """Arrays of the library from NumPy's generator."""

    def __init__(self, library):
        self.np = library.np
        self.rng = np.random.RandomState(0)

    def __call__(self, *shape, scale=1.0):
        return self.np.array((self.rng.normal(size=shape) * scale).astype("float32"))

    def labels(self, n, classes):
        return self.np.array(self.rng.randint(0, classes, n).astype("int32"))

    def weights(self, net):
        """Fill the parameters, whose sizes are known."""
        for param in net.collect_params().values():
            if param.grad_req != "null":
                param.set_data(self(*param.shape, scale=0.3))


def gradients(net):
    return [p.grad().asnumpy() for p in net.collect_params().values() if p.grad_req != "null"]


def forward_backward(library, draw, net, *inputs):
    """Outputs, and the gradients of the sum of their squares."""
    net.initialize()
    net(*inputs)
    draw.weights(net)
    with library.autograd.record():
        y = net(*inputs)
        (y * y).sum().backward()
    return [y.asnumpy(), *gradients(net)]


def printed(function, *args):
    """What it prints, the times left out, and what it returns."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(*args)
    return re.sub(r"[\d.]+ (sec|examples)", r"# \1", out.getvalue()), result


def curves(board):
    return {name: [(p.x, p.y) for p in points] for name, points in board.data.items()}


# -- classes.py -----------------------------------------------------------------------------------


def data_of(d2l, *arrays, batch_size, num_train):
    """A DataModule that does not shuffle."""

    class Data(d2l.DataModule):
        def __init__(self):
            super().__init__()
            self.batch_size = batch_size

        def get_dataloader(self, train):
            places = slice(0, num_train) if train else slice(num_train, None)
            return self.get_tensorloader(arrays, False, places)

    return Data()


def regression(library):
    """Linear regression on arrays and by Gluon, with clipped gradients."""
    d2l, draw = helpers(library), Draw(library)
    X = draw(40, 2)
    y = library.np.dot(X, library.np.array([[2.0], [-3.4]])) + 4.2
    data = data_of(d2l, X, y, batch_size=8, num_train=32)
    found = []
    for clip in (0, 0.5):
        scratch, concise = d2l.LinearRegressionScratch(2, lr=0.03), d2l.LinearRegression(lr=0.03)
        scratch.w[:] = 0.1
        concise(X)
        draw.weights(concise)
        for model in (scratch, concise):
            trainer = d2l.Trainer(max_epochs=3, gradient_clip_val=clip)
            trainer.fit(model, data)
            found += [curves(model.board), trainer.epoch, trainer.train_batch_idx]
        found += [scratch.w.asnumpy(), *(p.asnumpy() for p in concise.get_w_b())]
    return found


def classification(library):
    d2l, draw = helpers(library), Draw(library)
    nn = library.gluon.nn

    class Model(d2l.Classifier):
        def __init__(self, num_hiddens, lr=0.1):
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential()
            self.net.add(nn.Flatten(), nn.Dense(num_hiddens, activation="relu"), nn.Dense(3))
            self.net.initialize()

    model = Model(8)
    summary, _ = printed(model.layer_summary, (2, 1, 4, 4))
    draw.weights(model)
    X, y = draw(40, 1, 4, 4), draw.labels(40, 3)
    d2l.Trainer(max_epochs=3).fit(model, data_of(d2l, X, y, batch_size=8, num_train=32))
    return [
        re.sub(r"\s+", " ", summary), model.hparams["num_hiddens"], model.lr,
        curves(model.board), float(model.accuracy(model(X), y)),
        model.accuracy(model(X), y, averaged=False).asnumpy(),
        model.loss(model(X), y, averaged=False).asnumpy(),
    ]  # fmt: skip


# -- training.py -----------------------------------------------------------------------------------


def evaluation(library):
    d2l, draw = helpers(library), Draw(library)
    np_, nn = library.np, library.gluon.nn
    X, y = draw(12, 5), draw.labels(12, 4)
    data = d2l.load_array((X, y), 4, is_train=False)
    net = nn.Dense(4)
    net.initialize(ctx=[library.cpu(0), library.cpu(1)])
    for device in (library.cpu(0), library.cpu(1)):
        net(X.as_in_ctx(device))
    draw.weights(net)
    scores = net(X)
    return [
        d2l.accuracy(scores, y), d2l.accuracy(scores.argmax(axis=1), y),
        d2l.evaluate_accuracy(net, data), d2l.evaluate_accuracy_gpu(net, data),
        d2l.evaluate_accuracy_gpus(net, data),
        d2l.squared_loss(scores[:, 0], np_.ones((12, 1))).asnumpy(),
    ]  # fmt: skip


def clipping(library):
    d2l, draw = helpers(library), Draw(library)
    net = library.gluon.nn.Dense(3)
    X = draw(4, 5)
    forward_backward(library, draw, net, X)
    found = []
    for theta in (1e6, 0.5):
        d2l.grad_clipping(net, theta)
        found += gradients(net)
    w = draw(3)
    w.attach_grad()
    with library.autograd.record():
        l = d2l.squared_loss(w * 3, library.np.zeros(3)).sum()
    l.backward()
    d2l.sgd([w], 0.1, 2)
    d2l.SGD([w], 0.1).step(1)
    return [*found, w.asnumpy(), w.grad.asnumpy()]


def classifiers(library):
    """The loops of the first chapters, on one device and on two."""
    d2l, draw = helpers(library), Draw(library)
    nn, gluon = library.gluon.nn, library.gluon
    X, y = draw(48, 6), draw.labels(48, 3)
    train_iter = d2l.load_array((X[:32], y[:32]), 8, is_train=False)
    test_iter = d2l.load_array((X[32:], y[32:]), 8, is_train=False)
    loss, found = gluon.loss.SoftmaxCrossEntropyLoss(), []
    devices = [library.cpu(0), library.cpu(1)]
    for kind in ("ch3", "ch13"):
        net = nn.Sequential()
        net.add(nn.Dense(8, activation="tanh"), nn.Dense(3))
        net.initialize(ctx=devices if kind == "ch13" else devices[:1])
        for device in devices if kind == "ch13" else devices[:1]:
            net(X.as_in_ctx(device))
        draw.weights(net)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        if kind == "ch3":
            found += [printed(d2l.train_ch3, net, train_iter, test_iter, loss, 2, trainer)[0]]
            found += list(d2l.train_epoch_ch3(net, train_iter, loss, trainer))
        else:
            arguments = net, train_iter, test_iter, loss, trainer, 2, devices
            found += [printed(d2l.train_ch13, *arguments)[0]]
        found += [p.data(devices[0]).asnumpy() for p in net.collect_params().values()]
    return found
