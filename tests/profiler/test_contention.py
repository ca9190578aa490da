"""Bands: predictions for other workers enclose what contention may do; the virtual clock has none.

How often they are right, `tests/benchmarks/bands.py` says.
"""

from __future__ import annotations

import pytest
from test_replay import Made

from d2lmini import MXNetError, engine, nd, profile
from d2lmini.profiler import Trace
from d2lmini.profiler.evidence import CpuTime
from d2lmini.profiler.replay import Prediction


def two_chains(sleep_ns: int = 0) -> Trace:
    """What one worker did of two chains of four tasks of 1 ms, of which they slept a part."""
    made = Made()
    for k in range(8):
        made.op(k, k * 1_000_000 + 10, (k + 1) * 1_000_000, [k % 2], [k % 2], ready=k)
    trace = made.end(8, 8_000_010)
    trace.engine_kind, trace.cores = "threaded", 2
    for operation in trace.operations:
        spent_ns = operation.run_ns - sleep_ns
        trace.cpu.times[operation.number] = CpuTime(spent_ns, 0, True, sleep_ns)
    return trace


def band(trace: Trace, **change: int) -> Prediction:
    prediction = trace.replay(**change).prediction
    assert prediction is not None
    return prediction


def test_the_same_workers_make_no_band():
    trace = two_chains()
    assert band(trace).low_ns == band(trace).high_ns
    assert band(trace, workers=1).low_ns == band(trace, workers=1).high_ns
    wide = band(trace, workers=2)
    assert 0 < wide.low_ns < wide.high_ns
    assert f"{wide}" in repr(trace.replay(workers=2)) and " to " in f"{wide}"


def test_a_trace_of_the_naive_engine_says_nothing_of_workers():
    with engine.use("naive"), profile() as trace:
        nd.ones((2, 2)) + 1
    with pytest.raises(MXNetError, match="naive engine, which has none"):
        trace.replay(workers=2)
