"""Gluon's core, driven the same way in d2lmini and in the real MXNet: files written and read, and
what small programs are told. Both interpreters import this module."""

import warnings

import numpy as np


def build(mx):
    """A net with nesting, a scope, sharing, a constant-free parameter of its own and BatchNorm."""
    nn = mx.gluon.nn

    class Net(nn.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.features = nn.HybridSequential()
                with self.features.name_scope():
                    self.features.add(
                        nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Flatten()
                    )
                self.hidden = nn.Dense(5)
                self.tied = nn.Dense(5, in_units=5)
                self.again = nn.Dense(5, in_units=5, params=self.tied.params)
                self.scale = self.params.get("scale", shape=(1, 5), init="ones")

        def forward(self, x):
            x = self.again(self.tied(self.hidden(self.features(x))))
            return mx.nd.broadcast_mul(x, self.scale.data(x.context))

    return Net(prefix="net_")


def started(mx, seed):
    """Such a net with numbers that depend on `seed` alone."""
    net = build(mx)
    net.initialize()
    net(inputs(mx))
    rng = np.random.RandomState(seed)
    for parameter in net.collect_params().values():
        values = rng.uniform(0.5, 1.5, parameter.shape)
        parameter.set_data(mx.nd.array(values))
    return net


def inputs(mx):
    return mx.nd.array(np.linspace(-1, 1, 2 * 6 * 6).reshape(2, 1, 6, 6))


def write(mx, folder):
    """Every kind of file; what the net gives."""
    net = started(mx, 3)
    net.save_parameters(folder + "/structural.params")
    net.save_parameters(folder + "/deduplicated.params", deduplicate=True)
    net.collect_params().save(folder + "/full.params")
    net.collect_params().save(folder + "/stripped.params", strip_prefix="net_")
    half = started(mx, 4)
    half.cast("float16")
    half.save_parameters(folder + "/half.params")
    return net(inputs(mx)).asnumpy()


def read(mx, folder):
    """The net's outputs after loading each of them, with and without `initialize` before."""
    outputs = {}
    for first in (False, True):
        for kind in ("structural", "deduplicated", "full", "stripped", "half"):
            net = build(mx)
            if first:
                net.initialize()
                net(inputs(mx))
            if kind == "full":
                net.collect_params().load(folder + "/full.params")
            elif kind == "half":
                net.load_parameters(folder + "/half.params", cast_dtype=True)
            else:
                net.load_parameters(folder + "/" + kind + ".params")
            outputs[kind + str(first)] = net(inputs(mx)).asnumpy()
    return outputs


def core(mx):
    """Names, reprs, errors and warnings of small programs, as one list of texts."""
    gluon, nd, nn = mx.gluon, mx.nd, mx.gluon.nn
    told = []

    def tell(function):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                told.append(repr(function()))
            except Exception as error:
                kind = type(error).__name__
                told.append(kind + ": " + str(error))
        for w in warned:
            told.append("warning: " + str(w.message))

    net = build(mx)
    tell(lambda: list(net.collect_params()))
    tell(lambda: net)
    tell(lambda: net.collect_params(".*weight"))
    tell(lambda: net.features[1:])
    tell(lambda: [net.name, net.features.name, net.features[0].prefix, net.again.prefix])
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    net(inputs(mx))
    tell(lambda: net.hidden.weight)
    tell(lambda: net.hidden.weight.list_ctx())
    tell(lambda: net.initialize())
    p = gluon.Parameter("w", shape=(2, 3))
    for ask in ("data", "grad", "list_data", "list_grad", "list_ctx", "zero_grad"):
        tell(getattr(p, ask))
    tell(lambda: p.reset_ctx(mx.cpu(1)))
    tell(lambda: p.set_data(nd.ones((2, 3))))
    p.initialize(ctx=[mx.cpu(1), mx.cpu(2)])
    for ask in ("data", "grad"):
        tell(getattr(p, ask))
    tell(lambda: p.set_data(nd.ones((2, 4))))
    tell(lambda: setattr(p, "shape", (3, 3)))
    tell(lambda: setattr(p, "grad_req", "foo"))
    p.grad_req = "null"
    tell(p.grad)
    d = gluon.Parameter("d", shape=(2, 0))
    tell(d.initialize)
    d = gluon.Parameter("d", shape=(2, 0), allow_deferred_init=True)
    tell(d.initialize)
    for ask in ("data", "grad", "list_ctx"):
        tell(getattr(d, ask))
    c = gluon.Constant("c", [1, 2])
    tell(lambda: c)
    params = gluon.ParameterDict("x_")
    tell(lambda: params)
    tell(lambda: params.get("weight", shape=(2, 0), allow_deferred_init=True))
    tell(lambda: params.get("weight", shape=(0, 3)).shape)
    tell(lambda: params.get("weight", shape=(3, 3)))
    tell(lambda: params.get("weight", dtype="float16"))
    tell(lambda: params.get("weight", grad_req="null"))
    tell(lambda: params.get_constant("weight", [1]))
    tell(lambda: params.get_constant("other"))
    tell(lambda: params.get_constant("other", [1]))
    tell(lambda: params)
    tell(lambda: nn.HybridSequential().add(gluon.Block()))
    tell(lambda: setattr(net, "hidden", 5))
    tell(lambda: gluon.utils.split_data(nd.ones((5, 2)), 2))
    tell(lambda: [x.shape for x in gluon.utils.split_data(nd.ones((7, 2)), 3, even_split=False)])
    tell(lambda: gluon.block._flatten([nd.ones(1), [None, nd.ones(2)]], "input")[1])
    return told
