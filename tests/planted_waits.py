"""Random programs with hidden waits planted at known lines, for the tests of `lint_waits`.

    program = write(seed)
    program.text       source of a module
    program.planted    {line: kind of planted wait}
    run(program.text, path)

A program trains a little net and does this and that with arrays; most of it does not wait, some of
it waits and says so. Between, each kind of hidden wait is planted at least once in several
programs: bare, in a loop, in a function, a lambda, a comprehension, a method, a `try`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

HEAD = """\
import array, asyncio, bisect, copy, csv, functools, heapq, io, itertools, json, logging, math
import operator, os, pprint, string, struct, textwrap
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import vendor
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

#: A module that is installed as packages are: its lines are not the program's.
VENDOR = """\
def total(x):
    return float(x.sum())
def best(values):
    return max(values)
def describe(x):
    return f"{x}"
def call(f):
    return f()
"""

#: Kind -> expressions that wait and do not say so.
HIDDEN = {
    "truth of a comparison": [
        "1 if x.mean() > 0.5 else 2",
        "not (y.sum() < 3)",
        "(x.max() > 9) and 1",
        "x.sum() or 1",
        "bool(x.sum())",
        "any([x.sum() > 3])",
        "all([x.sum() > -9, y.sum() > 2])",
        "any(y[1])",
        "list(filter(None, [x.sum()]))",
        "[i for i in range(3) if y[0][1] > i]",
        "next(i for i in range(99) if not y[0][1] > i)",
        "list(itertools.takewhile(bool, [x.mean()]))",
        "operator.not_(x.sum())",
    ],
    "order of arrays": [
        "max(x[0][0], x[1][1])",
        "sorted([y[0][1], y[0][0]])",
        "min([x.sum(), y.sum()])",
        "min(x.sum(), 3.0)",
        "heapq.nlargest(1, [x.sum(), y.sum()])",
        "bisect.bisect([1, 2, 3], y[0][1])",
        "functools.reduce(max, [x.mean(), y.mean()])",
        "max({'a': x.sum(), 'b': y.sum()}.items(), key=lambda item: item[1])",
        "sorted([x.sum(), y.sum()], reverse=True)[0]",
    ],
    "a float": [
        "float(x.mean())",
        "0.5 * float(y[0][1])",
        "'%.3f' % x.norm()",
        "'{:.2f}'.format(float(x.mean()))",
        "f'{float(x.mean()):.3f}'",
        "math.sqrt(y.norm())",
        "math.isnan(x.sum())",
        "math.isclose(x.mean(), 0.5)",
        "math.floor(y.sum())",
        "complex(x.mean())",
        "round(float(x.mean()), 3)",
        "struct.pack('f', x.mean())",
        "array.array('f', [x.mean()])",
        "sum(map(float, x[0]))",
        "list(map(float, [x.mean(), y.mean()]))",
        "[float(value) for value in labels]",
        "json.dumps({'l': float(x.mean())})",
        "nd.array([float(x.mean())])",
        "np.float64(x.mean())",
        "dict(loss=float(x.mean()))",
    ],
    "an int": [
        "int(y.sum())",
        "int(x.argmax(axis=1)[0])",
        "'%d' % y.sum()",
        "words[int(x.argmax(axis=1)[0])]",
        "[words[int(i)] for i in labels]",
        "{0: 'a'}.get(int(labels[0]))",
        "np.zeros(int(labels.max()))",
    ],
    "printed": [
        "repr(x)",
        "str(y.sum())",
        "print(x[0], file=null)",
        "print('loss', x.mean(), file=null)",
        "print([x.mean()], file=null)",
        "print({'loss': x.mean()}, file=null)",
        "print(*x[0], file=null)",
        "null.write(str(x.mean()))",
        "pprint.pformat(x)",
        "json.dumps({'l': x.mean()}, default=str)",
        "'\\n'.join(map(str, [x, y]))",
        "csv.writer(null).writerow([x.mean()])",
    ],
    "formatted": [
        "f'loss {x.mean()}'",
        "f'{x.mean()!r}'",
        "'loss {}'.format(y[0])",
        "'%s' % x.mean()",
        "log.info('loss %s', x.mean())",
        "log.info('loss %.3f', x.mean())",
        "log.warning(f'{x.mean()}')",
        "string.Template('$a').substitute(a=x.mean())",
        "textwrap.fill(str(x.mean()))",
    ],
    "an index": [
        "words[y[0][1].astype('int32') % 8]",
        "list(range(nd.array([3], dtype='int64')))",
        "words[: nd.array([3], dtype='int32')]",
        "hex(nd.array([3], dtype='int32'))",
        "chr(nd.array([67], dtype='int32'))",
        "bytes(nd.array([3], dtype='int32'))",
        "operator.index(nd.array([3], dtype='int64'))",
    ],
    "in": ["3 in y", "99.0 in x", "3 in [x.sum()]", "[0.5, 1.0].count(y[0][1])"],
    "for NumPy": [
        "np.asarray(x)",
        "np.median(y)",
        "np.linalg.norm(np.array(x))",
        "np.float32(3) + np.stack([x[0]])",
        "np.isnan(x).any()",
        "np.allclose(x, y)",
        "np.array_equal(x, y)",
        "np.testing.assert_allclose(x, x)",
        "np.exp(x * 0)",
        "np.dot(np.ones((2, 4)), x)",
        "np.concatenate([x, y])",
        "np.histogram(x)",
        "np.std(x)",
        "np.unique(y)",
        "np.where(x > 0.5)",
        "np.sort(x)",
        "np.save(io.BytesIO(), x)",
        "np.array([x.mean(), y.mean()])",
        "np.copyto(np.zeros((4, 3)), x)",
        "np.eye(3)[labels.astype('int32')]",
        "nd.array([x.mean(), y.mean()])",
    ],
    "shared by DLPack": ["np.from_dlpack(x)", "np.from_dlpack(y)"],
    "read in a function of ours": [
        "(score.update([labels], [x]), score.get())",
        "gluon.utils.clip_global_norm([x * 1], 1.0)",
        "gluon.data.ArrayDataset(labels)",
        "metric.TopKAccuracy(2).update([labels], [x])",
    ],
    "read in record()": [
        "recorded(lambda: (x * 2).asnumpy())",
        "recorded(lambda: x.sum().asscalar())",
        "recorded(lambda: x.sum().item())",
        "recorded(lambda: x.tolist())",
        "recorded(lambda: float(x.sum()))",
    ],
    "in an installed package": [
        "vendor.total(x)",
        "vendor.best([x.sum(), y.sum()])",
        "vendor.describe(y)",
        "vendor.call(lambda: float(x.sum()))",
    ],
    "in a thread without a line of the program": [
        "list(ThreadPoolExecutor(1).map(float, [x.mean(), y.mean()]))",
        "ThreadPoolExecutor(1).submit(str, x).result()",
        "asyncio.run(asyncio.to_thread(float, x.mean()))",
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


def write_all() -> Program:
    """A program with every hidden wait and every plain statement once."""
    program = Program()
    for kind, expressions in HIDDEN.items():
        for expression in expressions:
            program.add("x, y, labels = x * 1, y * 1, labels * 1")
            program.add("@", kind, expression)
    for statement in PLAIN:
        program.add(statement)
    return program


def run(text: str, path: Path) -> None:
    """Write a program to `path` and run it in a namespace of its own."""
    packages = path.parent / "site-packages"
    packages.mkdir(exist_ok=True)
    (packages / "vendor.py").write_text(VENDOR)
    path.write_text(text)
    sys.modules.pop("vendor", None)
    sys.path.insert(0, str(packages))
    try:
        exec(compile(text, str(path), "exec"), {"__name__": "planted", "folder": str(path.parent)})
    finally:
        sys.path.remove(str(packages))
