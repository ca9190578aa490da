"""Ordinary training: a Trainer, an Updater or a KVStore over some steps, with what users change in
between. What is kept: weights and rates after each step, and whether a call raised.

Between the steps, at random: other rates, multipliers, momentum and rescale_grad, stale gradients,
`allreduce_grads` and `update`, and states that are saved and loaded into another Trainer.
"""

from __future__ import annotations

import random

from generators.check import NOT_IN_MXNET
from generators.layers import DRAWS
from generators.optimizers import OWN, _not_in_mxnet, _scheduler

#: rtol, atol.
MXNET = 2e-4, 2e-5

PROGRAM = """\
import os, tempfile
{draws}
ctx = [mx.cpu(i) for i in range({devices})]
params = []
for i, (name, dims) in enumerate({params}):
    p = gluon.Parameter(name, shape=dims)
    p.initialize(ctx=ctx)
    p.set_data(nd.array(numbers(*dims)))
    params.append(p)
for p, lr_mult, wd_mult in zip(params, {lr_mults}, {wd_mults}):
    p.lr_mult, p.wd_mult = lr_mult, wd_mult
def trainer_of(some):
    return gluon.Trainer(some, {optimizer}, kvstore={kvstore!r}, update_on_kvstore={on_kvstore})
def backward(some, scale):
    factors = [nd.array(scale * numbers(*p.shape)) for p in some]
    with autograd.record():
        losses = [
            sum((p.data(c) * f.as_in_context(c)).sum() * (k + 1) for p, f in zip(some, factors))
            for k, c in enumerate(ctx)
        ]
    autograd.backward(losses)
def raises(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (UserWarning, AssertionError):
        keep(1)
        return
    keep(0)
def show():
    for p in params:
        for x in p.list_data():
            keep(x)
    keep(trainer.learning_rate)
    keep(trainer.optimizer.num_update)
trainer = trainer_of(params)
{events}
"""

SAVE = """\
path = os.path.join(tempfile.mkdtemp(), "states")
trainer.save_states(path)
{another}trainer.load_states(path)"""

STORE = """\
{draws}
store = mx.kv.create({kind!r})
shapes = {shapes}
keys = list(range(len(shapes))) if {numbers} else ["k%d" % i for i in range(len(shapes))]
store.init(keys, [nd.array(numbers(*s)) for s in shapes])
{updater}
for step in range({steps}):
    store.push(keys, [[nd.array(numbers(*s)) for _ in range({devices})] for s in shapes])
    outs = [nd.zeros(s) for s in shapes]
    store.pull(keys, out=outs)
    for out in outs:
        keep(out)
"""


def draw(seed: int) -> str:
    rng = random.Random(seed)
    draws = DRAWS.format(seed=seed % 2**32, scale=1).strip()
    return (_store if rng.random() < 0.15 else _trainer)(rng, draws)


def _dims(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))


def _optimizer(rng: random.Random) -> tuple[str, dict[str, object]]:
    name = rng.choice([*OWN, "sgd", "sgd", "adam"])
    options = {key: rng.choice(values) for key, values in OWN[name].items()}
    lr = rng.choice([1e-3, 0.05, 0.1, 0.5])
    for key, values in (
        ("wd", (0.01, 0.5)), ("rescale_grad", (0.1, 0.5, 2.0)), ("clip_gradient", (0.5, 0.1)),
        ("begin_num_update", (3, 10)),
    ):  # fmt: skip
        if rng.random() < 0.35:
            options[key] = rng.choice(values)
    options["learning_rate"] = lr
    if rng.random() < 0.3:
        options["lr_scheduler"] = _scheduler(rng, lr)
    return name, options


def _words(options: dict[str, object]) -> str:
    return ", ".join(
        f"{k}={v[1:]}" if isinstance(v, str) and v[0] == "=" else f"{k}={v!r}"
        for k, v in options.items()
    )


def _why_not(name: str, options: dict[str, object]) -> str:
    full: dict[str, object] = {"wd": 0.0, "clip_gradient": None, **options}
    why = _not_in_mxnet(name, full, full)
    return f"{NOT_IN_MXNET}{why}\n" if why else ""


def _trainer(rng: random.Random, draws: str) -> str:
    n = rng.randint(1, 4)
    devices = rng.choice([1, 1, 1, 2, 2, 3])
    params = [(f"p{i}_{rng.choice(['weight', 'bias', 'gamma'])}", _dims(rng)) for i in range(n)]
    name, options = _optimizer(rng)
    if rng.random() < 0.5:
        optimizer = f"mx.optimizer.create({name!r}, {_words(options)})"
    else:
        optimizer = f"{name!r}, dict({_words(options)})"
    kvstore, on_kvstore = rng.choice(
        [("device", None), ("device", False), ("local", True), ("local", False), (None, False)]
    )
    if kvstore is None:
        devices = 1
    if devices == 1:  # MXNet makes no KVStore then, and asks it
        on_kvstore = on_kvstore and None
    mults = [rng.choice([1.0, 1.0, 0.5, 2.0, 0.0]) for _ in range(2 * n)]
    if name in ("ftrl", "ftml"):  # which divide by the rate
        mults = [m or 1.0 for m in mults]
    events = [
        line
        for _ in range(rng.randint(2, 7))
        for line in _event(rng, name, options, n, on_kvstore is False)
    ]
    return _why_not(name, options) + PROGRAM.format(
        draws=draws, devices=devices, params=params, lr_mults=mults[:n], wd_mults=mults[n:],
        optimizer=optimizer, kvstore=kvstore, on_kvstore=on_kvstore, events="\n".join(events),
        )  # fmt: skip


def _event(
    rng: random.Random, name: str, options: dict[str, object], n: int, on_devices: bool
) -> list[str]:
    """The lines of one event. on_devices: no KVStore updates the weights."""
    batch = rng.choice([1, 2, 8, 0.5])
    scale = rng.choice([1, 1, 0.01, 10])
    step = [f"backward(params, {scale})", f"trainer.step({batch})", "show()"]
    some = f"params[:{rng.randint(1, n)}]"
    kind = rng.choice(
        ["step"] * 6
        + ["rate", "rescale", "update", "stale", "twice", "mult", "clip", "save", "set_data"]
        + ["wd"] * (name != "nag")  # see `_not_in_mxnet`
        + ["momentum"] * (name in ("sgd", "nag") and options["momentum"] != 0)  # else no state
    )
    if kind == "rate":
        return [f"raises(trainer.set_learning_rate, {rng.choice([0.2, 0.01])})", *step]
    if kind == "rescale":
        return [f"trainer.optimizer.rescale_grad = {rng.choice([0.3, 3.0])}", *step]
    if kind == "update":
        between = rng.choice(["", "for p in params:\n    for g in p.list_grad(): g[:] = g * 0.5"])
        return [
            step[0], "raises(trainer.allreduce_grads)", *([between] if between else []),
            f"raises(trainer.update, {batch})", "show()",
        ]  # fmt: skip
    if kind == "stale":
        # MXNet's KVStore has updated before MXNet raises.
        ignore = rng.choice([True, not on_devices])
        return [
            f"backward({some}, {scale})",
            f"raises(trainer.step, {batch}, ignore_stale_grad={ignore})", "show()",
        ]  # fmt: skip
    if kind == "twice":
        return [step[0], f"backward({some}, {scale})", *step[1:]]
    if kind == "mult":
        value = rng.choice([0.5, 3.0])
        return [f"params[0].{rng.choice(['lr_mult', 'wd_mult'])} = {value}", *step]
    if kind == "wd":
        return [f"trainer.optimizer.wd = {rng.choice([0.0, 0.1])}", *step]
    if kind == "clip":
        return [f"trainer.optimizer.clip_gradient = {rng.choice([None, 0.2])}", *step]
    if kind == "momentum":
        return [*step, f"trainer.optimizer.momentum = {rng.choice([0.0, 0.3])}", *step]
    if kind == "save":
        another = rng.choice(["", "trainer = trainer_of(params)\n"])
        return [*step, SAVE.format(another=another), "show()", *step]
    if kind == "set_data":
        return ["params[0].set_data(nd.array(numbers(*params[0].shape)))", *step]
    return step


def _store(rng: random.Random, draws: str) -> str:
    name, options = _optimizer(rng)
    kind = rng.choice(["none", "function", "optimizer", "updater"])
    updater = {
        "none": "",
        "function": "def f(key, recv, local): local += recv * 2\nstore._set_updater(f)",
        "optimizer": f"store.set_optimizer(mx.optimizer.create({name!r}, {_words(options)}))",
        "updater": "store._set_updater(mx.optimizer.get_updater("
        f"mx.optimizer.create({name!r}, {_words(options)})))",
    }[kind]
    numbers = kind == "updater" or rng.random() < 0.5
    why = _why_not(name, options) if kind in ("optimizer", "updater") else ""
    return why + STORE.format(
        draws=draws, kind=rng.choice(["local", "device"]), updater=updater, numbers=numbers,
        shapes=[_dims(rng) for _ in range(rng.randint(1, 3))], steps=rng.randint(1, 4),
        devices=rng.choice([1, 2, 3]),
    )  # fmt: skip
