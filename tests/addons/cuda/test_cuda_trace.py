"""Traces of GPUs have the GPUs' own times; on the fake."""

from __future__ import annotations

from typing import Any

from gpu_kinds import fake_gpus

from d2lmini import gpu, nd, profile
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
