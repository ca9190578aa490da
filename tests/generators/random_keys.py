"""Same seed, same numbers: programs that draw, run eagerly and in each compiled mode.

A program has a net whose layers and random ops draw, or draw nothing in this mode; some results are
not used, and parameters may be initialized late. The program trains, predicts, takes gradients of
gradients, and draws outside of the net. Whatever runs it, it must keep the same values, and the
next draw at the end must be the same. `MODES` are what runs it:

    python tests/generators/run.py --programs 3000 random_keys
"""

from __future__ import annotations

import random

from d2lmini import engine
from generators.agree import ENGINES, close, results

#: name -> (what is done to the net, the scope around the program).
MODES = {
    "eager": ("pass", "nullcontext()"),
    "hybridized": ("net.hybridize()", "nullcontext()"),
    "static": ("net.hybridize(static_alloc=True, static_shape=True)", "nullcontext()"),
    "mirror": ("net.hybridize(backward_do_mirror=True)", "nullcontext()"),
    "inner": ("net.inner.hybridize()", "nullcontext()"),
    "lazy": ("pass", "mx.lazy()"),
    "lazy hybridized": ("net.hybridize()", "mx.lazy()"),
    "bulk": ("net.hybridize()", "mx.engine.bulk(4)"),
}

#: Values of shape (3, 4) from a value `a` of that shape.
CALLS = (
    "F.Dropout(a, p={p}, mode={mode!r})",
    "F.Dropout(a, p={p}, axes=({axis},))",
    "F.LeakyReLU(a, act_type={act!r}, slope=0.3)",
    "a * F.random.uniform(0.5, 1.5, shape=(3, 4))",
    "a + F.random.normal(0, 0.1, shape=(3, 4))",
    "a * F.random.gamma(2, 0.5, shape=(3, 4))",
    "a * F.random.exponential(1, shape=(3, 4))",
    "a + F.random.poisson(2, shape=(3, 4))",
    "a + F.cast(F.random.randint(0, 3, shape=(3, 4)), 'float32')",
    "F.random.{like}_like(a) + a",
    "a * F.shuffle(F.random.uniform(shape=(3, 4)))",
    "F.broadcast_mul(a, F.random.uniform(shape=(1, 1)))",
    "F.broadcast_add(a, F.expand_dims(F.cast(F.random.multinomial(F.softmax(F.BlockGrad(a)),"
    " get_prob=False), 'float32'), 1))",
    "F.sample_normal(F.BlockGrad(a), F.ones_like(a)) + a",
    "F.sample_uniform(F.zeros_like(a), F.ones_like(a)) * a",
    "F.sample_gamma(F.ones_like(a), F.ones_like(a)) * a",
    "F.tanh(a)", "a * 2 + 1", "a * a",
)  # fmt: skip

LAYERS = (
    "nn.Dropout({p})",
    "nn.Dropout({p}, axes=({axis},))",
    "nn.Dense(4, flatten=False)",
    "nn.Dense(4, in_units=4, weight_initializer={init})",
    "nn.Dense(4, activation='relu', flatten=False, weight_initializer={init})",
    "nn.BatchNorm()", "nn.LayerNorm()", "nn.LeakyReLU(0.2)", "nn.PReLU()", "nn.GELU()",
)  # fmt: skip

RECURRENT = "gluon.rnn.{cell}(4, num_layers={layers}, dropout={p})"

INITS = ("'xavier'", "init.Normal(0.5)", "init.Uniform(0.5)", "'ones'")

OPTIMIZERS = ("'sgd', {'learning_rate': 0.01}", "'adam', {'learning_rate': 0.01}")

STEPS = {
    "train": """
with autograd.record():
    y = net(x)
    l = (y * y).mean()
l.backward()
trainer.step(1, ignore_stale_grad=True)
keep(y)
""",
    "predict": "keep(net(x))\n",
    "train_mode": "with autograd.train_mode():\n    keep(net(x))\n",
    "gradient in prediction": """
x.attach_grad()
with autograd.record(train_mode=False):
    y = net(x)
y.backward()
keep(x.grad)
""",
    "second order": """
x.attach_grad()
with autograd.record(train_mode={train}):
    y = net(x)
    g = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
    l = (g * g).sum() + y.sum()
l.backward()
keep(y), keep(g), keep(x.grad)
""",
    "draw": "keep(nd.random.{like}(shape=(2,)))\n",
    "shuffle": "keep(nd.shuffle(nd.arange(6)))\n",
    "dropout": "keep(nd.Dropout(x, p={p}, mode={mode!r}))\n",
    "np": "keep(mx.np.random.{np}(size=(2,)))\n",
    "more layers": "x = x + nd.random.normal_like(x)\n",
    "compile again": "prepare(net)\n",
    "seed": "mx.random.seed({number})\n",
}


def draw(seed: int) -> str:
    """The program; `prepare` and `scope` are defined by the mode."""
    rng = random.Random(seed)
    recurrent = rng.random() < 0.2

    def filled(text: str) -> str:
        return text.format(
            p=rng.choice((0, 0.3, 0.5, 0.5, 1)),
            mode=rng.choice(("training", "training", "always")),
            axis=rng.randrange(2),
            act=rng.choice(("leaky", "elu", "gelu", "selu")),
            like=rng.choice(("uniform", "normal", "exponential", "poisson")),
            np=rng.choice(("uniform", "normal")),
            init=rng.choice(INITS),
            train=rng.choice((True, False)),
            cell=rng.choice(("LSTM", "GRU", "RNN")),
            layers=rng.randint(1, 2),
            number=rng.randrange(9),
        )

    lines = ["from contextlib import nullcontext", "from mxnet.gluon import nn"]
    for name in ("Inner", "Net"):
        layers, calls = [], []
        for _ in range(rng.randint(1, 3)):
            layers.append(filled(rng.choice(LAYERS)))
        if recurrent and name == "Inner":
            layers.append(filled(RECURRENT))
        values = ["a"]
        n_calls = rng.randint(2, 5)
        uses = [f"self.layer{i}(a)" for i in range(len(layers) - (recurrent and name == "Inner"))]
        if recurrent and name == "Inner":
            last = len(layers) - 1
            uses.append(f"F.reshape(self.layer{last}(F.expand_dims(a, 0)), (3, 4))")
        if name == "Net":
            uses.append("self.inner(a)")
        plain = rng.random() < 0.3  # a plain forward, which sees shapes
        # On arrays of `nd`, a plain forward draws in the shape of another value only.
        known = [call for call in CALLS if not plain or "shape=" not in call]
        uses += [filled(rng.choice(known)) for _ in range(n_calls)]
        rng.shuffle(uses)
        for i, use in enumerate(uses):
            source = rng.choice(values[-2:])
            calls.append(f"v{i} = " + use.replace("(a", f"({source}").replace("a *", f"{source} *")
                         .replace("a +", f"{source} +").replace("+ a", f"+ {source}")
                         .replace("* a", f"* {source}"))  # fmt: skip
            values.append(f"v{i}")
        # In any order, and not all of them.
        shown = rng.sample(values[1:], rng.randint(1, min(3, len(values) - 1)))
        lines += [f"class {name}(gluon.HybridBlock):", "    def __init__(self):",
                  f"        super().__init__(prefix='{name}_')",
                  "        with self.name_scope():"]  # fmt: skip
        if name == "Net":
            lines += ["            self.inner = Inner()", "            self.last = nn.Dense(4)"]
        lines += [f"            self.layer{i} = {layer}" for i, layer in enumerate(layers)]
        head = "def forward(self, a):" if plain else "def hybrid_forward(self, F, a):"
        lines += [f"    {head}"] + ["        F = nd"] * plain
        lines += [f"        {call}" for call in calls]
        total = " + ".join(shown)
        lines += [f"        return {f'self.last({total})' if name == 'Net' else total}"]
    lines += [
        "mx.random.seed(3)",
        "net = Net()",
        f"net.initialize({rng.choice(INITS)})",
        "prepare(net)",
        f"trainer = gluon.Trainer(net.collect_params(), {rng.choice(OPTIMIZERS)})",
        "x = nd.array(np.arange(12).reshape(3, 4) / 12)",
        "with scope():",
    ]
    names = [name for name in STEPS if name != "second order" or not recurrent]
    steps = [rng.choice(names) for _ in range(rng.randint(2, 6))]
    for step in steps:
        lines += ["    " + line for line in filled(STEPS[step]).strip("\n").split("\n")]
    lines += ["    keep(nd.random.uniform(shape=(2,)))",
              "for p in net.collect_params().values():",
              "    if p._data and p.grad_req != 'null': keep(p.data())"]  # fmt: skip
    return "\n".join(lines)


def check(seed: int) -> bool:
    """Disagreement if a mode keeps other values than an eager run on the naive engine."""
    text = draw(seed)
    engines = list(ENGINES.values())
    wanted = None
    for i, (name, (prepare, scope)) in enumerate(MODES.items()):
        prelude = f"def prepare(net):\n    {prepare}\ndef scope():\n    return {scope}\n"
        with engine.use(**engines[(seed + i) % len(engines) if i else 0]):
            found = results(prelude + text)
        if wanted is None:
            wanted = found
        close(found, wanted, 1e-3, 1e-4, f"{name} and eager", prelude + text)
    return False
