"""Nets that are exported by one library and imported by the other; both interpreters import this
module.

`write` leaves FOLDER/NAME-symbol.json, FOLDER/NAME-0000.params and FOLDER/NAME.npz (inputs and
outputs) of every net; `read` imports what lies in one folder and leaves NAME.read.npz in another.
"""

import os

import numpy as np

#: Name -> (expression for the net, shapes of its inputs).
NETS = {
    "mlp": ("seq(nn.Dense(32, activation='relu'), nn.Dropout(0.5), nn.Dense(5))", [(3, 7)]),
    "lenet": (
        "seq(nn.Conv2D(6, 5, activation='sigmoid'), nn.MaxPool2D(2, 2),"
        " nn.Conv2D(16, 5, activation='sigmoid'), nn.MaxPool2D(2, 2),"
        " nn.Dense(120, activation='sigmoid'), nn.Dense(84, activation='sigmoid'), nn.Dense(10))",
        [(2, 1, 28, 28)],
    ),
    "resnet18": ("resnet18()", [(2, 1, 28, 28)]),
    "vgg block": ("seq(nn.Conv2D(4, 3, padding=1, activation='relu'), nn.MaxPool2D(2, 2))",
                  [(2, 3, 8, 8)]),
    "norms": ("seq(nn.Conv2D(6, 3), nn.InstanceNorm(), nn.GroupNorm(2), nn.LayerNorm(axis=1))",
              [(2, 3, 8, 8)]),
    "activations": (
        "seq(nn.Dense(8), nn.PReLU(), nn.ELU(0.5), nn.SELU(), nn.GELU(), nn.Swish(),"
        " nn.LeakyReLU(0.1))", [(3, 7)],
    ),
    "pools": ("seq(nn.AvgPool2D(3, 2, 1, ceil_mode=True, count_include_pad=False),"
              " nn.Conv2DTranspose(3, 4, 2, 1), nn.GlobalMaxPool2D())", [(2, 3, 9, 9)]),
    "volumes": ("seq(nn.Conv3D(2, 3), nn.MaxPool3D(2), nn.GlobalAvgPool3D(), nn.Flatten())",
                [(1, 2, 8, 8, 8)]),
    "words": ("seq(nn.Embedding(20, 8), nn.Flatten(), nn.Dense(3))", [(4, 5)]),
    "lstm": ("around(rnn.LSTM(8, 2, input_size=4))", [(5, 3, 4)]),
    "both directions": ("around(rnn.GRU(6, 1, bidirectional=True, input_size=4, layout='NTC'))",
                        [(3, 5, 4)]),
    "a cell": ("unrolled(rnn.LSTMCell(8, input_size=4))", [(2, 5, 4)]),
    "scores": ("scores()", [(3, 7), (3, 7)]),
}  # fmt: skip


def names(mx):
    """What the expressions may use."""
    nn, rnn = mx.gluon.nn, mx.gluon.rnn

    def seq(*layers):
        net = nn.HybridSequential()
        net.add(*layers)
        return net

    class Residual(nn.HybridBlock):
        def __init__(self, channels, strides=1, **kwargs):
            super().__init__(**kwargs)
            self.conv1 = nn.Conv2D(channels, kernel_size=3, padding=1, strides=strides)
            self.conv2 = nn.Conv2D(channels, kernel_size=3, padding=1)
            self.conv3 = nn.Conv2D(channels, 1, strides=strides) if strides > 1 else None
            self.bn1, self.bn2 = nn.BatchNorm(), nn.BatchNorm()

        def hybrid_forward(self, F, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (self.conv3(x) if self.conv3 else x))

    def resnet18():
        net = seq(nn.Conv2D(64, kernel_size=3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        for stage, channels in enumerate((64, 128, 256, 512)):
            net.add(Residual(channels, 1 if stage == 0 else 2), Residual(channels))
        net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
        return net

    class Unrolled(nn.HybridBlock):
        def __init__(self, cell, **kwargs):
            super().__init__(**kwargs)
            self.cell, self.out = cell, nn.Dense(3)

        def hybrid_forward(self, F, x):
            outputs, _ = self.cell.unroll(5, x, layout="NTC", merge_outputs=True)
            return self.out(outputs)

    class Around(nn.HybridBlock):
        def __init__(self, layer, **kwargs):
            super().__init__(**kwargs)
            self.layer = layer

        def hybrid_forward(self, F, x):
            return self.layer(x)

    class Scores(nn.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.scale = self.params.get_constant("scale", mx.nd.array([[1.5]]))

        def hybrid_forward(self, F, x, z, scale):
            y = F.broadcast_mul(F.softmax(x, axis=1), scale) - F.log(z * z + 1) ** 2
            y = F.concat(y, F.slice_axis(z, axis=1, begin=1, end=4), dim=1)
            return F.sum(y.reshape((0, 2, -1)), axis=2), F.split(y, num_outputs=5, axis=1)[2]

    return {
        "nn": nn, "rnn": rnn, "seq": seq, "resnet18": resnet18, "unrolled": Unrolled,
        "around": Around, "scores": Scores,
    }  # fmt: skip


def flat(outputs):
    """Outputs without nesting, as NumPy arrays."""
    if isinstance(outputs, (list, tuple)):
        return [y for output in outputs for y in flat(output)]
    return [outputs.asnumpy()]


def write(mx, folder):
    """Build, run and export every net."""
    scope = names(mx)
    for number, (name, (text, shapes)) in enumerate(NETS.items()):
        rng = np.random.RandomState(number)
        inputs = [rng.uniform(-1, 1, s).astype("float32") for s in shapes]
        if name == "words":
            inputs = [rng.randint(0, 20, s).astype("float32") for s in shapes]
        mx.random.seed(number)
        net = eval(text, scope)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        xs = [mx.nd.array(x) for x in inputs]
        outputs = flat(net(*xs))
        net.export(os.path.join(folder, name))
        arrays = {f"in{i}": x for i, x in enumerate(inputs)}
        arrays.update({f"out{i}": y for i, y in enumerate(outputs)})
        np.savez(os.path.join(folder, name + ".npz"), **arrays)


def read(mx, folder, into):
    """Import every net of the other library, in both ways, and run it."""
    for name in NETS:
        path = os.path.join(folder, name)
        with np.load(path + ".npz") as arrays:
            inputs = [arrays[f"in{i}"] for i in range(len(NETS[name][1]))]
        xs = [mx.nd.array(x) for x in inputs]
        symbol = mx.sym.load(path + "-symbol.json")
        params = mx.nd.load(path + "-0000.params")
        data = ["data"] if len(xs) == 1 else [f"data{i}" for i in range(len(xs))]
        block = mx.gluon.SymbolBlock.imports(
            path + "-symbol.json", data, path + "-0000.params", ctx=mx.cpu()
        )
        values = {key.split(":", 1)[1]: value for key, value in params.items()}
        values.update(zip(data, xs))
        executor = symbol.bind(
            mx.cpu(),
            {k: values[k] for k in symbol.list_arguments()},
            aux_states={k: values[k] for k in symbol.list_auxiliary_states()},
        )
        results = {f"block{i}": y for i, y in enumerate(flat(block(*xs)))}
        bound = flat(list(executor.forward(is_train=False)))
        results.update({f"bound{i}": y for i, y in enumerate(bound)})
        np.savez(os.path.join(into, name + ".read.npz"), **results)
