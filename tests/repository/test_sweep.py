"""The sweep without MXNet: its comparison sees each kind of difference, and every listed difference
is about names that it draws (`make test-mxnet` runs the sweep itself)."""

from __future__ import annotations

from fnmatch import fnmatchcase

import listed_differences
import numpy as np
import pytest
from generators.sweep import draw, run
from generators.sweep.compare import difference

ONE = [("y", ["NDArray", np.ones((2, 3), "float32")])]


@pytest.mark.parametrize(
    ("here", "error", "kind"),
    [
        (np.ones((2, 3), "float32"), None, None),
        (np.ones((2, 3), "float32") + 1e-6, None, None),
        (np.zeros((2, 3), "float32"), None, "value of y"),
        (np.ones((3, 2), "float32"), None, "shape of y"),
        (np.ones((2, 3), "float64"), None, "dtype of y"),
        (np.ones((2, 3), "float32"), "MXNetError: no", "refused here"),
    ],
)
def test_a_difference_has_a_kind(here, error, kind):
    found = difference((ONE, None), ([("y", ["NDArray", here])], error), is_random=False)
    assert (found and found[0]) == kind


def test_errors_of_both_agree_and_random_numbers_need_a_shape():
    assert difference(([], "ValueError: a"), ([], "TypeError: b"), is_random=False) is None
    assert difference(([], "ValueError: a"), ([], None), is_random=False)[0] == "allowed here"
    other = [("y", ["NDArray", np.zeros((2, 3), "float32")])]
    assert difference((ONE, None), (other, None), is_random=True) is None


def test_every_listed_difference_is_about_names_that_are_drawn():
    drawn = [f"{module}.{name}" for module in draw.MODULES for name in run.names_of(module)]
    for row in listed_differences.LISTED:
        for pattern in row.names.split():
            assert any(fnmatchcase(name, pattern) for name in drawn), (row.reason, pattern)
