"""Programs in mixed precision that both libraries run: both interpreters import this module.

`mx` is mxnet or d2lmini."""

import importlib
import json

import numpy as np

LISTS = "lp16_ops fp32_ops widest_type_cast".split()


def amp_of(mx):
    return importlib.import_module(f"{mx.__name__}.contrib.amp")


def turn_on(mx):
    amp_of(mx).init()


def lists(mx):
    amp = amp_of(mx)
    found = [getattr(amp, f"list_{name}")("float16") for name in LISTS]
    return found, [tuple(row) for row in amp.list_conditional_fp32_ops("float16")]


# -- graphs ----------------------------------------------------------------------------------------


def symbols(mx):
    s = mx.sym
    x = s.var("x")
    fc = s.FullyConnected(x, s.var("w"), s.var("b"), num_hidden=4, name="fc")
    conv = s.Convolution(x, kernel=(3, 3), num_filter=2, name="conv")
    pooled = s.Pooling(s.BatchNorm(conv, name="bn"), kernel=(2, 2), name="pool")
    soft = s.Activation(pooled, act_type="softrelu", name="soft")
    return [
        fc,
        s.softmax(s.Activation(fc, act_type="relu", name="relu"), name="p"),
        s.elemwise_add(fc, s.exp(fc, name="e"), name="sum"),
        s.SoftmaxOutput(s.FullyConnected(soft, num_hidden=3, name="out"), name="softmax"),
        s.LeakyReLU(s.Dropout(fc, name="d"), act_type="elu", name="elu"),
        s.LayerNorm(s.transpose(fc, name="t"), name="ln"),
    ]


def compose(mx):
    """The tables of the symbols, with the casts that `init` makes."""
    with mx.name.NameManager() if hasattr(mx, "name") else mx.sym.NameManager():
        return [table(symbol) for symbol in symbols(mx)]


def table(symbol):
    """The rows of a graph, without the labels of variables except their dtypes."""
    return [
        (
            row["op"],
            row["name"],
            {
                k: v
                for k, v in row.get("attrs", {}).items()
                if row["op"] != "null" or k == "__dtype__"
            },
            [tuple(place) for place in row["inputs"]],
        )
        for row in json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
    ]


def run_json(mx, text, values):
    """The outputs of a graph for these arrays, and the dtypes of all its values."""
    symbol = mx.sym.load_json(text)
    inside = symbol.get_internals()
    given = {name: value.dtype for name, value in values.items()}
    dtypes = inside.infer_type(**{k: given[k] for k in inside.list_arguments()})[1]
    names = [name.replace("_output", "") for name in inside.list_outputs()]
    arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in values.items()}
    states = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
    bound = symbol.bind(mx.cpu(), arrays, aux_states=states)
    return (
        [y.asnumpy() for y in bound.forward()],
        {name: np.dtype(dtype).name for name, dtype in zip(names, dtypes)},
    )


def infer(mx, text, known):
    """The dtypes of all values of a graph, from those of its arguments."""
    inside = mx.sym.load_json(text).get_internals()
    found = inside.infer_type(**{k: known for k in inside.list_arguments()})[1]
    return {name: np.dtype(d).name for name, d in zip(inside.list_outputs(), found)}


# -- training --------------------------------------------------------------------------------------


def take_steps(mx, factors, length, rescale, unscales):
    """Scale, weights, gradients and the count of updates after each step. factors: of the loss;
    length: steps without overflow until the scale is doubled."""
    amp = amp_of(mx)
    param = mx.gluon.Parameter("weight", shape=(2,))
    param.initialize(init="ones")
    options = {"learning_rate": 0.5, "momentum": 0.5, "rescale_grad": rescale}
    trainer = mx.gluon.Trainer([param], "sgd", options)
    amp.init_trainer(trainer)
    trainer._amp_loss_scaler._scale_seq_len = length
    found = []
    for factor in factors:
        with mx.autograd.record():
            loss = (param.data() * mx.nd.array([1, 2]) * factor).sum()
            with amp.scale_loss(loss, trainer) as scaled:
                mx.autograd.backward(scaled)
        if unscales:
            amp.unscale(trainer)
        gradient = param.grad().asnumpy()
        trainer.step(2)
        scale = trainer._amp_loss_scaler.loss_scale
        updates = trainer._optimizer.num_update
        found.append((scale, updates, param.data().asnumpy(), gradient))
    return found
