"""Exported nets between d2lmini and the real MXNet 1.9.1, in both directions (`make test-mxnet`):
`SymbolBlock.imports` and `sym.load` with `bind` give what the other library's net gave.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_nets import NETS, read, write

import d2lmini as mx

MXNET = os.environ.get("D2LMINI_MXNET_PYTHON")
pytestmark = pytest.mark.skipif(
    not MXNET, reason="D2LMINI_MXNET_PYTHON does not name an interpreter with MXNet"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Any) -> tuple[Path, Path]:
    """(what d2lmini wrote, what MXNet wrote), each with what it read of the other."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    write(mx, str(here))
    program = Path(__file__).parent / "tools" / "export_nets.py"
    done = subprocess.run(
        [str(MXNET), str(program), str(there), str(here)],
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    read(mx, str(there), str(here))
    return here, there


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("reader", ["d2lmini", "MXNet"])
def test_the_other_library_computes_the_same(name: str, reader: str, folders: Any):
    here, there = folders
    reads, wrote = (here, there) if reader == "d2lmini" else (there, here)
    with np.load(wrote / f"{name}.npz") as expected, np.load(reads / f"{name}.read.npz") as got:
        outputs = sorted(key for key in expected.files if key.startswith("out"))
        assert len(got.files) == 2 * len(outputs)
        for kind in ("block", "bound"):
            for key in outputs:
                y = got[key.replace("out", kind)]
                assert y.shape == expected[key].shape
                np.testing.assert_allclose(y, expected[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NETS)
def test_both_write_the_same_parameters(name: str, folders: Any):
    ours, theirs = (mx.nd.load(str(f / f"{name}-0000.params")) for f in folders)
    assert sorted(shapeless(k) for k in ours) == sorted(shapeless(k) for k in theirs)
    assert sorted(v.shape for v in ours.values()) == sorted(v.shape for v in theirs.values())


def shapeless(key: str) -> str:
    """The key without the number of the block, which counts on in a process."""
    kind, _, rest = key.partition(":")
    return kind + ":" + "".join(c for c in rest if not c.isdigit())
