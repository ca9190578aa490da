"""Random programs with hidden waits planted at known lines, for the tests of `lint_waits`.

    program = write(seed)
    program.text       source of a module; run it in a namespace of its own that has a `folder`
    program.planted    {line: kind of planted wait}

A program trains a little net and does this and that with arrays; most of it does not wait, some of
it waits and says so. Between, each kind of hidden wait is planted at least once in several
programs: bare, in a loop, in a function, a lambda, a comprehension, a method, a `try`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HEAD = """\
import copy, io, logging, os
import numpy as np
from d2lmini import autograd, gluon, metric, nd
x = nd.random.uniform(shape=(4, 3))
y = nd.arange(12).reshape((4, 3))
labels = nd.array([0, 1, 2, 0])
words = list("abcdefgh")
net = gluon.nn.Dense(3, in_units=3)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
score = metric.Accuracy()
log = logging.Logger("planted")
null = io.StringIO()
log.addHandler(logging.StreamHandler(null))
log.setLevel("INFO")
"""

#: Kind -> expressions that wait and do not say so.
HIDDEN = {
    "truth of a comparison": [
        "1 if x.mean() > 0.5 else 2",
        "not (y.sum() < 3)",
        "(x.max() > 9) and 1",
    ],
    "order of arrays": [
        "max(x[0][0], x[1][1])",
        "sorted([y[0][1], y[0][0]])",
        "min([x.sum(), y.sum()])",
    ],
    "a float": ["float(x.mean())", "0.5 * float(y[0][1])", "'%.3f' % x.norm()"],
    "an int": ["int(y.sum())", "int(x.argmax(axis=1)[0])"],
    "printed": ["repr(x)", "str(y.sum())", "print(x[0], file=null)"],
    "formatted": ["f'loss {x.mean()}'", "'loss {}'.format(y[0])", "log.info('loss %s', x.mean())"],
    "an index": ["words[y[0][1].astype('int32')]", "list(range(nd.array([3], dtype='int64')))"],
    "in": ["3 in y", "99.0 in x"],
    "for NumPy": [
        "np.asarray(x)",
        "np.median(y)",
        "np.linalg.norm(np.array(x))",
        "np.float32(3) + np.stack([x[0]])",
    ],
    "shared by DLPack": ["np.from_dlpack(x)", "np.from_dlpack(y)"],
    "a mask": ["nd.contrib.boolean_mask(x, y[:, 0] > 2)", "nd.contrib.boolean_mask(y, labels)"],
    "read in a function of ours": [
        "(score.update([labels], [x]), score.get())",
        "gluon.utils.clip_global_norm([x * 1], 1.0)",
        "gluon.data.ArrayDataset(labels)",
    ],
    "read in record()": [
        "recorded(lambda: (x * 2).asnumpy())",
        "recorded(lambda: x.sum().asscalar())",
    ],
}

#: What does not wait, or says that it does.
PLAIN = [
    "x = x * 0.5 + 0.25",
    "y = nd.where(x > 0.5, y, y + 1)",
    "mask = x > y",
    "x[1:3] = 0.5",
    "z = x[0]",
    "z = x[nd.array([0, 2])]",
    "z = [row * 2 for row in x]",
    "a, b, *rest = y",
    "n = len(x) + x.shape[1] + y.size",
    "z = nd.dot(x, y.T)",
    "z = x.copy()",
    "z = copy.copy(x)",
    "z = copy.deepcopy(y)",
    "known = {x: 1, y: 2}[x]",
    "same = x is y or x is None",
    "z = x.reshape((3, 4)).T",
    "z = x.as_in_context(x.context)",
    "z = net(x)",
    "score.reset()",
    "text = f'{x.shape} {y.dtype}'",
    "h = x.asnumpy()",
    "h = float(x.mean().asscalar())",
    "h = y[0][1].item()",
    "h = y.tolist()",
    "h = np.median(x.asnumpy())",
    "nd.waitall()",
    "x.wait_to_read()",
    "y.wait_to_write()",
    "nd.save(os.path.join(folder, 'x'), x)",
    "net.save_parameters(os.path.join(folder, 'net'))",
    "h = 3 in y.asnumpy()",
    "print(x.asnumpy()[0], file=null)",
    "if (x.sum() > 3).asscalar():\n    y = y + 1",
    "with autograd.record():\n    l = loss_of(net(x), labels)\nl.backward()\ntrainer.step(4)",
]

#: Where a hidden wait stands: "@" is it.
PLACES = [
    "@",
    "kept = @",
    "for _ in range(3):\n    @",
    "def here():\n    return @\nhere()",
    "def inner(f):\n    return f()\ninner(lambda: @)",
    "kept = [@ for _ in range(2)]",
    "class Holder:\n    def look(self):\n        return @\nHolder().look()",
    "try:\n    @\nfinally:\n    z = x + 1",
    "if (@, True)[1]:\n    z = x + 1",
    "with autograd.pause():\n    @",
]

RECORDED = """\
def recorded(f):
    with autograd.record():
        return f()
"""


@dataclass
class Program:
    """A program, and the lines where it waits and does not say so."""

    text: str = HEAD + RECORDED
    planted: dict[int, str] = field(default_factory=dict)

    def add(self, lines: str, kind: str | None = None, expression: str = "") -> None:
        for line in lines.split("\n"):
            if kind is not None and "@" in line:
                line = line.replace("@", expression)
                self.planted[self.text.count("\n") + 1] = kind
            self.text += line + "\n"


def write(seed: int) -> Program:
    """A program with 30 plain statements and the kinds of hidden waits in random order, about one
    in four of them left out."""
    rng = random.Random(seed)
    program = Program()
    todo: list[str | None] = [None] * 30
    todo += [kind for kind in HIDDEN if rng.random() < 0.75]
    rng.shuffle(todo)
    for kind in todo:
        if kind is None:
            program.add(rng.choice(PLAIN))
        else:
            program.add(rng.choice(PLACES), kind, rng.choice(HIDDEN[kind]))
    return program
