"""Training programs in the style of old books: they carry states from batch to batch, detach in
loops, print losses by `%`, keep arrays over epochs, compute metrics while recording, write weights
in place. Nothing in them is random, so that the real MXNet must train to the same numbers.

A program is a model, a way to lose, a way to update, and a loop with a few habits; each part is one
of several that are drawn. `draw(seed)` is its text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from textwrap import dedent, indent

from generators.book_parts import (
    AFTER,
    BACKWARD,
    BEGIN,
    BY_GRAD,
    CLIPS,
    GLUON,
    LAYERS,
    LOSSES,
    OTHERS,
    RECORDING,
    RECURRENT,
    SCRATCH,
    TRAINERS,
    UPDATES,
)

#: How near MXNet has to be: relative and absolute.
MXNET = 2e-3, 5e-4


class Drawn:
    """A program in the making: what was drawn, and its numbers."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.numbers = {
            "seed": seed % 2**31,
            "inputs": rng.choice([2, 3, 5]),
            "hidden": rng.choice([4, 5, 7]),
            "outputs": rng.choice([2, 3]),
            "n": 12,
            "batch": rng.choice([3, 4, 6]),
            "epochs": rng.choice([1, 2, 3]),
            "lr": rng.choice([0.05, 0.1, 0.3]),
            "theta": rng.choice([0.1, 0.5, 5]),
            "act": rng.choice(["tanh", "sigmoid", "relu"]),
        }
        self.lines: list[str] = []
        self.zero = self.late = ""  # lines before backward, and after the first epoch

    def add(self, text: str, depth: int = 0, **more: object) -> None:
        """Lines, with the numbers filled in."""
        text = dedent(text).strip("\n").format(**self.numbers, **more)
        self.lines.append(indent(text, "    " * depth))

    def one(self, choices: list | dict) -> str:
        """One of them."""
        return self.rng.choice(list(choices.values()) if isinstance(choices, dict) else choices)

    def some(self, choices: list[str], most: int) -> list[str]:
        """A few of them, in any order."""
        return self.rng.sample(choices, self.rng.randint(0, most))

    def chance(self, p: float) -> bool:
        """True so often."""
        return self.rng.random() < p


def draw(seed: int) -> str:
    """The text of a program."""
    it = Drawn(seed)
    it.add(BEGIN)
    it.rng.choice([_scratch, _gluon, _recurrent, _other])(it)
    return "\n".join(it.lines) + "\n"


def _scratch(it: Drawn) -> None:
    it.add(it.one(SCRATCH))
    _attach(it)
    _loop(it, "out = net(x)", "{batch}", it.one(UPDATES))


def _gluon(it: Drawn) -> None:
    hybrid = it.chance(0.6)
    forward = it.rng.choice(["forward(self, ", "hybrid_forward(self, F, "])
    layers = ", ".join(it.some(LAYERS, 3)).format(**it.numbers)
    it.add(
        it.one(GLUON), layers=layers or "nn.Dropout(0)", forward=forward,
        F="F" if "F" in forward else "nd",
        kind="HybridSequential" if hybrid else it.rng.choice(["Sequential", "HybridSequential"]),
        block="HybridBlock" if hybrid or "F" in forward else "Block",
    )  # fmt: skip
    it.add("blocks = [net]")
    _initialize(it, "net(X[0:batch_size])", hybrid)
    _loop(it, "out = net(x)", "{batch}", _trainer(it))


def _other(it: Drawn) -> None:
    name = it.rng.choice(list(OTHERS))
    first = {
        "two players": "D(G(normal(batch_size, 2)))", "two devices": "net(X)",
        "words": "centre(words), context(words)", "images": "net(X)",
    }[name]  # fmt: skip
    lines, it.lines = it.lines, []
    _initialize(it, first, it.chance(0.5))
    start, it.lines = "\n".join(it.lines), lines
    forward = it.rng.choice(["forward(self, ", "hybrid_forward(self, F, "])
    pick = it.rng.choice
    pools = ["nn.MaxPool2D(2)", "nn.GlobalAvgPool2D()", "nn.AvgPool2D(2, 1)", "nn.Flatten()"]
    it.add(
        OTHERS[name], start=start, forward=forward, F="F" if "F" in forward else "nd",
        # No BatchNorm (the last): MXNet moves its statistics in backward, in the other order.
        layers=", ".join(it.some(LAYERS[:-1], 2)).format(**it.numbers) or "nn.Dropout(0)",
        # MXNet does not hybridize a Block with a plain forward.
        kind=pick(["Sequential", "HybridSequential"]) if "F" in forward else "Sequential",
        block="HybridBlock" if "F" in forward else "Block",
        detach=pick([".detach()", "", ".copy().detach()"]),
        again=pick(["G(z)", "G(z)", "G(z) * 0.5 + fake * 0.5"]),
        more=pick(["", " + 0.1 * (fake ** 2).mean(axis=1)"]),
        walk=pick(["[l.backward() for l in ls]", "autograd.backward(ls)"]),
        walk_one=pick(["l.backward()", "autograd.backward([l])", "l.backward(); nd.waitall()"]),
        train_mode=it.chance(0.5), pool=pick(pools),
    )  # fmt: skip
    it.add("for p in params:\n    keep(p.data(p.list_ctx()[-1]))")


def _recurrent(it: Drawn) -> None:
    steps = it.rng.choice([1, 2, 4])
    it.numbers["n"] = rows = it.numbers["batch"] * steps
    it.add("X = normal(batch_size * {steps} * 3, {inputs})", steps=steps)
    it.add("Y = nd.array(draws.randint(0, {outputs}, size=X.shape[0]))")
    it.add("T = normal(X.shape[0], {outputs})")
    name = it.rng.choice(list(RECURRENT))
    it.add(
        RECURRENT[name], layer=it.rng.choice(["RNN", "GRU", "LSTM"]), many=it.rng.choice([1, 2]),
        cell=it.rng.choice(["RNNCell", "GRUCell", "LSTMCell"]), unroll=it.chance(0.5),
    )  # fmt: skip
    if name in ("layer", "cell"):
        first = f"net(X[0:{rows}].reshape(({steps}, batch_size, -1)), begin_state())"
        _initialize(it, first, it.chance(0.5))
        update = _trainer(it)
    else:
        _attach(it)
        update = it.one(UPDATES)
    carried = it.rng.choice(
        [
            "state = begin_state()",
            "for s in state:\n    s.detach()",
            "state = [s.detach() for s in state]",
            "pass",
            "state = [s * 0.5 for s in state]",
        ]
    )
    forward = f"out, state = net(x.reshape(({steps}, batch_size, -1)), state)"
    it.add("state = begin_state()")
    _loop(it, forward, str(rows), update, carried)


def _attach(it: Drawn) -> None:
    req = "'add'" if it.chance(0.2) else ""
    it.add(f"""
        for p in params:
            p.attach_grad({req})
        momenta = [nd.zeros_like(p) for p in params]
        def all_params():
            return params
        def grads():
            return [p.grad for p in params]
        """)
    it.zero = "for p in params:\n    p.grad[:] = 0" if req else ""


def _initialize(it: Drawn, first: str, hybrid: bool) -> None:
    it.add("for block in blocks:\n    block.initialize()")
    late = hybrid and it.chance(0.2)
    flags = it.rng.choice(["", "", "static_alloc=True", "static_alloc=True, static_shape=True"])
    hybridize = f"for block in blocks:\n    block.hybridize({flags})"
    if hybrid and not late:
        it.add(hybridize)
    it.add(first)
    it.add("""
        params = [p for block in blocks for p in block.collect_params().values()]
        for p in params:
            if p.grad_req != 'null' and 'gamma' not in p.name:
                p.set_data(normal(*p.shape))
        net_params = gluon.ParameterDict()
        for block in blocks:
            net_params.update(block.collect_params())
        learnt = [p for p in params if p.grad_req != 'null']
        def all_params():
            return [p.data() for p in learnt]
        def grads():
            return [p.grad() for p in learnt]
        """)
    if it.chance(0.2):
        it.add("for p in learnt:\n    p.grad_req = 'add'")
        it.zero = "for p in learnt:\n    p.zero_grad()"
    if it.chance(0.15):
        it.add("learnt[0].lr_mult = 0.5\nlearnt[-1].wd_mult = 3.0")
    it.late = hybridize if late else ""


def _trainer(it: Drawn) -> str:
    if it.chance(0.15):
        it.add("""
            biases = [p for p in learnt if p.name.endswith('bias')]
            others = [p for p in learnt if not p.name.endswith('bias')]
            trainer = gluon.Trainer(others, 'sgd', {{'learning_rate': lr, 'wd': 0.1}})
            trainer_b = gluon.Trainer(biases, 'sgd', {{'learning_rate': lr}})
            """)
        return "trainer.step({rows})\ntrainer_b.step({rows})"
    it.add("trainer = " + it.one(TRAINERS))
    return it.rng.choice(
        [
            "trainer.step({rows})",
            "trainer.step({rows})",
            "trainer.allreduce_grads()\ntrainer.update({rows})",
            "trainer.step({rows}, ignore_stale_grad=True)",
        ]
    )


def _loop(it: Drawn, forward: str, rows: str, update: str, carried: str = "") -> None:
    """The epochs: batches, `record`, loss, habits, backward, clipping, update, more habits."""
    step = "batch_size" if "{" in rows else rows
    it.add("""
        total, last, kept, l_sum, n = nd.zeros(1), None, [], 0.0, 0
        average = [p.copy() for p in all_params()]
        buffer = nd.zeros({outputs})
        metric = mx.metric.Accuracy()
        """)
    batches: dict[str, str] = {
        "slices": f"[(X[i:i + {step}], Y[i:i + {step}], T[i:i + {step}]) "
        f"for i in range(0, X.shape[0], {step})]",
        "loader": f"gluon.data.DataLoader(gluon.data.ArrayDataset(X, Y, T), {step})",
        "buffered": "in_buffer()",
    }
    it.add(f"""
        def in_buffer():
            x = nd.zeros(({step}, X.shape[1]))
            for i in range(0, X.shape[0], {step}):
                x[:] = X[i:i + {step}]
                yield x, Y[i:i + {step}], T[i:i + {step}]
        """)
    add: Callable = it.add
    add("for epoch in range(num_epochs):")
    if carried and it.chance(0.5):
        add("state = begin_state()", 1)
    add(f"for x, y, t in {it.one(batches)}:", 1)
    if carried:
        add(carried, 2)
    if it.zero and it.chance(0.7):
        add(it.zero, 2)
    add("with autograd.record():", 2)
    add(forward, 3)
    add(it.one(LOSSES), 3)
    for habit in it.some(RECORDING, 4):
        add(habit, 3)
    recorded, called = it.rng.choice(BACKWARD if "trainer" in update else [*BACKWARD, BY_GRAD])
    inside = it.chance(0.15)
    for text, depth in ((recorded, 3), (called, 3 if inside else 2)):
        if text:
            add(text, depth)
    if it.chance(0.3):
        add(it.one(CLIPS), 2)
    add(update, 2, rows=rows.format(**it.numbers))
    for habit in it.some(AFTER, 4):
        add(habit, 2)
    if it.late and it.chance(0.7):
        add(it.late, 1)
    if "trainer." in update and it.chance(0.3):
        add("if trainer._optimizer.lr_scheduler is None:", 1)
        add("trainer.set_learning_rate(trainer.learning_rate * 0.8)", 2)
    elif it.chance(0.2):
        add("lr *= 0.9", 1)
    add("keep(l.mean())", 1)
    add("""
        for value in [*kept, *all_params(), *grads(), *average, total]:
            keep(value)
        keep(l_sum / max(n, 1))
        keep(np.float64(metric.get()[1]))
        """)
