"""The lazy scope: the same values as outside it, and only what is read is computed.

What was computed is counted by the engine's hooks and `engine.stats()`, never by time.
"""

from __future__ import annotations

import gc
import os
import random
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from gpu_kinds import some_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupts import PACKAGE
from random_steps import SHAPES, Pair, step
from strikes import strike_everywhere

import d2lmini
from d2lmini import MXNetError, autograd, engine, gluon, instrument, nd
from d2lmini.engine.scheduler import Scheduler
from d2lmini.graph.lazy_recorder import MOST_NUMBERS, recorder, thread_state


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test begins and ends with nothing pending and nothing recorded."""
    nd.waitall()
    yield
    nd.waitall()
    gc.collect()
    assert not recorder.values and not recorder.live and not recorder.sources
    assert Scheduler.recorder is None and not recorder.scopes
    assert recorder._listener not in instrument.listeners


class Ended(instrument.Instrument):
    """The names of the tasks that ended."""

    def __init__(self):
        self.names = []

    def end(self, task, failure):
        self.names.append(task.name)


def ones(*shape):
    x = nd.ones(shape)
    x.wait_to_read()
    return x


# -- what is computed ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (400, 500)])
def test_a_value_that_is_overwritten_before_it_is_read_is_not_computed(shape):
    x = ones(*shape)
    with instrument.listening(Ended()) as ended, d2lmini.lazy() as scope:
        before = engine.stats().executed
        for _ in range(1000):
            y = x + 1
        assert not ended.names and engine.stats().executed == before
        np.testing.assert_array_equal(y.asnumpy(), np.full(shape, 2, "float32"))
        assert ended.names == ["lazy"] and engine.stats().executed == before + 1
    assert (scope.recorded, scope.computed, scope.dropped) == (1000, 1, 999)
    assert str(scope.program()).count("add(") == 1


def test_outside_a_scope_everything_is_computed():
    x = ones(3)
    before = engine.stats().executed
    for _ in range(10):
        y = x + 1
    y.wait_to_read()
    assert engine.stats().executed == before + 10


def test_whole_overwrites_in_place_are_dropped_too():
    x, y = ones(3), ones(3)
    before = engine.stats().executed
    with d2lmini.lazy() as scope:
        for k in range(100):
            y[:] = x + k
        z = y * 2
        assert engine.stats().executed == before
        assert z.asnumpy().tolist() == [200.0] * 3
        assert y.asnumpy().tolist() == [100.0] * 3
    assert scope.computed == 3  # one sum, its copy into y, one product
    assert engine.stats().executed == before + 1


def test_a_chain_runs_as_one_fused_task():
    x = nd.random.normal(shape=(300, 400))
    a = x.asnumpy()
    with instrument.listening(Ended()) as ended, d2lmini.lazy() as scope:
        y = x
        for _ in range(5):
            y = (y * 1.5).tanh()
        y.wait_to_read()
    assert ended.names == ["lazy"]
    (program,) = scope._programs
    assert program.cost.groups == 1 and "tanh" in scope.program()
    for _ in range(5):
        a = np.tanh(a * np.float32(1.5))
    np.testing.assert_allclose(y.asnumpy(), a, rtol=1e-5)


def test_only_what_the_awaited_value_needs_is_computed():
    x = ones(4)
    with d2lmini.lazy() as scope:
        y = x + 1
        z = nd.dot(x, x)
        y.wait_to_read()
        assert (scope.recorded, scope.computed) == (2, 1)
        z.wait_to_read()
        assert scope.computed == 2


def test_nothing_is_computed_twice():
    x = ones(4)
    with d2lmini.lazy() as scope:
        y = (x + 1).tanh()
        a, b, c = y * 2, y * 3, y - 1
        del y  # nobody can read it, but a, b and c are computed from it
        for value in (a, b, c):
            value.wait_to_read()
    assert scope.recorded == scope.computed == 5
    assert scope.program().count("tanh(") == 1


def test_at_the_end_what_can_still_be_read_is_pushed():
    x = ones(4)
    with d2lmini.lazy() as scope:
        y, _ = x + 1, x - 1
        _ = None
        z = y * y
    assert (scope.computed, scope.dropped) == (2, 1)
    assert y.asnumpy().tolist() == [2.0] * 4 and z.asnumpy().tolist() == [4.0] * 4


def test_a_loop_compiles_once():
    x = ones(4)
    with d2lmini.lazy() as scope:
        for _ in range(20):
            y = (x * 2.25 + 0.125).sigmoid()
            y.wait_to_read()
    assert scope.computed == 60 and scope.compiled <= 1
    assert scope.program().count("def lazy(") == 1


def test_numbers_of_different_types_are_different_programs():
    x = nd.array([1, 2, 3], dtype="int32")
    with d2lmini.lazy():
        values = [(x + k).asnumpy().tolist() for k in (1, True, 2)]
        signs = [(1 / (ones(1) * zero)).asscalar() for zero in (0.0, -0.0)]
    assert values == [[2, 3, 4], [2, 3, 4], [3, 4, 5]]
    assert signs == [np.inf, -np.inf]


def test_numbers_that_change_in_each_step_are_not_compiled_forever():
    recorder._programs.clear()
    recorder._forms.clear()
    x = ones(4)
    with d2lmini.lazy() as scope:
        for k in range(40):
            y = (x * (k + 0.5)).abs() - k
            assert y.asnumpy().tolist() == [0.5] * 4
    assert scope.compiled == MOST_NUMBERS and scope.computed == 120


# -- the same values -------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    inline=st.booleans(),
    bulk=st.sampled_from([0, 5]),
    naive=st.integers(0, 5).map(lambda k: k == 0),
    patience=st.sampled_from([1, 5, 30, 1000]),
)
def test_random_programs_equal_numpy(seed, workers, inline, bulk, naive, patience):
    rng = random.Random(seed)
    options = {} if naive else {"workers": workers, "inline_below": 20.0 if inline else 0.0}
    with engine.use("naive" if naive else "threaded", **options), engine.bulk(bulk):
        arrays = []
        for i, shape in enumerate(SHAPES):
            values = np.full(shape, i, "float32") + np.arange(shape[1], dtype="float32") % 5
            arrays.append(Pair(nd.array(values), values))
        with d2lmini.lazy():
            for _ in range(60):
                step(rng, arrays)
                if rng.randrange(patience) == 0:
                    pair = rng.choice(arrays)
                    assert pair.ours.asnumpy().tobytes() == pair.theirs.tobytes()
        engine.current.check()
        for pair in arrays:
            assert pair.ours.asnumpy().tobytes() == pair.theirs.tobytes()


# No op jumps where a rounding may differ.
KINDS = [
    lambda x, y, w, i, k: nd.dot(x, y).tanh(),
    lambda x, y, w, i, k: nd.broadcast_mul(x, y.sum(axis=1, keepdims=True)).sigmoid(),
    lambda x, y, w, i, k: nd.softmax(x.T * k),
    lambda x, y, w, i, k: nd.concat(x[:, :2], y[:, 2:], dim=1),
    lambda x, y, w, i, k: (
        nd.add_n(*nd.split(x, 2, axis=0)).reshape((1, 8)).tile((2, 1)).reshape((4, 4))
    ),
    lambda x, y, w, i, k: nd.where(nd.random.normal(shape=(4, 4)) > 0, x * k, (y - k).sin()),
    lambda x, y, w, i, k: nd.Dropout(x, p=0.5),
    lambda x, y, w, i, k: x[i] - y[:, i].mean() + nd.random.normal(shape=(4, 4)),
    lambda x, y, w, i, k: nd.BatchNorm(x, *(nd.ones(4) * c for c in (1, 0, 0, 1)), fix_gamma=False),
    lambda x, y, w, i, k: nd.FullyConnected(x, w, nd.ones(4) * k, num_hidden=4).arctan(),
    lambda x, y, w, i, k: nd.one_hot(nd.random.uniform(shape=(3, 4)).argmax(axis=0), 4) * y,
]


def walk(seed):
    """A random program on small matrices: all kinds of ops, views, writes, gradients. It draws only
    from `seed`, so that it is the same inside a scope and outside."""
    rng = random.Random(seed)
    d2lmini.random.seed(seed)
    w = nd.random.normal(shape=(4, 4))
    w.attach_grad()
    arrays = [nd.random.uniform(-1, 1, shape=(4, 4)) for _ in range(3)] + [w]
    read = []
    for _ in range(25):
        x, y = rng.choice(arrays), rng.choice(arrays)
        i, k = rng.randrange(3), rng.choice([0.5, 1, 2])
        with autograd.record(rng.random() < 0.5):
            made = rng.choice(KINDS)(x, y, w, i, k)
        act = rng.randrange(7)
        if act == 0:
            y = y.detach() if y is w else y
            with autograd.pause():
                y[i] = made[i]
        elif act == 1 and y is not w:
            with autograd.pause():
                y[:] = made * 0.5
        elif act == 2 and y is not w:
            with autograd.pause():
                nd.elemwise_add(x, made, out=y)
        elif act == 3 and made._node is not None:
            try:
                made.backward()
            except MXNetError as error:  # something was overwritten: outside, too
                read.append(str(error).splitlines()[0].encode())
        elif act == 4:
            read.append(made.asnumpy())
        arrays.append(made)
        if len(arrays) > 6:
            del arrays[next(i for i, a in enumerate(arrays) if a is not w)]
    return [x.asnumpy() if isinstance(x, nd.NDArray) else x for x in [*read, *arrays, w.grad]]


@pytest.mark.filterwarnings("ignore:.*an earlier backward has used up")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["naive", "threaded"]))
def test_random_programs_give_the_same_values_as_outside(seed, kind):
    outside = walk(seed)
    with engine.use(kind), d2lmini.lazy() as scope:
        inside = walk(seed)
    assert scope.recorded > 25 and len(inside) == len(outside)
    for x, y in zip(inside, outside):
        if isinstance(x, bytes):
            assert x == y
        else:
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-4)


def test_readers_recorded_before_a_write_in_place_keep_the_old_value():
    x = ones(4)
    with d2lmini.lazy():
        y = x + 1
        x += 5
        z = x * 2
        x[1] = 0  # a part: pushed, after those who read the whole
        assert z.asnumpy().tolist() == [12.0] * 4
        assert x.asnumpy().tolist() == [6.0, 0.0, 6.0, 6.0]
        assert y.asnumpy().tolist() == [2.0] * 4


def test_views_of_recorded_arrays_see_and_are_seen():
    with d2lmini.lazy():
        x = nd.arange(6).reshape((2, 3)) + 0
        row, flat = x[1], x.reshape((-1,))
        y = row * 10 + flat[:3]
        x += 1
        row[:] = 7
        assert y.asnumpy().tolist() == [30.0, 41.0, 52.0]
        assert flat.asnumpy().tolist() == [1.0, 2.0, 3.0, 7.0, 7.0, 7.0]


def test_random_numbers_are_those_of_outside():
    def draw():
        d2lmini.random.seed(3)
        a = nd.random.normal(shape=(50,))
        dropped = nd.random.uniform(shape=(7,))
        b = nd.random.uniform(shape=(50,))
        del dropped
        return a * 2, b + a

    outside = [v.asnumpy() for v in draw()]
    with d2lmini.lazy():
        inside = [v.asnumpy() for v in reversed(draw())][::-1]
    for x, y in zip(outside, inside):
        np.testing.assert_array_equal(x, y)


def test_copies_files_and_pushed_functions_read_what_is_recorded(tmp_path):
    seen = []
    with d2lmini.lazy():
        x = ones(3) * 2
        engine.push(lambda: seen.append(x._chunk.data.tolist()), reads=[x])
        nd.save(str(tmp_path / "x"), [x + 1])
        (y,) = nd.load(str(tmp_path / "x"))
        z = nd.zeros(3)
        (x * 4).copyto(z)
        foreign = np.from_dlpack(z + 1)
    nd.waitall()
    assert seen == [[2.0] * 3]
    assert y.asnumpy().tolist() == [3.0] * 3 and z.asnumpy().tolist() == [8.0] * 3
    assert foreign.tolist() == [9.0] * 3


def test_who_waits_to_write_may_write_past_the_engine():
    x = ones(3)
    memory = x.asnumpy_view()
    with d2lmini.lazy():
        y = x + 1
        x.wait_to_write()
        memory[:] = 7
        z = x + 1
    assert y.asnumpy().tolist() == [2.0] * 3 and z.asnumpy().tolist() == [8.0] * 3


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_a_task_may_push_on_what_is_recorded(kind):
    results = []
    with engine.use(kind):
        x, tag = ones(3), engine.new_var()
        with d2lmini.lazy() as scope:
            y = x + 1
            engine.push(lambda: results.append(y * 10), writes=[tag])
            engine.wait_for_var(tag)
            assert scope.recorded == 1  # what a task does is none of this thread's
            assert results[0].asnumpy().tolist() == [20.0] * 3


# -- autograd and training -------------------------------------------------------------------------


def grads_of_a_net(lazily):
    d2lmini.random.seed(0)
    x = nd.random.normal(shape=(8, 5))
    w = nd.random.normal(shape=(3, 5))
    b = nd.zeros(3)
    for p in (w, b):
        p.attach_grad()

    def run():
        for _ in range(3):
            with autograd.record():
                y = nd.FullyConnected(x, w, b, num_hidden=3)
                loss = nd.softmax(nd.Dropout(y.tanh(), p=0.5)).log().sum()
            loss.backward()
            for p in (w, b):
                p[:] = p - 0.1 * p.grad
        return loss.asnumpy(), w.asnumpy(), w.grad.asnumpy(), b.asnumpy()

    if not lazily:
        return run()
    with d2lmini.lazy():
        return run()


def test_gradients_and_updates_are_those_of_outside():
    for inside, outside in zip(grads_of_a_net(True), grads_of_a_net(False)):
        np.testing.assert_allclose(inside, outside, rtol=1e-4, atol=1e-5)


def test_a_value_may_be_overwritten_before_backward():
    x = ones(3)
    x.attach_grad()
    with d2lmini.lazy():
        with autograd.record():
            y = x * x
            z = y * y
        with autograd.pause():
            y[:] = 0
        z.backward()
        assert x.grad.asnumpy().tolist() == [4, 4, 4]
        with autograd.record():
            z = (x * 3) ** 2
        z.backward()
    assert x.grad.asnumpy().tolist() == [18.0] * 3


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_trainer_in_a_scope(hybrid, optimizer):
    def train(lazily):
        d2lmini.random.seed(1)
        np.random.seed(1)
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(2))
        net.initialize(d2lmini.init.Normal(0.5))
        if hybrid:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.05})
        loss = gluon.loss.L2Loss()
        X, y = nd.random.normal(shape=(16, 4)), nd.random.normal(shape=(16, 2))

        def steps():
            for _ in range(4):
                with autograd.record():
                    l = loss(net(X), y)
                l.backward()
                trainer.step(16)
            return [l.asnumpy(), *(p.data().asnumpy() for p in net.collect_params().values())]

        if not lazily:
            return steps()
        with d2lmini.lazy():
            return steps()

    for inside, outside in zip(train(True), train(False)):
        np.testing.assert_allclose(inside, outside, rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients():
    x = nd.array([3, 2])
    x.attach_grad()
    with d2lmini.lazy():
        with autograd.record():
            y = x**3
            (dy,) = autograd.grad(y, [x], create_graph=True)
        dy.backward()
        assert x.grad.asnumpy().tolist() == [18.0, 12.0]


# -- errors ----------------------------------------------------------------------------------------


def test_wrong_shapes_are_errors_at_the_call():
    x = ones(3)
    with d2lmini.lazy():
        y = x + 1
        with pytest.raises(MXNetError, match="broadcast"):
            nd.broadcast_add(x, ones(4))
        assert y.asnumpy().tolist() == [2.0] * 3


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_only_what_depends_on_the_op_that_failed_is_missing(kind):
    with engine.use(kind):
        x = ones(2, 2)
        with d2lmini.lazy():
            good = x + 1
            factor = nd.random.normal(0, -1, (2, 2))  # this line is named
            after = factor * 2 + good
            both = good * 3
        assert both.asnumpy().tolist() == [[6.0, 6.0]] * 2
        assert good.asnumpy().tolist() == [[2.0, 2.0]] * 2
        for value in (factor, after):
            with pytest.raises(MXNetError, match="this line is named") as caught:
                value.asnumpy()
            assert str(caught.value).startswith("_random_normal: ")
        nd.waitall()  # it was raised already


def test_a_value_that_is_missing_before_is_missing_only_where_it_is_read():
    with engine.use("threaded", inline_below=0.0):
        factor = nd.random.normal(0, -1, (2, 2))
        x = ones(2, 2)
        with d2lmini.lazy():
            after, good = factor + 1, x + 1
        assert good.asnumpy().tolist() == [[2.0, 2.0]] * 2
        with pytest.raises(MXNetError, match="scale must be"):
            after.asnumpy()
        factor[:] = 1
        assert factor.asnumpy().tolist() == [[1.0, 1.0]] * 2


def test_an_error_that_nobody_waited_for_is_raised_by_waitall():
    with d2lmini.lazy():
        factor = nd.random.normal(0, -1, (2, 2))
    with pytest.raises(MXNetError, match="scale must be"):
        nd.waitall()
    del factor


def test_an_exception_that_leaves_the_scope_leaves_all_usable():
    x = ones(3)
    with pytest.raises(ZeroDivisionError), d2lmini.lazy():
        y = x + 1
        1 // 0
    assert y.asnumpy().tolist() == [2.0] * 3


# -- scopes, threads, bounds -----------------------------------------------------------------------


def test_nested_scopes_end_one_by_one():
    x = ones(3)
    with d2lmini.lazy() as outer:
        with pytest.raises(MXNetError, match="open already"):
            outer.__enter__()
        a = x + 1
        with d2lmini.lazy() as inner:
            b = x + 2
        assert (outer.computed, inner.computed) == (0, 1)
        c = b + a
    assert (outer.computed, inner.computed) == (2, 1)
    assert c.asnumpy().tolist() == [5.0] * 3


def test_other_threads_run_at_once_and_may_wait_for_what_is_recorded():
    x = ones(3)
    got = []

    def other():
        before = engine.stats().executed
        z = nd.ones(3) * 3
        z.wait_to_read()
        got.append(engine.stats().executed - before)
        got.append(y.asnumpy().tolist())
        got.append((y + z).asnumpy().tolist())

    with d2lmini.lazy() as scope:
        y = x + 1
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
    assert got == [2, [2.0] * 3, [5.0] * 3]
    assert (scope.recorded, scope.computed) == (1, 1)


def test_many_threads_record_on_shared_arrays():
    shared = [ones(5) for _ in range(3)]
    sums, problems = [None] * 6, []

    def work(k):
        rng = random.Random(k)
        try:
            with d2lmini.lazy():
                total = nd.zeros(5)
                for i in range(150):
                    total = total + shared[rng.randrange(3)] * k
                    if rng.randrange(40) == 0:
                        total.wait_to_read()
                    if i % 50 == 0:
                        nd.waitall()
                sums[k] = total
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not problems
    assert [s.asnumpy().tolist() for s in sums] == [[150.0 * k] * 5 for k in range(6)]


def test_the_graph_is_bounded():
    y = ones(3)
    with d2lmini.lazy() as scope:
        for k in range(2500):
            y = nd.maximum(y, k % 7)
            assert len(recorder.live) <= 1001
        assert 1000 < scope.computed < 2500
    assert y.asnumpy().tolist() == [6.0] * 3


def test_memory_that_steps_alone_keep_is_bounded():
    engine.limit_pending(1 << 20)
    try:
        with d2lmini.lazy() as scope:
            total = nd.zeros((100, 100))
            for k in range(200):
                batch = nd.array(np.full((100, 100), k, "float32"))
                total = total + batch
            assert scope.computed > 100
    finally:
        engine.limit_pending(None)
    assert total.asnumpy()[3, 4] == 199 * 100


def test_a_wait_for_everything_computes_everything():
    x = ones(3)
    with d2lmini.lazy() as scope:
        y = x + 1
        nd.waitall()
        assert scope.computed == 1 and not recorder.values
        assert y._chunk.data.tolist() == [2.0] * 3


def test_a_finalizer_may_push_in_the_midst_of_recording():
    class Last:
        def __init__(self):
            self.me = self

        def __del__(self):
            log.append(nd.ones(2) + 1)

    log = []
    x = ones(3)
    with d2lmini.lazy():
        for _ in range(5):
            Last()
            with recorder.lock:
                gc.collect()  # as if the collector had come while a step is recorded
            y = x + 1
        assert y.asnumpy().tolist() == [2.0] * 3
    nd.waitall()
    assert len(log) == 5 and all(v.asnumpy().tolist() == [2.0, 2.0] for v in log)


# -- Ctrl-C and forks ------------------------------------------------------------------------------

LAZY_FILES = tuple(str(p) for p in (PACKAGE / "graph").glob("lazy*.py"))


def value_of(x):
    """Its contents, or None where Ctrl-C struck while they were computed."""
    try:
        return x.asnumpy().tolist()
    except MXNetError as error:
        assert "interrupted by Ctrl-C" in str(error)


@pytest.mark.parametrize("what", ["wait", "record", "write", "push", "scope"])
def test_ctrl_c_anywhere_leaves_all_usable(what):
    """Struck at every point of the recorder's code: a write in place happens once or not at all."""

    def scenario():
        x, done = ones(3), []
        scope = d2lmini.lazy()
        acts = {
            "wait": lambda: y.wait_to_read(),
            "record": lambda: x * 3,
            "write": lambda: x.__iadd__(5),
            "push": lambda: engine.push(lambda: done.append(1), reads=[y], writes=[x]),
        }

        def enter_and_leave():
            with scope:
                x.__iadd__(5)

        if what == "scope":
            struck = yield enter_and_leave
            if struck and thread_state.scope is scope:  # as Python was about to enter __exit__
                scope.__exit__()
            assert value_of(x) in ([[1.0] * 3, [6.0] * 3, None] if struck else [[6.0] * 3])
        else:
            with scope:
                y = x + 1
                x += 1
                struck = yield acts[what]
                z = x + 0
            both = [[2.0] * 3, [7.0] * 3] if what == "write" else [[2.0] * 3]
            if struck:
                both.append(None)
            assert value_of(y) in ([2.0] * 3, None) and value_of(x) in both
            assert value_of(z) in both
            assert struck or value_of(y) is not None
        assert not recorder._busy and not thread_state.scope
        engine.current.check()
        with d2lmini.lazy():
            x[:] = 4
            w = x * 2
        assert w.asnumpy().tolist() == [8.0] * 3
        try:
            nd.waitall()
        except MXNetError as error:
            assert "interrupted by Ctrl-C" in str(error)

    strike_everywhere(scenario, LAZY_FILES)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks need Unix")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_computes_what_was_recorded():
    x = ones(3)
    with d2lmini.lazy():
        y = x + 1
        child = os.fork()
        if child == 0:
            os._exit(0 if y.asnumpy().tolist() == [2.0] * 3 else 1)
        _, status = os.waitpid(child, 0)
    assert status == 0 and y.asnumpy().tolist() == [2.0] * 3


def test_another_engine_inside_a_scope():
    x = ones(3)
    with d2lmini.lazy() as scope:
        y = x + 1
        with engine.use("threaded", workers=1):
            assert scope.computed == 1
            z = y * 2
            assert scope.computed == 1
        assert scope.computed == 2
    assert z.asnumpy().tolist() == [4.0] * 3


# -- several devices -------------------------------------------------------------------------------


@pytest.fixture(params=["virtual", "fake"])
def gpus(request):
    """Two devices on the cores, or of the fake CUDA, which runs behind the host."""
    with some_gpus(request.param, 2) as found:
        yield found
        nd.waitall()


def test_what_a_device_computes_is_recorded(gpus):
    x = nd.ones((2, 3), ctx=gpus[0])
    x.wait_to_read()
    with instrument.listening(Ended()) as ended, d2lmini.lazy() as scope:
        for _ in range(100):
            y = x + 1
        assert not ended.names
        assert y.asnumpy().tolist() == [[2] * 3] * 2
        assert ended.names == ["lazy", "CopyGPU2CPU"] and y.context == gpus[0]
    assert (scope.recorded, scope.computed, scope.dropped, scope.compiled) == (100, 1, 99, 1)


def test_a_wait_for_everything_pushes_a_task_for_each_device(gpus):
    places = [d2lmini.cpu(), *gpus]
    xs = [nd.ones(3, ctx=ctx) for ctx in places]
    nd.waitall()
    with d2lmini.lazy() as scope:
        ys = [[x + i for x in xs] for i in range(4)]  # in turns
        with instrument.listening(Tasks()) as tasks:
            nd.waitall()
        assert sorted(str(task.ctx) for task in tasks.ended) == ["cpu(0)", "gpu(0)", "gpu(1)"]
        assert {task.name for task in tasks.ended} == {"lazy"} and scope.computed == 12
    assert [[y.asscalar() for y in map(lambda y: y[:1], row)] for row in ys] == [
        [i + 1] * 3 for i in range(4)
    ]


class Tasks(instrument.Instrument):
    """The tasks that ended."""

    def __init__(self):
        self.ended = []

    def end(self, task, failure):
        self.ended.append(task)


def test_a_copy_computes_what_it_takes_along_and_no_more(gpus):
    a, b = gpus
    x, other = nd.ones(3, ctx=a), nd.ones(3, ctx=a)
    nd.waitall()
    with d2lmini.lazy() as scope, instrument.listening(Tasks()) as tasks:
        y = x * 2
        unread = other * 3
        z = y.as_in_context(b) + 1
        assert scope.computed == 1 and scope.recorded == 3
        assert z.asnumpy().tolist() == [3] * 3
        assert [task.name for task in tasks.ended] == [
            "lazy", "CopyGPU2GPU", "lazy", "CopyGPU2CPU",
        ]  # fmt: skip
        assert scope.computed == 2
        del unread
    assert (scope.computed, scope.dropped) == (2, 1)


def test_what_a_copy_overwrites_is_read_before(gpus):
    a, b = gpus
    x, y = nd.ones(3, ctx=a), nd.zeros(3, ctx=b)
    with d2lmini.lazy():
        before = y + 1
        x.copyto(y)
        after = y + 1
        assert (before.asnumpy().tolist(), after.asnumpy().tolist()) == ([1] * 3, [2] * 3)


def test_an_error_on_a_device_is_that_of_the_operation(gpus):
    good = nd.ones(3, ctx=gpus[0])
    with d2lmini.lazy():
        bad = nd.random.normal(0, -1, shape=(3,), ctx=gpus[0])
        y, fine = bad + 1, good + 1
        with pytest.raises(MXNetError, match="scale must be 0 or more"):
            y.asnumpy()
        assert fine.asnumpy().tolist() == [2] * 3


def test_programs_of_a_device_that_ended_are_forgotten():
    for n in (1, 2):
        with d2lmini.virtual_gpus(n) as gpus:
            x = nd.ones((40, 50), ctx=gpus[0])
            counts = []
            for _ in range(2):
                with d2lmini.lazy() as scope:
                    y = (nd.dot(x, x, transpose_b=True) + 1).sum()
                    total = y.asscalar()
                assert total == 40 * 40 * 51
                counts.append(scope.compiled)
            assert counts == [1, 0]
            del x, y


def test_steps_that_keep_half_of_a_devices_memory_alive_are_pushed():
    """They alone hold what they read: 60 arrays of 1 MB on a device of 16."""
    with d2lmini.virtual_gpus(1, memory=16 << 20) as gpus, d2lmini.lazy() as scope:
        total = nd.zeros(1, ctx=gpus[0])
        for i in range(60):
            host = nd.full((1 << 18,), i, ctx=d2lmini.cpu())
            total = total + host.as_in_context(gpus[0]).max()
        assert total.asscalar() == sum(range(60))
        assert scope.recorded >= 120


@pytest.mark.parametrize("kind", ["virtual", "fake"])
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 4), max_size=40), st.integers(0, 1000))
@settings(max_examples=30)
def test_random_programs_on_three_devices(kind, calls, seed):
    """Arithmetic, writes in place, copies, reads, in any order: inside a scope as outside."""
    found = []
    with some_gpus(kind, 2, seed=seed) as gpus:
        places = [d2lmini.cpu(), *gpus]
        for scope in (d2lmini.lazy, nullcontext):
            rng = np.random.default_rng(seed)
            with scope():
                xs = [nd.array(rng.integers(0, 9, 4), ctx=places[i % 3]) for i in range(6)]
                seen = []
                for what, i, j, k in calls:
                    y = xs[j].as_in_context(xs[i].context)
                    if what < 2:
                        xs[k] = xs[i] + y if what else nd.maximum(xs[i], y * 2)
                    elif what == 2:
                        xs[i] += y
                    elif what == 3 and xs[i] is not xs[k]:
                        xs[i].copyto(xs[k])
                    elif what == 4:
                        xs[i][j % 4] = k
                    elif what == 5:
                        seen.append(xs[k].asnumpy())
                nd.waitall()
                found.append([*seen, *[x.asnumpy() for x in xs]])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_that_are_taken_singly_draw_as_they_would_have_alone():
    def draw() -> list[np.ndarray]:
        d2lmini.random.seed(5)
        found = []
        for rate in range(1, MOST_NUMBERS + 5):
            x = nd.random.uniform(shape=(3,)) * (rate / 7)
            found.append((nd.random.normal(shape=(3,)) + x).asnumpy())
        return found

    expected = draw()
    with d2lmini.lazy() as scope:
        results = draw()
    assert scope.compiled == MOST_NUMBERS
    assert np.array_equal(results, expected)
