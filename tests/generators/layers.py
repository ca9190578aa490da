"""Layers, losses and recurrent nets with drawn arguments, for `configurations.py`."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

#: How a program of either library draws its numbers; the streams are the same.
DRAWS = """
rng = np.random.RandomState({seed})
def numbers(*shape): return ({scale} * rng.standard_normal(shape)).astype("float32")
def positive(*shape): return rng.uniform(0.2, 2, shape).astype("float32")
def integers(n, *shape): return rng.randint(0, n, shape).astype("float32")
def signs(*shape): return (2 * rng.randint(0, 2, shape) - 1).astype("float32")
def shares(*shape): x = positive(*shape); return x / x.sum(-1, keepdims=True)
"""


@dataclass
class Layer:
    """One drawn layer. `make` is its expression in Gluon, `inputs` and `weights` those of its
    arrays, the weights by name in the order of the alphabet; `learnt` says which have gradients,
    the values of the others are kept. `torch` computes `y`, and perhaps `rest`, the new values of
    what has no gradient, from x and w, lists of tensors."""

    make: str
    inputs: list[str]
    weights: list[str] = field(default_factory=list)
    torch: str | None = None
    learnt: list[int] | None = None
    fixed: tuple[int, ...] = ()  # inputs that have no gradient
    why_not: str = ""  # why MXNet is no judge
    prepare: str = ""
    call: str = "net(*xs)"
    both: bool = True  # eager and hybridized; else eager twice


def shape(dims) -> str:
    return ", ".join(map(str, dims))


def some(rng: random.Random, n: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randint(low, high) for _ in range(n))


def lead(rng: random.Random, n: int, high: int) -> tuple[tuple[int, ...], str]:
    """Sizes of leading axes, now and then with an empty batch; and why MXNet is no judge then."""
    if rng.random() < 0.05:
        return (0, *some(rng, n - 1, 1, high)), "it knows no size 0"
    return some(rng, n, 1, high), ""


def is_large(rng: random.Random) -> bool:
    """Now and then sizes that other code works on: pieces, blocks, Winograd's tiles."""
    return rng.random() < 0.06


def one_or_all(rng: random.Random, values: tuple[int, ...]):
    """A tuple, or one number where all are the same."""
    return values[0] if len(set(values)) == 1 and rng.random() < 0.5 else values


def called(name: str, *args, **options) -> str:
    parts = [repr(a) for a in args] + [f"{k}={v!r}" for k, v in options.items()]
    return f"{name}({', '.join(parts)})"


_TORCH_ACTIVATION = {
    None: "{}", "relu": "torch.relu({})", "sigmoid": "torch.sigmoid({})", "tanh": "torch.tanh({})",
    "softrelu": "F.softplus({})", "softsign": "F.softsign({})",
}  # fmt: skip


def activation_of(rng: random.Random) -> str | None:
    return rng.choice([None, None, *list(_TORCH_ACTIVATION)[1:]])


def dense(rng: random.Random) -> Layer:
    units, flatten, bias = rng.randint(1, 9), rng.random() < 0.6, rng.random() < 0.7
    first, why_not = lead(rng, rng.randint(1, 3), 4)
    wide = rng.choice([1, 2, 5, 17, 64])
    if is_large(rng):
        units, first, wide = rng.randint(60, 300), (rng.randint(30, 70),), 200
        why_not = ""
    size = math.prod(first[1:]) * wide if flatten else wide
    act = activation_of(rng)
    x = "x[0].flatten(1)" if flatten else "x[0]"
    y = f"F.linear({x}, w[{int(bias)}], {'w[0]' if bias else None})"
    return Layer(
        called("gluon.nn.Dense", units, activation=act, use_bias=bias, flatten=flatten),
        [f"numbers({shape((*first, wide))})"],
        [f"numbers({units})"] * bias + [f"numbers({units}, {size})"],
        "y = " + _TORCH_ACTIVATION[act].format(y),
        why_not=why_not,
    )


def convolution(rng: random.Random) -> Layer:
    n, transposed = rng.choice([1, 2, 2, 2, 3]), rng.random() < 0.4
    groups = rng.choice([1, 1, 1, 2, 3])
    C, channels = groups * rng.randint(1, 3), groups * rng.randint(1, 4)
    kernel, stride = some(rng, n, 1, 4 if n < 3 else 3), some(rng, n, 1, 3)
    dilation = some(rng, n, 1, 2) if rng.random() < 0.4 else (1,) * n
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation))
    pad = tuple(rng.randint(0, (e - 1) // 2 + 1) for e in extent)
    if transposed:
        pad = tuple(min(p, (e - 1) // 2) for p, e in zip(pad, extent))
        size = some(rng, n, 1, 5)
    else:
        size = tuple(max(e - 2 * p, 1) + rng.choice([0, 0, 1, 2, 5]) for e, p in zip(extent, pad))
    if n < 3 and is_large(rng):
        C, channels = groups * rng.choice([8, 16]), groups * rng.choice([8, 16])
        size = some(rng, n, 14, 34)
        if rng.random() < 0.5:  # the usual one
            kernel, stride, dilation, pad = (3,) * n, (1,) * n, (1,) * n, (1,) * n
    bias, act = rng.random() < 0.7, activation_of(rng)
    options = {
        "strides": one_or_all(rng, stride), "padding": one_or_all(rng, pad),
        "dilation": one_or_all(rng, dilation), "groups": groups, "use_bias": bias,
        "activation": act, "in_channels": C if transposed else rng.choice([0, C]),
    }  # fmt: skip
    more = ""
    if transposed:
        out_pad = tuple(rng.randint(0, s - 1) for s in stride)
        options["output_padding"] = one_or_all(rng, out_pad)
        more = f", output_padding={out_pad}"
    name = f"{n}D" + "Transpose" * transposed
    function = f"F.conv{'_transpose' * transposed}{n}d"
    filters = (C, channels // groups) if transposed else (channels, C // groups)
    y = (
        f"{function}(x[0], w[{int(bias)}], {'w[0]' if bias else None}, stride={stride}, "
        f"padding={pad}, dilation={dilation}, groups={groups}{more})"
    )
    batch, why_not = lead(rng, 1, 3)
    if transposed and n == 3 and max(dilation) > 1:
        why_not = "it has no dilation here"
    if C >= 8 and (n == 1 or (transposed and groups > 1)):
        why_not = "it cannot read what MKL-DNN leaves behind"
    return Layer(
        called(f"gluon.nn.Conv{name}", channels, one_or_all(rng, kernel), **options),
        [f"numbers({shape((*batch, C, *size))})"],
        [f"numbers({channels})"] * bias + [f"numbers({shape((*filters, *kernel))})"],
        "y = " + _TORCH_ACTIVATION[act].format(y),
        why_not=why_not,
    )


def pooling(rng: random.Random) -> Layer:
    n, kind = rng.choice([1, 2, 2, 3]), rng.choice(["Max", "Avg"])
    first = some(rng, 2, 1, 3)
    if rng.random() < 0.15:
        how = {"Max": "amax", "Avg": "mean"}[kind]
        axes = tuple(range(2, 2 + n))
        return Layer(
            f"gluon.nn.Global{kind}Pool{n}D()",
            [f"numbers({shape((*first, *some(rng, n, 1, 6)))})"], [],
            f"y = x[0].{how}({axes}, keepdim=True)",
        )  # fmt: skip
    kernel, stride = some(rng, n, 1, 4), some(rng, n, 1, 3)
    pad = tuple(rng.randint(0, k // 2) for k in kernel) if rng.random() < 0.5 else (0,) * n
    size = tuple(max(k - 2 * p, 1) + rng.choice([0, 0, 1, 2, 3, 6]) for k, p in zip(kernel, pad))
    if n < 3 and is_large(rng):
        first, size = (3, 8), some(rng, n, 30, 70)
    full = rng.random() < 0.5
    options = {"strides": stride, "padding": pad, "ceil_mode": full}
    counted = rng.random() < 0.5
    if kind == "Avg":
        options["count_include_pad"] = counted
    rest = f", count_include_pad={counted}" if kind == "Avg" else ""
    # PyTorch leaves out windows that begin behind the data and its padding; MXNet has them.
    outs = [-(-(s + 2 * p - k) // t) for s, p, k, t in zip(size, pad, kernel, stride)]
    narrow = n == 3 and kind == "Avg" and any(k > s for k, s in zip(kernel, size))  # refused there
    behind = full and any(o * t >= s + p for o, t, s, p in zip(outs, stride, size, pad))
    why_not = ""
    if kind == "Avg" and full:
        if behind:
            why_not = "a window behind the data is 0 / 0 there"
        elif counted and any(
            o * t + k > s + 2 * p for o, t, k, s, p in zip(outs, stride, kernel, size, pad)
        ):
            why_not = "its gradient divides by the whole window, its value by the part inside"
    return Layer(
        called(f"gluon.nn.{kind}Pool{n}D", kernel, **options),
        [f"numbers({shape((*first, *size))})"],
        [],
        None if behind or narrow else
        f"y = F.{kind.lower()}_pool{n}d(x[0], {kernel}, {stride}, {pad}, ceil_mode={full}{rest})",
        why_not=why_not,
    )  # fmt: skip


def batch_norm(rng: random.Random) -> Layer:
    dims = some(rng, rng.randint(2, 4), 1, 5)
    if is_large(rng):
        dims = some(rng, 4, 8, 24)
    axis = rng.choice([1, 1, 1, -1, len(dims) - 1])
    C = dims[axis]
    eps, momentum = rng.choice([1e-5, 1e-3, 0.1]), rng.choice([0.9, 0.5, 0.0, 1.0])
    center, scale, fixed = (rng.random() < p for p in (0.8, 0.8, 0.15))
    relu = rng.random() < 0.2
    learnt = [0] * center + [1] * scale
    over = tuple(a for a in range(len(dims)) if a != axis % len(dims))
    broad = tuple(C if a == axis % len(dims) else 1 for a in range(len(dims)))
    lines = [
        f"mean, var = x[0].mean({over}), x[0].var({over}, unbiased=False)",
        f"rest = [w[2] * {momentum} + mean * {1 - momentum}, "
        f"w[3] * {momentum} + var * {1 - momentum}]",
    ]
    if fixed:
        lines = ["mean, var = w[2], w[3]", "rest = [w[2], w[3]]"]
    lines.append(f"y = (x[0] - mean.reshape({broad})) / (var.reshape({broad}) + {eps}) ** 0.5")
    lines.append(f"y = y * w[1].reshape({broad})" if scale else "rest = [w[1]] + rest")
    lines.append(f"y = y + w[0].reshape({broad})")
    lines += ["rest = [w[0]] + rest"] * (not center) + ["y = torch.relu(y)"] * relu
    return Layer(
        called(
            "gluon.nn.BatchNorm" + "ReLU" * relu, axis=axis, epsilon=eps, momentum=momentum,
            center=center, scale=scale, use_global_stats=fixed, in_channels=rng.choice([0, C]),
        ),
        [f"numbers({shape(dims)})"],
        [f"numbers({C})", f"np.ones({C}, 'float32')" if not scale else f"numbers({C})",
         f"numbers({C})", f"positive({C})"],
        "\n".join(lines), learnt,
        why_not="its BatchNormReLU needs MKL-DNN, and shapes that this takes" if relu else "",
    )  # fmt: skip


def other_norm(rng: random.Random) -> Layer:
    kind = rng.choice(["LayerNorm", "InstanceNorm", "GroupNorm"])
    dims = some(rng, rng.randint(3, 4), 1, 5)
    if is_large(rng):
        dims = some(rng, 4, 8, 24)
    learnt = [i for i in (0, 1) if rng.random() < 0.8]
    options = {"center": 0 in learnt, "scale": 1 in learnt}
    n = count = dims[1]
    if kind == "LayerNorm":
        axis = options["axis"] = rng.choice([-1, -1, 1, len(dims) - 1])
        n = count = dims[axis]
        options["in_channels"] = rng.choice([0, n])
        y = f"F.layer_norm(x[0].movedim({axis}, -1), ({n},), w[1], w[0], EPS).movedim(-1, {axis})"
    elif kind == "InstanceNorm":
        count = math.prod(dims[2:])
        y = f"torch.group_norm(x[0], {n}, w[1], w[0], EPS)"
    else:
        n, each = rng.randint(1, 3), rng.randint(1, 3)
        options["num_groups"] = n
        dims = (dims[0], n * each, *dims[2:])
        count = each * math.prod(dims[2:])
        scale, shift = (f"w[{i}].repeat_interleave({each})" for i in (1, 0))
        y = f"torch.group_norm(x[0], {n}, {scale}, {shift}, EPS)"
    # Of two numbers that are nearly one no digits are left.
    eps = options["epsilon"] = rng.choice([1e-5, 1e-3, 0.1]) if count > 2 else 0.1
    rest = [f"w[{i}]" for i in (0, 1) if i not in learnt]
    return Layer(
        called(f"gluon.nn.{kind}", **options), [f"numbers({shape(dims)})"],
        [f"numbers({n})", f"numbers({n})"],
        f"y = {y.replace('EPS', str(eps))}\nrest = [{', '.join(rest)}]", learnt,
    )  # fmt: skip


def activation(rng: random.Random) -> Layer:
    alpha = rng.choice([0.0, 0.1, 0.3, 1.0, 2.0])
    kind, y = rng.choice([
        *[(f"Activation({k!r})", t.format("x[0]")) for k, t in _TORCH_ACTIVATION.items() if k],
        (f"LeakyReLU({alpha})", f"F.leaky_relu(x[0], {alpha})"),
        (f"ELU({alpha})", f"F.elu(x[0], {alpha})"),
        ("SELU()", "F.selu(x[0])"), ("GELU()", "F.gelu(x[0])"),
        (f"Swish({alpha})", f"x[0] * torch.sigmoid({alpha} * x[0])"),
        ("PReLU(in_channels=1)", "F.prelu(x[0], w[0])"),
        ("PReLU(in_channels=C)", "F.prelu(x[0], w[0])"),
        ("Flatten()", "x[0].flatten(1)"), ("Dropout(0)", "x[0] * 1"),
    ])  # fmt: skip
    dims, why = ((40, 50, 70), "") if is_large(rng) else lead(rng, rng.randint(2, 4), 5)
    weights = [f"numbers({1 if '=1' in kind else dims[1]})"] if "PReLU" in kind else []
    why = "its gradient of selu misses a factor" if kind == "SELU()" else why
    return Layer(
        f"gluon.nn.{kind.replace('=C', f'={dims[1]}')}", [f"numbers({shape(dims)})"], weights,
        f"y = {y}", why_not=why,
    )  # fmt: skip


def rearrangement(rng: random.Random) -> Layer:
    kind = rng.choice(["pad", "embedding"])
    if kind == "pad":
        size = some(rng, 2, 2, 6)
        p = rng.randint(0, min(size) - 1)
        return Layer(
            f"gluon.nn.ReflectionPad2D({p})", [f"numbers({shape((*some(rng, 2, 1, 3), *size))})"],
            [], f"y = F.pad(x[0], ({p},) * 4, mode='reflect')",
        )  # fmt: skip
    rows, wide = some(rng, 2, 1, 7)
    return Layer(
        f"gluon.nn.Embedding({rows}, {wide})",
        [f"integers({rows}, {shape(some(rng, rng.randint(1, 3), 1, 5))})"],
        [f"numbers({rows}, {wide})"], "y = F.embedding(x[0].long(), w[0])", fixed=(0,),
    )  # fmt: skip
