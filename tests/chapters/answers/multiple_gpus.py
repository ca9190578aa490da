"""Answers to the two exercises to build of "Several GPUs"."""

from __future__ import annotations

from answers import Answers

#: The parts of LeNet, for the answers below.
PARTS = """
HALF = dict(pool_type="avg", kernel=(2, 2), stride=(2, 2))

def conv1(X, params):
    return nd.relu(nd.Convolution(X, params[0], params[1], kernel=(3, 3), num_filter=20))

def front(X, params):
    return nd.Pooling(conv1(X, params), **HALF)

def back(h, params):
    W2, b2, W3, b3, W4, b4 = params[2:]
    h = nd.relu(nd.Convolution(h, W2, b2, kernel=(5, 5), num_filter=50))
    h = nd.relu(nd.FullyConnected(nd.Pooling(h, **HALF), W3, b3, num_hidden=128))
    return nd.FullyConnected(h, W4, b4, num_hidden=10)

def by_layers(X, params, devices):
"""


def split(body: str) -> str:
    """A program that defines `by_layers` with this body."""
    return PARTS + "".join(f"    {line}\n" for line in body.strip().splitlines())


LAYERS = Answers(
    name="by_layers",
    right=[
        split("return back(front(X, params).as_in_context(devices[1]), params)"),
        split("""
h = front(X, params)
there = nd.zeros(h.shape, ctx=devices[1])
h.copyto(there)
return back(there, params)
"""),
        split("""
h = nd.Activation(nd.Convolution(X, *params[:2], kernel=(3, 3), num_filter=20), "relu")
h = nd.Pooling(h, **HALF)
with devices[1]:
    return back(h.copyto(devices[1]), params)
"""),
        # The mean of 2 x 2 pixels by hand, and dense layers as products.
        split("""
h = conv1(X, params)
h = (h[:, :, 0::2, 0::2] + h[:, :, 1::2, 0::2] + h[:, :, 0::2, 1::2] + h[:, :, 1::2, 1::2]) / 4
h = h.copyto(devices[1])
h = nd.relu(nd.Convolution(h, params[2], params[3], kernel=(5, 5), num_filter=50))
h = nd.flatten(nd.Pooling(h, **HALF))
return nd.dot(nd.relu(nd.dot(h, params[4].T) + params[5]), params[6].T) + params[7]
"""),
        split("""
with autograd.record():
    return back(front(X, params).copyto(devices[1]), params)
"""),
        # Half of the batch after the other half.
        split("""
n = len(X) // 2
parts = [front(part, params).copyto(devices[1]) for part in (X[:n], X[n:]) if len(part)]
return nd.concat(*[back(part, params) for part in parts], dim=0)
"""),
    ],
    wrong=[
        # Pooling on the second device.
        ("cut", split("""
h = conv1(X, params).copyto(devices[1])
return back(nd.Pooling(h, **HALF), params)
""")),
        # The convolution, too: its parameters travel with each batch.
        ("cut", split("""
there = [p.as_in_context(devices[1]) for p in params]
return back(front(X.copyto(devices[1]), there), there)
""")),
        # Cut after the second layer.
        ("cut", split("""
W2, b2 = (p.copyto(devices[0]) for p in params[2:4])
h = nd.relu(nd.Convolution(front(X, params), W2, b2, kernel=(5, 5), num_filter=50))
h = nd.Pooling(h, **HALF).copyto(devices[1])
h = nd.relu(nd.FullyConnected(h, params[4], params[5], num_hidden=128))
return nd.FullyConnected(h, params[6], params[7], num_hidden=10)
""")),
        ("waiting", split("""
h = front(X, params).copyto(devices[1])
h.wait_to_read()
return back(h, params)
""")),
        ("waitall", split("""
h = front(X, params).copyto(devices[1])
nd.waitall()
return back(h, params)
""")),
        ("reading", split("""
return back(nd.array(front(X, params).asnumpy(), ctx=devices[1]), params)
""")),
        ("place", split("""
return back(front(X, params), [p.copyto(devices[0]) for p in params])
""")),
        ("place", split("""
return back(front(X, params).copyto(devices[1]), params).copyto(devices[0])
""")),
        # No ReLU after the first convolution.
        ("values", split("""
h = nd.Convolution(X, params[0], params[1], kernel=(3, 3), num_filter=20)
return back(nd.Pooling(h, **HALF).copyto(devices[1]), params)
""")),
        ("values", split("""
return back(front(X, params).copyto(devices[1]), params).argmax(axis=1)
""")),
        ("nothing", split("back(front(X, params).copyto(devices[1]), params)")),
        ("nothing", split("return back(front(X, params).copyto(devices[1]), params).asnumpy()")),
        ("nothing", split("...")),
        # No copy at all.
        ("error", split("return back(front(X, params), params)")),
    ],
)  # fmt: skip

#: What the answers below use.
CLIP = """
def of_each_device(net):
    return zip(*(p.list_grad() for p in net.collect_params().values()))

def clip(grads, theta, batch_size):
    norm = nd.add_n(*[(g * g).sum() for g in grads]).sqrt() / batch_size
    for g in grads:
        g *= nd.minimum(theta / norm, 1)

def clips(net, trainer, theta, batch_size):
"""


def clipped(body: str) -> str:
    """A program that defines `clips` with this body."""
    return CLIP + "".join(f"    {line}\n" for line in body.strip().splitlines())


CLIPPED = Answers(
    name="clips",
    right=[
        clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    flat = nd.concat(*[g.reshape((-1,)) for g in grads], dim=0)
    scale = nd.minimum(theta * batch_size / flat.norm(), nd.ones((1,), ctx=flat.context))
    for g in grads:
        g[:] = g * scale
trainer.update(batch_size)
"""),
        clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    norm = nd.add_n(*[nd.square(g).sum() for g in grads]).sqrt()
    scale = nd.clip(theta * batch_size / norm, 0, 1)
    for g in grads:
        g[:] = nd.broadcast_mul(g, scale.reshape((1,) * g.ndim))
trainer.update(batch_size)
"""),
        clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    norm = nd.add_n(*[(g * g).sum() for g in grads]).sqrt() / batch_size
    scale = nd.where(norm > theta, theta / norm, nd.ones_like(norm))
    for g in grads:
        g *= scale
trainer.update(batch_size)
"""),
        # One norm for both devices.
        clipped("""
trainer.allreduce_grads()
devices = [list(grads) for grads in of_each_device(net)]
norm = nd.add_n(*[(g * g).sum() for g in devices[0]]).sqrt() / batch_size
for grads in devices:
    scale = nd.minimum(theta / norm, 1).as_in_context(grads[0].context)
    for g in grads:
        g *= scale
trainer.update(batch_size)
"""),
        # Divided before, not by the Trainer.
        clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    for g in grads:
        g /= batch_size
    clip(grads, theta, 1)
trainer.update(1)
"""),
    ],
    wrong=[
        ("parts", clipped("""
for grads in of_each_device(net):
    clip(grads, theta, batch_size)
trainer.allreduce_grads()
trainer.update(batch_size)
""")),
        ("each", clipped("""
trainer.allreduce_grads()
for p in net.collect_params().values():
    for g in p.list_grad():
        clip([g], theta, batch_size)
trainer.update(batch_size)
""")),
        ("batch", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    clip(grads, theta, 1)
trainer.update(batch_size)
""")),
        ("unclipped", clipped("trainer.step(batch_size)")),
        ("still", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    clip(grads, theta, batch_size)
""")),
        ("still", clipped("...")),
        ("apart", clipped("""
trainer.allreduce_grads()
clip(next(of_each_device(net)), theta, batch_size)
trainer.update(batch_size)
""")),
        ("reading", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    norm = sum((g * g).sum().asscalar() for g in grads) ** 0.5 / batch_size
    if norm > theta:
        for g in grads:
            g *= theta / norm
trainer.update(batch_size)
""")),
        # Looks at a list until the norm has been computed.
        ("waiting", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    seen = []
    engine.push(lambda seen=seen: seen.append(1), reads=list(grads))
    while not seen:
        pass
    clip(grads, theta, batch_size)
trainer.update(batch_size)
""")),
        ("always", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    norm = nd.add_n(*[(g * g).sum() for g in grads]).sqrt() / batch_size
    for g in grads:
        g *= theta / norm
trainer.update(batch_size)
""")),
        ("norm", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    clip(grads, theta / 2, batch_size)
trainer.update(batch_size)
""")),
        # Forgets the all-reduce.
        ("apart", clipped("""
for grads in of_each_device(net):
    clip(grads, theta, batch_size)
trainer.update(batch_size)
""")),
        # The square of the norm.
        ("norm", clipped("""
trainer.allreduce_grads()
for grads in of_each_device(net):
    norm = nd.add_n(*[(g * g).sum() for g in grads]) / batch_size
    for g in grads:
        g *= nd.minimum(theta / norm, 1)
trainer.update(batch_size)
""")),
    ],
)  # fmt: skip

CHECKS = {"check_by_layers": LAYERS, "check_clipped": CLIPPED}
