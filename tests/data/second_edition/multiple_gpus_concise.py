"""A ResNet on several devices by Gluon's Trainer: in the manner of the book's second edition."""

import numpy as onp
from d2l import mxnet as d2l
from mxnet import autograd, gluon, init, np, npx
from mxnet.gluon import nn

npx.set_np()
rng = onp.random.RandomState(0)


def pictures(n, batch_size):
    """Batches of noisy pictures, (N, 1, 12, 12), of ten kinds."""
    labels = onp.arange(n) % 10
    X = KINDS[labels] + rng.normal(scale=0.3, size=(n, 1, 12, 12))
    return d2l.load_array(
        (np.array(X.astype("float32")), np.array(labels.astype("int32"))), batch_size, False
    )


KINDS = rng.normal(size=(10, 1, 12, 12))


def resnet18(num_classes, channels=(8, 16, 32, 64)):
    """ResNet-18, with fewer channels than its authors'."""

    def resnet_block(num_channels, num_residuals, first_block=False):
        block = nn.Sequential()
        for i in range(num_residuals):
            if i == 0 and not first_block:
                block.add(d2l.Residual(num_channels, use_1x1conv=True, strides=2))
            else:
                block.add(d2l.Residual(num_channels))
        return block

    net = nn.Sequential()
    net.add(
        nn.Conv2D(channels[0], kernel_size=3, strides=1, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
    )
    for stage, num_channels in enumerate(channels):
        net.add(resnet_block(num_channels, 2, first_block=stage == 0))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(num_classes))
    return net


def set_weights(net):
    """Weights that do not depend on MXNet's generator."""
    for name, param in net.collect_params().items():
        if name.endswith("weight"):
            fan_in = onp.prod(param.shape[1:])
            value = rng.normal(scale=fan_in**-0.5, size=param.shape)
            param.set_data(np.array(value.astype("float32")))


def train(net, devices, batch_size, lr, num_epochs=2):
    train_iter, test_iter = pictures(80, batch_size), pictures(40, batch_size)
    net.initialize(init=init.Normal(sigma=0.01), ctx=devices, force_reinit=True)
    for device in devices:
        net(np.zeros((1, 1, 12, 12), ctx=device))
    set_weights(net)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    timer = d2l.Timer()
    for epoch in range(num_epochs):
        timer.start()
        total = 0
        for features, labels in train_iter:
            X_shards, y_shards = d2l.split_batch(features, labels, devices)
            with autograd.record():
                losses = [
                    loss(net(X_shard), y_shard) for X_shard, y_shard in zip(X_shards, y_shards)
                ]
            for l in losses:
                l.backward()
            trainer.step(batch_size)
            total += sum(float(l.sum()) for l in losses)
        npx.waitall()
        timer.stop()
        acc = d2l.evaluate_accuracy_gpus(net, test_iter)
        print(f"epoch {epoch + 1}, loss {total / 80:.4f}, test acc {acc:.3f}")
    print(f"{timer.avg():.4f} sec")


devices = d2l.try_all_gpus()
print("devices:", len(devices))

print("-- parameters on all devices")
net = resnet18(10)
net.initialize(init=init.Normal(sigma=0.01), ctx=devices)
x = np.array(rng.normal(size=(4, 1, 12, 12)).astype("float32"))
x_shards = gluon.utils.split_and_load(x, devices)
print({net(shard).shape[1] for shard in x_shards}, sum(len(shard) for shard in x_shards))
weight = net[0].params.get("weight")
print(weight.shape, len({float(weight.data(device).sum()) for device in devices}))
try:
    weight.data(npx.cpu(5))
except RuntimeError:
    print("not initialized on", npx.cpu(5))

print("-- training")
train(net, devices, batch_size=40, lr=0.02)

print("-- and by train_ch13")
net = nn.Sequential()
net.add(nn.Dense(32, activation="relu"), nn.Dense(10))
net.initialize(init.Zero(), ctx=devices)
for device in devices:
    net(np.zeros((1, 1, 12, 12), ctx=device))
set_weights(net)
trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.003})
loss = gluon.loss.SoftmaxCrossEntropyLoss()
d2l.train_ch13(net, pictures(120, 40), pictures(40, 40), loss, trainer, 3, devices)
