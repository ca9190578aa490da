"""Checks of schedules: the right answer passes, each typical wrong one gets a hint of its own.

On the threaded engine as on the stepped one, whatever the order in which things happened to run.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from labs import grading
from labs.grading import CheckFailed, at_most_waits, overlaps, peak_bytes
from schedule_answers import ANSWERS, grade

from d2lmini import cpu, engine, gpu, nd, profile, virtual_gpus
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
    with pytest.raises(CheckFailed) as caught:
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
    assert overlaps(trace_of(prefetched), "copy", "dot") == "copy may run beside dot"
    hints = {
        answer.__name__: hint_of(lambda: overlaps(trace_of(answer), "copy", "dot"))  # noqa: B023
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
    with pytest.raises(CheckFailed, match=r"nd\.dot\(X, X\)\.wait_to_read\(\) \(wait_to_read\)"):
        overlaps(trace_of(waits_for_each), "copy", "dot")
    with pytest.raises(CheckFailed, match=r"nd\.waitall\(\) \(waitall\)"):
        overlaps(trace_of(copies_first_and_waits), "copy", "dot")
    with pytest.raises(CheckFailed, match=r"X\.copyto\(buffer\).*writes where.*array of its own"):
        overlaps(trace_of(one_buffer), "copy", "dot")


def test_what_runs_where_it_is_called_runs_beside_nothing():
    with engine.use("threaded", workers=2, inline_below=50.0):
        trace = trace_of(lambda: (nd.zeros((2,)), nd.dot(nd.ones((N, N)), nd.ones((N, N)))))
        assert trace[1].inline
        assert hint_of(lambda: overlaps(trace, "zeros", "dot", but=0)) == "inline"


# -- how often the program waits -------------------------------------------------------------------


def test_a_buffer_that_is_written_again_is_waited_for_again(kind):
    def answer():
        buffer = nd.zeros((2,))
        for _ in range(3):
            nd.tanh(nd.ones((2,)), out=buffer)
            buffer.wait_to_read()

    trace = trace_of(answer)
    at_most_waits(trace, 3)
    assert hint_of(lambda: at_most_waits(trace, 2)) == "waiting"


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
    assert hint_of(lambda: at_most_waits(trace, 2)) == "waiting"
    at_most_waits(trace, 3)


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
        return hint_of(lambda: peak_bytes(trace_of(answer), gpu(0), 3 * MB))

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
        assert peak_bytes(right, gpu(0), 3 * MB) == "at most 3.0 MB on gpu(0)"
        hints = [hint(each) for each in (kept, large, many, stays_on_the_cpu)]
        assert hints == ["kept", "large", "many", "missing"]
    with virtual_gpus(1), engine.use("threaded"):
        peak_bytes(trace_of(summed), gpu(0), 3 * MB)
        assert hint(kept) == "kept"


def test_the_words_that_choose(kind):
    trace = trace_of(prefetched)
    assert len(grading._choose(trace, "copy")) == len(grading._choose(trace, "gpu(0) in")) == 6
    assert len(grading._choose(trace, "dot")) == len(grading._choose(trace, "gpu(0)")) == 6
    assert grading._choose(trace, "ones")[0].name == "_ones"
    with pytest.raises(CheckFailed, match="no operation 'conv' ran; there were _ones, _mul_scalar"):
        overlaps(trace, "conv", "dot")


def test_a_program_that_computes_nothing_is_told_so():
    with engine.stepped(), profile() as trace:
        sum(range(10))
    with pytest.raises(CheckFailed, match="nothing was computed") as caught:
        peak_bytes(trace, cpu(), 10)
    assert caught.value.hint == "missing"


# -- many answers, as students write them ----------------------------------------------------------


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_an_answer_is_judged_as_it_deserves(answer):
    for seed in (1, 2):
        hint = grade(answer, seed)
        assert (hint in answer.hints) if answer.hints else hint is None, (seed, hint)


@pytest.mark.parametrize("answer", [answer for answer in ANSWERS if answer.stepped], ids=str)
def test_so_it_is_on_the_stepped_engine(answer):
    seed = zlib.crc32(str(answer).encode())
    hint = grade(answer, seed, seed=seed)
    assert (hint in answer.hints) if answer.hints else hint is None, (seed, hint)
