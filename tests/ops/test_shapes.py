"""Reductions, shapes and sorting beyond single rows: errors at the call, laws, and the cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lmini import MXNetError, engine, nd
from d2lmini.ops import chunking
from d2lmini.ops.core import registry
from d2lmini.ops.shape import infer_reshape

X = nd.array(np.arange(24).reshape(2, 3, 4))
FLAT = nd.array(np.arange(5))
IMAGE = nd.array(np.arange(20).reshape(1, 1, 4, 5))


def ones(*shape, dtype="float32"):
    return nd.ones(shape, dtype=dtype)


ERRORS = [
    # call, what the message says
    (lambda: nd.sum(X, axis=3), "sum: axis=3 is out of range for an array of 3 axes"),
    (lambda: nd.min(ones(3, 0), axis=1), "min: axis 1 of (3, 0) has no elements"),
    (lambda: nd.argmax(ones(0)), "argmax: axis 0 of (0,) has no elements"),
    (lambda: nd.argmax(ones(200, dtype="int8")), "not exact in int8, which goes up to 127"),
    (lambda: nd.norm(X, ord=3), "norm: ord=3 is unknown, need one of 1, 2"),
    (lambda: nd.reshape(X, shape=(5, 5)), "it has 24 elements, the target would have 25"),
    (lambda: nd.reshape(X, shape=(-4, 5, 5, -2)), "an axis of size 2 does not split into 5 and 5"),
    (lambda: nd.reshape(X, shape=(-7,)), "-7 is neither a size nor one of the codes"),
    (lambda: nd.squeeze(X, axis=1), "axis 1 of (2, 3, 4) has size 3; only 1 can go"),
    (lambda: nd.transpose(X, axes=(0, 0, 1)), "axes=(0, 0, 1) is not a permutation of 3 axes"),
    (lambda: nd.depth_to_space(ones(1, 3, 2, 2), 2), "multiples of (1, 4, 1, 1)"),
    (lambda: nd.broadcast_to(ones(2, 3), shape=(4, 3)), "(2, 3) does not broadcast to (4, 3)"),
    (lambda: nd.broadcast_like(FLAT, X), "need as many axes"),
    (lambda: nd.repeat(X, repeats=-1), "repeats must be 0 or more, got -1"),
    (lambda: nd.slice(X, begin=(0,), end=(1, 2)), "must have the same length"),
    (lambda: nd.slice(FLAT, begin=(0,), end=(4,), step=(0,)), "contains 0; a step must not be 0"),
    (lambda: nd.slice_axis(X, axis=1, begin=0, end=9), "do not fit axis 1 of (2, 3, 4), of size 3"),
    (lambda: nd.pad(IMAGE, mode="wrap", pad_width=(0,) * 8), "mode='wrap' is unknown"),
    (lambda: nd.pad(X, mode="edge", pad_width=(1, 1)), "two numbers (before, after) for each axis"),
    (lambda: nd.pad(IMAGE, mode="reflect", pad_width=(*(0,) * 6, 5, 0)), "needs a longer axis"),
    (lambda: nd.concat(X, FLAT, dim=0), "concat: input 1 is (5,), need (5, 3, 4): sizes may"),
    (lambda: nd.concat(FLAT, FLAT.astype("int32"), dim=0), "dtypes differ"),
    (lambda: nd.split(X, 2), "has size 3, which does not divide into 2 equal parts"),
    (lambda: nd.split_v2(FLAT, (3, 1)), "places (3, 1) do not cut axis 0 of (5,)"),
    (lambda: nd.split_v2(FLAT, (2,), squeeze_axis=True), "squeeze_axis needs parts of size 1"),
    (lambda: nd.topk(FLAT, k=6), "k=6 is more than the 5 elements"),
]  # fmt: skip


@pytest.mark.parametrize("call, says", ERRORS, ids=[says for _, says in ERRORS])
def test_errors_are_raised_at_the_call_and_say_what_does_not_fit(call, says):
    with pytest.raises(MXNetError) as caught:
        call()
    assert says in str(caught.value)
    nd.waitall()  # nothing was pushed


def test_positions_that_a_floating_dtype_rounds_are_a_warning():
    """As in MXNet, which says nothing: float32 counts up to 2 ** 24 exactly, float16 up to 2048."""
    x = nd.zeros((2**24 + 3,))
    x[-2:] = 1  # at 2 ** 24 + 1
    for find in (nd.argmax, lambda x: nd.argmin(-x)):
        with pytest.warns(UserWarning, match=r"not exact in float32.*x.astype\('float64'\)"):
            assert int(find(x).asscalar()) == 2**24
    assert int(x.astype("float64").argmax().asscalar()) == 2**24 + 1
    y = nd.zeros((3000,))
    y[2999] = 1
    for find in (
        lambda y: nd.argsort(y, dtype="float16")[-1],
        lambda y: nd.topk(y, dtype="float16"),
    ):
        with pytest.warns(UserWarning, match="not exact in float16.*a wider dtype"):
            assert int(find(y).asscalar()) == 3000


# -- laws ------------------------------------------------------------------------------------------

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)
few = settings(max_examples=40, deadline=None)


def filled(shape) -> np.ndarray:
    return np.random.default_rng(3).integers(-9, 9, shape).astype("float32")


@few
@given(SHAPES, st.data())
def test_reshape_follows_numpy_and_its_codes_agree_with_sizes(shape, data):
    """Any target spelt in sizes, or with codes for some of them, means the same shape."""
    spelling = list(shape)
    for axis in range(len(shape)):
        if data.draw(st.booleans()):
            spelling[axis] = 0  # keep
    if data.draw(st.booleans()):
        spelling[data.draw(st.integers(0, len(shape) - 1))] = -1
    # A size of 0 cannot be spelt but as a code, which is what it is here.
    assert infer_reshape(shape, tuple(spelling)) == shape
    assert infer_reshape(shape, tuple(spelling), reverse=True) == shape
    joined = infer_reshape(shape, (-3, -2)) if len(shape) > 1 else shape
    x = filled(shape)
    y = nd.reshape(nd.array(x), shape=(-3, -2)) if len(shape) > 1 else nd.array(x)
    assert y.asnumpy().tobytes() == x.reshape(joined).tobytes()


@few
@given(SHAPES, st.data())
def test_round_trips_give_back_the_array(shape, data):
    x = nd.array(filled(shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    order_ = tuple(data.draw(st.permutations(range(len(shape)))))
    ends = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=3)))
    parts = nd.split_v2(x, tuple(ends), axis=axis)
    widths = (*[0] * 6, data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2)))
    line = x.reshape((1, 1, 1, -1))
    padded = nd.pad(line, mode="constant", pad_width=widths, constant_value=5)
    inside = nd.slice_axis(padded, axis=3, begin=widths[6], end=widths[6] + x.size)
    trips = {
        "transpose": nd.transpose(nd.transpose(x, axes=order_), axes=tuple(np.argsort(order_))),
        "reverse": nd.reverse(nd.reverse(x, axis=axis), axis=axis),
        "split": nd.concat(*(parts if isinstance(parts, list) else [parts]), dim=axis),
        "pad": inside.reshape(shape) if x.size else x,
        "stack": nd.squeeze(nd.stack(x, axis=axis), axis=axis),
        "expand": nd.squeeze(nd.expand_dims(x, axis=0), axis=0),
        "repeat": nd.slice(
            nd.repeat(x, repeats=2, axis=axis),
            begin=(None,) * len(shape),
            end=(None,) * len(shape),
            step=tuple(2 if a == axis % len(shape) else 1 for a in range(len(shape))),
        ),
    }
    for name, back in trips.items():
        assert back.shape == shape, name
        assert back.asnumpy().tobytes() == x.asnumpy().tobytes(), name


# -- the cut ---------------------------------------------------------------------------------------


@pytest.fixture
def fine(monkeypatch):
    """Cut as finely as if a few dozen elements were many."""
    for name, value in {"GRAIN": 4, "RUN": 2, "TILE": 2}.items():
        monkeypatch.setattr(chunking, name, value)


def test_every_cut_gives_what_numpy_gives(fine):
    """Small whole numbers, so that sums are exact whatever the order."""
    rng = np.random.default_rng(5)
    cuts = set()
    for _ in range(150):
        shape = tuple(rng.integers(1, 7, rng.integers(1, 5)))
        x = rng.integers(-9, 9, shape).astype("float32")
        axes = tuple(a for a in range(x.ndim) if rng.random() < 0.5)
        cuts.add(str(chunking.plan(shape, axes))[1:2] if x.size >= 32 else "small")
        for name in ("sum", "max", "mean", "norm"):
            compute, defaults = registry[name].compute, registry[name].defaults
            y = compute(np, x, **{**defaults, "axis": axes})
            kept = axes or tuple(range(x.ndim))
            want = {
                "sum": x.sum, "max": x.max, "mean": x.mean,
                "norm": lambda axis, x=x: np.sqrt((x.astype("float64") ** 2).sum(axis)),
            }[name](axis=kept)  # fmt: skip
            np.testing.assert_allclose(y, np.reshape(want, y.shape), rtol=1e-6)
        axis = int(rng.integers(x.ndim))
        for name, want in (
            ("argmax", x.argmax(axis)), ("argmin", x.argmin(axis)), ("cumsum", x.cumsum(axis)),
            ("sort", np.sort(x, axis)), ("argsort", np.argsort(x, axis, kind="stable")),
        ):  # fmt: skip
            y = registry[name].compute(np, x, **{**registry[name].defaults, "axis": axis})
            np.testing.assert_array_equal(y, np.reshape(want, y.shape))
        flat = registry["argmax"].compute(np, x, axis=None, keepdims=False)
        assert flat == x.argmax()
        source = x.transpose(rng.permutation(x.ndim))
        assert np.array_equal(chunking.copy(np, source, np.empty(source.shape, "float32")), source)
    assert len(cuts) > 2  # uncut, cut along the first axis, and along others


def test_large_results_do_not_depend_on_the_number_of_workers():
    x = np.random.default_rng(1).standard_normal((2048, 1100)).astype("float32")
    calls = {
        "sum": lambda v: nd.sum(v), "rows": lambda v: nd.mean(v, axis=1),
        "columns": lambda v: nd.sum(v, axis=0), "norm": nd.norm, "T": nd.transpose,
        "running": lambda v: nd.cumsum(v, axis=0), "sorted": lambda v: nd.sort(v, axis=0),
        "top": lambda v: nd.topk(v, k=3), "best": lambda v: nd.argmax(v, axis=0),
    }  # fmt: skip
    bits = []
    for kind, options in (
        ("naive", {}),
        ("threaded", {"workers": 1}),
        ("threaded", {"workers": 4}),
    ):
        with engine.use(kind, **options):
            v = nd.array(x)
            bits.append({name: call(v).asnumpy().tobytes() for name, call in calls.items()})
    assert bits[0] == bits[1] == bits[2]
