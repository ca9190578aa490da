"""Bands: predictions for other workers enclose what contention may do; the virtual clock has none.

How often they are right, `tests/benchmarks/bands.py` says.
"""

from __future__ import annotations

import pytest
from test_replay import Made, on_two_devices
from virtual_programs import length

from d2lmini import MXNetError, engine, nd, profile
from d2lmini.profiler import Trace, Wait, contention
from d2lmini.profiler.cpu_time import CpuTime
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


def test_the_predicted_trace_is_a_run_within_the_band():
    trace = two_chains()
    found = trace.replay(workers=2)
    assert found.prediction is not None
    assert found.prediction.low_ns <= length(found) <= found.prediction.high_ns


def test_the_band_of_python_tasks_holds_both_ends():
    """Two workers may halve the time, if the tasks release the interpreter lock, or not help."""
    wide = band(two_chains(), workers=2)
    assert wide.low_ns < 6_000_000 and wide.high_ns > 8_000_000


def test_without_a_wait_and_over_other_links_a_prediction_has_at_least_the_error_of_the_replay():
    trace = two_chains()
    trace.waits.append(Wait("wait_to_read", 0, 1, 1, None, trace[1].thread, 5, 1_000_000))
    free = trace.replay(without_wait_at=[trace.waits[0].where.partition(": ")[0]])
    copies = on_two_devices()
    for operation in copies.operations:
        operation.lane = "in"
    copies.engine_kind = "threaded"
    slow = copies.replay(link_gb_s=0.001)
    for found in (free, slow):
        ns, wide = found.seconds * 1e9, found.prediction
        assert wide.low_ns <= ns * (1 - contention._ERROR) < ns * (1 + contention._ERROR) <= (
            wide.high_ns
        )  # fmt: skip


def test_a_trace_of_the_naive_engine_says_nothing_of_workers():
    with engine.use("naive"), profile() as trace:
        nd.ones((2, 2)) + 1
    with pytest.raises(MXNetError, match="naive engine, which has none"):
        trace.replay(workers=2)


def test_an_overlap_counts_the_others():
    spans = [(0, 10), (5, 15), (20, 30)]
    assert contention._overlaps(spans, [1.0, 1.0, 1.0]) == [0.5, 0.5, 0.0]
    assert contention._overlaps(spans, [1.0, 0.0, 1.0]) == [0.0, 0.5, 0.0]
