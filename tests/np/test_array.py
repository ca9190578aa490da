"""Short programs on `np.ndarray`s give what they give in the real MXNet 1.9.1."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest
from np_rows import stories
from oracle import Oracle

import d2lmini as mx
from d2lmini import npx


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal values, shapes and dtypes, part by part."""
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, yours in zip(ours, theirs):
            assert_same(mine, yours)
    elif isinstance(theirs, (onp.ndarray, float)):
        assert onp.shape(ours) == onp.shape(theirs)
        assert onp.asarray(ours).dtype == onp.asarray(theirs).dtype
        onp.testing.assert_allclose(ours, theirs, rtol=1e-6)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", [story.__name__ for story in stories.STORIES])
def test_story_equals_mxnet(name, mxnet: Oracle):
    assert_same(stories.tell(mx, name), mxnet.ask(stories.tell, name))


def test_files_equal_mxnet(tmp_path, mxnet: Oracle):
    folder = str(tmp_path)
    ours = stories.tell(mx, "saved", folder)
    assert_same(ours, mxnet.ask(stories.tell, "saved", folder))
    path = str(tmp_path / "x.npy")  # which MXNet wrote last
    assert_same([(k, v.asnumpy()) for k, v in sorted(npx.load(path).items())], ours[-1])
