"""The workloads that are nets: calls, training steps, two devices, data loading.

Their numbers and answers are made in `training.py`, `resnet.py`, `gru.py`, `compiled.py` and
`loading.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import compiled
import gru
import loading
import resnet
import training
from row import Arrays, Target, Workload

#: Batches of the two steps that run on two devices.
BATCHES = {"mlp": (1024, 8), "lenet": (256, 10)}


def two_devices(
    name: str, title: str, calls: int, make: Callable[[int], Arrays],
    loss: Callable[..., float],
) -> Workload:  # fmt: skip
    """A training step on two virtual devices, which gain as much as two bare NumPy threads do."""
    full, tiny = BATCHES[name]
    pairs = (("d2lmini", "d2lmini one"), ("d2lmini hybrid", "d2lmini hybrid-one"))
    threads = "numpy-threads one"
    return Workload(
        f"two_{name}",
        f"the training step of {title} on two virtual devices, one thread each",
        f"two_{name}",
        {"full": (full, calls), "quick": (full, 3), "tiny": (tiny, 2)},
        make,
        None,
        ops=None,
        check=training.learns(make, loss),
        targets=tuple(
            Target("numpy-threads", 1.1, row=row, bases=(alone, threads)) for row, alone in pairs
        ),
        note="The targets compare two gains: the time on two devices divided by that on one, and "
        "the same of two bare NumPy threads. BLAS has one thread.",
    )


TABLE = (
    Workload(
        "mlp_train",
        "one training step, 512-2048-512-1, batch 1024, SGD",
        "mlp_train",
        {"full": (1024, 5), "quick": (1024, 3), "tiny": (8, 2)},
        training.mlp,
        None,
        ops=None,
        check=training.learns(training.mlp, training.mlp_loss),
        targets=(
            Target("mxnet", 0.6),
            Target("torch", 1.0),
            Target("d2lmini", 1.0, row="d2lmini hybrid"),
            Target("torch or torch compile", 1.05, row="d2lmini hybrid"),
            Target("mxnet or mxnet hybrid", 0.5, row="d2lmini hybrid"),
        ),
    ),
    Workload(
        "lenet_train",
        "one training step of LeNet, 28x28, batch 256, SGD",
        "lenet_train",
        {"full": (256, 10), "quick": (256, 3), "tiny": (10, 2)},
        training.lenet,
        None,
        ops=None,
        check=training.learns(training.lenet, training.lenet_loss),
        targets=(
            Target("mxnet", 0.7),
            Target("torch", 1.2),
            Target("torch", 1.0, row="d2lmini hybrid"),
            Target("mxnet or mxnet hybrid", 0.5, row="d2lmini hybrid"),
        ),
    ),
    Workload(
        "resnet_train",
        "one training step of ResNet-18, 28x28, batch 32, SGD",
        "resnet_train",
        {"full": (32, 2), "quick": (32, 2), "tiny": (1, 2)},
        resnet.resnet,
        None,
        ops=None,
        check=training.learns(resnet.resnet, resnet.resnet_loss),
        targets=(
            Target("torch or torch compile", 1.25, row="d2lmini hybrid"),
            Target("mxnet or mxnet hybrid", 1.0, row="d2lmini hybrid"),
        ),
    ),
    Workload(
        "gru_cell",
        "a GRU cell, batch 32, 128 -> 256, 35 steps under autograd, forward and backward",
        "gru_cell",
        {"full": (35, 5), "quick": (35, 3), "tiny": (3, 2)},
        gru.cell,
        gru.gradients,
        ops=None,
        targets=(Target("mxnet", 0.25), Target("torch", 0.9)),
    ),
    Workload(
        "net_call",
        "a net 512-256-128-2 on one example, hybridized, called in a loop",
        "net_call",
        {"full": (1, 1000), "quick": (1, 200), "tiny": (1, 3)},
        compiled.net,
        compiled.net_output,
        unit="us",
        ops=None,
        turns=5,
        targets=(
            Target("d2lmini eager", 1 / 3),
            Target("mxnet", 0.25),
            Target("torch", 0.4),
            Target("jax jit", 1.0),
            Target("torch", 1.0, row="d2lmini eager"),
            Target("mxnet eager", 0.2, row="d2lmini eager"),
        ),
    ),
    two_devices("mlp", "the MLP", 5, training.mlp, training.mlp_loss),
    two_devices("lenet", "LeNet", 6, training.lenet, training.lenet_loss),
    Workload(
        "load",
        "an epoch of 1437 pictures of 8x8, each transformed, in batches of 256",
        "load",
        {"full": (1437, 1), "quick": (1437, 1), "tiny": (300, 1)},
        loading.pictures,
        loading.means,
        ops=None,
        note="`workers`: with two, which live as long as the loader.",
    ),
)
