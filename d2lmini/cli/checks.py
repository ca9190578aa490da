"""The checks of `d2lmini test`: each function, in this order, compares with an oracle of its own.

First the foundations (versions, files, NumPy's BLAS), then the library from the engine up. A check
returns its finding in a few words; a failure is an exception, and `CheckSkipped` says that the
object of the check is missing. `external_checks.py` has the checks that need an extra, a GPU, or
other processes.

>>> from d2lmini.cli.checks import CHECKS
>>> [check.name for check in CHECKS][:4]
['versions', 'files', 'BLAS', 'engine: schedules']
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

import d2lmini
from d2lmini import autograd, cpu, engine, gluon, nd, storage
from d2lmini.base import MXNetError
from d2lmini.cli import external_checks, files
from d2lmini.cli.check import Check, CheckSkipped


def versions() -> str:
    """Installed packages lie within the bounds that d2lmini's own metadata names."""
    try:
        required = importlib.metadata.requires("d2lmini") or []
    except importlib.metadata.PackageNotFoundError:
        raise CheckSkipped("d2lmini runs from its files, it is not installed") from None
    looked_at: dict[str, str] = {}
    for line in required:
        name, *bounds = re.split(r"(?=[<>])|,", line.split(";")[0].split("[")[0].strip())
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            assert "extra ==" in line, f"{line} is not installed"
            continue
        for bound in filter(None, bounds):
            assert _holds(version, bound), f"{name} {version} is installed, needed is {line}"
        looked_at[name] = version
    return ", ".join(f"{name} {looked_at[name]}" for name in ("numpy", "psutil", "threadpoolctl"))


def _holds(version: str, bound: str) -> bool:
    """True if the version is within the bound, as "2.4.6" in ">=2.0" or "<3". Numbers decide:
    "3.0rc1" counts as 3.0."""
    found, limit = (
        [int(n) for n in re.match(r"[\d.]*\d", text.lstrip("<>="))[0].split(".")]  # type: ignore[index]
        for text in (version, bound)
    )
    length = max(len(found), len(limit))
    found, limit = (numbers + [0] * (length - len(numbers)) for numbers in (found, limit))
    return found >= limit if bound.startswith(">=") else found < limit


def its_files() -> str:
    """Every file of the wheel is there, and unchanged."""
    try:
        recorded = importlib.metadata.files("d2lmini") or []
    except importlib.metadata.PackageNotFoundError:
        recorded = []
    ours = [file for file in recorded if file.parts[0] == "d2lmini"]
    if not ours or Path(str(ours[0].locate())).parts[:-1] == ():
        raise CheckSkipped("not installed from a wheel")
    for file in ours:
        if file.hash is None:
            continue  # Python's compiled files
        path = Path(str(file.locate()))
        assert path.is_file(), f"{path} is missing: install d2lmini anew"
        digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
        found = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert found == file.hash.value, f"{path} is not as it was packed"
    kinds = [sum(file.suffix == kind for file in ours) for kind in (".py", ".js", ".ipynb")]
    return "{} files of Python, {} of JavaScript, {} chapters".format(*kinds)


def blas() -> str:
    """Products of whole numbers are exact: builds for another processor have got them wrong."""
    rng = np.random.default_rng(0)
    for m, k, n in [(1, 7, 5), (64, 64, 64), (257, 129, 65), (300, 1000, 17)]:
        a, b = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, n))
        for dtype in ("float32", "float64"):
            found = nd.dot(nd.array(a, dtype=dtype), nd.array(b, dtype=dtype)).asnumpy()
            assert (found == a @ b).all(), f"{dtype}: ({m}, {k}) x ({k}, {n}) is wrong in NumPy"
    return "whole numbers multiply exactly"


# -- the engine ------------------------------------------------------------------------------------


def schedules() -> str:
    """Random programs of reads and writes give the same bits as line by line."""

    def values(seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        arrays = [nd.array(rng.normal(size=(8, 8))) for _ in range(6)]
        for _ in range(60):
            a, b, c = rng.integers(0, 6, 3)
            if rng.random() < 0.5:
                arrays[a][:] = (nd.dot(arrays[b], arrays[c])).tanh()
            else:
                arrays[a] += arrays[b] * 0.5
        return b"".join(array.asnumpy().tobytes() for array in arrays)

    for seed in range(12):
        with engine.use("naive"):
            expected = values(seed)
        with engine.use("threaded", workers=4, inline_below=0):
            assert values(seed) == expected, f"seed {seed}: other values than line by line"
    return "12 programs, 60 operations each, on 4 workers"


def orders() -> str:
    """Every legal order of a small program gives its values."""

    def program() -> object:
        x = nd.ones((2,))
        y, z = x * 2, x * 3
        x += 1
        return y + z, x

    found = engine.explore(program, reduced=False, seeds=5)
    assert found.wrong is None and found.orders > 1, str(found)
    return str(found).splitlines()[0]


def errors() -> str:
    """A wait raises a task's error, names both lines, and leaves the engine usable."""
    x = nd.random.normal(0, -1, shape=(2, 2))
    y = x + 1
    try:
        y.wait_to_read()
    except MXNetError as error:
        for words in ("scale must be 0 or more", "issued at", "noticed at"):
            assert words in str(error), str(error)
    else:
        raise AssertionError("no error was raised")
    assert (nd.ones((2, 2)) + 1).sum().asscalar() == 8
    return "raised at the wait, and the engine goes on"


def memory() -> str:
    """The memory of dropped arrays returns to the pool, to the byte."""
    ctx = cpu(9)  # a device with separate counters
    nd.waitall()
    before = storage.stats(ctx).live
    x = nd.ones((500, 500), ctx=ctx)
    nd.waitall()
    assert storage.stats(ctx).live == before + 1_000_000
    del x
    assert storage.stats(ctx).live == before
    return "live bytes return to where they were"


def random_numbers() -> str:
    """A seed gives the same numbers, on any worker and at any time."""

    def draw() -> bytes:
        d2lmini.random.seed(7)
        return (
            nd.concat(nd.random.uniform(shape=(999,)), nd.random.normal(shape=(999,)), dim=0)
            .asnumpy()
            .tobytes()
        )

    with engine.use("threaded", workers=3, inline_below=0):
        queued = draw()
    with engine.use("naive"):
        assert draw() == queued
    return "the same on the threaded engine and line by line"


# -- values ----------------------------------------------------------------------------------------

_LIKE_NUMPY = {
    "exp": np.exp, "tanh": np.tanh, "sqrt": lambda x: np.sqrt(x), "square": np.square,
    "log1p": np.log1p, "floor": np.floor, "transpose": np.transpose, "sum": lambda x: [np.sum(x)],
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), "sort": np.sort,
}  # fmt: skip


def operators() -> str:
    """Values equal NumPy's."""
    x = np.random.default_rng(1).uniform(0.1, 2, (37, 53)).astype("float32")
    for name, oracle in _LIKE_NUMPY.items():
        d2lmini.test_utils.assert_almost_equal(
            getattr(nd, name)(nd.array(x)), np.asarray(oracle(x))
        )
    image = np.random.default_rng(2).normal(size=(2, 3, 9, 9)).astype("float32")
    kernel = np.random.default_rng(3).normal(size=(4, 3, 3, 3)).astype("float32")
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, kernel)
    found = nd.Convolution(
        nd.array(image), nd.array(kernel), kernel=(3, 3), num_filter=4, no_bias=True
    )
    d2lmini.test_utils.assert_almost_equal(found, expected, rtol=1e-4, atol=1e-4)
    return f"{len(_LIKE_NUMPY) + 1} operators agree with NumPy"


def gradients() -> str:
    """Gradients equal difference quotients; second gradients, too."""
    x = np.linspace(0.2, 1.5, 6).reshape(2, 3)
    functions: list[Callable] = [
        nd.tanh, nd.log, nd.softmax, nd.square, lambda x: nd.dot(x, x.T), lambda x: x[1:] * x[:1],
    ]  # fmt: skip
    for function in functions:
        d2lmini.test_utils.check_numeric_gradient(function, [x], rtol=2e-2, atol=2e-3)
    v = nd.array([1.0, 2.0])
    v.attach_grad()
    with autograd.record():
        (first,) = autograd.grad(v**3, [v], create_graph=True)
    first.backward()
    assert v.grad.asnumpy().tolist() == [6, 12]
    return f"{len(functions)} by differences, one of second order"


def check_compiled() -> str:
    """A hybridized net gives the values of the eager net, forward and backward."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, activation="relu"), gluon.nn.MaxPool2D(), gluon.nn.Dense(5))
    net.initialize()
    X = nd.random.normal(shape=(3, 1, 12, 12))
    y = net(X)
    net.hybridize(static_alloc=True)
    d2lmini.test_utils.assert_almost_equal(net(X), y)
    with d2lmini.lazy():
        y = (X * 2 + 1).tanh()
    d2lmini.test_utils.assert_almost_equal(y, np.tanh(X.asnumpy() * 2 + 1))
    return "a convolutional net, and a lazy scope"


def round_trip() -> str:
    """Parameters and nets are the same after saving and loading."""
    arrays = {"weight": nd.random.normal(shape=(2, 3)), "n": nd.array([1, 2], dtype="int64")}
    nd.save("a.params", arrays)
    back = nd.load("a.params")
    assert all((back[k].asnumpy() == v.asnumpy()).all() for k, v in arrays.items())
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, activation="tanh"), gluon.nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = nd.ones((1, 4))
    y = net(x)
    net.export("net")
    again = gluon.SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    d2lmini.test_utils.assert_almost_equal(again(x), y)
    return ".params, and an exported net"


# -- training, on one device and on two ------------------------------------------------------------


def training() -> str:
    """Regression by DataLoader and Trainer finds the weights that made the data."""
    X = nd.random.normal(shape=(400, 2))
    y = nd.dot(X, nd.array([[2.0], [-3.4]])) + 4.2
    data = gluon.data.DataLoader(
        gluon.data.ArrayDataset(X, y), batch_size=20, shuffle=True, num_workers=2
    )
    net = gluon.nn.Dense(1)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss = gluon.loss.L2Loss()
    for _ in range(5):
        for Xb, yb in data:
            with autograd.record():
                l = loss(net(Xb), yb)
            l.backward()
            trainer.step(len(Xb))
    found = np.append(net.weight.data().asnumpy(), net.bias.data().asnumpy())
    assert np.abs(found - [2, -3.4, 4.2]).max() < 0.01, found
    return "100 steps find 3 numbers"


def devices() -> str:
    """Two virtual GPUs, half a batch each, find the gradient of the whole."""
    X = np.random.default_rng(5).normal(size=(8, 3)).astype("float32")

    def gradient(contexts: list) -> np.ndarray:
        net = gluon.nn.Dense(2, in_units=3)
        net.initialize("ones", ctx=contexts)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
        with autograd.record():
            losses = [net(x).tanh().sum() for x in gluon.utils.split_and_load(X, contexts)]
        for l in losses:
            l.backward()
        trainer.step(8)
        return net.weight.data(contexts[0]).asnumpy()

    alone = gradient([cpu()])
    with d2lmini.virtual_gpus(2) as gpus:
        d2lmini.test_utils.assert_almost_equal(gradient(list(gpus)), alone, rtol=1e-5, atol=1e-6)
    return "two virtual GPUs step as one device"


def profiler() -> str:
    """A trace has the operations, their waits, and a file that other programs can read."""
    with d2lmini.profile() as trace:
        nd.dot(nd.ones((50, 50)), nd.ones((50, 50))).asnumpy()
    trace.save("trace.json")
    events = json.loads(Path("trace.json").read_text(encoding="utf-8"))
    names = {e.get("name") for e in (events["traceEvents"] if isinstance(events, dict) else events)}
    assert {"dot", "asnumpy"} <= {str(name).split(" ")[0] for name in names}, names
    return f"{len(trace.operations)} operations, as JSON"


def chapters() -> str:
    """The chapters and their labs are there, and their Python parses."""
    found = sorted((files.originals() / "chapters").glob("*.ipynb"))
    assert found, f"none at {files.originals()}"
    cells = 0
    for path in (files.originals() / "chapters" / "labs").glob("*.py"):
        compile(path.read_text(encoding="utf-8"), path.name, "exec", dont_inherit=True)
    for path in found:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not source.lstrip().startswith("%"):
                compile(source, path.name, "exec", dont_inherit=True)
                cells += 1
        for picture in re.findall(r"\.\./img/([\w-]+\.svg)", path.read_text(encoding="utf-8")):
            assert (files.originals() / "img" / picture).is_file(), f"{path.name}: no {picture}"
    return f"{len(found)}, {cells} cells"


CHECKS = [
    Check("versions", versions),
    Check("files", its_files),
    Check("BLAS", blas),
    Check("engine: schedules", schedules),
    Check("engine: orders", orders),
    Check("engine: errors", errors),
    Check("memory", memory),
    Check("random numbers", random_numbers),
    Check("operators", operators),
    Check("gradients", gradients),
    Check("hybridize", check_compiled),
    Check("files of nets", round_trip),
    Check("training", training),
    Check("devices", devices),
    Check("profiler", profiler),
    Check("chapters", chapters),
    *external_checks.CHECKS,
]
