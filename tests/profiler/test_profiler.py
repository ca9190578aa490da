"""Traces: what happened is what they hold, on every engine and road; what they cost; how they show
themselves. The file for Perfetto is in test_profiler_chrome.py, MXNet's own in
test_profiler_classic.py."""

from __future__ import annotations

import base64
import gc
import weakref
from contextlib import ExitStack
from typing import Any

import pytest

from d2lmini import MXNetError, cpu, engine, gpu, nd, profile, virtual_gpus
from d2lmini.base import instrument
from d2lmini.gluon import nn
from d2lmini.profiler import Trace


def names(trace: Trace) -> list[str]:
    return [each.name for each in trace.operations]


def in_order(trace: Trace) -> None:
    """What holds of every trace whose operations all ran: nobody begins before what it needs."""
    for each in trace.operations:
        assert trace.begin_ns <= each.pushed_ns <= each.ready_ns <= each.began_ns
        assert each.began_ns <= each.ended_ns <= trace.end_ns
        assert each.worker and each.failure is None and each.site is not None
        for before in (
            *trace.true_dependencies(each.number),
            *trace.anti_dependencies(each.number),
        ):
            assert trace[before].ended_ns <= each.began_ns, (each, trace[before])


# -- what a trace holds ----------------------------------------------------------------------------


def test_an_operation_is_known_from_its_push_to_its_end(engine_kind):
    with profile() as trace:
        a = nd.ones((20, 30))
        b = nd.dot(a, a.T)  # here
        b.wait_to_read()
    dot = trace[3]
    assert names(trace) == ["_ones", "transpose", "dot"] and trace.operations[2] is dot
    assert dot.line == "b = nd.dot(a, a.T)  # here" and dot.thread == "MainThread"
    assert (dot.flops, dot.nbytes) == (2 * 20 * 20 * 30, 4 * (600 + 600 + 400))
    assert dot.place == "cpu" and not dot.is_copy and dot.priority == 0
    assert trace.true_dependencies(3) == (1, 2) and trace.anti_dependencies(3) == ()
    assert [(wait.kind, wait.operation) for wait in trace.waits] == [("wait_to_read", 3)]
    assert trace.seconds == (trace.end_ns - trace.begin_ns) / 1e9 > 0
    assert trace.workers["cpu"] == engine.current.workers
    in_order(trace)
    with pytest.raises(IndexError, match="operation 4: there are 1 to 3"):
        trace[4]
    with pytest.raises(IndexError, match="operation 0"):
        trace[0]


def test_a_trace_keeps_no_array_alive_and_stops_listening():
    before = instrument.listeners
    with profile() as trace:
        x = nd.ones((2, 2)) + 1
    dead = weakref.ref(x._chunk)
    del x
    gc.collect()
    assert dead() is None and instrument.listeners == before
    assert nd.ones((2,)).shape == (2,) and len(trace.operations) == 2


def test_what_fails_is_said_and_raised_at_the_end():
    with pytest.raises(MXNetError, match=r"scale must be 0 or more[^$]*noticed at .*test_profiler"):
        with profile() as trace:
            noise = nd.random.normal(0, -1, shape=(2, 2))
            more = noise + 1
    assert "scale" in str(trace[1].failure) and trace[1].worker
    assert trace[2].failure and not trace[2].worker and not trace[2].began_ns
    assert more.shape == (2, 2) and trace not in instrument.listeners
    assert "2 more failed, were skipped, or had not ended" in str(trace.summary())


def test_profiles_can_be_nested():
    with profile() as outer:
        a = nd.ones((300, 300))
        with profile() as inner:
            b = a + 1
        c = b * 2
    assert names(inner) == ["_plus_scalar"] and inner.true_dependencies(1) == ()
    assert names(outer) == ["_ones", "_plus_scalar", "_mul_scalar"]
    assert (
        outer.true_dependencies(2) == (1,)
        and outer.true_dependencies(3) == (2,)
        and c.shape == (300, 300)
    )
    # Of the inner one's waits the outer knows, of its own it does not speak.
    assert "end of profile" in [wait.kind for wait in outer.waits] and not inner.waits
    assert all("with profile() as inner" in wait.where for wait in outer.waits), outer.waits


def test_operations_on_tiny_arrays_are_recorded_as_all_others():
    """By one event or by six: the records differ in times alone."""

    def run(*others: instrument.Instrument) -> tuple[Trace, list[Any]]:
        net, x = nn.Dense(3, in_units=2), nd.ones((1, 2))
        net.initialize()
        net.hybridize()
        net(x)
        nd.waitall()
        with ExitStack() as scopes, profile() as trace:
            for other in others:
                scopes.enter_context(instrument.listening(other))
            for k in range(4):
                y = net(nd.exp(x + k) * x).sum()
                y.wait_to_read()
        serials = sorted({n for each in trace.operations for n in (*each.reads, *each.writes)})
        records = [
            (each.number, str(each).replace(net.name, "net"), each.ctx, each.lane, each.worker,
             each.thread, each.where, each.priority, each.predicted_us, each.failure, each.cost[:2],
             tuple(map(serials.index, each.reads)), tuple(map(serials.index, each.writes)))
            for each in trace.operations
        ]  # fmt: skip
        assert all(e.pushed_ns <= e.ready_ns <= e.began_ns <= e.ended_ns for e in trace.operations)
        return trace, records

    class Pushes(instrument.Instrument):
        def push(self, task: Any) -> None: ...

    (short, records), (long, others) = run(), run(Pushes())
    assert records == others and len(records) == 20
    assert {each[4] for each in records} == {"caller"}
    for trace in (short, long):
        made = [trace[first].name for change in trace.memory
                if change.nbytes > 0 and (first := _maker(trace, change.serial))]  # fmt: skip
        assert len(made) == 20 and {*made} >= {"_plus_scalar", "exp", "sum"}


def _maker(trace: Trace, serial: int) -> int:
    """The operation that first wrote a Var."""
    return next((each.number for each in trace.operations if serial in each.writes), 0)


# -- the graph -------------------------------------------------------------------------------------


# -- in a notebook ---------------------------------------------------------------------------------


def test_a_notebook_shows_an_image_and_a_text_without_figures():
    with profile() as trace:
        x = nd.ones((300, 300))
        nd.dot(x, x).asnumpy()
    data, size = trace._repr_mimebundle_()
    image = base64.b64decode(data["image/png"])
    assert image.startswith(b"\x89PNG") and data["text/plain"] == "<timeline of cpu>"
    assert int.from_bytes(image[16:20], "big") == 2 * size["image/png"]["width"]
    with profile() as empty:
        pass
    assert empty._repr_mimebundle_() == {"text/plain": "<trace of no operation>"}


# -- the table -------------------------------------------------------------------------------------


def test_a_printed_trace_shows_when_each_operation_began_and_how_long_it_took():
    with engine.stepped(times=20, workers=1), profile() as trace:
        x = nd.ones((2, 2))
        y = x + 1
        y.wait_to_read()
    head, columns, *rows = str(trace).splitlines()
    assert head == "trace of 2 operations in 0.0 ms"
    assert columns.split() == ["operation", "place", "began", "at", "took", "line"]
    assert [row.split()[:7] for row in rows] == [
        ["1", "_ones", "cpu", "0.0", "us", "20.0", "us"],
        ["2", "_plus_scalar", "cpu", "20.0", "us", "20.0", "us"],
    ]
    assert rows[1].endswith("y = x + 1")
    predicted = str(trace.replay()).splitlines()
    assert predicted[0].startswith("predicted trace of 2 operations") and predicted[1:] == [
        columns, *rows
    ]  # fmt: skip


def test_the_summary_by_line_adds_up_what_each_line_issued():
    with virtual_gpus(1), engine.stepped(times=20), profile() as trace:
        x = nd.ones((2, 2))
        for device in (cpu(), cpu(), gpu(0)):
            y = x.as_in_context(device) * 2 + 1
        y.wait_to_read()
    made, copied = trace[1].where, trace[2].where
    rows = {(row.name, row.place): row for row in trace.summary(by="line").rows}
    assert {key: row.count for key, row in rows.items()} == {
        (made, "cpu"): 1, (copied, "cpu"): 4, (copied, "gpu(0) in"): 1, (copied, "gpu(0)"): 2,
    }  # fmt: skip
    assert made.endswith(": x = nd.ones((2, 2))") and copied.endswith("* 2 + 1")
    assert rows[copied, "cpu"].total_s == pytest.approx(80e-6)
    assert rows[copied, "cpu"].flops == 4 * 4 and rows[copied, "cpu"].nbytes == 4 * 32
    first = trace.summary(by="line").rows[0]
    assert (first.name, first.place) == (copied, "cpu")
    assert str(trace.summary(by="line")).split()[:2] == ["line", "place"]
    with pytest.raises(ValueError, match="by='file'; it can be one of operation, line"):
        trace.summary(by="file")
