"""Every layer, cell and loss on a GPU of the fake, in a random schedule, equals the CPU's.

The rows are those of `gluon_rows/`: forward and backward, in training and not. What is drawn at
random is left out, for a GPU draws other numbers.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from fakes.cuda import fake_cuda
from gluon_rows import loss, nn, rnn
from gluon_rows.runner import Row, examine_here

from d2lmini import engine, gpu
from d2lmini.device.cuda import module
from d2lmini.device.cuda.device import logical_gpus

RANDOM = ("Dropout", "dropout", "Zoneout", "zoneout", "rrelu")
ROWS = [
    row
    for row in (*nn.ROWS, *rnn.ROWS, *loss.ROWS)
    if not any(word in row.build + row.call for word in RANDOM)
]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_gpu_says_what_the_cpu_says(row: Row):
    want = examine_here(row)
    seed = zlib.crc32(row.id.encode())
    with fake_cuda(1, seed=seed) as fake, module.using(fake), logical_gpus(1):
        with gpu(0):
            got = examine_here(row)
        engine.current.wait_idle("the end of the test")
    assert got.keys() == want.keys()
    assert str(got.pop("about")) == str(want.pop("about"))
    half = row.dtype == "float16"
    for key, value in want.items():
        assert (got[key].shape, got[key].dtype) == (value.shape, value.dtype), key
        np.testing.assert_allclose(
            got[key], value, rtol=5e-3 if half else row.rtol, atol=5e-3 if half else row.atol,
            err_msg=f"{row.build}: {key}",
        )  # fmt: skip
