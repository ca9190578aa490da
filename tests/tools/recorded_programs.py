"""Small recorded programs, drawn at random, and their gradients: here or in the real MXNet.

A program is a dict: `inputs`, a list of (values, grad_req); `steps`, a list of (what, operands),
where operands are numbers of earlier values (inputs first); `heads`, a list of (number of a value,
values of its gradient or None); `times`, how often backward is called.
"""

import random

PLAIN = {
    "add": lambda nd, a, b: a + b,
    "sub": lambda nd, a, b: a - b,
    "mul": lambda nd, a, b: a * b,
    "div": lambda nd, a, b: a / (b * b + 1),
    "maximum": lambda nd, a, b: nd.maximum(a, b),
    "power": lambda nd, a, b: nd.power(a * a + 1, b),
    "hypot": lambda nd, a, b: nd.broadcast_hypot(a, b),
    "where": lambda nd, a, b: nd.where(a > b, a, b * 2),
    "dot": lambda nd, a, b: nd.dot(nd.dot(a, b, transpose_b=True), a) * 0.1,
    "batch_dot": lambda nd, a, b: nd.batch_dot(
        a.expand_dims(0), b.expand_dims(0), transpose_a=True
    ).sum(axis=(0, 1)) + a,
    "concat": lambda nd, a, b: nd.concat(a, b, dim=0)[2:5],
    "stack": lambda nd, a, b: nd.stack(a, b, axis=1).max(axis=1),
    "row": lambda nd, a, b: a + b[1],
    "column": lambda nd, a, b: a * b[:, 0:1],
    "fully": lambda nd, a, b: nd.FullyConnected(a, b, num_hidden=3, no_bias=True).sum(
        axis=1, keepdims=True
    ) * b,
    "tanh": lambda nd, a: a.tanh(),
    "relu": lambda nd, a: nd.relu(a - 0.1),
    "exp": lambda nd, a: (a * 0.3).exp(),
    "square": lambda nd, a: a.square() * 0.5,
    "scalar": lambda nd, a: 1 - a / 2,
    "softmax": lambda nd, a: nd.softmax(a, axis=0),
    "log_softmax": lambda nd, a: nd.log_softmax(a),
    "mean": lambda nd, a: a - a.mean(axis=1, keepdims=True),
    "norm": lambda nd, a: a / (nd.norm(a) + 1),
    "reshape": lambda nd, a: a.reshape((4, 3)).T,
    "transpose": lambda nd, a: nd.transpose(a).reshape((3, 4)),
    "split": lambda nd, a: nd.split(a, num_outputs=2, axis=1)[1].tile((1, 2)),
    "slice": lambda nd, a: a.slice_axis(axis=1, begin=1, end=4).sum() * a,
    "take": lambda nd, a: nd.take(a, nd.array([0, 2, 2])),
    "pick": lambda nd, a: nd.pick(a, nd.array([0, 2, 1])).reshape((3, 1)) * a,
    # MXNet's own flip overwrites a gradient that it should add to; with a product it does not.
    "flip": lambda nd, a: nd.flip(a * 1, axis=0),
    "clip": lambda nd, a: nd.clip(a, -0.5, 0.5),
    "sort": lambda nd, a: nd.sort(a, axis=1),
    "embed": lambda nd, a: nd.Embedding(nd.array([1, 0, 1]), a, input_dim=3, output_dim=4),
    "layer_norm": lambda nd, a: nd.LayerNorm(a, a[0], a[1]),
    "leaky": lambda nd, a: nd.LeakyReLU(a, act_type="elu"),
    "detach": lambda nd, a: a.detach() * a,
    "block": lambda nd, a: nd.BlockGrad(a) + a,
    "fresh": lambda nd, a: written(nd, a),
}  # fmt: skip


def written(nd, a):
    """A recorded value written into a fresh array."""
    y = nd.zeros(a.shape)
    y[:] = a * 3
    return y


def gradients(mx, program):
    """The gradients of the inputs, and the values of the heads."""
    nd, autograd = mx.nd, mx.autograd
    inputs = []
    for values, req in program["inputs"]:
        x = nd.array(values)
        x.attach_grad(req)
        inputs.append(x)
    with autograd.record():
        values = list(inputs)
        for what, operands in program["steps"]:
            values.append(PLAIN[what](nd, *[values[i] for i in operands]))
    heads = [values[i] for i, _ in program["heads"]]
    head_grads = [None if g is None else nd.array(g) for _, g in program["heads"]]
    for last in [False] * (program["times"] - 1) + [True]:
        autograd.backward(heads, head_grads, retain_graph=not last)
    return [x.grad.asnumpy() for x in inputs], [h.asnumpy() for h in heads]


UNARY = [name for name, f in PLAIN.items() if f.__code__.co_argcount == 2]
BINARY = [name for name, f in PLAIN.items() if f.__code__.co_argcount == 3]


def values(rng):
    return [[rng.uniform(-1, 1) for _ in range(4)] for _ in range(3)]


def program(seed):
    """Two inputs or three, up to ten steps, one head or two; every value is (3, 4)."""
    rng = random.Random(seed)
    # Every op is at hand in the first programs, one after the other.
    first = (UNARY + BINARY)[seed] if seed < len(UNARY + BINARY) else None
    n = rng.choice([2, 3])
    steps = []
    for k in range(rng.randint(1, 10)):
        what = first if first and k == 0 else rng.choice(UNARY + BINARY)
        count = 1 if what in UNARY else 2
        steps.append((what, [rng.randrange(n + k) for _ in range(count)]))
    last = n + len(steps) - 1
    heads = [(last, None if rng.random() < 0.5 else values(rng))]
    if rng.random() < 0.4 and last > n:
        heads.append((last - 1, values(rng)))
    return {
        "inputs": [(values(rng), rng.choice(["write", "write", "add"])) for _ in range(n)],
        "steps": steps,
        "heads": heads,
        "times": rng.choice([1, 1, 2, 3]),
    }
