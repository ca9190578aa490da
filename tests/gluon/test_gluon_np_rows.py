"""Every row of Gluon's tables (`gluon_rows/`) with `np.ndarray`s, after `npx.set_np()`: the numbers
of the same row with NDArrays, in arrays of the class `ndarray`, and those of the real MXNet, as far
as its layers take such arrays."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from gluon_rows import loss, nn, rnn
from gluon_rows.runner import Row, compare, examine_here, examine_in
from oracle import Oracle, OracleError

ROWS = [replace(row, is_np=True) for table in (nn, rnn, loss) for row in table.ROWS]
IN_MXNET = [row for row in ROWS if row.mxnet]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_np_row_equals_nd_row(row: Row):
    """Numbers to the bit, and dtypes. Shapes too, except that a mean of all has the shape ()."""
    got, expected = examine_here(row), examine_here(replace(row, is_np=False))
    (parameters, _, text), (same, _, said) = (json.loads(x["about"]) for x in (got, expected))
    assert (parameters, text) == (same, said)
    assert got.keys() == expected.keys()
    for key in got.keys() - {"about"}:
        a, b = got[key], expected[key]
        assert a.dtype == b.dtype, key
        assert a.shape == (() if "Poisson" in row.build and "/out/" in key else b.shape), key
        np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=key)


#: What MXNet's layers answer if they do not take `np.ndarray`s.
REFUSALS = (
    "can only accept legacy ndarrays",
    "in operator _npi_uniform",  # it draws float32 alone, for parameters of all dtypes
    "does not support stype = row_sparse",
    "ndarray object has no attribute expand_dims",
)
#: Where MXNet computes something else: part of a row's `build` -> what.
DIFFERENT = {
    "loss.": ("batch_axis=1", "the losses take no notice of batch_axis"),
    "nn.BatchNormReLU": ("", "the layer has no ReLU"),
}


@pytest.mark.parametrize("row", IN_MXNET, ids=[row.id for row in IN_MXNET])
def test_np_row_equals_mxnet(row: Row, mxnet: Oracle):
    try:
        theirs = examine_in(mxnet, row)
    except OracleError as refusal:
        assert any(words in str(refusal) for words in REFUSALS), refusal
        pytest.skip("MXNet's layer takes only NDArrays")
    for place, (option, why) in DIFFERENT.items():
        if place in row.build and option in row.build:
            with pytest.raises(AssertionError):
                compare(row, examine_here(row), theirs)
            pytest.skip(f"MXNet: {why}")
    compare(row, examine_here(row), theirs)
