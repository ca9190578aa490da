"""Random nets among canaries: arrays of all sizes that nothing may change.

Canaries are made before, between and after everything else, and die at any time; each holds one
number, and after every step all are looked at. A step is one call of a net or of a chain of
operations, or one step of training.

    python tests/generators/run.py --programs 1000 canaries      # prints the number of steps, too
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

#: Programs of a draw make so many steps.
STEPS = 40
#: So many canaries live at a time.
MOST = 48

#: Steps that were taken in this process, by all programs.
steps = 0

ENGINES = (
    {"kind": "threaded"}, {"kind": "threaded", "workers": 1}, {"kind": "naive"},
    {"kind": "threaded", "workers": 4, "inline_below": 0},
)  # fmt: skip


class Canaries:
    """The canaries of one thread of a program, and `check`, which says that all are well."""

    def __init__(self, seed: int, ctx: Any = None):
        from d2lmini import cpu, nd

        self._nd = nd
        self._ctx = ctx or cpu()
        self._rng = random.Random(seed)
        self._alive: list[tuple[Any, np.ndarray | None, float]] = []
        self._made = 0
        for _ in range(MOST // 2):
            self.more(1)

    def more(self, n: int = 3) -> None:
        """Make some; as many of the others die if there are too many."""
        for _ in range(n):
            self._made += 1
            number = float(self._made % 9973 + 3)
            # Half of them are as large as the arenas and intermediate results of small nets.
            size = int(2 ** self._rng.choice([self._rng.uniform(0, 14), self._rng.uniform(10, 14)]))
            if self._rng.random() < 0.02:
                size = self._rng.choice([65_536, 262_147, 300_000])
            # Some by an operation, some from outside, some as the result of others.
            way = self._rng.randrange(3)
            if way == 0:
                x = self._nd.full((size,), number, ctx=self._ctx)
            elif way == 1:
                x = self._nd.array(np.full(size, number, np.float32), ctx=self._ctx)
            else:
                x = self._nd.zeros((size,), ctx=self._ctx) + number
            x.wait_to_read()
            view = np.from_dlpack(x) if x.context.device_type == "cpu" else None
            self._alive.append((x, view, number))
        while len(self._alive) > MOST:
            self._alive.pop(self._rng.randrange(len(self._alive)))

    def check(self, *results: Any) -> None:
        """A step is over, with these results: is every canary what it was?"""
        global steps
        for y in results:
            y.wait_to_read()
        steps += 1
        for x, view, number in self._alive:
            values = x.asnumpy() if view is None else view
            if values[0] != number or not (values == number).all():
                wrong = values[values != number]
                raise AssertionError(
                    f"an array of {values.size} numbers held {number}, and nobody wrote it; now "
                    f"{wrong.size} of them are {wrong[:4]} ..."
                )
        if self._rng.random() < 0.5:
            self.more(self._rng.randrange(1, 5))


# -- programs --------------------------------------------------------------------------------------

#: By the kind of data: layers that keep it of this kind.
LAYERS = {
    "rows": (
        "nn.Dense({n}, activation={act!r})", "nn.Dense({n})", "nn.BatchNorm()", "nn.LayerNorm()",
        "nn.Dropout(0.3)", "nn.Activation({act!r})", "nn.LeakyReLU(0.1)", "nn.ELU()", "nn.SELU()",
        "nn.GELU()", "nn.Swish()", "nn.PReLU()",
        "nn.HybridLambda(lambda F, x: F.softmax(x * 2))",
        "nn.HybridLambda(lambda F, x: F.exp(x * 0.1) - F.sqrt(F.abs(x) + 1))",
        "nn.HybridLambda(lambda F, x: F.broadcast_sub(x, F.mean(x, axis=1, keepdims=True)))",
        "nn.HybridLambda(lambda F, x: F.concat(x, F.tanh(x), dim=1))",
        "nn.HybridLambda(lambda F, x: F.log_softmax(F.clip(x, -3, 3)))",
        "nn.HybridLambda(lambda F, x: F.slice_axis(x, axis=1, begin=0, end=1) * 2)",
    ),
    "images": (
        "nn.Conv2D({c}, {k}, padding={p}, activation={act!r})", "nn.Conv2D({c}, {k}, padding={p})",
        "nn.MaxPool2D(2, 2, ceil_mode=True)", "nn.AvgPool2D(3, 1, 1)", "nn.BatchNorm()",
        "nn.InstanceNorm()", "nn.GroupNorm(1)", "nn.Activation({act!r})", "nn.Dropout(0.2)",
        "nn.Conv2D({c}, 3, padding=1, groups=1, strides=2)",
        "nn.Conv2DTranspose({c}, 2, strides=2)",
        "nn.HybridLambda(lambda F, x: F.pad(x, mode='edge', pad_width=(0,0,0,0,1,1,1,1)))",
    ),
}  # fmt: skip
ENDS = {
    "rows": ("nn.Dense(5)",),
    "images": ("nn.GlobalAvgPool2D(), nn.Dense(5)", "nn.Flatten(), nn.Dense(5)"),
}
RECURRENT = ("rnn.LSTM({n}, {l})", "rnn.GRU({n}, {l})", "rnn.RNN({n}, {l})", "rnn.GRU({n}, 1)")
OPTIMIZERS = (
    "'sgd', {'learning_rate': 0.01}", "'sgd', {'learning_rate': 0.01, 'momentum': 0.9}",
    "'adam', {'learning_rate': 0.001}", "'rmsprop', {'learning_rate': 0.001}",
    "'adagrad', {'learning_rate': 0.01}", "'adadelta', {}", "'nag', {'learning_rate': 0.01, "
    "'momentum': 0.9}", "'ftrl', {'learning_rate': 0.01}", "'signum', {'learning_rate': 0.001}",
)  # fmt: skip
LOSSES = (
    "gluon.loss.SoftmaxCrossEntropyLoss()(y, nd.arange(len(y), ctx=ctx) % 5)",
    "gluon.loss.L2Loss()(y, nd.ones((len(y), 5), ctx=ctx))",
    "gluon.loss.L1Loss()(y, nd.zeros((len(y), 5), ctx=ctx))",
    "gluon.loss.HuberLoss()(y, nd.ones((len(y), 5), ctx=ctx))",
    "gluon.loss.SigmoidBinaryCrossEntropyLoss()(y, nd.ones((len(y), 5), ctx=ctx))",
)
CHAINS = (
    "z = (z * 1.5 + 2).tanh()", "z = nd.exp(z * 0.1) - z", "z += 1", "z[:] = z * 0.5",
    "z = nd.concat(z, z, dim=0)[: len(z)]", "z = nd.dot(z, z.T)[:, : z.shape[1]] * 0.01",
    "z = z.reshape((-1,)).reshape(z.shape)", "z = nd.softmax(z)", "z = nd.where(z > 0, z, z * 0.1)",
    "z = nd.sort(z, axis=1)", "z = z.sum(axis=0, keepdims=True) + z", "z[0] = 3", "z = z.T.T",
    "z = nd.broadcast_add(z, z.mean(axis=1, keepdims=True))", "z = nd.cumsum(z, axis=0) * 0.1",
    "nd.elemwise_add(z, z, out=z); z *= 0.5", "z = z.clip(-1, 1)",
    "z = nd.take(z, nd.arange(len(z), ctx=ctx))",
)  # fmt: skip
MODES = (
    "", "net.hybridize()", "net.hybridize()", "net.hybridize(static_alloc=True)",
    "net.hybridize(static_alloc=True, static_shape=True)",
)  # fmt: skip


def _net(rng: random.Random, kind: str) -> list[str]:
    layers = [
        rng.choice(LAYERS[kind]).format(
            n=rng.choice([1, 3, 10, 16, 32, 33, 64, 100]), c=rng.choice([1, 3, 4, 8, 16]),
            k=(k := rng.choice([1, 3, 5])), p=k // 2,
            act=rng.choice(["relu", "tanh", "sigmoid", "softrelu", "softsign"]),
        )
        for _ in range(rng.randrange(1, 5))
    ]  # fmt: skip
    return [
        "net = nn.HybridSequential()",
        f"net.add({', '.join([*layers, rng.choice(ENDS[kind])])})",
    ]


def _shape(rng: random.Random, kind: str, columns: int) -> tuple[int, ...]:
    rows = rng.choice([1, 2, 3, 7, 8, 16, 32, 33, 50, 64])
    if kind == "rows":
        return rows, columns
    side = rng.choice([5, 7, 8, 12, 16, 20])
    return min(rows, 8), columns, side, side


def draw(seed: int) -> str:
    """A program of `STEPS` steps, in one thread or in four."""
    rng = random.Random(seed)
    kind = rng.choice(["rows", "rows", "images", "steps", "words"])
    ctx = "mx.gpu(0)" if rng.random() < 0.12 else "mx.cpu()"
    lazy = rng.random() < 0.12
    wide = rng.random() < 0.05
    columns = rng.choice([1, 3, 4]) if kind == "images" else rng.choice([2, 7, 16, 32, 33, 64, 100])
    lines = ["birds = Canaries(number, ctx)"]
    if kind in LAYERS:
        lines += _net(rng, kind)
        shapes = [_shape(rng, kind, columns) for _ in range(rng.randrange(1, 4))]
        if wide and kind == "rows":
            shapes[0] = (257, 1111)
            shapes = shapes[:1]
        if kind == "images" and "Flatten" in lines[-1]:
            shapes = shapes[:1]
        data = "nd.random.normal(shape=shape, ctx=ctx)"
    else:
        layer = rng.choice(RECURRENT).format(n=rng.choice([4, 8, 20, 33]), l=rng.choice([1, 2]))
        lines += ["net = nn.HybridSequential()"]
        if kind == "words":
            lines += [f"net.add(nn.Embedding(20, {columns}))"]
            shapes = [(rng.choice([1, 4, 9]), rng.choice([1, 3, 8, 16])) for _ in range(2)]
            data = "nd.random.randint(0, 20, shape=shape, ctx=ctx).astype('float32')"
        else:
            shapes = [(rng.choice([1, 4, 9]), rng.choice([1, 3, 8, 16]), columns) for _ in range(2)]
            data = "nd.random.normal(shape=shape, ctx=ctx)"
        lines += [f"net.add({layer})", "net.add(nn.HybridLambda(lambda F, x: F.mean(x, axis=0)))"]
        lines += ["net.add(nn.Dense(5))"]
    lines += [
        "net.initialize(init.Xavier(), ctx=ctx)"
        if rng.random() < 0.5
        else "net.initialize(ctx=ctx)"
    ]
    lines += [rng.choice(MODES)]
    trains = rng.random() < 0.6
    if trains:
        lines += [f"trainer = gluon.Trainer(net.collect_params(), {rng.choice(OPTIMIZERS)})"]
    lines += [
        f"shapes = {shapes}",
        f"for i in range({STEPS} // threads):",
        "    shape = shapes[i % len(shapes)]",
        f"    x = {data}",
        "    y = net(x)",
        "    birds.check(y)",
    ]
    if trains:
        lines += [
            "    with autograd.record():",
            "        y = net(x)",
            f"        l = {rng.choice(LOSSES)}",
            "    l.backward()",
            "    trainer.step(len(y))",
            "    birds.check(l)",
        ]
    size = rng.choice([(1, 3), (4, 4), (8, 33), (32, 32), (33, 64), (64, 65), (200, 100)])
    chain = [rng.choice(CHAINS) for _ in range(rng.randrange(2, 7))]
    lines += [f"    z = nd.random.normal(shape={size}, ctx=ctx)"]
    if lazy:
        lines += ["    with mx.lazy():"]
    lines += [f"    {'    ' * lazy}{each}" for each in chain]
    lines += ["    birds.check(z)"]
    body = "\n".join("    " + line for line in lines if line)
    text = (
        "from generators.canaries import Canaries\n"
        "nn, rnn = gluon.nn, gluon.rnn\n\n"
        f"def work(number, ctx, threads):\n{body}\n\n"
    )
    if rng.random() < 0.25:
        text += (
            "import threading\nfailed = []\n\n"
            "def one(number, ctx):\n"
            "    try:\n        work(number, ctx, 4)\n"
            "    except BaseException as problem:\n        failed.append(problem)\n\n"
        )
        many = (
            f"given = [({seed} + i, {ctx}) for i in range(4)]\n"
            "workers = [threading.Thread(target=one, args=args) for args in given]\n"
            "for each in workers:\n    each.start()\n"
            "for each in workers:\n    each.join()\n"
            "for problem in failed:\n    raise problem\n"
        )
    else:
        many = f"work({seed}, {ctx}, 1)\n"
    if "gpu" in ctx:
        many = "with mx.virtual_gpus(1, link_gb_s=1000):\n" + "".join(
            f"    {line}\n" for line in many.splitlines()
        )
    return text + many


def check(seed: int) -> bool:
    """Run the program of this seed on one engine; AssertionError if a canary has changed."""
    import check_memory

    from d2lmini import engine
    from generators.agree import results

    with engine.use(**ENGINES[seed % len(ENGINES)]):
        try:
            results(draw(seed))
        except Exception as problem:
            raise AssertionError(f"{problem}\n{draw(seed)}") from problem
    check_memory.verify()
    return False
