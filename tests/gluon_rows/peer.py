"""What is done to a row, whichever library does it: `examine(mx, ...)` is the whole experiment,
with `mx` either `d2lmini` or `mxnet`. Both interpreters import this module.
"""

import json
import re

import numpy as np


def examine(mx, row, inputs):
    """Build the row's net, give it seeded parameters, run it in each of the row's modes.

    row: the fields of `runner.Row` as a dict; inputs: its arrays. Gives a dict of arrays and texts:

        about                   JSON: [name, shape, dtype, grad_req] of each parameter, and the
                                net's repr before and after its first call
        MODE/out/I              output number I, lists of outputs flattened
        MODE/in/I               gradient of input I
        MODE/grad/I:NAME        gradient of parameter I
        MODE/aux/I:NAME         value after the run of a parameter without gradient

    With row["is_np"] all arrays are `np.ndarray`s.
    """
    if row["is_np"]:
        mx.npx.set_np()
    try:
        return _examine(mx, row, inputs)
    finally:
        mx.npx.reset_np()


def _examine(mx, row, inputs):
    scope = names(mx)
    mx.random.seed(0)
    net = eval(row["build"], scope)
    if hasattr(net, "initialize"):
        net.initialize()
        if row["dtype"] != "float32":
            net.cast(row["dtype"])
    first = repr(net)
    forward(scope, row, net, [array(mx, row, a) for a in inputs])
    parameters = list(net.collect_params().values()) if hasattr(net, "collect_params") else []
    about = [[anonymous(p.name), p.shape, kind(p.dtype), p.grad_req] for p in parameters]
    result = {"about": json.dumps([about, first, repr(net)])}
    for mode in row["modes"]:
        for key, value in run(mx, scope, row, net, parameters, inputs, mode).items():
            result[f"{mode}/{key}"] = value
    return result


def array(mx, row, value, dtype=None):
    """A NumPy array as an array of the kind that the row asks for."""
    space = mx.np if row["is_np"] else mx.nd
    return space.array(value, dtype=value.dtype if dtype is None else dtype)


def numbers(row, x):
    """The numbers of an array, which is of the kind that the row asks for."""
    assert type(x).__name__ == ("ndarray" if row["is_np"] else "NDArray"), type(x)
    return x.asnumpy()


def names(mx):
    """What the expressions of a row may use."""
    scope = {"mx": mx, "np": np, "nd": mx.nd, "gluon": mx.gluon, "autograd": mx.autograd}
    for name in ("nn", "rnn", "loss"):
        try:
            scope[name] = getattr(mx.gluon, name)
        except AttributeError:
            continue
    scope["joined"] = joined
    return scope


def joined(net, *children):
    """A container with its children, as one expression."""
    for child in children:
        net.add(child)
    return net


def run(mx, scope, row, net, parameters, inputs, mode):
    """One mode: 'train' and 'predict' record and go backward, 'infer' does not record."""
    set_parameters(mx, row, parameters)
    mx.random.seed(0)
    xs = [array(mx, row, a) for a in inputs]
    wanted = [i for i, a in enumerate(inputs) if differentiable(a) and i not in row["constant"]]
    result = {}
    if mode == "infer":
        heads = forward(scope, row, net, xs)
    else:
        training = mode == "train"
        for i in wanted:
            xs[i].attach_grad()
        for p in parameters:
            if p.grad_req != "null":
                p.grad()[:] = 0  # `p.zero_grad()` of MXNet refuses `np.ndarray`s
        with mx.autograd.record(train_mode=training):
            heads = forward(scope, row, net, xs)
        mx.autograd.backward(
            heads,
            [array(mx, row, draw(h.shape, 100 + i), h.dtype) for i, h in enumerate(heads)],
            train_mode=training,
        )
        for i in wanted:
            result[f"in/{i}"] = numbers(row, xs[i].grad)
    for i, h in enumerate(heads):
        result[f"out/{i}"] = numbers(row, h)
    for i, p in enumerate(parameters):
        key = f"{i}:{anonymous(p.name)}"
        if p.grad_req == "null":
            result[f"aux/{key}"] = numbers(row, p.data())
        elif mode != "infer":
            result[f"grad/{key}"] = numbers(row, p.grad())
    return result


def forward(scope, row, net, xs):
    """The row's call, its results flattened; one that comes twice (a cell's output, which is its
    state too) counts once, for of two head gradients of one array MXNet takes the last alone."""
    heads = flat(eval(row["call"], dict(scope, net=net, x=xs)))
    return list({id(h): h for h in heads}.values())


def flat(value):
    """All arrays in nested lists and tuples, from left to right."""
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in flat(part)]
    return [value]


def set_parameters(mx, row, parameters):
    """Seeded values, the same in both libraries; running variances are positive."""
    for i, p in enumerate(parameters):
        value = draw(p.shape, i)
        if p.name.endswith("running_var"):
            value = 1.5 + value / 2
        p.set_data(array(mx, row, value, kind(p.dtype)))


def draw(shape, seed, low=-1.0, high=1.0):
    """Numbers in [low, high), float64, the same in every version of NumPy; of () that of (1,)."""
    rng = np.random.default_rng([seed] + [int(n) for n in shape or (1,)])
    return np.asarray(low + (high - low) * rng.random(tuple(shape)))


def differentiable(array):
    return array.dtype.kind == "f"


def kind(dtype):
    """The name of a dtype."""
    return np.dtype(dtype).name


def anonymous(name):
    """The name with the first counter 0: 'dense7_weight' -> 'dense0_weight'."""
    return re.sub(r"^([a-z_]*[a-z0-9]*?)\d+_", r"\g<1>0_", name)
