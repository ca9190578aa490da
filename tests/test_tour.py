"""A tour of d2lmini in twenty short tests: read this first.

Each test shows one idea with the smallest program that has it. They run on the engine you get by
default unless they say otherwise, and all of them together take about a second.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

import d2lmini
from d2lmini import Benchmark, MXNetError, cpu, engine, nd, storage
from d2lmini.base import instrument
from d2lmini.ops.core import registry


def held() -> tuple[nd.NDArray, threading.Event]:
    """An array of ones that is being written until the event is set: time to look at a queue."""
    x, go = nd.ones((2, 2)), threading.Event()
    x.wait_to_read()  # the ones are there: from now on only what comes next is pending
    engine.push(lambda: go.wait(30), writes=[x], name="held")
    return x, go


# -- asynchronous execution ------------------------------------------------------------------------


def test_an_operation_returns_before_it_is_computed():
    """You get a handle at once: shape and dtype are known, the numbers are on their way."""
    x, go = held()
    y = nd.dot(x, x) + 1
    assert y.shape == (2, 2) and y.dtype == np.float32
    assert engine.stats().pending == 3  # held, dot, + 1
    go.set()
    assert y.asnumpy().tolist() == [[3, 3], [3, 3]]  # asnumpy waits


def test_the_engine_orders_by_what_is_read_and_written():
    """Whatever runs when, each array sees its reads and writes in the order of your program."""
    with engine.use("threaded", workers=4, inline_below=0):
        x, seen = nd.zeros((2,)), []
        for _ in range(5):
            x += 1
            seen.append(x * 10)  # reads what the line above wrote, not what the next one will
        assert [y[0].asscalar() for y in seen] == [10, 20, 30, 40, 50]


def test_work_that_is_independent_does_not_queue_up():
    """Nothing orders two tasks that share no array: the second need not wait for the first."""
    with engine.use("threaded", workers=2, inline_below=0):
        _busy, go = held()
        y = nd.ones((2, 2)) * 2
        assert y.asnumpy().sum() == 8 and engine.stats().pending == 1
        go.set()


def test_readers_run_together():
    """Two tasks that only read can meet: each waits here until the other has come as well."""
    with engine.use("threaded", workers=2):
        x, meeting = nd.ones((2,)), threading.Barrier(2)
        for _ in range(2):
            engine.push(lambda: meeting.wait(30), reads=[x])
        engine.waitall()


def test_printing_waits_too():
    """Whoever shows numbers needs them: print, asnumpy, asscalar, bool, float, save, ..."""
    with engine.use("threaded", inline_below=0):
        total = nd.ones((300, 300)).sum()
        assert repr(total) == "\n[90000.]\n<NDArray 1 @cpu(0)>"
        assert engine.stats().pending == 0


def test_a_stopwatch_can_stop_too_early():
    """The clock of a Benchmark without `sync` measures how long it took to queue the work."""
    x, go = held()
    with Benchmark(quiet=True) as timer:
        nd.dot(x, x)
    assert timer.in_flight == 2  # held, dot
    go.set()


def test_small_operations_run_where_they_are_called():
    """A hand-over to a worker costs more than a tiny product; `inline_below` is the dial."""
    with engine.use("threaded"):
        nd.ones((2, 2)) + 1
        assert engine.stats().inline == engine.stats().executed == 2
        engine.inline_below = 0
        nd.ones((2, 2)) + 1
        nd.waitall()
        assert engine.stats().inline == 2 and engine.stats().executed == 4


def test_the_queue_is_bounded():
    """Results that wait to be computed take no memory yet, but they will: pushing pauses."""
    with engine.use("threaded"):
        engine.limit_pending(10_000_000)
        for _ in range(100):
            nd.ones((1000, 1000)) * 2  # 4 MB each
        nd.waitall()
        # What loses its last handle after its push joins the pending bytes: one array here.
        assert engine.stats().peak_pending_bytes <= 14_000_000 and engine.stats().paused > 0


def test_the_naive_engine_gives_the_same_bits():
    """The serial twin runs each task as you push it: for debugging, and as the tests' oracle."""
    x = nd.random.normal(shape=(50, 50))
    threaded = nd.dot(x, x).tanh().asnumpy()
    with engine.use("naive"):
        y = nd.dot(x, x).tanh()
        assert engine.stats().pending == 0
        assert (y.asnumpy() == threaded).all()


# -- errors ----------------------------------------------------------------------------------------


def test_wrong_shapes_are_found_at_the_call():
    """What follows from shapes, dtypes and attributes needs no computing: it fails at your line."""
    with pytest.raises(MXNetError, match="dot: inner sizes differ"):
        nd.dot(nd.ones((2, 3)), nd.ones((4, 5)))
    with pytest.raises(MXNetError, match="dtypes differ: int32, float32"):
        nd.ones(2, dtype="int32") + nd.ones(2)


def test_an_error_while_computing_waits_for_whoever_looks():
    """It is kept on the result, and on all that depends on it; the message names both lines."""
    x = nd.random.normal(0, -1, shape=(2,))  # nothing is raised here
    y = x + 1
    with pytest.raises(MXNetError, match="scale must be 0 or more") as caught:
        y.wait_to_read()
    assert "issued at" in str(caught.value) and "noticed at" in str(caught.value)
    x[:] = 3  # overwritten, it is sound again
    assert (x + 1).sum().asscalar() == 8


# -- arrays ----------------------------------------------------------------------------------------


def test_a_slice_is_a_view():
    """x[1] and x[1:3] are windows on the memory of x; what is not one stretch of it is a copy."""
    x = nd.arange(6).reshape((3, 2))
    row, column = x[1], x[:, 1]
    row[:] = 9
    column[:] = -1
    assert x.asnumpy().tolist() == [[0, 1], [9, 9], [4, 5]]


def test_dtypes_follow_mxnet_not_numpy():
    """Arrays are float32 unless told otherwise, and a number never changes an array's dtype."""
    assert nd.array(np.arange(3)).dtype == np.float32
    n = nd.array([3, 5], dtype="int32")
    assert ((n / 2).asnumpy().tolist(), (n / 2).dtype) == ([1, 2], np.int32)
    assert (nd.array([1, 2]) > 1).asnumpy().tolist() == [0.0, 1.0]


def test_shapes_follow_mxnet_not_numpy():
    """A full reduction keeps one axis; reshape knows 0 (as it is), -1 (the rest), -3 (join two)."""
    x = nd.ones((2, 3, 4))
    assert x.sum().shape == (1,) and x.mean(axis=1).shape == (2, 4)
    assert x.reshape((0, -1)).shape == (2, 12) and x.reshape((-3, 0)).shape == (6, 4)


def test_random_numbers_do_not_depend_on_the_schedule():
    """Each operation has a stream of its own, from the seed and its number in your program."""

    def draw() -> bytes:
        d2lmini.random.seed(7)
        return (
            (nd.random.uniform(shape=(500,)) + nd.random.normal(shape=(500,))).asnumpy().tobytes()
        )

    with engine.use("threaded", workers=3, inline_below=0):
        queued = draw()
    with engine.use("naive"):
        assert draw() == queued


def test_files_are_mxnet_s_own(tmp_path):
    """`nd.save` writes what MXNet reads, and the other way round."""
    path = str(tmp_path / "weights.params")
    nd.save(path, {"weight": nd.ones((2, 3)), "bias": nd.zeros((2,), dtype="float16")})
    loaded = nd.load(path)
    assert list(loaded) == ["weight", "bias"] and loaded["bias"].dtype == np.float16


def test_numpy_looks_into_the_same_memory():
    """asnumpy copies; DLPack does not, in either direction."""
    x = nd.zeros((3,))
    window = np.from_dlpack(x)
    x[1] = 5
    x.wait_to_read()
    assert window.tolist() == [0, 5, 0]


# -- under the bonnet ------------------------------------------------------------------------------


def test_memory_goes_back_to_a_pool():
    """A freed block is kept for the next array of its size, so that the pages are there already."""
    ctx = cpu(7)  # a device with books of its own
    x = nd.ones((1000, 1000), ctx=ctx)
    nd.waitall()
    assert storage.stats(ctx).live == 4_000_000
    del x
    assert storage.stats(ctx).live == 0 and storage.stats(ctx).cached >= 4_000_000


def test_an_op_is_declared_once():
    """Shape rule, arithmetic, gradient and cost stand together; all else is derived from them."""
    sigmoid = registry["sigmoid"]
    x = nd.array([0.0, 1.0])
    y, g = sigmoid(x), nd.ones((2,))
    assert sigmoid.rule(g, y).asnumpy() == pytest.approx([0.25, 0.196612])  # y (1 - y)
    assert sigmoid.cost([((2, 3), "float32")]).nbytes == 48


def test_anyone_may_listen():
    """Profilers, widgets and this test hear of every push, start, end, wait, alloc and free."""

    class Names(instrument.Instrument):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def push(self, task):
            self.heard.append(task.name)

        def wait(self, kind, target, site, begin_ns, end_ns):
            self.heard.append(kind)

    with instrument.listening(Names()) as names:
        nd.dot(nd.ones((2, 2)), nd.ones((2, 2))).asnumpy()
    assert names.heard == ["_ones", "_ones", "dot", "asnumpy"]
