"""Recordings of what the engine did: the order is the engine's own, what ran is what is drawn."""

import gc
import itertools
import random
import threading
import weakref

import pytest
from pictures import bars
from svg_words import arrows_of, words_of

from d2lmini import MXNetError, cpu, d2l, engine, gpu, nd, virtual_gpus
from d2lmini.engine.core import Var


def test_readers_come_after_the_writer_and_a_writer_after_the_readers(engine_kind):
    x = nd.ones((2, 2))
    with d2l.recording() as run:
        b = x * 2  # x is older than the recording
        c = x * 3
        x += 1  # both have to be done with it
        d = b + x
        x[:] = 0  # 4 has to be done with it
        b[0] = c[1]  # the rest of b stays, so it is read
    assert [sorted(operation.needs) for operation in run.operations] == [
        [],
        [],
        [],
        [1, 3],
        [],
        [1, 2],
    ]
    assert [sorted(operation.makes_room) for operation in run.operations] == [
        [],
        [],
        [1, 2],
        [],
        [4],
        [4],
    ]
    assert str(run[4]) == "4 broadcast_add, after 1, 3"
    assert str(run[3]) == "3 _plus_scalar, after 1*, 2*"
    assert run.ordered(5, 1) and not run.ordered(1, 2) and not run.ordered(5, 6)
    assert run[6].line.startswith("b[0] = c[1]") and d.shape == (2, 2)


def test_what_is_implied_is_not_said():
    with d2l.recording() as run:
        a = nd.ones((2,))
        b = a + 1
        a[:] = b  # writes where 1 wrote and 2 read, but needs 2, which needs 1
    assert run[3].needs == {2} and run[3].makes_room == set()
    assert run.ordered(1, 3)


def test_of_the_same_array_twice():
    with d2l.recording() as run:
        a = nd.ones((2,))
        b = a + a
        b += b
    assert [sorted(operation.needs) for operation in run.operations] == [[], [1], [2]]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_the_engines(seed):
    """Random programs: two tasks are ordered exactly if some chain of conflicts leads from one to
    the other; and on workers, what is ordered does not overlap."""
    rng = random.Random(seed)
    variables = [Var() for _ in range(5)]
    touched = []
    with engine.use("threaded", workers=4), d2l.recording() as run:
        for _ in range(30):
            reads = set(rng.sample(range(5), rng.randint(0, 2)))
            writes = set(rng.sample(range(5), rng.randint(0, 2)))
            touched.append((reads, writes))
            engine.push(lambda: None, [variables[i] for i in reads], [variables[i] for i in writes])
    n = len(touched)
    before = [set() for _ in range(n)]
    for late, early in itertools.combinations(range(n), 2):
        late, early = max(late, early), min(late, early)
        (r1, w1), (r2, w2) = touched[early], touched[late]
        if w1 & (r2 | w2) or r1 & w2:
            before[late] |= {early} | before[early]
    for late in range(n):
        for early in range(late):
            assert run.ordered(early + 1, late + 1) == (early in before[late]), (seed, early, late)
            if early in before[late]:
                assert run[early + 1].ended_s <= run[late + 1].began_s


def test_times_places_and_waits():
    with virtual_gpus(1, link_gb_s=100), d2l.recording() as run:
        x = nd.ones((4, 4), ctx=gpu(0))
        y = (x * 2).as_in_context(cpu())
        y.wait_to_read()
        z = (y + 1).as_in_context(gpu(0))
    assert z.shape == (4, 4)
    places = [operation.place for operation in run.operations]
    assert places[-4:] == ["gpu(0)", "gpu(0) out", "cpu", "gpu(0) in"]
    assert [operation.is_copy for operation in run.operations[-4:]] == [False, True, False, True]
    for operation in run.operations:
        assert operation.pushed_s <= operation.ready_s <= operation.began_s <= operation.ended_s
        assert operation.failure is None and operation.worker
    assert [kind for kind, begin, end in run.waits] == ["wait_to_read"]
    picture = run.timeline(label=lambda each: each.name)
    assert repr(picture) == "<timeline of cpu, gpu(0), gpu(0) in, gpu(0) out>"
    rows = [label.get_text() for label in picture.figure.axes[0].get_yticklabels()]
    assert rows == ["front end", "cpu", "gpu(0)", "gpu(0) in", "gpu(0) out"]
    assert len(bars(picture)) == 1 + len(run.operations)


def test_rows_for_several_workers_and_words_in_bars():
    with engine.use("threaded", workers=2):
        a, b = engine.new_var(), engine.new_var()
        with d2l.recording() as run:
            # Each begins only when the other has: two workers are at work.
            meet = threading.Barrier(2)
            engine.push(meet.wait, writes=[a], name="left")
            engine.push(meet.wait, writes=[b], name="right")
    picture = run.timeline(label=lambda each: each.name[0], accent=lambda each: each.number == 2)
    axes = picture.figure.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["cpu, worker 1", "cpu, worker 2"]
    assert repr(picture) == "<timeline of cpu>"
    assert {t.get_text() for t in axes.get_legend().get_texts()} == {"compute"}


def test_what_failed_and_what_was_skipped():
    with pytest.raises(MXNetError, match="scale must be 0 or more"):
        with d2l.recording() as run:
            noise = nd.random.normal(0, -1, shape=(2, 2))
            more = noise + 1
    assert more.shape == (2, 2)
    assert run[1].failure is not None and run[2].failure is not None
    assert run[1].worker and not run[2].worker
    assert len(bars(run.timeline())) == 1


def test_it_keeps_no_array_alive_and_stops_listening():
    from d2lmini import instrument

    before = instrument.listeners
    with d2l.recording() as run:
        x = nd.ones((2, 2)) + 1
    dead = weakref.ref(x._chunk)
    del x
    gc.collect()
    assert dead() is None and not run.trace._open
    assert instrument.listeners == before
    nd.ones((2, 2)) + 1
    assert len(run.operations) == 2
    with pytest.raises(ZeroDivisionError), d2l.recording():
        1 / 0
    assert instrument.listeners == before


def test_the_graph_has_a_box_for_each_operation_and_tells_what_it_draws():
    with d2l.recording() as run:
        a = nd.ones((1, 2))
        b = a * 2
        a += 1
        c = a + b
    picture = d2l.dependency_graph(run)
    words = [word.text for word in words_of(picture)]
    assert words[::2] == ["1  nd.ones", "2  *", "3  +", "4  +"]
    assert words[1::2] == ["a = nd.ones((1, 2))", "b = a * 2", "a += 1", "c = a + b"]
    assert arrows_of(picture) == (5, 1)
    assert repr(picture) == (
        "<dependencies of 4 operations: 1 _ones; 2 _mul_scalar, after 1; "
        "3 _plus_scalar, after 1, 2*; 4 broadcast_add, after 2, 3>"
    )
    plain = d2l.dependency_graph(run, lines=False)
    assert len(words_of(plain)) == 4 and c.shape == (1, 2)


def test_a_graph_over_devices_says_where():
    with virtual_gpus(1, link_gb_s=100), d2l.recording() as run:
        x = nd.ones((2,), ctx=gpu(0))
        y = x.as_in_context(cpu())
    assert y.shape == (2,)
    words = words_of(d2l.dependency_graph(run, lines=False))
    assert words[-1].text.endswith("CopyGPU2CPU  gpu(0) out")


def test_what_cannot_be_drawn():
    with d2l.recording() as run:
        pass
    with pytest.raises(ValueError, match="no operation ran"):
        run.timeline()
    with pytest.raises(ValueError, match="it draws 1 to 60 operations, there are 0"):
        d2l.dependency_graph(run)
    assert str(run) == "" and repr(run) == "<recording of 0 operations>"
