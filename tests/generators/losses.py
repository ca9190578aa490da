"""Losses and recurrent nets with drawn arguments, for `configurations.py`."""

from __future__ import annotations

import random

from generators.layers import Layer, called, is_large, shape, some


def loss(rng: random.Random) -> Layer:
    kinds = (
        _values, _values, _signs, _binary, _classes, _classes, _divergence, _triplet, _cosine, _ctc,
        _pairs,
    )  # fmt: skip
    return rng.choice(kinds)(rng)


def _mean(expression: str, dims, weight, sampled: bool) -> str:
    """What all losses do with theirs: weights, and the mean over all but the batch."""
    lines = [f"l = {expression}"]
    lines += ["l = l * x[2]"] * sampled + [f"l = l * {weight}"] * (weight is not None)
    return "\n".join([*lines, f"y = l.reshape({dims[0]}, -1).mean(1)"])


def _common(rng: random.Random):
    dims = some(rng, rng.randint(1, 3), 1, 5)
    weight, sampled = rng.choice([None, 0.5, 2.0]), rng.random() < 0.3
    inputs = [f"numbers({shape(dims)})"]
    weights = [f"positive({shape((dims[0], *(1,) * (len(dims) - 1)))})"] * sampled
    return dims, weight, sampled, inputs, weights


def _values(rng: random.Random) -> Layer:
    dims, weight, sampled, inputs, samples = _common(rng)
    rho = rng.choice([0.3, 1.0, 2.0])
    logits, whole = rng.random() < 0.5, rng.random() < 0.3
    d = "(x[1] - x[0])"
    kind, options, y = rng.choice([
        ("L2Loss", {}, f"{d} ** 2 / 2"),
        ("L1Loss", {}, f"abs({d})"),
        ("HuberLoss", {"rho": rho},
         f"torch.where(abs({d}) > {rho}, abs({d}) - {rho} / 2, {d} ** 2 / (2 * {rho}))"),
        ("PoissonNLLLoss", {"from_logits": logits, "compute_full": whole}, None),
    ])  # fmt: skip
    if kind == "L2Loss":
        weight = weight or 1.0
    target = inputs[0]
    if kind == "PoissonNLLLoss":
        target = f"integers(5, {shape(dims)})"
        if not logits:
            inputs = [f"positive({shape(dims)})"]
    layer = Layer(
        called(f"gluon.loss.{kind}", weight=weight, **options), [*inputs, target, *samples],
        [], y and _mean(y, dims, weight, sampled), fixed=(1, 2),
    )  # fmt: skip
    if kind == "PoissonNLLLoss":
        layer.why_not = "it writes in place while recording" if whole else ""
        y = "torch.exp(x[0]) - x[1] * x[0]" if logits else "x[0] - x[1] * torch.log(x[0] + 1e-8)"
        if not whole:
            parts = _mean(y, dims, weight, sampled).splitlines()
            layer.torch = "\n".join([*parts[:-1], "y = l.mean().reshape(1)"])
    return layer


def _signs(rng: random.Random) -> Layer:
    dims, weight, sampled, inputs, samples = _common(rng)
    margin = rng.choice([0.5, 1.0, 2.0])
    binary = rng.random() < 0.5
    hinge = f"torch.relu({margin} - x[0] * x[1])"
    label = "x[1]" if binary else "(x[1] + 1) / 2"
    kind, options, y = rng.choice([
        ("HingeLoss", {"margin": margin}, hinge),
        ("SquaredHingeLoss", {"margin": margin}, f"{hinge} ** 2"),
        ("LogisticLoss", {"label_format": "binary" if binary else "signed"},
         f"torch.relu(x[0]) - x[0] * {label} + F.softplus(-abs(x[0]))"),
    ])  # fmt: skip
    target = "integers(2, {})" if options.get("label_format") == "binary" else "signs({})"
    return Layer(
        called(f"gluon.loss.{kind}", weight=weight, **options),
        [*inputs, target.format(shape(dims)), *samples], [],
        _mean(y, dims, weight, sampled), fixed=(1, 2),
    )  # fmt: skip


def _binary(rng: random.Random) -> Layer:
    dims, weight, sampled, inputs, samples = _common(rng)
    ready, positive = rng.random() < 0.4, not sampled and rng.random() < 0.3
    if ready:
        inputs = [f"1 / (1 + positive({shape(dims)}))"]
        y = "-({p}torch.log(x[0] + 1e-12) * x[1] + torch.log(1 - x[0] + 1e-12) * (1 - x[1]))"
        y = y.format(p="x[2] * " if positive else "")
    elif positive:
        y = "x[0] * (1 - x[1]) + (1 + (x[2] - 1) * x[1]) * F.softplus(-x[0])"
    else:
        y = "torch.relu(x[0]) - x[0] * x[1] + F.softplus(-abs(x[0]))"
    call = "net(xs[0], xs[1], None, xs[2])" if positive else "net(*xs)"
    more = [f"positive({shape((1,) * (len(dims) - 1) + dims[-1:])})"] if positive else samples
    return Layer(
        called("gluon.loss.SigmoidBinaryCrossEntropyLoss", from_sigmoid=ready, weight=weight),
        [*inputs, f"integers(2, {shape(dims)})", *more], [],
        _mean(y, dims, weight, sampled), fixed=(1, 2), call=call,
    )  # fmt: skip


def _classes(rng: random.Random) -> Layer:
    dims, weight, sampled, _, _ = _common(rng)
    axis = rng.choice([-1, -1, 1]) if dims[1:] else -1
    C = rng.randint(2, 6)
    full = (*dims, C) if axis == -1 else (dims[0], C, *dims[1:])
    sparse, ready = rng.random() < 0.6, rng.random() < 0.3
    scores = f"numbers({shape(full)})"
    kept = tuple(1 if a == axis % len(full) else n for a, n in enumerate(full))
    samples = [f"positive({shape((dims[0], *(1,) * len(dims)))})"] * sampled
    y = "x[0]" if ready else f"F.log_softmax(x[0], {axis})"
    if sparse:
        label, y = (
            f"integers({C}, {shape(dims)})",
            f"-{y}.gather({axis}, x[1].long().reshape({kept}))",
        )
    else:
        label, y = f"positive({shape(full)})", f"-({y} * x[1]).sum({axis}, keepdim=True)"
    return Layer(
        called("gluon.loss.SoftmaxCrossEntropyLoss", axis=axis, sparse_label=sparse,
               from_logits=ready, weight=weight),
        [scores, label, *samples], [], _mean(y, dims, weight, sampled), fixed=(1, 2),
    )  # fmt: skip


def _divergence(rng: random.Random) -> Layer:
    dims, weight, sampled, inputs, samples = _common(rng)
    if len(dims) == 1:
        dims = (*dims, 3)
        inputs, samples = [f"numbers({shape(dims)})"], [f"positive({dims[0]}, 1)"] * sampled
    ready = rng.random() < 0.5
    y = "x[0]" if ready else "F.log_softmax(x[0], -1)"
    y = f"x[1] * (torch.log(x[1] + 1e-12) - {y})"
    return Layer(
        called("gluon.loss.KLDivLoss", from_logits=ready, weight=weight),
        [*inputs, f"shares({shape(dims)})", *samples], [],
        _mean(y, dims, weight, sampled).replace(".mean(1)", ".sum(1)"), fixed=(1, 2),
    )  # fmt: skip


def _triplet(rng: random.Random) -> Layer:
    dims, weight, margin = some(rng, 2, 1, 5), rng.choice([None, 0.5]), rng.choice([0.5, 1.0, 3.0])
    y = f"y = torch.relu(((x[1] - x[0]) ** 2 - (x[2] - x[0]) ** 2).sum(1) + {margin})"
    return Layer(
        called("gluon.loss.TripletLoss", margin=margin, weight=weight),
        [f"numbers({shape(dims)})"] * 3, [], y + (f" * {weight}" if weight else ""),
    )  # fmt: skip


def _cosine(rng: random.Random) -> Layer:
    dims, margin = (rng.randint(1, 5), rng.randint(2, 5)), rng.choice([0, 0.1, 0.5])
    y = f"y = F.cosine_embedding_loss(x[0], x[1], x[2], {margin}, reduction='none').reshape(-1, 1)"
    return Layer(
        called("gluon.loss.CosineEmbeddingLoss", margin=margin),
        [f"numbers({shape(dims)})"] * 2 + [f"signs({dims[0]})"], [], y, fixed=(2,),
    )  # fmt: skip


def _ctc(rng: random.Random) -> Layer:
    N, T, C = rng.randint(1, 3), rng.randint(4, 7), rng.randint(2, 5)
    L = rng.randint(1, min(T // 2, 3))
    layout, labels = rng.choice(["NTC", "TNC"]), rng.choice(["NT", "TN"])
    dims = (N, T, C) if layout == "NTC" else (T, N, C)
    y = "F.log_softmax(x[0], -1)" + (".transpose(0, 1)" if layout == "NTC" else "")
    target = "x[1].long()" + (".t()" if labels == "TN" else "")
    return Layer(
        called("gluon.loss.CTCLoss", layout=layout, label_layout=labels),
        [f"numbers({shape(dims)})",
         f"integers({C - 1}, {shape((N, L) if labels == 'NT' else (L, N))})"], [],
        f"y = F.ctc_loss({y}, {target}, [{T}] * {N}, [{L}] * {N}, blank={C - 1}, "
        "reduction='none')", fixed=(1,),
    )  # fmt: skip


def _pairs(rng: random.Random) -> Layer:
    N, D = rng.randint(2, 5), rng.randint(1, 5)
    smoothing = rng.choice([0.0, 0.3])
    return Layer(
        called("gluon.loss.SDMLLoss", smoothing_parameter=smoothing), [f"numbers({N}, {D})"] * 2,
        both=False,
    )  # fmt: skip


# -- recurrent nets --------------------------------------------------------------------------------

_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


def recurrent(rng: random.Random) -> Layer:
    return rng.choice([_layers, _layers, _cell, _cells])(rng)


def _layers(rng: random.Random) -> Layer:
    kind = rng.choice(list(_GATES))
    hidden, depth, inputs = rng.randint(1, 6), rng.choice([1, 1, 2, 3]), rng.randint(1, 5)
    ways = rng.choice([1, 1, 2])
    layout = rng.choice(["TNC", "NTC"])
    T, N = rng.randint(1, 6), rng.randint(1, 4)
    share = ""
    if is_large(rng):  # of small weights: else a net is chaotic, and rounding grows
        T, N, hidden, inputs, share = 15, 8, 32, 20, "0.15 * "
    options = {
        "num_layers": depth, "layout": layout, "bidirectional": ways == 2,
        "input_size": rng.choice([0, inputs]),
    }  # fmt: skip
    act = rng.choice(["relu", "tanh"])
    if kind == "RNN":
        options["activation"] = act
    rows = _GATES[kind] * hidden
    shapes = {}
    for layer in range(depth):
        wide = inputs if layer == 0 else hidden * ways
        for way in "lr"[:ways]:
            at = f"{way}{layer}_"
            shapes |= {at + "i2h_weight": (rows, wide), at + "h2h_weight": (rows, hidden)}
            shapes |= {at + "i2h_bias": (rows,), at + "h2h_bias": (rows,)}
    names = sorted(shapes)
    given = rng.random() < 0.5
    states = [f"numbers({depth * ways}, {N}, {hidden})"] * (1 + (kind == "LSTM")) if given else []
    order = [
        names.index(f"{way}{layer}_{part}")
        for layer in range(depth) for way in "lr"[:ways]
        for part in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
    ]  # fmt: skip
    start = {0: f"torch.zeros({depth * ways}, {N}, {hidden})", 1: "x[1]", 2: "x[2]"}
    h = start[int(given)]
    state = f"({h}, {start[2 * given]})" if kind == "LSTM" else h
    function = f"rnn_{act}" if kind == "RNN" else kind.lower()
    data = "x[0].transpose(0, 1).contiguous()" if layout == "NTC" else "x[0]"
    lines = [
        f"y, *states = torch.{function}({data}, {state}, [w[i] for i in {order}], True, {depth}, "
        f"0.0, True, {ways == 2}, False)"
    ]
    lines += ["y = y.transpose(0, 1)"] * (layout == "NTC")
    lines += ["y = [y, *states]"] * given
    dims = (T, N, inputs) if layout == "TNC" else (N, T, inputs)
    return Layer(
        called(f"gluon.rnn.{kind}", hidden, **options), [f"numbers({shape(dims)})", *states],
        [f"{share}numbers({shape(shapes[name])})" for name in names], "\n".join(lines),
        call="net(xs[0], xs[1:])" if given else "net(xs[0])",
    )  # fmt: skip


def _cell(rng: random.Random) -> Layer:
    kind = rng.choice(list(_GATES))
    hidden, inputs, T, N = (
        rng.randint(1, 5),
        rng.randint(1, 4),
        rng.randint(1, 5),
        rng.randint(1, 3),
    )
    act = rng.choice(["relu", "tanh"])
    options = {"activation": act} if kind == "RNN" else {}
    rows = _GATES[kind] * hidden
    n_states = 1 + (kind == "LSTM")
    function = f"rnn_{act}" if kind == "RNN" else kind.lower()
    state = "x[1]" if n_states == 1 else "(x[1], x[2])"
    loop = [
        f"h, out = {state}, []",
        f"for t in range({T}):",
        f"    h = torch.{function}_cell(x[0][:, t], h, w[3], w[1], w[2], w[0])",
        f"    out.append(h{'[0]' * (n_states == 2)})",
        f"y = [torch.stack(out, 1), *{'h' if n_states == 2 else '[h]'}]",
    ]
    return Layer(
        called(f"gluon.rnn.{kind}Cell", hidden, **options),
        [f"numbers({N}, {T}, {inputs})"] + [f"numbers({N}, {hidden})"] * n_states,
        [f"numbers({rows})", f"numbers({rows}, {hidden})", f"numbers({rows})",
         f"numbers({rows}, {inputs})"], "\n".join(loop),
        call=f"net.unroll({T}, xs[0], xs[1:], layout='NTC', merge_outputs=True)",
    )  # fmt: skip


def _cells(rng: random.Random) -> Layer:
    """Cells of cells, with sequences of different lengths; no equivalent in PyTorch."""
    T, N = rng.randint(1, 5), rng.randint(1, 4)
    layout = rng.choice(["NTC", "TNC"])
    hidden, inputs = rng.randint(1, 4), rng.randint(1, 4)
    kinds = [rng.choice(list(_GATES)) for _ in range(2)]
    a, b = (f"gluon.rnn.{kind}Cell({hidden}, prefix='{n}_')" for kind, n in zip(kinds, "ab"))
    merge = rng.random() < 0.5
    shapes = {"a": inputs, "b": inputs}
    if rng.random() < 0.5:
        make, prepare = f"gluon.rnn.BidirectionalCell({a}, {b})", ""
    else:
        make = "gluon.rnn.HybridSequentialRNNCell()"
        second = f"gluon.rnn.ResidualCell({b})" if rng.random() < 0.5 else b
        prepare = f"net.add({a})\nnet.add({second})"
        shapes["b"] = hidden
    weights = []
    for n, kind in zip("ab", kinds):
        rows = _GATES[kind] * hidden
        weights += [f"numbers({rows})", f"numbers({rows}, {hidden})", f"numbers({rows})",
                    f"numbers({rows}, {shapes[n]})"]  # fmt: skip
    dims = (N, T, inputs) if layout == "NTC" else (T, N, inputs)
    lengths = [f"1 + integers({T}, {N})"] if rng.random() < 0.5 else []
    valid = "valid_length=xs[1], " if lengths else ""
    return Layer(
        make, [f"numbers({shape(dims)})", *lengths], weights, fixed=(1,), prepare=prepare,
        call=f"net.unroll({T}, xs[0], layout={layout!r}, {valid}merge_outputs={merge})",
    )  # fmt: skip
