"""Answers to the exercise of `appendix-your-machine.ipynb`."""

from answers import Answers

CHECKS = {
    "check_flops": Answers(
        "flops",
        right=[
            # with NumPy
            """
import numpy as np

def flops(widths, batch):
    m, n = np.array(widths[:-1]), np.array(widths[1:])
    return (batch * (2 * m + 1) * n).sum()
""",
            # as a float
            """
def flops(widths, batch):
    return float(batch) * sum(n * (1 + 2 * m) for m, n in zip(widths, widths[1:]))
""",
            # from the end
            """
def flops(widths, batch):
    *first, m, n = widths
    rest = flops([*first, m], batch) if first else 0
    return rest + batch * n + batch * n * m + batch * n * m
""",
            # the library's own costs, from shapes
            """
from d2lmini import nd

def flops(widths, batch):
    total = 0
    for m, n in zip(widths, widths[1:]):
        inputs = [((batch, m), "float32"), ((n, m), "float32"), ((n,), "float32")]
        total += nd.FullyConnected.cost(inputs, num_hidden=n).flops
    return total
""",
            # each example
            """
def flops(widths, batch):
    total = 0
    for example in range(batch):
        for layer in range(len(widths) - 1):
            total += (2 * widths[layer] + 1) * widths[layer + 1]
    return total
""",
            # n multiplications and n - 1 additions, and the bias
            """
def flops(widths, batch):
    def layer(inputs, outputs):
        return outputs * (inputs + (inputs - 1) + 1) + outputs
    return batch * sum(map(layer, widths[:-1], widths[1:]))
""",
        ],
        wrong=[
            (
                "asks",
                """
import labs.your_machine

flops = labs.your_machine.counted_by_net
""",
            ),
            (
                "asks",
                """
from d2lmini import nd
from d2lmini.gluon import nn

def flops(widths, batch):
    net = nn.HybridSequential()
    for width in widths[1:]:
        net.add(nn.Dense(width))
    net.initialize()
    net.hybridize()
    net(nd.zeros((batch, widths[0])))
    return net.program()[0].cost.flops
""",
            ),
            (
                "two",
                """
def flops(widths, batch):
    return sum(batch * m * n + batch * n for m, n in zip(widths, widths[1:]))
""",
            ),
            (
                "biases",
                """
def flops(widths, batch):
    return 2 * batch * sum(m * n for m, n in zip(widths, widths[1:]))
""",
            ),
            (
                "both",
                """
def flops(widths, batch):
    return batch * sum(m * n for m, n in zip(widths, widths[1:]))
""",
            ),
            (
                "batch",
                """
def flops(widths, batch):
    return sum(2 * m * n + n for m, n in zip(widths, widths[1:]))
""",
            ),
            (
                "each",
                """
def flops(widths, batch):
    return sum(2 * batch * m * n + n for m, n in zip(widths, widths[1:]))
""",
            ),
            (
                "backward",
                """
def flops(widths, batch):
    forward = sum(2 * batch * m * n + batch * n for m, n in zip(widths, widths[1:]))
    return forward + 2 * forward
""",
            ),
            (
                "last",
                """
def flops(widths, batch):
    for m, n in zip(widths, widths[1:]):
        total = 0
        total += 2 * batch * m * n + batch * n
    return total
""",
            ),
            (
                "other",
                """
def flops(widths, batch):
    return sum(4 * (batch * m + m * n + batch * n) for m, n in zip(widths, widths[1:]))
""",
            ),
            (
                "other",
                """
def flops(widths, batch):
    return sum(64 * (2 * m * n + n) for m, n in zip((512, 256, 128), (256, 128, 2)))
""",
            ),
            (
                "type",
                """
def flops(widths, batch):
    return [2 * batch * m * n + batch * n for m, n in zip(widths, widths[1:])]
""",
            ),
            (
                "none",
                """
def flops(widths, batch):
    total = sum(2 * batch * m * n + batch * n for m, n in zip(widths, widths[1:]))
    print(total)
""",
            ),
            ("none", 'def flops(widths, batch):\n    """Write your answer here."""\n'),
        ],
    ),
}
