"""Answers to the exercise of the chapter on asynchronous computation."""

from __future__ import annotations

from answers import Answers

CHECKS = {
    "check_quiet": Answers(
        name="epoch",
        right=[
            # Reads two scalars after the loop.
            """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y).mean()
        l.backward()
        trainer.step(1)
        losses.append(l)
    losses = nd.concat(*losses, dim=0)
    return losses.mean().asscalar(), losses.max().asscalar()
""",
            # Running results instead of a list.
            """
def epoch(net, trainer, loss, batches):
    total, largest, n = nd.zeros((1,)), nd.zeros((1,)), 0
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(X.shape[0])
        total += l.mean()
        largest = nd.maximum(largest, l.mean())
        n += 1
    return float(total) / n, float(largest)
""",
            # A NumPy array of two, and one wait.
            """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(nd.mean(l))
    losses = nd.stack(*losses)
    return nd.concat(losses.mean().reshape((1,)), losses.max().reshape((1,)), dim=0).asnumpy()
""",
            # All batches first, and a list at the end.
            """
def epoch(net, trainer, loss, batches):
    def step(batch):
        X, y = batch
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        return l.mean()

    values = nd.stack(*map(step, list(batches))).asnumpy().ravel().tolist()
    return [sum(values) / len(values), max(values)]
""",
            # The losses stand in one array; the update is in two calls.
            """
def epoch(net, trainer, loss, batches):
    batches = list(batches)
    losses = nd.zeros((len(batches),))
    for i, (X, y) in enumerate(batches):
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.allreduce_grads()
        trainer.update(len(X))
        losses[i] = l.mean()
    return losses.mean().asscalar(), losses.max().asscalar()
""",
            # A waitall after the loop, and then one value which is read at once.
            """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
    nd.waitall()
    values = [l.asscalar() for l in losses]
    return float(sum(values) / len(values)), float(max(values))
""",
        ],
        wrong=[
            (
                "polling",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
        while engine.stats().pending:
            pass
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            (
                "waiting",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
        done = threading.Event()
        engine.push(done.set, reads=[losses[-1]])
        done.wait()
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            # Looks at a list until a pushed function has filled it.
            (
                "waiting",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
        seen = []
        engine.push(lambda seen=seen: seen.append(1), reads=[losses[-1]])
        while not seen and len(losses) < 6:
            pass
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            (
                "hidden",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(float(l.mean()))
    return sum(losses) / len(losses), max(losses)
""",
            ),
            (
                "hidden",
                """
def epoch(net, trainer, loss, batches):
    total, largest, n = 0, nd.zeros((1,)), 0
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y).mean()
        l.backward()
        trainer.step(1)
        total, n = total + l, n + 1
        if l > largest:
            largest = l
    return total.asscalar() / n, largest.asscalar()
""",
            ),
            (
                "reading",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean().asscalar())
    return sum(losses) / len(losses), max(losses)
""",
            ),
            (
                "reading",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
    values = [l.asscalar() for l in losses]
    return sum(values) / len(values), max(values)
""",
            ),
            (
                "waitall",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
        nd.waitall()
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            (
                "weights",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        losses.append(l.mean())
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            (
                "weights",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in reversed(list(batches)):
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            (
                "numbers",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
    losses = nd.concat(*losses, dim=0)
    return losses.mean(), losses.max()
""",
            ),
            (
                "mean",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.max()), float(losses.mean())
""",
            ),
            (
                "largest",
                """
def epoch(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l)
    losses = nd.stack(*losses).asnumpy()
    return float(losses.mean()), float(losses.max())
""",
            ),
            ("two", "def epoch(net, trainer, loss, batches):\n    pass\n"),
            ("two", "def epoch(net, trainer, loss, batches):\n    return 0.5\n"),
            ("numbers", "def epoch(net, trainer, loss, batches):\n    return 0.5, 'much'\n"),
            ("weights", "def epoch(net, trainer, loss, batches):\n    return 0.5, 2.0\n"),
            # No function of the engine: the program looks at a list.
            (
                "weights",
                """
def epoch(net, trainer, loss, batches):
    seen = []
    for X, y in batches:
        l = loss(net(X), y).mean()
        engine.push(lambda l=l: seen.append(1), reads=[l])
        while len(seen) < 1:
            pass
    return 0.5, 2.0
""",
            ),
        ],
    ),
}
