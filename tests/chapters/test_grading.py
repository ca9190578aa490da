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
from labs.grading import CheckFailed, at_most_waits, overlaps
from schedule_answers import ANSWERS, grade

from d2lmini import engine, gpu, nd, profile, virtual_gpus
from d2lmini.profiler.tracing import Trace

N = 200


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


def waits_for_each():
    for X in batches():
        X = X.as_in_context(gpu(0))
        nd.dot(X, X).wait_to_read()


def one_buffer():
    buffer = nd.zeros((N, N), ctx=gpu(0))
    for X in batches():
        X.copyto(buffer)
        nd.dot(buffer, buffer)


def copies_first_and_waits():
    there = [X.as_in_context(gpu(0)) for X in batches()]
    nd.waitall()
    for X in there:
        nd.dot(X, X)


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
