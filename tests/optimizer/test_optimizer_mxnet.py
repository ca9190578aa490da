"""Every optimizer, scheduler and the Trainer against the real MXNet 1.9.1 (`make test-mxnet`): the
same weights get the same gradients for some steps."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import Oracle

import d2lmini

COMMON = (
    {},
    {"wd": 0.03},
    {"wd": 0.03, "rescale_grad": 0.25},
    {"wd": 0.03, "rescale_grad": 0.5, "clip_gradient": 0.4},
    {"learning_rate": 0.05, "clip_gradient": 0.2},
)
OWN = {
    "sgd": ({}, {"momentum": 0.9}, {"momentum": 0.9, "lazy_update": False}),
    "nag": ({}, {"momentum": 0.9}),
    "signum": ({}, {"momentum": 0.0}, {"momentum": 0.5, "wd_lh": 0.1}),
    "adam": ({}, {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-4}),
    "adagrad": ({}, {"eps": 1e-3}),
    "rmsprop": (
        {},
        {"gamma1": 0.8, "epsilon": 1e-4},
        {"centered": True},
        {"centered": True, "gamma1": 0.8, "gamma2": 0.7},
        {"clip_weights": 0.5},
        {"centered": True, "clip_weights": 0.5},
    ),
    "adadelta": ({}, {"rho": 0.8, "epsilon": 1e-3}),
    "ftrl": ({}, {"lamda1": 0.1, "beta": 2}),
    "adamax": ({}, {"beta1": 0.8, "beta2": 0.9}),
    "ftml": ({}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-4}),
    "lamb": (
        {},
        {"bias_correction": False},
        {"lower_bound": 0.5, "upper_bound": 1.5, "beta1": 0.8},
    ),
}
CASES: list[tuple[str, dict, str]] = [
    (name, {**own, **common}, "float32")
    for name, variants in OWN.items()
    for own in variants
    for common in COMMON
]
# MXNet's own float16 without a master copy rounds otherwise; in float64 attributes are float32.
CASES += [
    (name, {**own, "multi_precision": True, "wd": 0.03, "rescale_grad": 0.5}, "float16")
    for name, variants in OWN.items()
    for own in variants
]
SCHEDULERS = [
    ("FactorScheduler", {"step": 2, "factor": 0.5, "base_lr": 0.3}),
    ("FactorScheduler", {"step": 1, "factor": 0.1, "base_lr": 0.3, "stop_factor_lr": 0.01}),
    ("MultiFactorScheduler", {"step": [1, 3], "factor": 0.5, "base_lr": 0.3}),
    ("PolyScheduler", {"max_update": 4, "base_lr": 0.3, "pwr": 2, "final_lr": 0.1}),
    ("CosineScheduler", {"max_update": 4, "base_lr": 0.3, "final_lr": 0.1}),
    (
        "CosineScheduler",
        {"max_update": 6, "base_lr": 0.3, "warmup_steps": 2, "warmup_begin_lr": 0.1},
    ),
    (
        "PolyScheduler",
        {"max_update": 6, "base_lr": 0.3, "warmup_steps": 3, "warmup_mode": "constant"},
    ),
]


def train(mx, name, options, dtype="float32", updates=5, together=None, schedule=None):
    """Three weights and the states of an optimizer after some updates; `mx` is either library."""

    def draw(shape, seed):
        return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape)

    def flat(state):
        if state is None:
            return []
        if isinstance(state, (list, tuple)):
            return [x for each in state for x in flat(each)]
        return [state]

    shapes = [(3, 4), (5,), (1, 2)]
    if schedule:
        kind, how = schedule
        options = {**options, "lr_scheduler": getattr(mx.lr_scheduler, kind)(**how)}
    optimizer = mx.optimizer.create(name, **options)
    if together is None:  # MXNet takes lists only where the optimizer says so
        together = getattr(optimizer, "aggregate_num", 0) > 0
    weights = [mx.nd.array(draw(s, i), dtype=dtype) for i, s in enumerate(shapes)]
    updater = mx.optimizer.get_updater(optimizer)
    indices = list(range(len(shapes)))
    for t in range(updates):
        grads = [mx.nd.array(draw(s, 10 + 10 * t + i), dtype=dtype) for i, s in enumerate(shapes)]
        if together:
            updater(indices, grads, weights)
        else:
            for each in zip(indices, grads, weights):
                updater(*each)
    states = [x for i in indices for x in flat(updater.states[i])]
    return [x.asnumpy() for x in weights + states]


def rates(mx, kind, options):
    """The rates of a scheduler."""
    scheduler = getattr(mx.lr_scheduler, kind)(**options)
    return np.array([scheduler(n) for n in range(10)])


def trainers(mx):
    """Nets trained by a Trainer: devices, options, files."""
    from_gluon, autograd = mx.gluon, mx.autograd

    def net_on(contexts):
        net = from_gluon.nn.Sequential(prefix="net_")
        with net.name_scope():
            net.add(from_gluon.nn.Dense(4, activation="tanh", in_units=3))
            net.add(from_gluon.nn.Dense(2, in_units=4))
        net.initialize(ctx=contexts)
        for i, p in enumerate(net.collect_params().values()):
            values = np.random.default_rng(i).uniform(-1, 1, p.shape)
            p.set_data(mx.nd.array(values))
        return net

    def back(net, contexts, t):
        xs = [
            mx.nd.array(np.random.default_rng([t, i]).uniform(-1, 1, (5, 3)), ctx=c)
            for i, c in enumerate(contexts)
        ]
        with autograd.record():
            losses = [(net(x) ** 2).sum() for x in xs]
        autograd.backward(losses)

    one, two = [mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]
    results = {}

    def keep(name, net, contexts):
        for c in contexts:
            for i, p in enumerate(net.collect_params().values()):
                results[f"{name}/{c}/{i}"] = p.data(c).asnumpy()
                results[f"{name}/{c}/{i}/grad"] = p.grad(c).asnumpy()

    rows = [
        ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}, one, {}),
        ("adam", {"learning_rate": 0.1, "rescale_grad": 2.0}, one, {}),
        ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}, two, {}),
        ("sgd", {"learning_rate": 0.1, "momentum": 0.9}, two, {"update_on_kvstore": False}),
        ("adam", {"learning_rate": 0.1}, two, {"kvstore": "local"}),
        ("adam", {"learning_rate": 0.1}, two, {"update_on_kvstore": False, "kvstore": "local"}),
    ]
    for k, (name, options, contexts, more) in enumerate(rows):
        net = net_on(contexts)
        params = net.collect_params()
        net[0].weight.lr_mult = 0.5
        net[1].bias.wd_mult = 3.0
        trainer = from_gluon.Trainer(params, name, dict(options), **more)
        for t in range(4):
            back(net, contexts, t)
            trainer.step(5 * len(contexts))
            if t == 1:
                trainer.set_learning_rate(trainer.learning_rate / 2)
                net[1].weight.lr_mult = 2.0
        keep(f"plain{k}", net, contexts)
    # Two trainers on one net, as in the book's chapter on weight decay; gradients that add up.
    net = net_on(one)
    for p in net.collect_params().values():
        p.grad_req = "add"
    both = [
        from_gluon.Trainer(net.collect_params(".*weight"), "sgd", {"learning_rate": 0.1, "wd": 3}),
        from_gluon.Trainer(net.collect_params(".*bias"), "sgd", {"learning_rate": 0.1}),
    ]
    for t in range(3):
        for k in range(2):
            back(net, one, 10 * t + k)
        for trainer in both:
            trainer.step(10)
        for p in net.collect_params().values():
            p.zero_grad()
    keep("two", net, one)
    return results


@pytest.fixture(scope="module")
def trained(mxnet: Oracle) -> tuple[dict, dict]:
    """What d2lmini says of Trainers, and MXNet."""
    return trainers(d2lmini), mxnet.ask(trainers)


def close(mine: list, theirs: list, rtol: float, atol: float) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_five_updates_agree(case: tuple, mxnet: Oracle):
    name, options, dtype = case
    rtol, atol = (2e-3, 2e-3) if dtype == "float16" else (1e-4, 1e-5)
    if name == "nag" and options.get("wd"):
        atol = max(atol, 2e-4)  # see nag_mom_update
    mine, theirs = train(d2lmini, *case), mxnet.ask(train, *case)
    close(mine, theirs, rtol, atol)


@pytest.mark.parametrize("schedule", SCHEDULERS, ids=str)
def test_schedules_agree(schedule: tuple, mxnet: Oracle):
    close([rates(d2lmini, *schedule)], [mxnet.ask(rates, *schedule)], rtol=1e-12, atol=0)
    for name, options in (("sgd", {"momentum": 0.9}), ("adam", {})):
        how = name, options, "float32", 6, name != "adam", schedule
        close(train(d2lmini, *how), mxnet.ask(train, *how), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prefix", [*(f"plain{k}/" for k in range(6)), "two/"])
def test_trainers_agree(prefix: str, trained):
    mine, theirs = ({k: v for k, v in each.items() if k.startswith(prefix)} for each in trained)
    assert mine and mine.keys() == theirs.keys()
    close([mine[key] for key in theirs], list(theirs.values()), rtol=1e-4, atol=1e-5)
