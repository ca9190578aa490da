"""One file declares an op and one row tests it: the guide's module and its row, put to every test
that goes by the table of rows, and run eagerly, recorded, compiled, from files and on a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import cuda_cpp

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-an-op.md").read_text(encoding="utf-8")
MODULE = re.search(r"```python\n# my_ops\.py\n(.*?)```", PAGE, re.S)[1]  # type: ignore[index]
ROW = re.search(r"```python\n(Case\(.*?)```", PAGE, re.S)[1]  # type: ignore[index]

#: A process of its own, whose registry has one op more. The module is imported before the tests
#: collect the rows, to which its row was added.
BY_ROWS = f"""
import sys
import numpy as np
import pytest
from op_rows import elemwise
from op_rows.case import Case, draw
import my_ops
elemwise.ROWS.append({ROW.strip()})
sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "-k", "bump or every_op or say_why",
                      *sys.argv[1:]]))
"""

EVERY_WAY = """
import numpy as np
from fakes.cuda import fake_cuda
from d2lmini import autograd, engine, gpu, nd
from d2lmini.cuda import module
from d2lmini.cuda.device import logical_gpus
from my_ops import Bumps

def answers(ctx, hybridized):
    net = Bumps()
    if hybridized:
        net.hybridize()
    x = nd.array([[-1, 0, 2], [0.25, 0.5, 1]], ctx=ctx)
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
    return y.asnumpy(), x.grad.asnumpy()

with fake_cuda(1, seed=1) as fake, module.using(fake), logical_gpus(1):
    want = answers(None, False)
    for ctx, hybridized in ((None, True), (gpu(0), False), (gpu(0), True)):
        for a, b in zip(answers(ctx, hybridized), want):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    engine.waitall()
"""

TO_ONNX = """
import numpy as np
import onnxruntime
from d2lmini import nd
from my_ops import net, x
net.export_onnx("bumps.onnx", x)
session = onnxruntime.InferenceSession("bumps.onnx")
(y,) = session.run(None, {session.get_inputs()[0].name: x.asnumpy()})
np.testing.assert_allclose(y, net(x).asnumpy(), rtol=1e-5)
"""


def run(code: str, folder: Path, *args: str) -> str:
    """What a program prints that can import the guide's module; an error if it fails."""
    (folder / "my_ops.py").write_text(MODULE, encoding="utf-8")
    (folder / "main.py").write_text(code, encoding="utf-8")
    places = [folder, ROOT, *(ROOT / name for name in ("tests", "tests/tools", "chapters"))]
    done = subprocess.run(
        [sys.executable, "main.py", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_its_row_puts_it_to_every_test_of_the_table(tmp_path):
    names = "test_ops test_autograd_ops test_ops_cupy test_devices test_export_mxnet".split()
    said = run(
        BY_ROWS,
        tmp_path,
        *[str(path) for name in names for path in (ROOT / "tests").rglob(f"{name}.py")],
    )
    assert int(re.search(r"(\d+) passed", said)[1]) >= 8, said  # type: ignore[index]


@pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")
def test_it_runs_on_a_gpu_as_on_the_cpu(tmp_path):
    run(EVERY_WAY, tmp_path)


def test_its_file_runs_in_onnx_runtime(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    run(TO_ONNX, tmp_path)
