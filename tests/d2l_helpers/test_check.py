"""Checks of schedules: the right answer passes, each typical wrong one gets a hint of its own.

On the threaded engine as on the stepped one, whatever the order in which things happened to run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d2lmini import autograd, cpu, engine, gluon, gpu, nd, profile, virtual_gpus
from d2lmini.d2l import check
from d2lmini.profiler.tracing import Trace

N = 200
MB = 1_000_000


@pytest.fixture(params=["threaded", "stepped", "stepped, seed 5"])
def kind(request):
    """Two GPUs on an engine that queues everything."""
    with virtual_gpus(2):
        if request.param == "threaded":
            with engine.use("threaded", inline_below=0.0):
                yield request.param
        else:
            with engine.stepped(seed=5 if "seed" in request.param else None):
                yield request.param


def trace_of(answer: Callable[[], Any]) -> Trace:
    with profile() as trace:
        answer()
    return trace


def hint_of(test: Callable[[], Any]) -> str:
    with pytest.raises(check.Wrong) as caught:
        test()
    assert len(str(caught.value)) > 30
    return caught.value.hint


# -- exercise: copy the next batch while the GPU computes on this one ------------------------------


def batches() -> list[Any]:
    return [nd.ones((N, N)) * i for i in range(6)]


def prefetched():
    for X in batches():
        X = X.as_in_context(gpu(0))
        nd.dot(X, X)


def waits_for_each():
    for X in batches():
        X = X.as_in_context(gpu(0))
        nd.dot(X, X).wait_to_read()


def one_buffer():
    buffer = nd.zeros((N, N), ctx=gpu(0))
    for X in batches():
        X.copyto(buffer)
        nd.dot(buffer, buffer)


def depends_on_the_last():
    X = nd.ones((N, N))
    for _ in range(6):
        X = nd.dot(X.as_in_context(gpu(0)), nd.ones((N, N), ctx=gpu(0))).as_in_context(cpu())


def stays_on_the_cpu():
    for X in batches():
        nd.dot(X, X)


def copies_first_and_waits():
    there = [X.as_in_context(gpu(0)) for X in batches()]
    nd.waitall()
    for X in there:
        nd.dot(X, X)


def test_overlap_of_copy_and_compute(kind):
    assert check.overlaps(trace_of(prefetched), "copy", "dot") == "copy may run beside dot"
    hints = {
        answer.__name__: hint_of(lambda: check.overlaps(trace_of(answer), "copy", "dot"))  # noqa: B023
        for answer in (
            waits_for_each, one_buffer, depends_on_the_last, stays_on_the_cpu,
            copies_first_and_waits,
        )
    }  # fmt: skip
    assert hints == {
        "waits_for_each": "waits",
        "one_buffer": "room",
        "depends_on_the_last": "needs",
        "stays_on_the_cpu": "missing",
        "copies_first_and_waits": "waits",
    }


def test_the_hint_names_the_line(kind):
    with pytest.raises(check.Wrong, match=r"nd\.dot\(X, X\)\.wait_to_read\(\) \(wait_to_read\)"):
        check.overlaps(trace_of(waits_for_each), "copy", "dot")
    with pytest.raises(check.Wrong, match=r"nd\.waitall\(\) \(waitall\)"):
        check.overlaps(trace_of(copies_first_and_waits), "copy", "dot")
    with pytest.raises(check.Wrong, match=r"X\.copyto\(buffer\).*writes where.*array of its own"):
        check.overlaps(trace_of(one_buffer), "copy", "dot")


def in_views_of_one_copy():
    X = nd.ones((2 * N, N)).as_in_context(gpu(0))
    for part in (X[:N], X[N:]):
        nd.dot(part, part)


def in_place_in_views():
    X = nd.ones((2 * N, N), ctx=gpu(0))
    for part in (X[:N], X[N:], X[:N], X[N:]):
        nd.tanh(part, out=part)


def test_views_of_one_array_are_named_as_the_cause(kind):
    """Nothing is said of a step before only, where the parts of a batch share an array."""
    with pytest.raises(check.Wrong, match="give each part an array of its own") as caught:
        check.overlaps(trace_of(in_views_of_one_copy), "dot", "copy")
    assert caught.value.hint == "needs"
    with pytest.raises(check.Wrong, match="give each part an array of its own"):
        check.parallel(trace_of(in_place_in_views), "tanh")
    with pytest.raises(check.Wrong, match=r"data of the step before$"):
        check.overlaps(trace_of(depends_on_the_last), "copy", "dot")


# -- exercise: two products side by side -----------------------------------------------------------


def two(first: Any, second: Any, between: Callable[[Any], Any] = lambda a: None) -> None:
    x, y = nd.ones((N, N), ctx=first), nd.ones((N, N), ctx=second)
    nd.waitall()
    a = nd.dot(x, x)  # left
    between(a)
    b = nd.dot(y, y)  # right
    assert a.shape == b.shape


def chained():
    x = nd.ones((N, N), ctx=gpu(0))
    a = nd.dot(x, x)  # left
    nd.dot(a.as_in_context(gpu(1)), x.as_in_context(gpu(1)))  # right


def overwritten():
    x = nd.ones((N, N), ctx=gpu(0))
    nd.dot(x, x)  # left
    x[:] = 3  # right


def test_parallel(kind):
    def hint(answer: Callable[[], Any]) -> str:
        trace = trace_of(answer)
        return hint_of(lambda: check.parallel(trace, "# left", "# right"))

    check.parallel(trace_of(lambda: two(gpu(0), gpu(1))), "# left", "# right")
    check.parallel(trace_of(lambda: two(gpu(0), gpu(1))), "dot")
    assert hint(lambda: two(gpu(0), gpu(0))) == "worker"
    assert hint(lambda: two(gpu(0), gpu(1), lambda a: a.wait_to_read())) == "waits"
    assert hint(chained) == "needs"
    assert hint(overwritten) == "room"
    assert hint(lambda: nd.ones((2,), ctx=gpu(0)) + 1) == "missing"
    only = trace_of(lambda: nd.dot(nd.ones((2, 2)), nd.ones((2, 2))))
    assert hint_of(lambda: check.parallel(only, "dot")) == "missing"


def test_what_runs_where_it_is_called_runs_beside_nothing():
    with engine.use("threaded", workers=2, inline_below=50.0):
        trace = trace_of(lambda: (nd.zeros((2,)), nd.dot(nd.ones((N, N)), nd.ones((N, N)))))
        assert trace[1].inline
        assert hint_of(lambda: check.overlaps(trace, "zeros", "dot", but=0)) == "inline"


# -- what comes before what ------------------------------------------------------------------------


def test_before(kind):
    def ordered():
        a = nd.ones((N, N), ctx=gpu(0))
        nd.tanh(nd.dot(a, a))

    def by_a_wait():
        a, b = nd.ones((N, N), ctx=gpu(0)), nd.ones((N, N), ctx=gpu(1))
        nd.dot(a, a).wait_to_read()
        nd.tanh(b)

    def by_luck():
        a, b = nd.ones((N, N), ctx=gpu(0)), nd.ones((N, N), ctx=gpu(1))
        nd.dot(a, a)
        nd.tanh(b)

    def by_priority():
        a, b = nd.ones((N, N), ctx=gpu(0)), nd.ones((N, N), ctx=gpu(0))
        with engine.prioritized(9):
            nd.dot(a, a)
        nd.tanh(b)

    def upside_down():
        a = nd.ones((N, N), ctx=gpu(0))
        nd.dot(nd.tanh(a), a)

    for answer in (ordered, by_a_wait):
        assert check.before(trace_of(answer), "dot", "tanh") == "dot is over before tanh begins"
    hints = [
        hint_of(lambda: check.before(trace_of(answer), "dot", "tanh"))  # noqa: B023
        for answer in (by_luck, by_priority, upside_down, lambda: nd.ones((2,)))
    ]
    assert hints == ["free", "free", "late", "missing"]


# -- how often the program waits -------------------------------------------------------------------


def training(each: Callable[[Any], Any], after: Callable[[], Any] = lambda: None):
    def answer():
        net = gluon.nn.Dense(2, in_units=3)
        net.initialize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
        X = nd.ones((4, 3))
        for _ in range(5):
            with autograd.record():
                loss = (net(X) ** 2).sum()
            loss.backward()
            each(loss)
            trainer.step(4)
        after()

    return answer


def test_at_most_waits(kind):
    def hint(each: Callable[[Any], Any], n: int = 0) -> str:
        trace = trace_of(training(each))
        return hint_of(lambda: check.at_most_waits(trace, n, per="batch"))

    losses: list[Any] = []
    right = trace_of(training(losses.append, nd.waitall))
    assert check.at_most_waits(right, 0, per="batch") == "at most 0 waits for each batch"
    check.at_most_waits(right, 1)
    check.at_most_waits(trace_of(training(lambda loss: loss.asscalar())), 1, per="batch")
    assert hint(float) == "hidden"
    assert hint(lambda loss: nd.waitall()) == "waitall"
    assert hint(lambda loss: loss.wait_to_read()) == "waiting"
    assert hint(lambda loss: loss.asscalar()) == "reading"
    assert hint(lambda loss: (loss.asscalar(), float(loss * 2), float(loss * 3)), 2) == "hidden"
    by_hand = trace_of(lambda: nd.ones((2,)).wait_to_read())
    assert hint_of(lambda: check.at_most_waits(by_hand, 1, per="batch")) == "missing"
    assert hint_of(lambda: check.at_most_waits(by_hand, 0)) == "waiting"
    check.at_most_waits(by_hand, 1, per=1)
    check.at_most_waits(by_hand, 1, per="ones")


def test_a_buffer_that_is_written_again_is_waited_for_again(kind):
    def answer():
        buffer = nd.zeros((2,))
        for _ in range(3):
            nd.tanh(nd.ones((2,)), out=buffer)
            buffer.wait_to_read()

    trace = trace_of(answer)
    check.at_most_waits(trace, 3)
    assert hint_of(lambda: check.at_most_waits(trace, 2)) == "waiting"


def test_an_event_that_a_pushed_function_sets_is_a_wait():
    def wait_for(event, y):
        engine.push(lambda: (time.sleep(0.01), event.set()), reads=[y])
        event.wait()

    def three_times():
        for _ in range(3):
            y = nd.ones((N, N)) + 1
            wait_for(threading.Event(), y)
            y.wait_to_read()  # no second wait

    trace = trace_of(three_times)
    assert hint_of(lambda: check.at_most_waits(trace, 2)) == "waiting"
    check.at_most_waits(trace, 3)


def test_no_hidden_waits(kind):
    right = trace_of(lambda: nd.ones((2,)).asnumpy())
    assert check.no_hidden_waits(right) == "every line that waits says so"
    wrong = {
        "bool": lambda x: x.sum() > 1 and 3,
        "float": lambda x: float(x.sum()),
        "print": str,
        "__array__": np.asarray,
        "in": lambda x: 1 in x,
    }
    for kind_of_wait, answer in wrong.items():
        trace = trace_of(lambda: answer(nd.ones((2,))))  # noqa: B023
        assert hint_of(lambda: check.no_hidden_waits(trace)) == kind_of_wait  # noqa: B023


# -- how much memory -------------------------------------------------------------------------------

SHAPE = (250, 1000)  # 1 MB


def summed():
    total = nd.zeros((1,), ctx=gpu(0))
    for _ in range(10):
        total += nd.tanh(nd.ones(SHAPE, ctx=gpu(0))).sum()
        total.wait_to_read()
    return total


def test_peak_bytes():
    def hint(answer: Callable[[], Any]) -> str:
        return hint_of(lambda: check.peak_bytes(trace_of(answer), gpu(0), 3 * MB))

    def ahead():
        kept = [nd.ones(SHAPE, ctx=gpu(0)) for _ in range(10)]
        return kept[0] + kept[1]

    def kept():
        results = []
        for _ in range(10):
            results.append(nd.tanh(nd.ones(SHAPE, ctx=gpu(0))))
            nd.waitall()

    def large():
        nd.ones((2500, 1000), ctx=gpu(0)).wait_to_read()

    def many():
        a = nd.ones(SHAPE, ctx=gpu(0))
        b = nd.tanh(a)
        nd.waitall()
        c = nd.exp(b)
        nd.waitall()
        d = nd.sqrt(c)
        nd.waitall()
        assert d.shape == SHAPE

    with virtual_gpus(1), engine.stepped():
        right = trace_of(summed)
        assert check.peak_bytes(right, gpu(0), 3 * MB) == "at most 3.0 MB on gpu(0)"
        hints = [hint(each) for each in (kept, large, many, stays_on_the_cpu)]
        assert hints == ["kept", "large", "many", "missing"]
    with virtual_gpus(1), engine.use("threaded"):
        check.peak_bytes(trace_of(summed), gpu(0), 3 * MB)
        assert hint(kept) == "kept"


def test_the_words_that_choose(kind):
    trace = trace_of(prefetched)
    assert len(check._choose(trace, "copy")) == len(check._choose(trace, "gpu(0) in")) == 6
    assert len(check._choose(trace, "dot")) == len(check._choose(trace, "gpu(0)")) == 6
    assert len(check._choose(trace, "as_in_context(")) == 6
    assert check._choose(trace, "ones")[0].name == "_ones"
    with pytest.raises(check.Wrong, match="no operation 'conv' ran; there were _ones, _mul_scalar"):
        check.overlaps(trace, "conv", "dot")


def test_a_program_that_computes_nothing_is_told_so():
    with engine.stepped(), profile() as trace:
        sum(range(10))
    for find in (lambda: check.peak_bytes(trace, cpu(), 10),
                 lambda: check.at_most_waits(trace, 0, per="batch")):  # fmt: skip
        with pytest.raises(check.Wrong, match="nothing was computed") as caught:
            find()
        assert caught.value.hint == "missing"
