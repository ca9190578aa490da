"""What of a hybridized net becomes CUDA graphs, on gpu(0) of the stub, and why the rest does not.

    python tests/gpu/stub/run.py capture

Small nets of several layers are trained for six steps.
Exit status 1 if one raises.
"""

from __future__ import annotations

import sys

from common import FAULTS, Since, grouped, quiet, said, table

# isort: split
import numpy as np

from d2lmini import autograd, engine, gluon, gpu, nd

nn, rnn = gluon.nn, gluon.rnn


class Attention(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.query, self.key, self.value = (nn.Dense(8, flatten=False) for _ in range(3))

    def hybrid_forward(self, F, x):
        scores = F.batch_dot(self.query(x), self.key(x), transpose_b=True) / 8**0.5
        return F.batch_dot(F.softmax(scores), self.value(x))


def row(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    return net


#: Name: how the net is made, and the shape of its input; None: integers of shape (2, 3).
NETS = {
    "LeNet": (
        lambda: row(
            *(nn.Conv2D(6, 5, activation="sigmoid"), nn.AvgPool2D(2, 2)),
            *(nn.Conv2D(16, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.BatchNorm()),
            *(nn.Dense(120, activation="relu"), nn.Dropout(0.5), nn.Dense(10)),
        ),
        (4, 1, 28, 28),
    ),
    "attention": (Attention, (2, 5, 8)),
    "embedding": (
        lambda: row(nn.Embedding(50, 8), nn.Dense(4, flatten=False), nn.LayerNorm()),
        None,
    ),
    "LSTM": (lambda: rnn.LSTM(8, 2, layout="NTC", input_size=5), (2, 4, 5)),
    "GRU": (lambda: rnn.GRU(8, 1, layout="NTC", input_size=5, bidirectional=True), (2, 4, 5)),
    "groups": (
        lambda: row(
            *(nn.Conv2D(8, 3, groups=4), nn.Conv2D(8, 3, groups=8)),
            *(nn.GlobalAvgPool2D(), nn.Flatten()),
        ),
        (2, 8, 8, 8),
    ),
    "transposed": (
        lambda: row(
            *(nn.Conv2D(8, 3, padding=1), nn.MaxPool2D(3, 1, 1), nn.GELU()),
            nn.Conv2DTranspose(3, 3),
        ),
        (2, 3, 8, 8),
    ),
    "activations": (
        lambda: row(
            *(nn.Conv1D(8, 3), nn.LeakyReLU(0.1), nn.PReLU(), nn.ELU(), nn.SELU(), nn.Swish()),
            *(nn.GroupNorm(2), nn.InstanceNorm(), nn.GELU()),
        ),
        (2, 8, 6),
    ),
}


def train(make, shape) -> list[str]:
    """Six steps of Adam; what becomes of the programs."""
    net = make()
    net.initialize(ctx=gpu(0))
    net.hybridize(static_alloc=True, static_shape=True)
    with gpu(0):
        ids = nd.array(np.arange(6).reshape(2, 3))
        x = ids if shape is None else nd.random.uniform(shape=shape)
    trainer = None
    for _ in range(6):
        with autograd.record():
            loss = net(x)
        loss.backward()
        # The parameters that wait for their shapes have them now.
        trainer = trainer or gluon.Trainer(net.collect_params(), "adam")
        trainer.step(2, ignore_stale_grad=True)
        engine.waitall()
    return net.cuda_graphs()


def nets() -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """What becomes of each net, and (error, net)."""
    graphs, errors = {}, []
    for name, (make, shape) in NETS.items():
        try:
            graphs[name] = train(make, shape)
        except Exception as problem:
            errors.append((said(problem), name))
            quiet()
    return graphs, errors


def main() -> int:
    since = Since()
    graphs, raised = nets()
    for name, lines in graphs.items():
        print(f"  {name}", *lines, sep="\n      ")
    print(
        f"graphs: {since('graphInstantiate')}, launched {since('graphLaunch')} times for "
        f"{since('launch-replayed')} kernels"
    )
    table("nets that raise", grouped(raised))
    print("\non the null stream and the like:", since.among(FAULTS) or "nothing")
    return bool(raised)


if __name__ == "__main__":
    sys.exit(main())
