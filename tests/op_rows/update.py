"""Rows of `ops/update*.py`: what each returns. States changed in place: test_optimizer.py."""

from __future__ import annotations

import numpy as np

from op_rows.case import Case, draw

OPTIONS = (
    {},
    {"wd": 0.05, "rescale_grad": 0.5},
    {"wd": 0.05, "rescale_grad": 0.5, "clip_gradient": 0.3},
)
OURS = "our own: a part of an optimizer"
WEIGHT, GRAD, MOM = draw((3, 4)), draw((3, 4), seed=1), draw((3, 4), seed=2)
MEAN, VAR, MORE = draw((3, 4), seed=3), draw((3, 4), 0.5, 2.0, seed=4), draw((3, 4), 0, 1, seed=5)


def clipped(x, bound):
    return x if bound < 0 else np.clip(x, -bound, bound)


def outside(fn):
    """Decay is added after clipping: fn(w, g, wd, *states)."""

    def expect(w, g, *states, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0, **attrs):
        return fn(w, clipped(rescale_grad * g, clip_gradient), wd, *states, **attrs)

    return expect


def inside(fn):
    """Decay is part of what is clipped: fn(w, h, *states)."""

    def expect(w, g, *states, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0, **attrs):
        return fn(w, clipped(rescale_grad * g + wd * w, clip_gradient), *states, **attrs)

    return expect


@outside
def sgd(w, g, wd, lr, lazy_update=True):
    return w - lr * (g + wd * w)


@outside
def sgd_mom(w, g, wd, mom, lr, momentum):
    return w + momentum * mom - lr * (g + wd * w)


@outside
def nag_mom(w, g, wd, mom, lr, momentum):
    mom = momentum * mom - lr * (g + wd * w)
    return w + momentum * mom - lr * (g + wd * w)


@outside
def signsgd(w, g, wd, lr):
    return (1 - lr * wd) * w - lr * np.sign(g)


@outside
def signum(w, g, wd, mom, lr, momentum, wd_lh):
    mom = momentum * mom - (1 - momentum) * (g + wd * w)
    return (1 - lr * wd_lh) * w + lr * np.sign(mom)


@inside
def adam(w, h, mean, var, lr, beta1, beta2, epsilon):
    mean = beta1 * mean + (1 - beta1) * h
    var = beta2 * var + (1 - beta2) * h * h
    return w - lr * mean / (np.sqrt(var) + epsilon)


@outside
def adagrad(w, g, wd, history, lr, float_stable_eps):
    return w - lr * (g / np.sqrt(history + g * g + float_stable_eps) + wd * w)


@inside
def rmsprop(w, h, n, lr, gamma1, epsilon, clip_weights=-1.0):
    n = gamma1 * n + (1 - gamma1) * h * h
    return clipped(w - lr * h / np.sqrt(n + epsilon), clip_weights)


@inside
def rmspropalex(w, h, n, g, delta, lr, gamma1, gamma2, epsilon, clip_weights=-1.0):
    n = gamma1 * n + (1 - gamma1) * h * h
    g = gamma1 * g + (1 - gamma1) * h
    return clipped(w + gamma2 * delta - lr * h / np.sqrt(n - g * g + epsilon), clip_weights)


@outside
def adadelta(w, g, wd, acc_g, acc_delta, rho, epsilon):
    acc_g = rho * acc_g + (1 - rho) * g * g
    return w - np.sqrt(acc_delta + epsilon) / np.sqrt(acc_g + epsilon) * g - wd * w


@inside
def adamax(w, h, mean, largest, lr, beta1, beta2):
    return w - lr * (beta1 * mean + (1 - beta1) * h) / np.maximum(beta2 * largest, abs(h))


@inside
def ftml(w, h, d, v, z, lr, t, beta1=0.6, beta2=0.999, epsilon=1e-8):
    v = beta2 * v + (1 - beta2) * h * h
    e = (1 - beta1**t) / lr * (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return -(beta1 * z + (1 - beta1) * h - (e - beta1 * d) * w) / e


def ftml_row(w, g, d, v, z, clip_grad=-1.0, **attrs):
    return ftml(w, g, d, v, z, clip_gradient=clip_grad, **attrs)


@outside
def ftrl(w, g, wd, z, n, lr, lamda1, beta):
    z = z + g - (np.sqrt(n + g * g) - np.sqrt(n)) / lr * w
    new = (np.sign(z) * lamda1 - z) / ((beta + np.sqrt(n + g * g)) / lr + wd)
    return np.where(abs(z) > lamda1, new, 0).astype(w.dtype)


@outside
def lamb1(w, g, wd, mean, var, t, beta1, beta2, epsilon, bias_correction=True):
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    if bias_correction:
        mean, var = mean / (1 - beta1**t), var / (1 - beta2**t)
    return mean / (np.sqrt(var) + epsilon) + wd * w


MOMENTUM = {"lr": 0.1, "momentum": 0.9}
BETAS = {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3}
RULES = [
    ("sgd_update", sgd, (), {"lr": 0.1}),
    ("sgd_mom_update", sgd_mom, (MOM,), MOMENTUM),
    ("nag_mom_update", nag_mom, (MOM,), MOMENTUM),
    ("signsgd_update", signsgd, (), {"lr": 0.1}),
    ("signum_update", signum, (MOM,), {**MOMENTUM, "wd_lh": 0.02}),
    ("adam_update", adam, (MEAN, VAR), {"lr": 0.1, **BETAS}),
    ("_adagrad_update", adagrad, (VAR,), {"lr": 0.1, "float_stable_eps": 1e-3}),
    ("rmsprop_update", rmsprop, (VAR,), {"lr": 0.1, "gamma1": 0.9, "epsilon": 1e-3}),
    (
        "rmsprop_update", rmsprop, (VAR,),
        {"lr": 0.1, "gamma1": 0.9, "epsilon": 1e-3, "clip_weights": 0.5},
    ),
    (
        "rmspropalex_update", rmspropalex, (VAR, MEAN / 4, MOM),
        {"lr": 0.1, "gamma1": 0.9, "gamma2": 0.8, "epsilon": 1e-3},
    ),
    (
        "rmspropalex_update", rmspropalex, (VAR, MEAN / 4, MOM),
        {"lr": 0.1, "gamma1": 0.9, "gamma2": 0.8, "epsilon": 1e-3, "clip_weights": 0.5},
    ),
    ("_adadelta_update", adadelta, (VAR, MORE), {"rho": 0.9, "epsilon": 1e-3}),
    ("_adamax_update", adamax, (MEAN, VAR), {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}),
    ("ftml_update", ftml_row, (VAR, MORE, MOM), {"lr": 0.1, "t": 3}),
    ("ftrl_update", ftrl, (MOM, VAR), {"lr": 0.1, "lamda1": 0.5, "beta": 1.0}),
    ("lamb_update_phase1", lamb1, (MEAN, VAR), {"t": 3, "wd": 0.0, **BETAS}),
    (
        "lamb_update_phase1", lamb1, (MEAN, VAR),
        {"t": 3, "wd": 0.0, **BETAS, "bias_correction": False},
    ),
]  # fmt: skip


def renamed(name, options):
    """ftml_update says clip_grad."""
    if name == "ftml_update" and "clip_gradient" in options:
        options = dict(options)
        options["clip_grad"] = options.pop("clip_gradient")
    return options


ROWS = [
    Case(
        name, (WEIGHT, GRAD, *states), expect, {**attrs, **renamed(name, options)}, rtol=1e-4,
        atol=1e-5, grad=False, mxnet=name[0] != "_", why=OURS,
    )
    for name, expect, states, attrs in RULES
    for options in OPTIONS
]  # fmt: skip
ROWS += [
    Case(
        name, tuple(x.astype(dtype) for x in (WEIGHT, GRAD, *states)), expect, attrs, grad=False,
        rtol=1e-5 if dtype == "float64" else 2e-2, atol=1e-6 if dtype == "float64" else 2e-2,
        mxnet=name[0] != "_" and dtype == "float64",
        why=OURS if name[0] == "_" else "other roundings in float16",
    )
    for dtype in ("float64", "float16")
    for name, expect, states, attrs in RULES
    if dtype == "float64" or name[:3] in ("sgd", "nag", "sig")
]  # fmt: skip
ROWS += [
    Case("sgd_update", (draw(shape), draw(shape, seed=1)), sgd, {"lr": 0.1}, grad=False)
    for shape in ((1,), (0,), (7,), (2, 1, 3))
]

# -- LAMB's second half ---------------------------------------------------------------------------


W2, M2 = draw((5,), seed=6), draw((5,), seed=8)


def one(value):
    return np.float32([value])


ROWS += [
    Case(
        "_sums_of_squares", arrays, lambda *a: np.float32([(x.astype("f8") ** 2).sum()
        for x in a]), {}, grad=False, rtol=1e-4, mxnet=False, why=OURS,
    )
    for arrays in ((WEIGHT,), (WEIGHT, W2, M2), (draw((0,)), W2))
]  # fmt: skip
ROWS += [
    Case(
        "_are_finite", arrays, lambda *a: one(all(np.isfinite(x).all() for x in a)), {},
        grad=False, mxnet=False, why=OURS,
    )
    for arrays in ((W2, WEIGHT), (W2, np.float32([np.nan])))
]  # fmt: skip
