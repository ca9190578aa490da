"""What of a hybridized net becomes CUDA graphs, on gpu(0) of the stub, and why the rest does not.

    python tests/gpu/stub/run.py capture

`ops`: each operation of the project's table alone in a net, forward and backward, three calls with
static_alloc and static_shape. `nets`: small nets of several layers, trained for six steps, with the
loss outside the net and within. Exit status 1 if something raises that does not on the CPU.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict

from common import FAULTS, Since, fresh, grouped, quiet, said, table

# isort: split
import numpy as np
from op_rows.table import ROWS

from d2lmini import autograd, cpu, engine, gluon, gpu, nd

nn, rnn = gluon.nn, gluon.rnn


class Alone(gluon.HybridBlock):
    """A net of one operation."""

    def __init__(self, op: str, attrs: dict):
        super().__init__()
        self.op = op
        self.attrs = attrs

    def hybrid_forward(self, F, *inputs):
        function = F
        for part in self.op.split("."):
            function = getattr(function, part)
        return function(*inputs, **self.attrs)


def call_alone(case, ctx, backward: bool, times: int = 3) -> list[str]:
    """Some calls of a row's operation; what becomes of its programs."""
    fresh()
    net = Alone(case.op, case.attrs)
    net.hybridize(static_alloc=True, static_shape=True)
    with ctx:
        inputs = [nd.array(i, dtype=i.dtype) for i in case.inputs]
        for x in inputs:
            if backward and np.dtype(x.dtype).kind == "f":
                x.attach_grad()
        for _ in range(times):
            with autograd.record(backward):
                results = net(*inputs)
            results = results if isinstance(results, (list, tuple)) else [results]
            if backward:
                autograd.backward([r for r in results if np.dtype(r.dtype).kind == "f"])
            engine.waitall()
    return net.cuda_graphs()


def works_on_cpu(case, backward: bool) -> bool:
    try:
        call_alone(case, cpu(), backward, times=1)
    except Exception:
        quiet()
        return False
    return True


def ops() -> tuple[set[str], list[tuple[str, str]], list[tuple[str, str]]]:
    """The operations that are captured; (why not, operation); (error, operation)."""
    captured, reasons, errors = set(), [], []
    with engine.use("naive"):
        for case in ROWS:
            arrays = [isinstance(i, np.ndarray) for i in case.inputs]
            by_values = case.attrs.get("mode") == "raise"  # kernels do not run: it may raise or not
            if by_values or case.op.startswith("_") or not arrays or not all(arrays):
                continue
            # Not every row has a gradient, and not every one is a program.
            backward = case.grad and works_on_cpu(case, backward=True)
            if not backward and not works_on_cpu(case, backward=False):
                continue
            try:
                lines = call_alone(case, gpu(0), backward)
            except Exception as problem:
                errors.append((said(problem), case.op))
                quiet()
                continue
            for line in lines:
                name = case.op + (" backward" if "_backward" in line.split(":")[0] else "")
                if "op by op, " in line:
                    why = line.split("op by op, ")[1]
                    reasons.append((re.sub(r"node '[^']*'", "a node", why)[:150], name))
                else:
                    captured.add(name)
    return captured, reasons, errors


class Attention(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.query, self.key, self.value = (nn.Dense(8, flatten=False) for _ in range(3))

    def hybrid_forward(self, F, x):
        scores = F.batch_dot(self.query(x), self.key(x), transpose_b=True) / 8**0.5
        return F.batch_dot(F.softmax(scores), self.value(x))


class WithLoss(gluon.HybridBlock):
    def __init__(self, net):
        super().__init__()
        with self.name_scope():
            self.net, self.loss = net, gluon.loss.SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F, x, y):
        return self.loss(self.net(x), y)


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


def train(make, shape, with_loss: bool) -> list[str]:
    """Six steps of Adam; what becomes of the programs."""
    net = WithLoss(make()) if with_loss else make()
    net.initialize(ctx=gpu(0))
    net.hybridize(static_alloc=True, static_shape=True)
    with gpu(0):
        ids = nd.array(np.arange(6).reshape(2, 3))
        x = ids if shape is None else nd.random.uniform(shape=shape)
        inputs = [x]
        if with_loss:
            inputs.append(nd.zeros(net.net(x).shape[:-1]))
    trainer = None
    for _ in range(6):
        with autograd.record():
            results = net(*inputs)
            loss = results[0] if isinstance(results, (list, tuple)) else results
        loss.backward()
        # The parameters that wait for their shapes have them now.
        trainer = trainer or gluon.Trainer(net.collect_params(), "adam")
        trainer.step(2, ignore_stale_grad=True)
        engine.waitall()
    return net.cuda_graphs()


def nets() -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """What becomes of each net, and (error, net)."""
    graphs, errors = defaultdict(list), []
    for name, (make, shape) in NETS.items():
        for with_loss in (False, True):
            label = f"{name}{' with its loss' if with_loss else ''}"
            try:
                lines = train(make, shape, with_loss)
            except Exception as problem:
                errors.append((said(problem), label))
                quiet()
                continue
            for line in lines:
                program, _, what = line.partition(": ")
                way = "backward" if program.endswith("_backward") else "forward"
                graphs[label].append(f"{way}: {what}")
    return graphs, errors


def main() -> int:
    asked = sys.argv[1:] or ["ops", "nets"]
    errors = []
    if "ops" in asked:
        since = Since()
        captured, reasons, errors = ops()
        print(
            f"operations, forward or backward, that are captured: {len(captured)}; "
            f"graphs: {since('graphInstantiate')}, "
            f"launched {since('graphLaunch')} times for {since('launch-replayed')} kernels"
        )
        table("operations that are not captured", grouped(reasons))
        table("operations that raise", grouped(errors))
        print("\non the null stream and the like:", since.among(FAULTS) or "nothing")
    if "nets" in asked:
        since = Since()
        graphs, raised = nets()
        print("\nnets")
        for name, lines in graphs.items():
            print(f"  {name}", *lines, sep="\n      ")
        table("nets that raise", grouped(raised))
        print("\non the null stream and the like:", since.among(FAULTS) or "nothing")
        errors += raised
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
