"""`d2lmini test`: does the library, as it is installed here, work on this machine?

The command is for a wheel, a new machine, another build of NumPy. Each check compares with an
oracle of its own, from the foundations up, and takes a moment; a check that cannot run here says
what is missing. In a clone, `make test` runs all tests.

>>> from d2lmini.cli.selftest import CHECKS
>>> CHECKS[3]()
'12 programs, 60 operations each, on 4 workers'
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import re
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from d2lmini import autograd, engine, nd


class CheckSkipped(Exception):
    """A check cannot run here: the message says what is missing."""


def add_to(commands: Any) -> None:
    """Declare `test`."""
    parser = commands.add_parser(
        "test",
        help="check the installed library on this machine",
        description="Check the library as it is installed here, in some seconds: versions, files, "
        "NumPy's BLAS, the engine, a net, GPUs.",
    )
    parser.set_defaults(do=test)


def test(options: argparse.Namespace) -> int:
    """Run the checks, a line each; 0 if none failed, else 1."""
    results = []
    for check in CHECKS:
        try:
            said = check()
            engine.waitall()
            result = "ok"
        except CheckSkipped as why:
            result, said = "not run", str(why)
        except Exception as problem:
            result, said = "FAILED", "".join(traceback.format_exception(problem)).rstrip()
        results.append(result)
        print(f"{result:<8} {check.__name__.removeprefix('check_'):<10} {said}", flush=True)
    kinds = {"ok": "passed", "FAILED": "failed", "not run": "not run"}
    print(", ".join(f"{results.count(kind)} {words}" for kind, words in kinds.items()))
    return int("FAILED" in results)


# -- the installation ------------------------------------------------------------------------------


def _installed() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("d2lmini")
    except importlib.metadata.PackageNotFoundError:
        raise CheckSkipped("d2lmini runs from its files, it is not installed") from None


def check_versions() -> str:
    """Installed packages lie within the bounds that d2lmini's own metadata names."""
    needed = []
    for line in _installed().requires or []:
        is_extra = "extra ==" in line
        name = re.split(r"[^\w.-]", line)[0]
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            assert is_extra, f"{line} is not installed"
            continue
        for bound, limit in re.findall(r"(>=|<)([\d.]+)", line.split(";")[0]):
            holds = (_numbers(version) >= _numbers(limit)) == (bound == ">=")
            assert holds, f"{name} {version} is installed, needed is {line}"
        needed += [] if is_extra else [f"{name} {version}"]
    return ", ".join(needed)


def _numbers(version: str) -> list[int]:
    """The numbers of a version, to compare: zeros at the end do not count, nor does a suffix.

    >>> _numbers("2.4.6") > _numbers("2.4"), _numbers("3.0rc1") == _numbers("3")
    (True, True)
    """
    [numbers] = re.findall(r"^\d+(?:\.\d+)*", version)
    return [int(number) for number in re.sub(r"(\.0+)*$", "", numbers).split(".")]


def check_files() -> str:
    """Every file of the wheel is there, and unchanged."""
    ours = [file for file in _installed().files or [] if file.parts[0] == "d2lmini"]
    if not ours:
        raise CheckSkipped("not installed from a wheel")
    for file in ours:
        if file.hash is None:
            continue  # Python's compiled files
        path = Path(str(file.locate()))
        assert path.is_file(), f"{path} is missing: install d2lmini anew"
        digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
        found = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert found == file.hash.value, f"{path} is not as it was packed"
    return f"{len(ours)}, as they were packed"


# -- the library -----------------------------------------------------------------------------------


def check_blas() -> str:
    """Products of whole numbers are exact: builds for another processor have got them wrong."""
    rng = np.random.default_rng(0)
    for m, k, n in [(1, 7, 5), (64, 64, 64), (257, 129, 65), (300, 1000, 17)]:
        a, b = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, n))
        for dtype in ("float32", "float64"):
            found = nd.dot(nd.array(a, dtype=dtype), nd.array(b, dtype=dtype)).asnumpy()
            assert (found == a @ b).all(), f"{dtype}: ({m}, {k}) x ({k}, {n}) is wrong in NumPy"
    return "whole numbers multiply exactly"


def check_engine() -> str:
    """Random programs of reads and writes give the same bits as line by line."""
    for seed in range(12):
        with engine.use("naive"):
            expected = _run_program(seed)
        with engine.use("threaded", workers=4, inline_below=0):
            assert _run_program(seed) == expected, f"seed {seed}: other values than line by line"
    return "12 programs, 60 operations each, on 4 workers"


def _run_program(seed: int) -> bytes:
    """The values that a random program of 60 operations computes."""
    rng = np.random.default_rng(seed)
    arrays = [nd.array(rng.normal(size=(8, 8))) for _ in range(6)]
    for _ in range(60):
        a, b, c = rng.integers(0, 6, 3)
        if rng.random() < 0.5:
            arrays[a][:] = nd.dot(arrays[b], arrays[c]).tanh()
        else:
            arrays[a] += arrays[b] * 0.5
    return b"".join(array.asnumpy().tobytes() for array in arrays)


def check_net() -> str:
    """A hybridized net gives the values and gradients of the eager net; exported and loaded again,
    it gives the same values."""
    from d2lmini import gluon

    net, x = gluon.nn.HybridSequential(), nd.random.normal(shape=(3, 1, 12, 12))
    net.add(gluon.nn.Conv2D(4, 3, activation="relu"), gluon.nn.MaxPool2D(), gluon.nn.Dense(5))
    net.initialize()

    def train() -> list[np.ndarray]:
        with autograd.record():
            y = net(x)
        y.backward()
        return [y.asnumpy(), *(p.grad().asnumpy() for p in net.collect_params().values())]

    eager = train()
    net.hybridize(static_alloc=True)
    compiled = train()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/net"
        net.export(path)
        loaded = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
    found = [*compiled, loaded(x).asnumpy()]
    for expected, values in zip([*eager, eager[0]], found, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    return "compiled as eager, with gradients; loaded as saved"


def check_gpus() -> str:
    """A real GPU gives the CPU's values."""
    from d2lmini.device import devices

    real = [device for device in devices.gpus() if device.kind == "cuda"]
    if not real:
        raise CheckSkipped("no GPU is to be found: see d2lmini info")
    x = np.random.default_rng(0).normal(size=(200, 300)).astype("float32")
    for device in real:
        a = nd.array(x, ctx=device.ctx)
        found = nd.dot(a, a.T).tanh().asnumpy()
        assert np.allclose(found, np.tanh(x @ x.T), atol=1e-3), f"{device} computes wrong values"
    return ", ".join(map(str, real))


CHECKS = [check_versions, check_files, check_blas, check_engine, check_net, check_gpus]
