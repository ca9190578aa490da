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
from invariants import check_invariants
from random_steps import SHAPES, Pair, step
from strikes import strike_everywhere

import d2lmini
from d2lmini import MXNetError, autograd, engine, gluon, nd
from d2lmini.base import instrument
from d2lmini.engine.scheduler import Scheduler
from d2lmini.graph.lazy import MOST_NUMBERS, recorder, thread_state


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test begins and ends with nothing pending and nothing recorded."""
    nd.waitall()
    yield
    nd.waitall()
    gc.collect()
    assert not recorder.values and not recorder.live and not recorder.memory
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


def test_numbers_of_different_types_are_different_programs():
    x = nd.array([1, 2, 3], dtype="int32")
    with d2lmini.lazy():
        values = [(x + k).asnumpy().tolist() for k in (1, True, 2)]
        signs = [(1 / (ones(1) * zero)).asscalar() for zero in (0.0, -0.0)]
    assert values == [[2, 3, 4], [2, 3, 4], [3, 4, 5]]
    assert signs == [np.inf, -np.inf]


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
        check_invariants()
        for pair in arrays:
            assert pair.ours.asnumpy().tobytes() == pair.theirs.tobytes()


# -- autograd and training -------------------------------------------------------------------------


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


# -- errors ----------------------------------------------------------------------------------------


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


def test_an_error_that_nobody_waited_for_is_raised_by_waitall():
    with d2lmini.lazy():
        factor = nd.random.normal(0, -1, (2, 2))
    with pytest.raises(MXNetError, match="scale must be"):
        nd.waitall()
    del factor


# -- scopes, threads, bounds -----------------------------------------------------------------------


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
        check_invariants()
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


# -- several devices -------------------------------------------------------------------------------


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
