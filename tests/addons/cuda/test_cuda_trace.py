"""Traces of GPUs: their own times, and ranges for NVIDIA's tools; on the fake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kinds import fake_gpus

from d2lmini import MXNetError, autograd, gpu, nd, profile
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


def test_a_trace_of_a_gpu_that_failed_keeps_the_times_of_the_host():
    with fake_gpus() as fake:
        x = nd.ones((5, 5), ctx=gpu(0))
        nd.waitall()
        scope = profile()
        with pytest.raises(MXNetError, match="cannot be used"), scope as trace:
            y = x + 1
            fake.machine.fail(0, at="issue", status=700)
            z = x + 2
            nd.waitall()
        del y, z
        assert all(
            operation.ended_ns >= operation.began_ns
            for operation in trace.operations
            if operation.ran
        )
        with pytest.raises(MXNetError):
            x.wait_to_read()


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
