"""Programs that write between forward and backward: gradients are those of the values recorded.

Each program runs twice in one mode (eager, hybridized, static, mirrored, lazy, checkpointed) and
place (engines, bulk segments, a simulated GPU): as it stands, and so that no write can matter.
It then feeds copies (`use`) and hands out copies of results (`out`).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

import d2lmini
from d2lmini import autograd, engine, gluon, gpu, kv, nd, virtual_gpus
from d2lmini.base import MXNetError
from d2lmini.gluon import nn

MODES: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "lazy": None,
    "hybridized": {},
    "static": {"static_alloc": True, "static_shape": True},
    "mirror": {"backward_do_mirror": True},
    "checkpoint": None,
}


@contextmanager
def _on_a_gpu() -> Iterator[None]:
    with virtual_gpus(1), gpu(0):
        yield


PLACES: tuple[Callable[[], Any], ...] = (
    lambda: engine.use("threaded", workers=2),
    lambda: engine.use("threaded", workers=2, inline_below=0),
    lambda: engine.use("naive"),
    lambda: engine.bulk(8),
    _on_a_gpu,
)

#: Functions of two arrays (N, M): what they save are inputs, outputs, both or neither.
FUNCTIONS = (
    "a * b", "(a * 2) * b", "a * a + b", "F.relu(a) * b", "F.tanh(a) + b * 3", "F.exp(a / 8) - b",
    "F.sigmoid(a) * F.sigmoid(b)", "F.dot(a, b, transpose_b=True)", "F.softmax(a) * b",
    "F.broadcast_mul(a, F.sum(b, axis=1, keepdims=True))", "F.concat(a, b * a, dim=0)",
    "F.slice_axis(a, axis=0, begin=0, end=1) * F.square(F.slice_axis(b, axis=0, begin=1, end=2))",
    "F.FullyConnected(a, b, no_bias=True, num_hidden=4)", "F.maximum(a, b) * a", "F.abs(a) * b",
    "F.reshape(F.FullyConnected(a, b, no_bias=True, num_hidden=4), shape=(-1,))",
    "F.stack(a, b * b, axis=0)", "F.where(a > 0, a * b, b)", "F.clip(a * b, -2, 2) * a",
    "F.LayerNorm(a, F.sum(b, axis=0), F.sum(b * a, axis=0))", "F.sqrt(F.abs(a) + 1) / (b * b + 1)",
    "F.sum(a * b, axis=0)", "F.max(a, axis=1)", "F.take(a, F.argmax(b, axis=0)) * 2",
)  # fmt: skip

#: Writes into an array `x` of shape (4, 3) or of any shape.
WRITES = (
    "x[:] = {n}", "x[1:3] = {n}", "x[0] = {n}", "x += {n}", "x *= {n}", "x[-1:] = {n}",
    "x[:, 1] = {n}", "x[1][:] = {n}", "x.reshape((-1,))[0:2] = {n}", "x.detach()[0:1] = {n}",
    "nd.full(x.shape, {n}).copyto(x)", "nd.exp(nd.full(x.shape, 2), out=x)", "x[:] = x * {n}",
    "nd.random.uniform(shape=x.shape, out=x)", "x[[0, 1]] = {n}", "write_by_task(x, {n})",
    "pull(x, {n})", "nd.sgd_update(x, nd.full(x.shape, {n}), lr=1, wd=0, out=x)", "x[3:] = {n}",
)  # fmt: skip


def draw(seed: int) -> str:
    """A program of operations."""
    return "\n".join(_operations(random.Random(seed))) + "\n"


def _operations(rng: random.Random) -> list[str]:
    lines, arrays, inner = [], [], []
    for i in range(rng.randint(2, 4)):
        name = f"x{i}"
        kind = rng.choice(("leaf", "leaf", "constant", "view", "row"))
        values = f"values({rng.randint(0, 99)}, (4, 3))"
        if kind == "view":
            lines.append(f"b{i} = nd.concat({values}, {values}, dim=0); {name} = b{i}[4:8]")
            inner.append(f"b{i}")
        elif kind == "row":
            lines.append(f"b{i} = nd.stack({values}, {values}); {name} = b{i}[1]")
            inner.append(f"b{i}[0]")
        else:
            lines.append(f"{name} = {values}")
        if kind == "leaf" or not arrays:
            lines.append(f"{name}.attach_grad({rng.choice(('', '', repr('add')))})")
            inner.append(f"{name}.grad")
        arrays.append(name)
    leaves = [line.split(".")[0] for line in lines if "attach_grad" in line]
    heads: list[str] = []
    results: list[str] = []
    for i in range(rng.randint(1, 4)):
        f = rng.choice(FUNCTIONS)
        a = rng.choice([*leaves, *arrays, *(results if "FullyC" not in f else ())])
        lines.append(f"f{i} = block(lambda F, a, b: {f})")
        lines.append(
            f"with autograd.record(): y{i} = out(f{i}(use({a}), use({rng.choice(leaves)})))"
        )
        heads.append(f"y{i}")
        if rng.random() < 0.4 and "shape=(-1,)" not in f:
            fresh = f"z{i}"
            lines.append(f"with autograd.record(): {fresh} = out(use(y{i}).sum() * use({a}))")
            heads.append(fresh)
            results.append(fresh)
        for _ in range(rng.randint(0, 2)):
            lines.append(_write(rng, [*arrays, *arrays, *inner, *heads]))
    if rng.random() < 0.3:  # second order
        head, leaf = rng.choice(heads), rng.choice(leaves)
        lines.append(f"g = derivative({head}, {leaf})")
        lines.append(_write(rng, [*arrays, *inner, *heads]))
        lines.append("if g is not None: backward(g.sum())")
        lines += [f"keep({x}.grad)" for x in leaves]
        return lines
    rng.shuffle(heads)
    for head in heads:
        retain = rng.random() < 0.3
        given = rng.choice(("", "", f", values(7, {head}.shape)", f", {leaves[0]}.grad"))
        if "grad" in given:
            given = given if head.startswith("z") else ""
        lines.append(f"backward({head}{given}, retain={retain})")
        lines += [f"keep({x}.grad)" for x in leaves]
        if rng.random() < 0.6:
            lines.append(_write(rng, [*arrays, *inner, *heads]))
        if retain:
            lines.append(f"backward({head}, retain={rng.random() < 0.3})")
            lines += [f"keep({x}.grad)" for x in leaves]
    return lines


def _write(rng: random.Random, names: list[str]) -> str:
    write = rng.choice(WRITES).format(n=rng.choice((0, 2, 5, 50)))
    return f"write({rng.choice(names)}, lambda x: {write.replace(' = ', ' <- ')!r})"


@contextmanager
def _nothing_to_do() -> Iterator[None]:
    """A scope for gradients that may not exist: of constants, or of what is used up."""
    try:
        yield
    except MXNetError as error:
        text = str(error)
        if not any(words in text for words in ("unreachable", "no inputs", "not in a computation")):
            raise


class Run:
    """The names that a program uses, in one mode; `apart`: so that no write can matter."""

    def __init__(self, mode: str, apart: bool):
        self.mode, self.flags = mode, MODES[mode]
        self.apart = apart
        self.kept: list[np.ndarray] = []
        self.leaves: list[Any] = []

    def names(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in dir(self) if name[0] != "_"}
        return {
            "nd": nd,
            "nn": nn,
            "gluon": gluon,
            "autograd": autograd,
            "init": d2lmini.init,
            **own,
        }

    def values(self, seed: int, shape: Any) -> Any:
        return nd.array(np.random.RandomState(seed).randint(-3, 4, shape))

    def block(self, f: Any) -> Any:
        if self.mode == "checkpoint":
            return lambda a, b: autograd.checkpoint(lambda a, b: f(nd, a, b), a, b)
        net = nn.HybridLambda(f)
        self.hybridize(net)
        return net

    def hybridize(self, net: Any) -> None:
        if self.flags is not None:
            net.hybridize(**self.flags)

    def use(self, x: Any) -> Any:
        return x.copy() if self.apart else x

    out = use

    def write(self, x: Any, how: Any) -> None:
        if not x.size or (x.ndim == 0) or (len(x) < 4 and "[" in how(0)):
            x[:] = 7
            return
        text = how(0).replace(" <- ", " = ")
        if x.ndim < 2 and ("[:, 1]" in text or "[1][:]" in text):
            text = "x[:] = 7"
        exec(text, {**self.names(), "x": x})

    def write_by_task(self, x: Any, n: float) -> None:
        x.wait_to_read()
        chunk = x._chunk
        begin = x._offset or 0

        def fill() -> None:
            chunk.data.reshape(-1)[begin : begin + x.size] = n

        engine.push(fill, reads=[x], writes=[x])

    def pull(self, x: Any, n: float) -> None:
        store = kv.create("local")
        store.init("x", nd.full(x.shape, n))
        store.pull("x", out=x)

    def backward(self, y: Any, g: Any = None, retain: bool = False) -> None:
        if y._node is not None and y._node[0].parents is not None:
            with _nothing_to_do():
                y.backward(g, retain_graph=retain)

    def derivative(self, y: Any, x: Any) -> Any:
        with _nothing_to_do():
            return autograd.grad(y, [x], create_graph=True)[0]

    def keep(self, x: Any) -> None:
        self.kept.append(x.asnumpy())

    def run(self, text: str) -> list[np.ndarray]:
        self.scope: dict[str, Any] = self.names()
        d2lmini.random.seed(1)
        np.random.seed(1)
        exec(text, self.scope)
        return self.kept


def run(text: str, mode: str, apart: bool) -> list[np.ndarray]:
    """What the program keeps."""
    with warnings.catch_warnings(), d2lmini.lazy() if mode == "lazy" else nullcontext():
        warnings.simplefilter("ignore", UserWarning)  # that a gradient ends at what is used up
        return Run(mode, apart).run(text)


def check(seed: int) -> bool:
    """AssertionError if a gradient is not that of the values which were recorded."""
    text = draw(seed)
    mode = list(MODES)[seed % len(MODES)]
    with PLACES[seed // len(MODES) % len(PLACES)]():
        right, found = run(text, mode, True), run(text, mode, False)
        engine.waitall()
    assert len(right) == len(found)
    for i, (a, b) in enumerate(zip(right, found)):
        room = 1e-5 * max(1.0, np.abs(a).max(initial=0))  # sums lose a share of the largest
        np.testing.assert_allclose(b, a, 1e-5, room, err_msg=f"{mode}, kept {i}\n{text}")
    return False
