"""Data, training, two contexts: an old program, in the manner of the book's chapters on them."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, init, nd
from mxnet.gluon import data as gdata
from mxnet.gluon import loss as gloss
from mxnet.gluon import nn, rnn

np.random.seed(0)
X = np.random.normal(size=(200, 2))
features, labels = nd.array(X), nd.array(X @ [2, -3.4] + 4.2)

print("-- weight decay: two trainers, one for the weights and one for the biases")
net = nn.Sequential()
net.add(nn.Dense(1))
net.initialize(init.Constant(0.1))
trainer_w = gluon.Trainer(net.collect_params(".*weight"), "sgd", {"learning_rate": 0.03, "wd": 0.1})
trainer_b = gluon.Trainer(net.collect_params(".*bias"), "sgd", {"learning_rate": 0.03})
loss = gloss.L2Loss()
train_iter = gdata.DataLoader(gdata.ArrayDataset(features, labels), 10, shuffle=False)
for epoch in range(3):
    for x, y in train_iter:
        with autograd.record():
            l = loss(net(x), y)
        l.backward()
        trainer_w.step(10)
        trainer_b.step(10)
    l = loss(net(features), labels)
    print("epoch %d, loss: %f" % (epoch, l.mean().asnumpy()[0]))  # noqa: UP031
print(net[0].weight.data(), net[0].bias.data(), net[0].weight.data().norm().asscalar())

print("-- optimizers by name")
for name, hyperparams in [
    ("sgd", {"learning_rate": 0.05, "momentum": 0.9}),
    ("adam", {"learning_rate": 0.05}),
    ("adagrad", {"learning_rate": 0.1}),
    ("rmsprop", {"learning_rate": 0.01, "gamma1": 0.9}),
    ("adadelta", {"rho": 0.9}),
    ("nag", {"learning_rate": 0.05, "momentum": 0.9}),
    ("ftrl", {}),
    ("signum", {"learning_rate": 0.01}),
    ("adamax", {}),
    ("ftml", {}),
    ("lamb", {}),
]:
    net = nn.Sequential()
    net.add(nn.Dense(4, activation="tanh"), nn.Dense(1))
    net.initialize(init.Constant(0.1))
    trainer = gluon.Trainer(net.collect_params(), name, hyperparams)
    for x, y in train_iter:
        with autograd.record():
            l = loss(net(x), y)
        l.backward()
        trainer.step(10)
    print(name, loss(net(features), labels).mean().asscalar(), trainer.learning_rate)

print("-- LeNet, layer by layer")
net = nn.Sequential()
net.add(
    nn.Conv2D(channels=6, kernel_size=5, activation="sigmoid"),
    nn.MaxPool2D(pool_size=2, strides=2),
    nn.Conv2D(channels=16, kernel_size=5, activation="sigmoid"),
    nn.MaxPool2D(pool_size=2, strides=2),
    nn.Dense(20, activation="sigmoid"),
    nn.BatchNorm(),
    nn.Dropout(0.0),
    nn.Dense(10),
)
net.initialize(init.Constant(0.05))
images = nd.array(np.random.uniform(size=(4, 1, 28, 28)))
x = images
for layer in net:
    x = layer(x)
    print(layer.name, "output shape:\t", x.shape)
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.9})
softmax_loss = gloss.SoftmaxCrossEntropyLoss()
for _ in range(3):
    with autograd.record():
        l = softmax_loss(net(images), nd.array([1, 2, 3, 4]))
    l.backward()
    trainer.step(4)
    print(l)

print("-- recurrent layers")
for layer in (rnn.RNN(8), rnn.LSTM(8, 2), rnn.GRU(8, 1, bidirectional=True)):
    layer.initialize(init.Constant(0.05))
    state = layer.begin_state(batch_size=2)
    output, state = layer(nd.array(np.random.normal(size=(5, 2, 4))), state)
    print(output.shape, len(state), [s.shape for s in state], output.sum().asscalar())

print("-- a hybrid net")
net = nn.HybridSequential()
net.add(nn.Dense(3, activation="relu"), nn.Dense(2))
net.initialize(init.One())
net.hybridize()
print(net(nd.ones((1, 4))), net)

print("-- two contexts")
contexts = [mx.cpu(0), mx.cpu(1)]
print(gluon.utils.split_and_load(nd.arange(24).reshape((6, 4)), contexts))
net = nn.Dense(2)
net.initialize(init=init.Constant(0.2), ctx=contexts)
parts = gluon.utils.split_and_load(nd.ones((4, 3)), contexts)
print(net(parts[0]), net(parts[1]))
try:
    net.weight.data()
except RuntimeError as error:
    print(type(error).__name__)
print(net.weight.data(contexts[1])[0])
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1})
with autograd.record():
    losses = [net(part).sum() for part in parts]
for l in losses:
    l.backward()
trainer.step(4)
print(net.weight.data(contexts[0]), net.weight.data(contexts[1]))

print("-- a metric, a schedule, an iterator")
metric = mx.metric.Accuracy()
metric.update([nd.array([0, 1])], [nd.array([[0.9, 0.1], [0.8, 0.2]])])
print(metric.get())
scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
print([scheduler(i) for i in range(6)])
batches = mx.io.NDArrayIter(
    np.arange(10).reshape(5, 2), np.arange(5), 2, last_batch_handle="discard"
)
print([batch.data[0].asnumpy().tolist() for batch in batches])
