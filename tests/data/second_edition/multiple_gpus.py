"""LeNet on several devices from scratch: a program in the manner of the book's second edition."""

import numpy as onp
from d2l import mxnet as d2l
from mxnet import autograd, gluon, np, npx

npx.set_np()
rng = onp.random.RandomState(0)


def normal(*shape, scale=0.1):
    return np.array((rng.normal(size=shape) * scale).astype("float32"))


def pictures(n, batch_size):
    """Batches of noisy pictures, (N, 1, 16, 16), of ten kinds."""
    labels = onp.arange(n) % 10
    X = KINDS[labels] + rng.normal(scale=0.3, size=(n, 1, 16, 16))
    data = gluon.data.ArrayDataset(np.array(X.astype("float32")), np.array(labels.astype("int32")))
    return gluon.data.DataLoader(data, batch_size)


KINDS = rng.normal(size=(10, 1, 16, 16))
params = [
    normal(20, 1, 3, 3), np.zeros(20), normal(50, 20, 5, 5, scale=0.05), np.zeros(50),
    normal(50, 64), np.zeros(64), normal(64, 10), np.zeros(10),
]  # fmt: skip


def lenet(X, params):
    conv = npx.convolution(data=X, weight=params[0], bias=params[1], kernel=(3, 3), num_filter=20)
    h1 = npx.pooling(data=npx.relu(conv), pool_type="avg", kernel=(2, 2), stride=(2, 2))
    conv = npx.convolution(data=h1, weight=params[2], bias=params[3], kernel=(5, 5), num_filter=50)
    h2 = npx.pooling(data=npx.relu(conv), pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h2 = h2.reshape(h2.shape[0], -1)
    h3 = npx.relu(np.dot(h2, params[4]) + params[5])
    return np.dot(h3, params[6]) + params[7]


loss = gluon.loss.SoftmaxCrossEntropyLoss()


def get_params(params, device):
    new_params = [p.copyto(device) for p in params]
    for p in new_params:
        p.attach_grad()
    return new_params


def allreduce(data):
    for i in range(1, len(data)):
        data[0][:] += data[i].copyto(data[0].ctx)
    for i in range(1, len(data)):
        data[0].copyto(data[i])


def train_batch(X, y, device_params, devices, lr):
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    with autograd.record():
        losses = [
            loss(lenet(X_shard, device_W), y_shard)
            for X_shard, y_shard, device_W in zip(X_shards, y_shards, device_params)
        ]
    for l in losses:
        l.backward()
    for i in range(len(device_params[0])):
        allreduce([device_params[c][i].grad for c in range(len(devices))])
    for param in device_params:
        d2l.sgd(param, lr, X.shape[0])
    return sum(float(l.sum()) for l in losses)


def train(devices, batch_size, lr, num_epochs=4):
    train_iter, test_iter = pictures(240, batch_size), pictures(60, batch_size)
    device_params = [get_params(params, device) for device in devices]
    animator = d2l.Animator("epoch", "test acc", xlim=[1, num_epochs])
    timer = d2l.Timer()
    for epoch in range(num_epochs):
        timer.start()
        total = 0
        for X, y in train_iter:
            total += train_batch(X, y, device_params, devices, lr)
            npx.waitall()
        timer.stop()
        acc = d2l.evaluate_accuracy_gpu(lambda x: lenet(x, device_params[0]), test_iter, devices[0])
        animator.add(epoch + 1, (acc,))
        print(f"epoch {epoch + 1}, loss {total / 240:.4f}, test acc {animator.Y[0][-1]:.3f}")
    print(f"{timer.avg():.4f} sec")
    copies = [sum(float(np.abs(p).sum()) for p in device_W) for device_W in device_params]
    print("all devices have the same parameters:", max(copies) - min(copies) < 1e-3)


devices = d2l.try_all_gpus()
print("devices:", len(devices))

print("-- parameters on a device")
new_params = get_params(params, devices[0])
print("b1:", new_params[1].shape, "gradient:", float(new_params[1].grad.sum()))

print("-- the sum of two arrays on two devices, copied back to both")
data = [np.ones((1, 2), ctx=device) * (i + 1) for i, device in enumerate((devices * 2)[:2])]
print("before:", data[0].asnumpy(), data[1].asnumpy())
allreduce(data)
print("after:", data[0].asnumpy(), data[1].asnumpy())

print("-- a batch in parts")
X, y = np.arange(20).reshape(4, 5), np.arange(4)
X_shards, y_shards = d2l.split_batch(X, y, (devices * 2)[:2])
print([shard.shape for shard in X_shards], [shard.tolist() for shard in y_shards])

print("-- training")
train(devices, batch_size=40, lr=0.5)
