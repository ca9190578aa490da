"""The NDArray as programs use it: views, waiting, dtypes, exchange, errors at the caller's line."""

from __future__ import annotations

import gc
import pickle
import threading
from functools import reduce

import numpy as np
import pytest

import d2lmini
from d2lmini import MXNetError, cpu, engine, nd, storage


def held() -> tuple:
    """An array whose contents come when the returned event is set."""
    go = threading.Event()
    x = nd.zeros((2, 2))
    x.wait_to_read()
    engine.push(lambda: go.wait(30), writes=[x], name="held")
    return x, go


# -- what is lazy and what waits -------------------------------------------------------------------


def test_operations_on_pending_values_return_at_once():
    x, go = held()
    y = ((x + 1).reshape((4,)) * 2)[1:3]
    z = nd.dot(x, x.T).sum().as_in_context(cpu(1)).astype("float64").copy()
    assert y.shape == (2,) and z.dtype == np.float64 and z.context == cpu(1)
    assert engine.stats().pending >= 5
    go.set()
    assert y.asnumpy().tolist() == [2, 2]


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.wait_to_read(),
        lambda x: x.wait_to_write(),
        lambda x: x.asnumpy(),
        lambda x: x[0, 0].asscalar(),
        lambda x: x[0, 0].item(),
        repr,
        str,
        lambda x: bool(x[0, 0]),
        lambda x: float(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: np.asarray(x),
        lambda x: np.from_dlpack(x),
        lambda x: x.tolist(),
        pickle.dumps,
        lambda x: nd.waitall(),
    ],
    ids=lambda f: getattr(f, "__name__", "f"),
)
def test_these_functions_wait(wait):
    x, go = held()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (wait(x), done.set()))
    thread.start()
    assert not done.wait(0.02)
    go.set()
    assert done.wait(30)
    thread.join()


# -- views -----------------------------------------------------------------------------------------


def test_views_share_memory_both_ways(engine_kind: str):
    x = nd.arange(12).reshape((3, 4))
    row, rows, flat = x[1], x[1:3], x.reshape((12,))
    row[:] = -1
    assert x.asnumpy()[1].tolist() == [-1] * 4
    x[2] = 7
    assert rows.asnumpy().tolist() == [[-1] * 4, [7] * 4]
    flat[0] = 100
    assert x[0, 0].asscalar() == 100
    nested = x[1:3][1][2:]
    nested += 1
    assert x.asnumpy()[2].tolist() == [7, 7, 8, 8]
    assert x.expand_dims(0, inplace=True).reshape(-1).shape == (12,)


def test_views_order_with_their_base():
    """A view shares its base's Var: reads and writes through both take effect in program order."""
    with engine.use("threaded", workers=4, inline_below=0):
        x = nd.zeros((4, 1000))
        for i in range(200):
            x[i % 4] += i
            if i % 10 == 0:
                x *= 1
        want = [sum(i for i in range(200) if i % 4 == r) for r in range(4)]
        assert x[:, 0].asnumpy().tolist() == want


def test_writing_over_a_shifted_input(engine_kind: str):
    """Inputs that overlap the place of the result are read before they are written."""
    n = 1_500_000
    values = np.arange(n, dtype="float32") % 1000
    x = nd.array(values)
    nd.elemwise_add(x[1:], x[:-1], out=x[1:])
    assert (x.asnumpy()[1:] == values[1:] + values[:-1]).all()
    y = nd.array([[1, 2], [3, 4]])
    nd.dot(y, y, out=y)
    assert y.asnumpy().tolist() == [[7, 10], [15, 22]]


# -- exchange --------------------------------------------------------------------------------------


def test_from_numpy_shares_and_locks_the_source():
    source = np.ones(2000, "float32")
    x = nd.from_numpy(source)
    assert not source.flags.writeable
    x += 1
    assert (source == 2).all() if engine.waitall() is None else False
    assert nd.from_numpy(np.ones((2, 2))[:, :1], zero_copy=False).dtype == np.float64
    with pytest.raises(ValueError, match="C-contiguous"):
        nd.from_numpy(np.ones((4, 4), "float32")[:, :2])


def test_exported_memory_outlives_the_array():
    x = nd.arange(5000)
    shared = np.from_dlpack(x)
    del x
    gc.collect()
    for _ in range(5):
        nd.zeros(5000).wait_to_read()  # would reuse the memory had it been given back
    assert shared[4999] == 4999


# -- errors ----------------------------------------------------------------------------------------


def test_shape_errors_rise_at_the_call_and_name_what_to_do():
    with pytest.raises(MXNetError, match=r"dot: .*\(2, 3\).*\(4, 5\)"):
        nd.dot(nd.ones((2, 3)), nd.ones((4, 5)))
    with pytest.raises(MXNetError, match=r"\(2,\).*\(3,\)"):
        nd.ones(2) + nd.ones(3)
    with pytest.raises(TypeError, match="unknown argument 'axes'"):
        nd.sum(nd.ones(2), axes=1)
    with pytest.raises(TypeError, match=r"make an NDArray of it with nd\.array"):
        nd.dot(nd.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(MXNetError, match="dim=5 is out of range"):
        nd.concat(nd.ones((2, 2)), nd.ones((2, 2)), dim=5)
    with pytest.raises(MXNetError, match="out= has"):
        nd.dot(nd.ones((2, 2)), nd.ones((2, 2)), out=nd.zeros(3))


@pytest.mark.parametrize(
    "call",
    """nd.empty((2**62,)) nd.zeros((2**62,)) nd.ones((2**31,2**31,2**31)) nd.full((2**62,),1)
    nd.empty((2**46,)) np.empty((2**46,)) np.zeros((10**400,)) np.full((2**62,),1) np.eye(2**40)
    nd.arange(0,inf) np.arange(0,inf) np.arange(0,3,nan) nd.arange(nan) nd.arange(0,10**400)
    np.arange(10**400) np.arange(0,1e30) nd.linspace(0,1,2**62) nd.one_hot(nd.ones(1),depth=2**62)
    nd.tile(nd.ones(2),reps=(2**62,)) np.ones(2).repeat(2**62) nd.full((2,),10**400)
    nd.array([10**400]) np.array(10**400) nd.random.uniform(0,10**400,shape=(2,))
    nd.ones(2).__setitem__(0,10**400) np.where(np.ones(2),10**400,np.ones(2))""".split(),
)
def test_sizes_and_numbers_beyond_reason_are_refused_at_the_call(call: str):
    with pytest.raises(MXNetError):
        eval(call, {"nd": nd, "np": d2lmini.np, "inf": float("inf"), "nan": float("nan")})


def test_runtime_errors_name_both_lines_and_poison_what_depends(engine_kind: str):
    bad = nd.random.normal(0, -1, shape=(2,))  # issued here
    worse = (bad + 1).sum()
    for wait in (worse.asnumpy, bad.wait_to_read, worse.asscalar, lambda: repr(bad)):
        with pytest.raises(MXNetError) as caught:
            wait()
        text = str(caught.value)
        assert "_random_normal: scale must be 0 or more" in text
        assert "# issued here" in text and "noticed at" in text
    bad[:] = 1  # a full overwrite heals it
    assert bad.asnumpy().tolist() == [1, 1]
    assert (nd.ones(2) + 1).asnumpy().tolist() == [2, 2]


def test_an_index_found_out_of_range_while_computing_is_an_index_error(engine_kind: str):
    y = nd.arange(5)[nd.array([1, 9], dtype="int32")]
    with pytest.raises(IndexError, match="9"):
        y.asnumpy()
    with pytest.raises(MXNetError, match="issued at"):
        y.asnumpy()


def test_waitall_reports_once():
    keep = [nd.random.normal(0, -1, shape=(2,)), nd.random.uniform(2, 1, shape=(2,))]
    with pytest.raises(MXNetError, match=r"(?s)scale must be.*also failed: .*high must be"):
        nd.waitall()
    nd.waitall()
    with pytest.raises(MXNetError, match="scale"):
        keep[0].wait_to_read()


def test_an_error_nobody_looked_at_is_warned_of():
    bad = nd.random.normal(0, -1, shape=(2,))
    engine.current.wait_idle("test")
    del bad
    gc.collect()
    with pytest.warns(UserWarning, match=r"dropped unseen:\n_random_normal"):
        nd.waitall()
    nd.waitall()


@pytest.mark.parametrize(
    "space",
    """nd nd.random nd.linalg nd.contrib nd.NDArray sym sym.random sym.linalg sym.contrib
    np np.random np.linalg npx""".split(),
)
def test_public_functions_are_pickled_by_name(space: str):
    found = eval(space, {name: getattr(d2lmini, name) for name in ("nd", "sym", "np", "npx")})
    members = {name: getattr(found, name, None) for name in dir(found) if name[0] != "_"}
    functions = {name: x for name, x in members.items() if callable(x) and type(x) is not type}
    assert len(functions) > (0 if space.endswith("linalg") else 5)
    assert [n for n, x in functions.items() if pickle.loads(pickle.dumps(x)) is not x] == []


def test_names_left_out_say_so():
    with pytest.raises(AttributeError, match="ROIPooling is left out"):
        nd.ROIPooling
    with pytest.raises(AttributeError, match="no 'frobnicate'"):
        nd.frobnicate
    with pytest.raises(AttributeError):
        d2lmini.frobnicate


# -- memory ----------------------------------------------------------------------------------------


def test_memory_error_leaves_the_engine_usable(engine_kind: str):
    ctx = cpu(9)
    storage.set_limit(ctx, 1 << 20)
    x = nd.ones((100_000,), ctx=ctx)
    big = nd.zeros((1_000_000,), ctx=ctx)
    with pytest.raises(MemoryError, match=r"out of memory on cpu\(9\): 4.0 MB asked for"):
        big.wait_to_read()
    with pytest.raises(MXNetError):
        (big + 1).wait_to_read()
    assert (x + 1).sum().asscalar() == 200_000
    del big
    storage.set_limit(ctx, None)
    assert nd.zeros((1_000_000,), ctx=ctx).sum().asscalar() == 0


def test_pending_results_have_no_memory_yet():
    before = storage.stats().live
    x, go = held()
    results = [x.reshape((4, 1)).broadcast_to((4, 100_000)) for _ in range(10)]
    grown = storage.stats().live - before
    assert grown < 1_000_000
    assert engine.stats().pending_bytes >= 10 * 1_600_000
    go.set()
    nd.waitall()
    assert storage.stats().live - before >= 16_000_000
    assert engine.stats().pending_bytes == 0
    del results


@pytest.mark.parametrize(("name", "says"), [
    ("image", "left out of d2lmini, as all of MXNet's image operations"),
    ("ROIPooling", "operations for detection"),
    ("contrib.MultiBoxPrior", "operations for detection"),
    ("sparse.getnnz", "sparse arrays"),
    ("contrib.quantized_conv", "quantization"),
    ("histogram", r"np.histogram\(x.asnumpy\(\)\)"),
    ("contrib.group_adagrad_update", "sparse arrays"),
    ("contrib.multi_lamb_update", "all parameters in one task"),
    ("linalg.frobnicate", "nd.linalg has no 'frobnicate'"),
    ("random.frobnicate", "frobnicate"),
])  # fmt: skip
def test_a_name_that_is_not_here_says_why(name: str, says: str):
    *spaces, last = name.split(".")
    target = reduce(getattr, spaces, nd)
    with pytest.raises(AttributeError, match=says):
        getattr(target, last)
