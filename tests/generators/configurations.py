"""One layer, loss, recurrent net or optimizer with drawn arguments, sizes and gradients: the same
in MXNet and, where there is an equivalent, in PyTorch.

A layer is run eagerly and hybridized. What is kept: outputs, the gradients of data and weights,
running statistics. An optimizer makes some steps; what is kept: the weights after each.
"""

from __future__ import annotations

import random

from generators import layers, losses, optimizers
from generators.check import NOT_IN_MXNET
from generators.layers import DRAWS, Layer

#: rtol, atol.
MXNET = 2e-4, 2e-5
TORCH = 2e-4, 2e-5

KINDS = (
    layers.dense, layers.convolution, layers.convolution, layers.pooling, layers.pooling,
    layers.batch_norm, layers.other_norm, layers.activation, layers.rearrangement, losses.loss,
    losses.loss, losses.recurrent,
)  # fmt: skip

PROGRAM = """\
{draws}
arrays = [{inputs}]
weights = [{weights}]
def flat(y):
    return [y] if isinstance(y, nd.NDArray) else [part for each in y for part in flat(each)]
net = {make}
{prepare}
net.initialize()
for hybrid in (False, True):
    if hybrid and {both}:
        net.hybridize({how})
    xs = [nd.array(a) for a in arrays]
    {call}  # shapes are known from here on
    params = [p for _, p in sorted(net.collect_params().items())]
    assert len(params) == len(weights)
    for p, w in zip(params, weights):
        p.set_data(nd.array(w))
    for i, x in enumerate(xs):
        if i not in {fixed}:
            x.attach_grad()
    with autograd.record():
        # Not the outputs themselves: MXNet counts a head that is given twice once.
        ys = [part * 1 for part in flat({call})]
    if not hybrid:
        heads = [numbers(*each.shape) for each in ys]
    autograd.backward(ys, [nd.array(head) for head in heads])
    for each in ys:
        keep(each)
    for i, x in enumerate(xs):
        if i not in {fixed}:
            keep(x.grad)
    for i, p in enumerate(params):
        keep(p.grad() if i in {learnt} else p.data())
"""

TORCH_PROGRAM = """\
{draws}
arrays = [{inputs}]
weights = [{weights}]
x = [torch.tensor(a, requires_grad=i not in {fixed}) for i, a in enumerate(arrays)]
w = [torch.tensor(a, requires_grad=i in {learnt}) for i, a in enumerate(weights)]
rest = []
{torch}
ys = y if isinstance(y, list) else [y]
heads = [torch.tensor(numbers(*each.shape)) for each in ys]
torch.autograd.backward(ys, heads)
for _ in (False, True):
    for each in ys:
        keep(each)
    for i, each in enumerate(x):
        if i not in {fixed}:
            keep(torch.zeros_like(each) if each.grad is None else each.grad)
    others = iter(rest)
    for i, each in enumerate(w):
        keep(each.grad if i in {learnt} else next(others))
"""


def draw(seed: int) -> str:
    rng = random.Random(seed)
    if _is_optimizer(rng):
        return optimizers.optimizer(rng, seed).program()
    layer = rng.choice(KINDS)(rng)
    how = rng.choice(["", "static_alloc=True", "static_alloc=True, static_shape=True"])
    why_not = f"{NOT_IN_MXNET}{layer.why_not}\n" if layer.why_not else ""
    return why_not + PROGRAM.format(how=how, **_parts(layer, seed))


def draw_torch(seed: int) -> str | None:
    """The same for PyTorch; None if it has no equivalent."""
    rng = random.Random(seed)
    if _is_optimizer(rng):
        return optimizers.optimizer(rng, seed).torch_program()
    layer = rng.choice(KINDS)(rng)
    return None if layer.torch is None else TORCH_PROGRAM.format(**_parts(layer, seed))


def _is_optimizer(rng: random.Random) -> bool:
    return rng.random() < 0.3


def _parts(layer: Layer, seed: int) -> dict[str, object]:
    learnt = range(len(layer.weights)) if layer.learnt is None else layer.learnt
    return {
        "draws": DRAWS.format(seed=seed % 2**32, scale=(0.1, 1, 1, 1, 2)[seed % 5]).strip(),
        "inputs": ", ".join(layer.inputs), "weights": ", ".join(layer.weights),
        "make": layer.make, "prepare": layer.prepare, "call": layer.call, "fixed": layer.fixed,
        "learnt": list(learnt), "torch": layer.torch,
        "both": layer.both,
    }  # fmt: skip
