"""Products in blocks: equal to plain ones for any sizes and layouts, and computed serially."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini.device.blas import SERIAL_PRODUCT
from d2lmini.ops.blocks import LARGE, Blocks, cuts, product

SIZES = [
    (32, 256, 768), (32, 768, 256), (768, 32, 256), (8, 512, 1024), (64, 250, 300), (2, 512, 512),
    (1, 512, 1024), (33, 64, 640), (32, 101, 303), (20, 300, 96), (300, 2, 1000), (5, 3, 2),
    (0, 4, 3), (4, 0, 3), (600, 700, 60), (1201, 300, 128),
]  # fmt: skip


def view(rows: int, columns: int, layout: str, seed: int) -> np.ndarray:
    """A matrix of small whole numbers, so that sums are exact in any order."""
    x = np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype("float32")
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "columns":
        wide = np.zeros((rows, 2 * columns + 3), "float32")
        wide[:, 2 : 2 + columns] = x
        return wide[:, 2 : 2 + columns]
    return x


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("layout", ["plain", "transposed", "columns"])
def test_blocks_make_up_the_product(sizes, layout):
    rows, inner, columns = sizes
    b = view(inner, columns, layout, 1)
    for a in (view(rows, inner, "plain", 0), view(rows, inner, "columns", 0)):
        want = np.matmul(a, b)
        for out in (np.full_like(want, 7), view(rows, columns, "columns", 2)):
            assert product(np, a, b, out) is out
            np.testing.assert_array_equal(out, want)
            for copy in (True, False):
                out[...] = 7
                Blocks(np, b, rows, copy).product(a, out)
                np.testing.assert_array_equal(out, want)
    a = view(rows, inner, "transposed", 0)
    np.testing.assert_array_equal(product(np, a, b, np.empty_like(want)), want)


def test_each_block_is_small_enough_to_be_serial():
    seen = 0
    for rows in (2, 16, 32, 100, 128, 512):
        for inner in (16, 64, 100, 256, 768, 1000):
            for columns in (24, 100, 256, 300, 768, 1024):
                cut = cuts(rows, inner, columns)
                work = rows * inner * columns
                if cut is None:
                    continue
                seen += 1
                parts, width = cut
                assert SERIAL_PRODUCT < work <= LARGE
                assert inner % parts == 0 and columns % width == 0
                assert rows * (inner // parts) * width <= SERIAL_PRODUCT
    assert seen > 40
