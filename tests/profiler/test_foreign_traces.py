"""Traces of other libraries: recorded ones of PyTorch and JAX on a CPU with a planted fault
(`chapters/traces`), generated ones of PyTorch on a GPU (there, and in `traces/gpu`), and events
that are written by hand.

No GPU was at hand for the generated ones. Of `gpu_loop.py`, on a clock of their own, they have the
fields that Kineto's CuptiActivity.cpp writes: kernels and copies on streams, launches with their
correlations, arrows from a launch to what it launched, and synchronizing calls."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from d2lmini import MXNetError, gpu
from d2lmini.profiler import Trace, load

DATA = Path(__file__).parents[2] / "chapters" / "traces"
TRACES = Path(__file__).parent / "traces"
RECORDED = ("torch-stack.json.gz", "torch-plain.json.gz", "jax.trace.json.gz")


def ratio(trace: Trace) -> float:
    """The length of the replay as it was, of the recorded one."""
    again = trace.replay()
    return (again.end_ns - again.begin_ns) / (trace.end_ns - trace.begin_ns)


def check_answers(trace: Trace) -> None:
    """What every trace can be asked."""
    account = trace.account()
    assert sum(p.ns for p in account.parts.values()) == pytest.approx(account.wall_ns, abs=1)
    assert abs(ratio(trace) - 1) < 0.05
    path = trace.critical_path()
    assert 0 < path.length_ns <= account.wall_ns
    assert trace.waits().times == len(trace.waits)
    assert len(str(trace.summary(by="line"))) > 100
    assert "timeline" in str(trace.timeline())
    with pytest.raises(MXNetError, match=r"replay\(workers=\): the trace cannot tell: .*reads"):
        trace.replay(workers=4)
    with pytest.raises(MXNetError, match="cannot tell"):
        trace.replay(devices=2)


# -- recorded traces -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_trace_answers_and_travels(name, tmp_path):
    assert (DATA / name).stat().st_size < 300_000
    trace = load(DATA / name)
    check_answers(trace)
    trace.save(tmp_path / "t.json.gz")
    again = load(tmp_path / "t.json.gz")
    assert str(again.account()) == str(trace.account()) and again.order == trace.order
    assert str(again.waits()) == str(trace.waits()) and again.lacks == trace.lacks


def test_the_item_of_each_step_is_found_at_its_line():
    trace = load(DATA / "torch-stack.json.gz")
    (row,) = trace.waits()
    assert (row.kind, row.times) == ("item", 5)
    assert row.where == "torch_loop.py:30: total += loss.item()  # the fault"
    lines = {row.name.partition(":")[2].partition(":")[0] for row in trace.summary(by="line").rows}
    assert lines == {"27", "28", "29"}  # forward, backward, step
    faster = trace.replay(without_wait_at="torch_loop.py:30")
    assert faster.end_ns < trace.end_ns and not faster.waits


def test_the_float_of_each_step_of_jax_is_found_at_its_line():
    trace = load(DATA / "jax.trace.json.gz")
    rows = {row.kind: row for row in trace.waits()}
    assert rows["float"].times == 5 and rows["float"].hidden
    assert rows["float"].where == "jax_loop.py:35: total += float(loss)  # the fault"
    assert {o.where for o in trace.operations} == {
        "jax_loop.py:34: weights, loss = update(weights)"
    }
    assert not any(operation.inline for operation in trace.operations)
    with pytest.raises(MXNetError, match=r"memory\(\): .* not read"):
        trace.memory()


def test_a_log_directory_of_jax(tmp_path):
    folder = tmp_path / "log" / "plugins" / "profile" / "now"
    folder.mkdir(parents=True)
    with pytest.raises(MXNetError, match=r"holds no \*\.trace\.json\.gz"):
        load(tmp_path / "log")
    shutil.copy(DATA / "jax.trace.json.gz", folder / "host.trace.json.gz")
    assert len(load(tmp_path / "log").operations) == len(load(DATA / RECORDED[2]).operations)


# -- generated traces of a GPU ---------------------------------------------------------------------


#: Where the trace of each kind stands: launches are the bottleneck, or a copy, or the `.item()`.
GENERATED = {
    "item": DATA / "gpu-generated.json.gz",
    **{path.name.partition(".")[0]: path for path in (TRACES / "gpu").glob("*.gz")},
}


def generated(kind: str, folder: Path, with_sync_events: bool = True) -> Trace:
    """With its program beside it; synchronizing calls are recorded only if one asks for them."""
    file = json.loads(gzip.decompress(GENERATED[kind].read_bytes()))
    events = file["traceEvents"]
    file["traceEvents"] = [e for e in events if with_sync_events or e.get("cat") != "cuda_sync"]
    shutil.copy(DATA / "gpu_loop.py", folder)
    return written(file, folder)


@pytest.mark.parametrize("with_sync_events", [True, False])
@pytest.mark.parametrize("kind", GENERATED)
def test_a_generated_trace_answers(kind, with_sync_events, tmp_path):
    trace = generated(kind, tmp_path, with_sync_events)
    check_answers(trace)
    assert {operation.ctx for operation in trace.operations} == {gpu(0)}
    assert all(operation.pushed_ns < operation.began_ns for operation in trace.operations)


@pytest.mark.parametrize(("kind", "cause", "line", "ms"), [
    ("launch-bound", "issuing", ":6: loss.backward()", 2.0),
    ("copy", "transfer", ':4: X = batch.to("cuda")', 9.5),
    ("item", "waits", ":7: total += loss.item()", 3.5),
])  # fmt: skip
def test_the_cause_and_its_line(kind, cause, line, ms, tmp_path):
    account = generated(kind, tmp_path).account()
    assert cause in account.causes[:2]
    assert any(line in where for where, _ in account[cause].lines)
    assert account[cause].saves_ns / 1e6 > ms


def test_a_copy_on_the_stream_of_the_kernels_cannot_overlap(tmp_path):
    trace = generated("copy", tmp_path)
    copies = [operation for operation in trace.operations if operation.is_copy]
    for copy in copies:
        assert trace.events.between(copy, trace[copy.number + 1]) == "stream"
    trace = generated("prefetched-copy", tmp_path)
    for copy in [o for o in trace.operations if o.is_copy]:
        # The kernel that waits for the event needs the copy.
        assert copy.number in trace.true_dependencies(copy.number + 1)
    assert trace.account().causes[0] == "transfer"


# -- events written by hand ------------------------------------------------------------------------


def span(name, tid, ts, dur):
    """An operator of PyTorch."""
    fields = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": tid, "ts": ts, "dur": dur}
    return {"name": name, **fields}


def written(events, folder, name="any.json"):
    file = events if isinstance(events, dict) else {"traceEvents": events}
    (folder / name).write_text(json.dumps(file))
    return load(folder / name)


def test_the_item_of_jax_is_a_wait(tmp_path):
    """Recorded with JAX 0.10 on a CPU; the program called c.item() in each of four steps."""
    trace = load(TRACES / "jax-eager.json.gz")
    assert {row.kind: row.times for row in trace.waits()} == {"item": 4, "block_until_ready": 1}
    assert trace.critical_path().length_ns < trace.account().wall_ns


def test_what_neither_profiler_wrote_is_refused(tmp_path):
    other = {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    name = {"ph": "M", "name": "process_name", "pid": 1}
    for events in ({"traceEvents": [name]}, {"weights": [1, 2]}, [other]):
        with pytest.raises(MXNetError, match="no trace of d2lmini, PyTorch's profiler or JAX's"):
            written(events, tmp_path)
    with pytest.raises(MXNetError, match="no operation among them"):
        written([{**span("import", 1, 0, 5), "cat": "python_function"}], tmp_path)
