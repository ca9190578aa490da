"""The rules of x[key] and x[key] = value one by one: MXNet's own ways, errors, and what the engine
sees. `test_indexing.py` compares drawn keys with NumPy and the real MXNet.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from d2lmini import MXNetError, engine, nd


def numbers(shape: tuple) -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1).astype("float32").reshape(shape)


@pytest.fixture
def x():
    return nd.array(numbers((2, 3, 4)) - 1)


# -- MXNet's own ways ------------------------------------------------------------------------------


def test_an_array_may_be_assigned_from_itself():
    for size in (12, 1 << 20):
        x = nd.arange(size)
        n = x.asnumpy()
        for to, of in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
            x[to] = x[of]
            n[to] = n[of]
        half = size // 2
        x[:half] = x[half:]
        n[:half] = n[half:]
        x[::2] = x[:half]
        n[::2] = n[:half]
        x[:] = x[3]
        n[:] = n[3]
        np.testing.assert_array_equal(x.asnumpy(), n)
    x = nd.array(numbers((3, 4)))
    x[[2, 0]] = x[0:2]
    assert x.asnumpy().tolist() == [[5, 6, 7, 8], [5, 6, 7, 8], [1, 2, 3, 4]]


# -- errors ----------------------------------------------------------------------------------------

WRONG = {
    "x[2]": IndexError,
    "x[-3]": IndexError,
    "x[2**40]": IndexError,
    "x[0, 3]": IndexError,
    "x[:, -4]": IndexError,
    "x[[2]]": IndexError,
    "x[[0, -3]]": IndexError,
    "x[:, [0, 3]]": IndexError,
    "x[np.array([2])]": IndexError,
    "x[0, 0, 0, 0]": IndexError,
    "x[:, :, :, :]": IndexError,
    "x[[0], [0], [0], [0]]": IndexError,
    "x[..., ...]": IndexError,
    "x[np.ones(3, bool)]": IndexError,
    "x[1.0]": ValueError,
    "x['a']": ValueError,
    "x[{1}]": ValueError,
    "x[::0]": ValueError,
    "x[[0, 1], [0, 1, 2]]": ValueError,
    "x[[[0, 1], [1]]]": ValueError,
    "x[nd.array([1, 0]).astype(bool)]": ValueError,
    "x[1:2.0]": TypeError,
    "x[nd.array([1]):]": TypeError,
    "x[[slice(0, 1)]]": TypeError,
    "x[[0, None]]": TypeError,
    "x[[nd.array([0]), nd.array([1])]]": TypeError,
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_key_is_refused_at_the_call(x, text):
    before = x.asnumpy()
    pushed = engine.stats().pushed
    for statement in (text, f"{text} = 1", f"{text} = nd.zeros((1,))"):
        with pytest.raises(WRONG[text]):
            exec(statement, {"x": x, "nd": nd, "np": np})
    # The arrays that the text itself makes, and nothing of ours.
    assert engine.stats().pushed - pushed <= 1 + 3 * text.count("nd.")
    np.testing.assert_array_equal(x.asnumpy(), before)


@pytest.mark.parametrize("inline_below", [0.0, 1e9])
def test_an_array_index_out_of_range_is_found_when_the_operation_runs(inline_below):
    with engine.use("threaded", inline_below=inline_below):
        x = nd.arange(6).reshape((3, 2))
        y = x[nd.array([0, 5])]
        assert y.shape == (2, 2)
        with pytest.raises(MXNetError, match="index 5 is out of bounds for axis 0 with size 3"):
            y.asnumpy()
        with pytest.raises(MXNetError, match="index -4 is out of bounds for axis 0 with size 3"):
            x[nd.array([0, 1]), nd.array([1, 0])][nd.array([0])].wait_to_read()
            x[nd.array([-4]), nd.array([1])].wait_to_read()
        assert x[nd.array([-1])].asnumpy().tolist() == [[4, 5]]
        x[nd.array([1, 3])] = 7  # nothing is written
        with pytest.raises(MXNetError, match="_setitem"):
            x.asnumpy()
        assert x.asnumpy().tolist() == [[0, 1], [2, 3], [4, 5]]


# -- what the engine sees --------------------------------------------------------------------------


@pytest.fixture
def threaded():
    """The naive engine has no "later": what is about order in time needs the threaded one."""
    with engine.use("threaded"):
        yield


def held(array):
    """Keep `array` busy until the returned event is set: nobody may read or write it."""
    go = threading.Event()
    engine.push(lambda: go.wait(30), writes=[array], name="held")
    return go


def test_an_index_array_is_read_not_waited_for(threaded):
    x = nd.arange(6).reshape((3, 2))
    i, j, v = nd.array([2, 0]), nd.array([1, 1], dtype="int32"), nd.array([70, 80])
    i.wait_to_read()
    go = held(i)
    y, z = x[i], x[i, j]
    x[i, j] = v
    w = x[:, [1, 0]]
    i[:] = 1  # comes after all of them
    assert y.shape == (2, 2) and z.shape == (2,) and engine.stats().pending >= 4
    go.set()
    assert y.asnumpy().tolist() == [[4, 5], [0, 1]] and z.asnumpy().tolist() == [5, 1]
    assert w.asnumpy().tolist() == [[80, 0], [3, 2], [70, 4]]


def test_numpy_arrays_may_be_changed_right_after_the_call(threaded):
    x = nd.zeros((3, 4))
    x.wait_to_read()
    go = held(x)
    rows, values, whole = np.array([0, 2]), np.ones((2, 4)), np.full((3, 4), 5.0, "float32")
    x[:] = whole
    x[rows] = values
    y = x[rows]
    mask = np.array([True, False, False])
    z = x[mask]
    rows[:], values[:], whole[:], mask[:] = 1, 9, 9, False
    go.set()
    assert x.asnumpy().tolist() == [[1] * 4, [5] * 4, [1] * 4]
    assert y.asnumpy().tolist() == [[1] * 4, [1] * 4] and z.shape == (1, 4)


def test_each_assignment_is_one_operation_and_a_view_is_none(x):
    y, row, one = nd.ones((2, 3, 4)), nd.ones((4,)), nd.ones((1,))
    i = nd.array([0])
    nd.waitall()

    def executed(method, *args):
        before = engine.stats().executed
        method(*args)
        nd.waitall()
        return engine.stats().executed - before

    for key in (0, slice(1, 2), (0, slice(1, 3)), (1, 1, 1), Ellipsis, None):
        assert executed(x.__getitem__, key) == 0
        for value in (3, one, np.ones(1), [2]):
            assert executed(x.__setitem__, key, value) == 1
    for key in ((slice(None), 0), slice(None, None, -1), [0], i, (i, 0)):
        assert executed(x.__getitem__, key) == 1
        for value in (3, y[0, 0], row, one):
            assert executed(x.__setitem__, key, value) == 1
    assert executed(x.__setitem__, slice(None), y) == 1
    assert executed(x.__setitem__, slice(None), 0) == 1
    assert executed(x.__setitem__, 0, x[0]) == 0  # how x[0] += 1 ends


# -- functions beside the ops ----------------------------------------------------------------------


def test_onehot_encode_writes_into_its_argument():
    y = nd.ones((3, 4))
    assert nd.onehot_encode(nd.array([1, 0, 7]), y) is y
    assert y.asnumpy().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    with pytest.raises(MXNetError, match="one_hot"):
        nd.onehot_encode(nd.array([1, 0]), y)
