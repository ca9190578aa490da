"""Checks beyond the library itself: other processes, extras, a real GPU.

A check that cannot run says what is missing, and how to install it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

from d2lmini import gluon, nd
from d2lmini.cli.check import Check, CheckSkipped
from d2lmini.cli.files import environment

_PROGRAM = """
import mxnet as mx
print(mx.__version__, mx.nd.ones((2, 3)).sum().asscalar())
"""

_JOB = """
from d2lmini import kvstore, nd
kv = kvstore.create("dist_sync")
kv.init("x", nd.zeros((2,)))
total = nd.zeros((2,))
kv.pushpull("x", nd.ones((2,)) * (kv.rank + 1), out=total)
print(kv.num_workers, total.asnumpy().tolist())
"""


def needs(module: str, extra: str) -> None:
    """Raise CheckSkipped if `module` is not installed."""
    if importlib.util.find_spec(module) is None:
        raise CheckSkipped(f"{module} is not installed: pip install 'd2lmini[{extra}]'")


def _command(*words: str) -> str:
    """The output of `python -m d2lmini WORDS`; AssertionError if the command fails."""
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", *words],
        capture_output=True, text=True, timeout=100, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


def old_programs() -> str:
    """In a program, `import mxnet` imports d2lmini."""
    Path("old.py").write_text(_PROGRAM, encoding="utf-8")
    assert _command("run", "old.py") == "1.9.1 6.0\n"
    return "import mxnet gets d2lmini"


def processes() -> str:
    """Two processes compute a sum over MPI."""
    needs("mpi4py", "dist")
    Path("job.py").write_text(_JOB, encoding="utf-8")
    told = _command("launch", "-n", "2", "job.py")
    assert told.count("2 [3.0, 3.0]") == 2, told
    return "two sum up over MPI"


def widgets() -> str:
    """A widget is made, with its JavaScript and the picture beneath."""
    needs("anywidget", "lab")
    from d2lmini.widgets import Stepper

    stepper = Stepper(lambda: nd.ones((2,)) + 1)
    assert "render" in stepper.front._esm, "its JavaScript is not there"
    stepper.close()
    return "a Stepper and its JavaScript"


def figures() -> str:
    """matplotlib draws a curve."""
    needs("matplotlib", "lab")
    from d2lmini import d2l

    d2l.semilogy([1, 2], [1, 2], "x", "y")
    d2l.plt.close("all")
    return "matplotlib draws"


def onnx() -> str:
    """ONNX's own checker accepts the file of a net."""
    needs("onnx", "onnx")
    import onnx

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, activation="relu"), gluon.nn.Dense(2))
    net.initialize()
    onnx.checker.check_model(net.export_onnx("net.onnx", nd.ones((1, 4))), full_check=True)
    return "a net that ONNX's checker accepts"


def gpus() -> str:
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


CHECKS = [
    Check("old programs", old_programs),
    Check("processes", processes),
    Check("widgets", widgets),
    Check("figures", figures),
    Check("ONNX", onnx),
    Check("GPUs", gpus),
]
