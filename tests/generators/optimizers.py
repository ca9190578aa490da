"""Optimizers with drawn arguments, for `configurations.py`."""

from __future__ import annotations

import random
from dataclasses import dataclass

from generators.check import NOT_IN_MXNET
from generators.layers import DRAWS, called

PROGRAM = """\
{draws}
weights = [{weights}]
optimizer = mx.optimizer.create({name!r}, {options})
{after}
updater = mx.optimizer.get_updater(optimizer)
ws = [nd.array(w, dtype={dtype!r}) for w in weights]
def wide(state):
    if isinstance(state, (tuple, list)):
        return [a for part in state for a in wide(part)]
    return [] if state is None else [state]
for step in range({steps}):
    for i, w in enumerate(ws):
        updater(i, nd.array({grads}, dtype={dtype!r}), w)
        for a in [w] if {dtype!r} == "float32" else wide(updater.states[i]):  # not what is rounded
            keep(a)
"""

TORCH_PROGRAM = """\
{draws}
ws = [torch.tensor(w, requires_grad=True) for w in [{weights}]]
optimizer = torch.optim.{torch}
for step in range({steps}):
    for w in ws:
        w.grad = torch.tensor({grads}) * {rescale}
        {clip}
    optimizer.step()
    for w in ws:
        keep(w)
"""


@dataclass
class Optimizer:
    """One drawn optimizer; `torch` is the same in PyTorch, of the list ws."""

    name: str
    options: dict[str, object]
    seed: int
    weights: str
    grads: str
    steps: int
    dtype: str
    after: str
    torch: str | None
    why_not: str = ""

    def program(self) -> str:
        options = ", ".join(
            f"{k}={v[1:]}" if isinstance(v, str) and v[0] == "=" else f"{k}={v!r}"
            for k, v in self.options.items()
        )
        text = PROGRAM.format(
            draws=self._draws(), name=self.name, options=options, weights=self.weights,
            grads=self.grads, steps=self.steps, dtype=self.dtype, after=self.after,
        )  # fmt: skip
        return (f"{NOT_IN_MXNET}{self.why_not}\n" if self.why_not else "") + text

    def torch_program(self) -> str | None:
        if self.torch is None:
            return None
        clip = self.options.get("clip_gradient")
        return TORCH_PROGRAM.format(
            draws=self._draws(), weights=self.weights, grads=self.grads, steps=self.steps,
            torch=self.torch, rescale=self.options["rescale_grad"],
            clip=f"w.grad.clamp_(-{clip}, {clip})" if clip else "pass",
        )  # fmt: skip

    def _draws(self) -> str:
        return DRAWS.format(seed=self.seed % 2**32, scale=1).strip()


def _scheduler(rng: random.Random, lr: float) -> str:
    warmup = {}
    if rng.random() < 0.5:
        warmup = {"warmup_steps": rng.randint(1, 3), "warmup_begin_lr": rng.choice([0, lr / 4]),
                  "warmup_mode": rng.choice(["linear", "constant"])}  # fmt: skip
    first = warmup.get("warmup_steps", 0) + 1
    return "=mx.lr_scheduler." + rng.choice([
        called("FactorScheduler", rng.randint(1, 3), factor=rng.choice([0.5, 0.9, 1.0]),
               stop_factor_lr=rng.choice([1e-8, lr / 3]), base_lr=lr, **warmup),
        called("MultiFactorScheduler",
               sorted(rng.sample(range(first, first + 6), rng.randint(1, 3))), factor=0.3,
               base_lr=lr, **warmup),
        called("PolyScheduler", first + rng.randint(1, 6), base_lr=lr, pwr=rng.choice([1, 2, 3]),
               final_lr=rng.choice([0, lr / 10]), **warmup),
        called("CosineScheduler", first + rng.randint(1, 6), base_lr=lr,
               final_lr=rng.choice([0, lr / 10]), **warmup),
    ])  # fmt: skip


#: The arguments that are an optimizer's own, each with what it is drawn from.
OWN = {
    "sgd": {"momentum": (0.0, 0.5, 0.9, 1.0)},
    "nag": {"momentum": (0.0, 0.5, 0.9)},
    "signum": {"momentum": (0.5, 0.9), "wd_lh": (0.0, 0.1)},
    "adam": {"beta1": (0.0, 0.5, 0.9), "beta2": (0.5, 0.999), "epsilon": (1e-14, 1e-8, 1.0)},
    "adamax": {"beta1": (0.0, 0.5, 0.9), "beta2": (0.5, 0.999)},
    "adagrad": {"eps": (1e-14, 1e-7, 1e-2)},
    "adadelta": {"rho": (0.5, 0.9, 0.99), "epsilon": (1e-5, 1e-2)},
    "rmsprop": {
        "gamma1": (0.5, 0.9), "gamma2": (0.0, 0.9), "centered": (False, True),
        "epsilon": (1e-14, 1e-8, 1e-3), "clip_weights": (None, None, 0.5),
    },
    "ftrl": {"lamda1": (0.0, 0.01, 1.0), "beta": (0.1, 1, 5)},
    "ftml": {"beta1": (0.0, 0.6), "beta2": (0.5, 0.999), "epsilon": (1e-8, 1e-3)},
    "lamb": {
        "beta1": (0.0, 0.9), "beta2": (0.5, 0.999), "epsilon": (1e-6, 1e-2),
        "lower_bound": (None, 0.5), "upper_bound": (None, 2.0), "bias_correction": (True, False),
    },
}  # fmt: skip


#: Those that MXNet computes in float16 then, in part or wholly.
_NOT_MIXED = ("adadelta", "adamax", "ftml", "lamb")


def optimizer(rng: random.Random, seed: int) -> Optimizer:
    name = rng.choice(list(OWN))
    own = {key: rng.choice(values) for key, values in OWN[name].items()}
    lr = rng.choice([0.0, 1e-3, 0.05, 0.1, 0.5, 1.0])
    if name == "lamb":  # at 1 a step may end at 0, from where nearly equal weights part
        lr = min(lr, 0.5)
    common = {
        "learning_rate": lr, "wd": rng.choice([0.0, 0.0, 0.01, 0.5]),
        "rescale_grad": rng.choice([1.0, 1.0, 0.1, 2.0]),
        "clip_gradient": rng.choice([None, None, 0.5]),
    }  # fmt: skip
    plain = True
    if lr and rng.random() < 0.3:
        common["lr_scheduler"] = _scheduler(rng, lr)
        plain = False
    dtype = "float32"
    if name not in _NOT_MIXED and rng.random() < 0.15:
        dtype, plain = "float16", False
        common["multi_precision"] = True
    after = ""
    if rng.random() < 0.2:
        after, plain = (
            "optimizer.set_lr_mult({0: 0.5, 1: 2.0})\noptimizer.set_wd_mult({1: 0.0})",
            False,
        )
    dims = [
        tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3))
    ]
    scale = rng.choice(["", "", "", "0 * ", "1e-4 * ", "100 * "])
    found = Optimizer(
        name, {**common, **own}, seed, ", ".join(f"numbers{d}" for d in dims),
        f"{scale}numbers(*w.shape)", rng.randint(1, 6), dtype, after, None,
    )  # fmt: skip
    if name not in ("sgd", "nag") and common["clip_gradient"] and common["wd"]:
        plain = False  # the program for PyTorch clips before the decay
    if name == "adamax" and scale == "0 * ":
        plain = False  # 0 / 0, to which PyTorch adds epsilon
    if plain:
        found.torch = _torch(name, lr, common["wd"], own)
    found.why_not = _not_in_mxnet(name, common, own)
    return found


def _not_in_mxnet(name: str, common: dict, own: dict) -> str:
    if name == "nag" and common["wd"] and own["momentum"]:
        return "in place it takes the new weight for the decay in nag's momentum"
    if name in ("ftrl", "ftml") and _starts_at_0(common):
        return f"its {name} makes weights nan at a learning rate of 0"
    return ""


def _starts_at_0(common: dict) -> bool:
    schedule = str(common.get("lr_scheduler", ""))
    return (
        common["learning_rate"] == 0 or "warmup_begin_lr=0," in schedule or "final_lr=0" in schedule
    )


def _torch(name: str, lr: float, wd: float, own: dict) -> str | None:
    """The optimizer in PyTorch, where the formulas are the same but for where epsilon stands: None
    where that shows."""
    options = {"lr": lr, "weight_decay": wd}
    if name in ("sgd", "nag"):
        nesterov = name == "nag" and own["momentum"] > 0
        options |= {"momentum": own["momentum"], "nesterov": nesterov}
        return _of_torch("SGD", options)
    if name == "adam" and own["epsilon"] == 1e-14:
        return _of_torch("Adam", options | {"betas": (own["beta1"], own["beta2"]), "eps": 1e-14})
    if name == "adamax":
        return _of_torch("Adamax", options | {"betas": (own["beta1"], own["beta2"]), "eps": 1e-14})
    if name == "adagrad" and wd == 0 and own["eps"] == 1e-14:
        return _of_torch("Adagrad", {"lr": lr, "eps": own["eps"]})
    if name == "adadelta" and wd == 0:
        # The same formula, with a learning rate.
        return _of_torch("Adadelta", {"lr": 1.0, "rho": own["rho"], "eps": own["epsilon"]})
    plain = not own.get("clip_weights") and not own.get("centered")
    if name == "rmsprop" and plain and own["epsilon"] == 1e-14:
        return _of_torch("RMSprop", options | {"alpha": own["gamma1"], "eps": 1e-14})
    return None


def _of_torch(name: str, options: dict[str, object]) -> str:
    return called(name, **options).replace("(", "(ws, ", 1)
