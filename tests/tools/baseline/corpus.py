"""Programs whose bits are kept: drawn ones, rows of operations and of nets, devices, lazy scopes.

Each is a name and a function that calls `keep(value)` with what is to be compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import pickle
import pkgutil
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import d2lmini
from d2lmini import autograd, engine, gluon, init, nd

Keep = Callable[[Any], None]
Program = tuple[str, Callable[[Keep], None]]

#: How many programs of each generator, from seed `FIRST` on.
DRAWN, FIRST = {"book": 120, "configurations": 180, "canaries": 70}, 190_000
#: Longer than this no program may take (seconds).
PATIENCE_S = 120

OPTIMIZERS = "AdaDelta AdaGrad Adam Adamax FTML Ftrl LAMB NAG RMSProp SGD Signum".split()

#: Training of a small net on two virtual GPUs, or on one place.
DEVICES = """
def train(ctx):
    net = gluon.nn.HybridSequential()
    net.add({layers}, gluon.nn.Dense(3))
    net.initialize(init.Xavier(), ctx=ctx)
    {mode}
    trainer = gluon.Trainer(net.collect_params(), mx.optimizer.{optimizer}({options}), {trainer})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    X, Y = nd.random.normal(shape={shape}), nd.arange(8) % 3
    for i in range(4):
        xs = gluon.utils.split_and_load(X, ctx)
        ys = gluon.utils.split_and_load(Y, ctx)
        with autograd.record():
            ls = [loss(net(x), y) for x, y in zip(xs, ys)]
        for l in ls:
            l.backward()
        trainer.step(8)
        for l in ls:
            keep(l)
    for p in net.collect_params().values():
        for c in ctx:
            keep(p.data(c))
            if p.grad_req != "null":
                keep(p.grad(c))
with mx.virtual_gpus(2, link_gb_s=1000):
    train([mx.gpu(i) for i in range({gpus})] or [mx.cpu()])
"""

LAZY = """
from generators.canaries import CHAINS
import random
rng = random.Random({seed})
z = nd.random.normal(shape={shape})
z.attach_grad()
for i in range(4):
    with mx.lazy():
        for each in rng.choices(CHAINS, k=6):
            exec(each)
        if {stops}:
            keep(z)
    keep(z)
"""


def programs(rows: Path, like: Path | None) -> list[Program]:
    """All programs, in an order of which every eighth is a fair choice."""
    kinds = [drawn(), op_rows(rows, like), gluon_rows(), nets(), devices(), lazy()]
    return [program for kind in kinds for program in kind]


def drawn() -> list[Program]:
    """What the generators draw; canaries in one thread, their results kept."""
    # Of `check`, which imports inner names, the generators need one word only.
    check = ModuleType("generators.check")
    check.NOT_IN_MXNET = "# not in MXNet: "  # type: ignore[attr-defined]
    sys.modules["generators.check"] = check
    found = []
    for name, count in DRAWN.items():
        generator = importlib.import_module(f"generators.{name}")
        if name == "canaries":
            generator.STEPS = 6
        seed = FIRST
        while count:
            text = generator.draw(seed)
            if name == "canaries":
                text = re.sub("from generators.canaries import.*", CANARIES, text)
            if "threading" not in text:
                found.append((f"{name} {seed}", run_text(text)))
                count -= 1
            seed += 1
    return found


CANARIES = """
class Canaries:
    def __init__(self, number, ctx):
        pass
    def check(self, *values):
        for value in values:
            keep(value)
"""


def devices() -> list[Program]:
    """All optimizers and some nets on 0 (the CPU), 1 and 2 virtual GPUs, eager and hybridized."""
    layers = ["gluon.nn.Dense(5, activation='tanh')", "gluon.nn.Conv2D(4, 3, activation='relu')",
              "gluon.rnn.LSTM(4, layout='NTC')", "gluon.nn.BatchNorm()"]  # fmt: skip
    found = []
    for i, optimizer in enumerate(OPTIMIZERS):
        for gpus in (0, 1, 2):
            which = (i + gpus) % len(layers)
            options = ["", "learning_rate=0.05, wd=0.01", "clip_gradient=0.1"][(i + gpus) % 3]
            text = DEVICES.format(
                layers=layers[which], mode=["", "net.hybridize()"][(i + gpus) % 2],
                optimizer=optimizer, options=options, gpus=gpus,
                shape=[(8, 6), (8, 2, 6, 5), (8, 4, 3), (8, 5)][which],
                trainer=["", "update_on_kvstore=False"][i % 2],
            )  # fmt: skip
            found.append((f"devices {gpus} {optimizer}", run_text(text)))
    return found


def lazy() -> list[Program]:
    """Chains of operations in a lazy scope."""
    shapes = [(1, 3), (4, 4), (8, 33), (33, 64), (200, 100)]
    return [
        (f"lazy {i}", run_text(LAZY.format(seed=i, shape=shapes[i % 5], stops=i % 2)))
        for i in range(30)
    ]


def run_text(text: str) -> Callable[[Keep], None]:
    def run(keep: Keep) -> None:
        names = {"mx": d2lmini, "np": np, "keep": keep, "__name__": "__generated__"}
        names |= {"nd": nd, "autograd": autograd, "gluon": gluon, "init": init}
        exec(compile(text, "<program>", "exec"), names)

    return run


def op_rows(rows: Path, like: Path | None) -> list[Program]:
    """One program for each operation of `nd`: its rows, and their gradients where it has one."""
    if like is None:
        import op_rows

        tables = [m.name for m in pkgutil.iter_modules(op_rows.__path__) if m.name != "case"]
        cases = [c for t in tables for c in importlib.import_module(f"op_rows.{t}").ROWS]
        public = [(c.op, c.inputs, c.attrs) for c in cases if not c.op.startswith("_")]
        data = pickle.dumps(public)
    else:
        data = like.read_bytes()
    rows.write_bytes(data)  # by each part anew, the same
    by_op = defaultdict(list)
    for op, inputs, attrs in pickle.loads(data):
        by_op[op].append((inputs, attrs))
    return [(f"op {op}", run_rows(op, cases[:12])) for op, cases in by_op.items()]


def run_rows(op: str, cases: list[tuple[tuple, dict]]) -> Callable[[Keep], None]:
    def run(keep: Keep) -> None:
        function = nd
        for name in op.split("."):
            function = getattr(function, name)
        for inputs, attrs in cases:
            xs = [nd.array(i, dtype=i.dtype) if isinstance(i, np.ndarray) else i for i in inputs]
            floating = [x for x in xs if isinstance(x, nd.NDArray) and x.dtype.__name__[0] == "f"]
            for x in floating:
                x.attach_grad()
            for y in flat(function(*xs, **attrs)):
                keep(y)
            if not floating:
                continue
            try:
                with autograd.record():
                    ys = flat(function(*xs, **attrs))
                autograd.backward(ys)
            except Exception as problem:
                keep(f"{type(problem).__name__}: {problem}")
            for x in floating:
                keep(x.grad)

    return run


def flat(value: Any) -> list[Any]:
    return (
        [v for each in value for v in flat(each)] if isinstance(value, (list, tuple)) else [value]
    )


def gluon_rows() -> list[Program]:
    """The layers, losses and recurrent nets of the gluon tables, eager."""
    from gluon_rows import loss, nn, peer, rnn

    def run_row(row: Any) -> Callable[[Keep], None]:
        def run(keep: Keep) -> None:
            for key, value in sorted(peer.examine(d2lmini, row.plain(), row.arrays()).items()):
                if key != "about":
                    keep(value)

        return run

    rows = [*nn.ROWS[::2], *loss.ROWS[::2], *rnn.ROWS[::2]]
    return [(f"gluon {i} {row.id}", run_row(row)) for i, row in enumerate(rows)]


def nets() -> list[Program]:
    """The book's nets, eager and hybridized: outputs, gradients, two steps of training."""
    from hybrid_nets import NETS

    def run_net(net: Any, how: dict[str, bool] | None) -> Callable[[Keep], None]:
        def run(keep: Keep) -> None:
            block = net.build()
            block.initialize(init.Xavier())
            if how is not None:
                block.hybridize(**how)
            trainer = None
            for shapes in (*net.shapes, net.shapes[0]):
                xs = [nd.random.uniform(shape=shape) for shape in shapes]
                if net.words:
                    xs[0] = nd.random.randint(0, 7, shape=shapes[0]).astype("float32")
                for y in flat(block(*xs)):
                    keep(y)
                trainer = trainer or gluon.Trainer(block.collect_params(), "adam")
                with autograd.record():
                    ys = flat(block(*xs))
                autograd.backward(ys)
                trainer.step(2, ignore_stale_grad=True)
                for y in ys:
                    keep(y)
                for parameter in block.collect_params().values():
                    keep(parameter.data() if parameter.grad_req == "null" else parameter.grad())

        return run

    modes = {"eager": None, "hybrid": {}, "static": {"static_alloc": True, "static_shape": True}}
    return [
        (f"net {name}, {mode}", run_net(net, how))
        for name, net in NETS.items()
        for mode, how in modes.items()
    ]


# -- running them ----------------------------------------------------------------------------------


def record(chosen: list[Program], options: dict[str, Any]) -> dict[str, list[str]]:
    """The hashes of what each program keeps on an engine; its error, if it ends with one."""
    d2lmini.install_as_mxnet()
    signal.signal(signal.SIGALRM, give_up)
    found = {}
    with engine.use(**options):
        for name, run in chosen:
            found[name] = outcome(run)
    return found


def give_up(*_: Any) -> None:
    raise TimeoutError(f"longer than {PATIENCE_S} s")


def outcome(run: Callable[[Keep], None]) -> list[str]:
    """A hash for each value that the program keeps, and one of what it prints."""
    kept: list[str] = []

    def keep(value: Any) -> None:
        if isinstance(value, str):
            kept.append(value)
            return
        array = np.array(value.asnumpy() if hasattr(value, "asnumpy") else value)
        shape = "x".join(map(str, array.shape))
        kept.append(f"{array.dtype} {shape} {hashlib.sha1(array.tobytes()).hexdigest()[:10]}")

    d2lmini.random.seed(19)
    np.random.seed(19)
    text = io.StringIO()
    signal.alarm(PATIENCE_S)
    try:
        with contextlib.redirect_stdout(text):
            run(keep)
            engine.waitall()
    except Exception as problem:
        kept.append(f"{type(problem).__name__}: {problem}")
        with contextlib.suppress(Exception):
            engine.waitall()
    finally:
        signal.alarm(0)
    return [*kept, f"printed {hashlib.sha1(text.getvalue().encode()).hexdigest()[:10]}"]
