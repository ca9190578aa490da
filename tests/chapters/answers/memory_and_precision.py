"""*Memory and precision*: a step of training that needs less memory and computes the same."""

from __future__ import annotations

from answers import Answers

HELPERS = """
from d2lmini import cpu

def run_layers(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def params_of(layers):
    return [p for layer in layers for p in layer.collect_params().values()]
"""

#: `fit` by groups of SIZE layers.
GROUPS = """
def fit(layers, loss, trainer, X, y):
    with autograd.record():
        output = X
        for i in range(0, len(layers), SIZE):
            part = layers[i : i + SIZE]
            output = autograd.checkpoint(lambda x, part=part: run_layers(part, x), output)
        l = loss(output, y)
    l.backward()
    trainer.step(len(X))
"""

#: `fit` by PARTS small batches.
SMALL_BATCHES = """
def fit(layers, loss, trainer, X, y):
    for p in params_of(layers):
        p.grad_req = "add"
        p.zero_grad()
    rows = -(-len(X) // PARTS)
    for i in range(0, len(X), rows):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + rows]), y[i : i + rows])
        l.backward()
    trainer.step(len(X))
"""

RIGHT = [
    GROUPS.replace("SIZE", "2"),
    GROUPS.replace("SIZE", "4"),
    # Halves of halves: the second run of a half keeps only the middle of it.
    """
def fit(layers, loss, trainer, X, y):
    def run(part, x):
        if len(part) < 3:
            return run_layers(part, x)
        middle = len(part) // 2
        x = autograd.checkpoint(lambda x: run(part[:middle], x), x)
        return autograd.checkpoint(lambda x: run(part[middle:], x), x)

    with autograd.record():
        l = loss(run(layers, X), y)
    l.backward()
    trainer.step(len(X))
""",
    SMALL_BATCHES.replace("PARTS", "2"),
    SMALL_BATCHES.replace("PARTS", "16"),
    # autograd.grad for each quarter, a sum of its own, and the update by hand.
    """
def fit(layers, loss, trainer, X, y):
    data = [p.data() for p in params_of(layers)]
    rows, total = len(X) // 4, None
    for i in range(0, len(X), rows):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + rows]), y[i : i + rows])
        found = autograd.grad(l, data)
        total = found if total is None else [a + b for a, b in zip(total, found)]
    for x, g in zip(data, total):
        x -= trainer.learning_rate / len(X) * g
""",
    # Without checkpoint: forward keeps the inputs of four stages, backward runs each again.
    """
def fit(layers, loss, trainer, X, y):
    cuts = [len(layers) * i // 4 for i in range(5)]
    parts = [layers[a:b] for a, b in itertools.pairwise(cuts)]
    inputs = [X]
    for part in parts[:-1]:
        inputs.append(run_layers(part, inputs[-1]))
    g = None
    for part in parts[::-1]:
        x = inputs.pop()
        x.attach_grad()
        with autograd.record():
            output = run_layers(part, x)
            output = loss(output, y) if g is None else output
        output.backward(g)
        g, output = x.grad, None
    trainer.step(len(X))
""",
    # The last layers keep what they compute: backward begins with them anyway.
    """
def fit(layers, loss, trainer, X, y):
    with autograd.record():
        x = X
        for i in range(0, len(layers) - 2, 3):
            part = layers[i : min(i + 3, len(layers) - 2)]
            x = autograd.checkpoint(lambda x, part=part: run_layers(part, x), x)
        l = loss(run_layers(layers[-2:], x), y)
    autograd.backward([l])
    trainer.step(len(X))
""",
    # One number of each part is read, to print the loss.
    """
def fit(layers, loss, trainer, X, y):
    total = 0.0
    for p in params_of(layers):
        p.grad_req = "add"
        p.zero_grad()
    for i in range(0, len(X), 32):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + 32]), y[i : i + 32]).sum()
        l.backward()
        total += l.asscalar()
    trainer.step(len(X))
    print(total / len(X))
""",
]

WRONG = [
    ("function", "fit = None"),
    (
        "nothing",
        """
def fit(layers, loss, trainer, X, y):
    pass
""",
    ),
    # Forgets the update.
    (
        "nothing",
        """
def fit(layers, loss, trainer, X, y):
    with autograd.record():
        l = loss(run_layers(layers, X), y)
    l.backward()
""",
    ),
    # Secretly a smaller batch.
    (
        "rows",
        """
def fit(layers, loss, trainer, X, y):
    n = len(X) // 2
    with autograd.record():
        l = loss(run_layers(layers, X[:n]), y[:n])
    l.backward()
    trainer.step(n)
""",
    ),
    # No grad_req: only the last part counts.
    (
        "rows",
        """
def fit(layers, loss, trainer, X, y):
    rows = len(X) // 4
    for i in range(0, len(X), rows):
        with autograd.record():
            l = loss(run_layers(layers, X[i : i + rows]), y[i : i + rows])
        l.backward()
    trainer.step(len(X))
""",
    ),
    ("scale", SMALL_BATCHES.replace("PARTS", "4").replace("step(len(X))", "step(rows)")),
    # Never sets the gradients to zero.
    ("stale", SMALL_BATCHES.replace("PARTS", "4").replace("        p.zero_grad()\n", "")),
    # Half of the bytes, and rounded values.
    (
        "precision",
        """
def fit(layers, loss, trainer, X, y):
    with autograd.record():
        x = X.astype("float16")
        for layer in layers:
            weight, bias = (p.data().astype("float16") for p in (layer.weight, layer.bias))
            x = nd.tanh(nd.FullyConnected(x, weight, bias, num_hidden=len(bias)))
        l = loss(x.astype("float32"), y)
    l.backward()
    trainer.step(len(X))
""",
    ),
    # Keeps the middle in an array that the storage does not count.
    (
        "numpy",
        """
def fit(layers, loss, trainer, X, y):
    middle = len(layers) // 2
    kept = run_layers(layers[:middle], X).asnumpy()
    h = nd.array(kept)
    h.attach_grad()
    with autograd.record():
        l = loss(run_layers(layers[middle:], h), y)
    l.backward()
    del l
    with autograd.record():
        again = run_layers(layers[:middle], X)
    again.backward(h.grad)
    trainer.step(len(X))
""",
    ),
    # The first half of the layers learns nothing.
    (
        "values",
        """
def fit(layers, loss, trainer, X, y):
    middle = len(layers) // 2
    h = run_layers(layers[:middle], X)
    with autograd.record():
        l = loss(run_layers(layers[middle:], h), y)
    l.backward()
    trainer.step(len(X), ignore_stale_grad=True)
""",
    ),
    # The plain step.
    (
        "bytes",
        """
def fit(layers, loss, trainer, X, y):
    with autograd.record():
        l = loss(run_layers(layers, X), y)
    l.backward()
    trainer.step(len(X))
""",
    ),
    # All layers are one function: backward keeps all of them again.
    ("bytes", GROUPS.replace("SIZE", "len(layers)")),
    ("bytes", GROUPS.replace("SIZE", "1")),
    # Activations on another device are arrays, too.
    (
        "bytes",
        """
def fit(layers, loss, trainer, X, y):
    with autograd.record():
        kept = [X.copyto(cpu(1))]
        for layer in layers:
            kept.append(layer(kept[-1].as_in_context(cpu())).copyto(cpu(1)))
        l = loss(kept[-1].as_in_context(cpu()), y)
    l.backward()
    trainer.step(len(X))
""",
    ),
]

CHECKS = {
    "check_fit": Answers(
        "fit",
        right=[HELPERS + program for program in RIGHT],
        wrong=[(hint, HELPERS + program) for hint, program in WRONG],
    )
}
