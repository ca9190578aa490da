"""Traces of GPUs: their own times, and ranges for NVIDIA's tools; on the fake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from gpu_kinds import fake_gpus

from d2lmini import autograd, gpu, nd, profile
from d2lmini.cuda.stream_worker import StreamWorker


def test_an_operation_of_a_gpu_has_the_times_of_the_gpu(monkeypatch):
    events: list[Any] = []

    def timestamp(lane: StreamWorker, *, plain: Any = StreamWorker.timestamp) -> Any:
        events.append(plain(lane))
        return events[-1]

    monkeypatch.setattr(StreamWorker, "timestamp", timestamp)
    with fake_gpus():
        x = nd.ones((50, 50), ctx=gpu(0))
        nd.waitall()
        with profile() as trace:
            y = nd.dot(x, x)
            y = y + 1
            y = nd.dot(y, y)
        assert len(events) == 7, "two for each, and one that the host waits for"
        times = [1e9 * event.work.time_s for event in events[:6]]
        first = trace[1].began_ns - times[0]
        for operation, began, ended in zip(trace.operations, times[::2], times[1::2], strict=True):
            assert abs(operation.began_ns - began - first) < 2000  # rounded
            assert abs(operation.ended_ns - ended - first) < 2000
            assert operation.ended_ns >= operation.began_ns >= operation.ready_ns > 0


def test_ranges_name_operation_and_line():
    with fake_gpus() as fake:
        told: list[str] = []
        fake.cuda.nvtx = SimpleNamespace(RangePush=told.append, RangePop=lambda: told.append("end"))
        x = nd.ones((5, 5), ctx=gpu(0))
        nd.waitall()
        with profile(nvtx=True) as trace:
            (x + 1).wait_to_read()
        count = len(told)
        (x + 1).wait_to_read()
        assert len(told) == count, "only within the scope"
        begun = [text for text in told if text != "end"]
        assert begun[0].startswith("_plus_scalar ") and "test_cuda_trace.py:" in begun[0]
        assert told.count("end") == len(begun)
        assert [operation.name for operation in trace.operations] == ["_plus_scalar"]


def test_a_replayed_step_is_timed_around_its_graph():
    from d2lmini.gluon import nn

    with fake_gpus():
        net = nn.Dense(3, in_units=4)
        net.initialize(ctx=gpu(0))
        net.hybridize(static_alloc=True, static_shape=True)
        for _ in range(4):
            with profile() as trace:
                x = nd.array(np.ones((2, 4)), ctx=gpu(0))
                with autograd.record():
                    y = net(x)
                y.backward()
                nd.waitall()
            assert all(
                operation.ended_ns >= operation.began_ns > 0 for operation in trace.operations
            )
        assert "replays" in net.cuda_graphs()[0]
