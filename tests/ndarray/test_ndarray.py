"""The NDArray as programs use it: views, waiting, dtypes, exchange, errors at the caller's line."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import threading

import numpy as np
import pytest

import d2lmini
from d2lmini import Context, MXNetError, cpu, current_context, engine, gpu, nd, storage


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


def test_in_place_operators_keep_identity_and_memory():
    x = nd.ones((2, 3))
    y, before = x, id(x)
    x += 1
    x *= 3
    x -= nd.ones((3,))
    x /= 5
    assert id(x) == before and (y.asnumpy() == 1).all()
    x %= 2
    assert x is y and (y.asnumpy() == 1).all()
    x **= 2  # MXNet has no power in place
    assert x is not y


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


def test_copies_onto_the_same_memory_and_onto_part_of_it(engine_kind: str):
    """As MXNet does: a copy onto itself changes nothing, overlapping parts are read first."""
    with engine.use(engine_kind):
        x = nd.arange(6)
        for target in (x, x.reshape(6), x[0:6]):
            assert x.copyto(target) is target
        assert x.asnumpy().tolist() == [0, 1, 2, 3, 4, 5]
        x[0:4].copyto(x[2:6])
        assert x.asnumpy().tolist() == [0, 1, 0, 1, 2, 3]
        x[2:6].copyto(x[0:4])
        assert x.asnumpy().tolist() == [0, 1, 2, 3, 2, 3]


def test_no_warnings_of_numpy_come_through(engine_kind: str):
    x = nd.array(np.full(2_000_000, 1000.0))
    assert np.isinf(nd.exp(x).asnumpy()).all()
    assert np.isinf((nd.ones(2) / 0).asnumpy()).all()
    assert np.isnan(nd.log(nd.array([-1.0])).asnumpy()).all()


def test_reshape_codes():
    x = nd.zeros((2, 3, 4))
    for target, want in {
        (4, 0, 2): (4, 3, 2), (2, 0, 0): (2, 3, 4), (6, 1, -1): (6, 1, 4), (-2,): (2, 3, 4),
        (-3, 4): (6, 4), (0, -3): (2, 12), (-4, 1, 2, -2): (1, 2, 3, 4),
    }.items():  # fmt: skip
        assert x.reshape(target).shape == want
    assert nd.zeros((10, 5, 4)).reshape((-1, 0), reverse=True).shape == (50, 4)
    assert x.reshape(4, 6).shape == (4, 6)
    with pytest.raises(ValueError, match="24"):
        x.reshape((5, 5))


# -- dtypes ----------------------------------------------------------------------------------------


def test_dtype_rules():
    assert nd.array(np.arange(3)).dtype == np.float32
    assert nd.array([1.5]).dtype == np.float32
    assert nd.array(np.ones(2, "float64")).dtype == np.float32
    i = nd.array([7, 8], dtype="int32")
    assert nd.array(i).dtype == np.int32
    assert (i / 2).dtype == np.int32 and (i / 2).asnumpy().tolist() == [3, 4]
    assert (i * 1.5).dtype == np.int32
    assert (i == i).dtype == np.int32
    assert (nd.ones(2) > 0).dtype == np.float32
    assert i.astype(float).dtype == np.float64
    assert i.astype(int).dtype == np.int64
    same = nd.ones(2)
    assert same.astype("float32", copy=False) is same
    assert same.astype("float32") is not same
    with pytest.raises(MXNetError, match=r"int32.*float32.*astype"):
        i + nd.ones(2)
    with pytest.raises(MXNetError, match="uint16"):
        nd.zeros(2, dtype="uint16")


def test_big_integers_survive():
    big = 2**24 + 1
    x = nd.array([big], dtype="int32")
    assert x.floor().asscalar() == big and x.round().asscalar() == big
    x[:] = big + 2
    assert x.asscalar() == big + 2
    assert (x + 1).asscalar() == big + 3
    assert not bool(nd.array([big], dtype="int32") == 2**24)


# -- contexts --------------------------------------------------------------------------------------


def test_contexts():
    assert current_context() == cpu(0)
    with cpu(2):
        assert nd.zeros(1).context == cpu(2)
        with Context("cpu", 3):
            assert (nd.ones(1) + 1).context == cpu(3)
        assert current_context() == cpu(2)
    x = nd.ones((2,), ctx=cpu(1))
    assert x.as_in_context(cpu(1)) is x
    y = x.as_in_context(cpu(0))
    assert y is not x and y.context == cpu(0)
    target = nd.zeros((2,), dtype="int32")
    assert x.copyto(target) is target and target.asnumpy().tolist() == [1, 1]
    assert repr(gpu(1)) == "gpu(1)"
    with pytest.raises(MXNetError, match=r"gpu\(99\) is not available"):
        nd.zeros(1, ctx=gpu(99))
    with pytest.raises(MXNetError, match=r"gpu\(99\) is not available"):
        x.as_in_context(gpu(99))
    with pytest.raises(ValueError, match="tpu"):
        Context("tpu", 0)
    with pytest.raises(MXNetError, match=r"copyto: source has shape \(2,\), target \(3,\)"):
        x.copyto(nd.zeros(3))


def test_default_context_is_per_thread():
    seen = []
    with cpu(5):
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
    assert seen == [cpu(0)]


# -- as Python sees it -----------------------------------------------------------------------------


def test_truth_numbers_and_length():
    assert bool(nd.array([2])) and not bool(nd.array([0]))
    assert float(nd.array([2.5])) == 2.5 and int(nd.array([2.5])) == 2
    assert len(nd.zeros((3, 2))) == 3
    assert [row.asnumpy().tolist() for row in nd.array([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    a, b = nd.array([5, 6])
    assert a.asscalar() == 5 and b.asscalar() == 6
    assert sum(list(nd.array([1, 2, 3]))).asscalar() == 6
    assert list(range(5))[nd.array([2], dtype="int32")] == 2
    with pytest.raises(ValueError, match=r"shape \(2,\) is ambiguous"):
        bool(nd.ones(2))
    with pytest.raises(ValueError, match="only arrays of size 1"):
        nd.ones(2).asscalar()
    with pytest.raises(TypeError, match="without axes"):
        len(nd.array(np.float32(3)))


def test_repr():
    assert repr(nd.ones((2, 2))) == "\n[[1. 1.]\n [1. 1.]]\n<NDArray 2x2 @cpu(0)>"
    assert repr([nd.ones(1)]) == "[\n[1.]\n<NDArray 1 @cpu(0)>]"


def test_numpy_beside_ndarray():
    x = nd.array([1.0, 2])
    assert isinstance(np.float32(2) * x, nd.NDArray)
    assert (np.float64(2) * x).dtype == np.float32
    assert np.argmax(nd.array([[1, 9, 3]]), axis=1).asnumpy().tolist() == [1]
    with pytest.raises(TypeError, match="make an NDArray"):
        x + np.ones(2)
    with pytest.raises(TypeError, match="make an NDArray"):
        np.ones(2) + x
    with pytest.raises(TypeError, match="expected an NDArray or a number"):
        x + "1"


def test_copies_are_independent():
    x = nd.ones(2)
    for other in (x.copy(), copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        other[:] = 5
        assert x.asnumpy().tolist() == [1, 1]


# -- exchange --------------------------------------------------------------------------------------


def test_array_copies_its_source_at_once():
    source = np.ones(3, "float32")
    x = nd.array(source)
    source[:] = 9
    assert x.asnumpy().tolist() == [1, 1, 1]


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
    view, shared = x.asnumpy_view(), np.from_dlpack(x)
    del x
    gc.collect()
    for _ in range(5):
        nd.zeros(5000).wait_to_read()  # would reuse the memory had it been given back
    assert view[4999] == 4999 and shared[4999] == 4999


def test_dlpack_in():
    source = np.arange(6.0)
    x = nd.from_dlpack(source)
    source[0] = 42
    shared = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # 2.0 hands over read-only: a copy
    assert x.asnumpy()[0] == (42 if shared else 0) and x.dtype == np.float64
    back = nd.from_dlpack(nd.to_dlpack_for_read(nd.ones((2, 2))))
    assert back.asnumpy().tolist() == [[1, 1], [1, 1]]
    ours = nd.zeros(3)
    theirs = nd.from_dlpack(nd.to_dlpack_for_write(ours))
    theirs[:] = 7
    theirs.wait_to_read()
    assert ours.asnumpy().tolist() == [7, 7, 7]  # the same memory
    del ours
    gc.collect()
    nd.zeros(3).wait_to_read()  # would reuse the memory had it been given back
    assert theirs.asnumpy().tolist() == [7, 7, 7]


def test_save_and_load(tmp_path):
    path = str(tmp_path / "x.params")
    x, y = nd.arange(6).reshape((2, 3)), nd.array([1, 2], dtype="int64", ctx=cpu(1))
    nd.save(path, x)
    (only,) = nd.load(path)
    assert only.asnumpy().tolist() == x.asnumpy().tolist()
    nd.save(path, [x[1], y])
    first, second = nd.load(path)
    assert first.asnumpy().tolist() == [3, 4, 5] and second.dtype == np.int64
    nd.save(path, {"w": x, "b": y})
    loaded = nd.load(path)
    assert list(loaded) == ["w", "b"] and loaded["b"].context == cpu(0)
    with open(path, "rb") as f:
        assert list(nd.load_frombuffer(f.read())) == ["w", "b"]
    with pytest.raises(TypeError, match=r"nd\.array"):
        nd.save(path, [np.ones(2)])
    bad = nd.random.normal(0, -1, shape=(2,))
    with pytest.raises(MXNetError, match="scale"):
        nd.save(path, [x, bad])
    assert list(nd.load(path)) == ["w", "b"]  # the old file is as it was


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
    with pytest.raises(MXNetError, match="out= has shape"):
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


@pytest.mark.parametrize(
    ("call", "write"),
    [
        (lambda: nd.zeros(2, 3), "zeros((2, 3))"),
        (lambda: nd.ones(2, 3, 4), "ones((2, 3, 4))"),
        (lambda: nd.empty(np.int64(2), np.int64(3)), "empty((2, 3))"),
    ],
)
def test_a_shape_given_as_several_arguments(call, write: str):
    name = write.partition("(")[0]
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == (
        f"{name}: the shape is one argument; the second is ctx, a Context such as cpu(), not 3; "
        f"write nd.{write}"
    )


def test_the_traceback_ends_at_the_callers_line():
    """What the reader sees last is the library's message, what they see first is their line."""
    with pytest.raises(MXNetError) as caught:
        nd.ones(2) + nd.ones(3)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


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


def test_a_partial_write_does_not_heal(engine_kind: str):
    bad = nd.random.normal(0, -1, shape=(4,))
    bad[1:3] = 0
    with pytest.raises(MXNetError, match="scale"):
        bad.asnumpy()
    bad += 1
    with pytest.raises(MXNetError, match="scale"):
        bad.asnumpy()


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
    assert len(functions) > 5
    assert [n for n, x in functions.items() if pickle.loads(pickle.dumps(x)) is not x] == []


@pytest.mark.parametrize(
    "name",
    """nd.relu nd.add nd.FullyConnected nd.random_normal nd.linalg.gemm2 nd._internal._plus_scalar
    nd.contrib.arange_like nd.NDArray.sum sym.relu sym.pow sym.linalg.gemm2""".split(),
)
def test_functions_are_pickled_and_copied_by_name(name: str):
    function = eval(name, {"nd": nd, "sym": d2lmini.sym})
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.copy(function) is copy.deepcopy(function) is function
    assert name.endswith(function.__name__.strip("_")) or name in ALIASES
    assert inspect.signature(function).parameters


#: An op or function is known by one of its names.
ALIASES = ("nd.random_normal", "nd.linalg.gemm2", "nd.contrib.arange_like", "sym.pow")


def test_the_signature_of_an_op_can_be_called():
    signature = inspect.signature(nd.FullyConnected)
    bound = signature.bind(nd.ones((1, 3)), nd.ones((2, 3)), num_hidden=2, no_bias=True)
    assert nd.FullyConnected(*bound.args, **bound.kwargs).asnumpy().tolist() == [[3, 3]]
    assert str(inspect.signature(nd.concat)) == "(*data, dim=1, out=None, name=None, **kwargs)"
    with pytest.raises(TypeError):
        signature.bind()


def test_pending_arrays_and_views_are_pickled_whole():
    x, go = held()
    threading.Timer(0.05, go.set).start()
    row = pickle.loads(pickle.dumps((x + 1)[1]))  # waits
    assert row.asnumpy().tolist() == [1, 1] and row.context == cpu()
    bad = nd.random.normal(0, -1, shape=(2,))
    with pytest.raises(MXNetError, match="scale"):
        pickle.dumps(bad)


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


def test_results_computed_inline_do_not_count_as_pending():
    with engine.use("threaded", workers=1, inline_below=1e6):
        x = nd.ones((10_000,)) + 1  # computed here
        go = threading.Event()
        engine.push(lambda: go.wait(30), reads=[x], name="reader")
        assert engine.stats().pending_bytes == 0
        go.set()


def test_bounded_run_ahead_pauses_the_front_end():
    with engine.use("threaded", workers=1, inline_below=0):
        engine.limit_pending(20_000_000)
        for _ in range(40):
            y = nd.ones((1_000_000,))
            y = y + 1
        nd.waitall()
        stats = engine.stats()
    assert y[0].asscalar() == 2
    # A result whose last handle dies after its last push joins what is pending then.
    assert stats.paused > 0 and stats.peak_pending_bytes <= 24_000_000
