"""mx.io: NDArrayIter's epochs, and what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import io, nd

X = np.arange(20).reshape(10, 2)
Y = np.arange(10)


def epoch(batches: io.NDArrayIter) -> list[tuple[list, int]]:
    """(labels, pad) of every batch."""
    return [(b.label[0].asnumpy().astype(int).tolist(), b.pad) for b in batches]


def test_pad_fills_the_last_batch_from_the_beginning():
    batches = io.NDArrayIter(X, Y, 3)
    for _ in range(2):
        rows = epoch(batches)
        assert rows == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 7, 8], 0), ([9, 0, 1], 2)]
        assert list(batches) == []
        batches.reset()
    assert epoch(io.NDArrayIter(X, Y, 25)) == [([*range(10), *range(10), 0, 1, 2, 3, 4], 15)]


def test_discard_drops_it():
    batches = io.NDArrayIter(X, Y, 3, last_batch_handle="discard")
    for _ in range(2):
        assert epoch(batches) == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 7, 8], 0)]
        batches.reset()
    assert epoch(io.NDArrayIter(X, Y, 25, last_batch_handle="discard")) == []


def test_shuffling_keeps_pairs_and_follows_numpys_seed():
    def orders(handle: str) -> list:
        np.random.seed(4)
        batches = io.NDArrayIter(X, Y, 3, shuffle=True, last_batch_handle=handle)
        seen = []
        for _ in range(3):
            rows = []
            for batch in batches:
                x, y = batch.data[0].asnumpy(), batch.label[0].asnumpy()
                assert np.array_equal(x[:, 0], 2 * y)
                rows += y.astype(int).tolist()
            seen.append(rows)
            batches.reset()
        return seen

    for handle in ("pad", "discard"):
        first = orders(handle)
        assert orders(handle) == first and first[0] != first[1]
    assert all(sorted(rows[:10]) == [*range(10)] for rows in orders("pad"))


def test_what_it_takes_and_says():
    both = io.NDArrayIter({"b": X, "a": nd.array(X, dtype="float16")}, [Y, Y], 4)
    assert [d.name for d in both.provide_data] == ["a", "b"]  # sorted
    assert [d.name for d in both.provide_label] == ["_0_softmax_label", "_1_softmax_label"]
    assert [d.dtype for d in both.provide_data] == [np.float16, np.float32]
    assert both.provide_data[1] == ("b", (4, 2)) and both.num_data == 10
    named = io.NDArrayIter(X, None, 5, data_name="x", layout="NT")
    assert named.provide_label == [] and next(named).label == []
    assert repr(named.provide_data) == "[DataDesc[x,(5, 2),<class 'numpy.float32'>,NT]]"
    batch = io.NDArrayIter([X], {"y": Y.astype("float64")}, 5).next()
    assert batch.data[0].dtype == batch.label[0].dtype == np.float32
    assert str(batch) == "DataBatch: data shapes: [(5, 2)] label shapes: [(5,)]"


def test_a_batch_is_a_copy():
    x = nd.array(X)
    for batch in io.NDArrayIter(x, Y, 3):
        batch.data[0][:] = -1
    assert x.asnumpy().tolist() == X.tolist()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"data": X, "label": Y[:3]}, ValueError, "data has 10 elements, softmax_label has 3"),
        ({"data": "x"}, TypeError, "expected an NDArray, a NumPy array, .* got str"),
        ({"data": None}, ValueError, "at least one array"),
        ({"data": []}, ValueError, "at least one array"),
        ({"data": X, "batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"data": X, "last_batch_handle": "keep"}, ValueError, "must be 'pad' or 'discard'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, error: type, words: str):
    with pytest.raises(error, match=words):
        io.NDArrayIter(**arguments)
