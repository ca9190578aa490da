"""Samples of the issuing thread: what they count, what they leave out, and the flame graph."""

import json
import sys
import time
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from d2lmini import nd, profile
from d2lmini.profiler.sampler import PythonTime, Sample, _stack_of

MS = 1_000_000


def inner():
    return _stack_of(sys._getframe())


def outer():
    return inner()


STACKS = inner(), outer(), outer()


def test_own_time_is_that_of_the_innermost_line():
    samples = [Sample(k * 10 * MS, (k + 1) * 10 * MS, stack) for k, stack in enumerate(STACKS)]
    time_of = PythonTime(samples, [])
    assert time_of.seconds == pytest.approx(0.03)
    first, *rest = time_of.lines
    assert first.where.endswith("return _stack_of(sys._getframe())")
    assert (first.own_seconds, first.seconds) == (pytest.approx(0.03), pytest.approx(0.03))
    through = next(line for line in rest if line.where.endswith("return inner()"))
    assert (through.own_seconds, through.seconds) == (0.0, pytest.approx(0.02))


def again(n):
    return again_through_another_line(n - 1) if n else _stack_of(sys._getframe())


def again_through_another_line(n):
    return again(n)


def test_a_line_that_calls_itself_has_its_own_time():
    deep = again(0), again(1)
    time_of = PythonTime([Sample(0, 10 * MS, deep[0]), Sample(10 * MS, 30 * MS, deep[1])], [])
    own = {line.where.partition(": ")[2]: line.own_seconds for line in time_of.lines}
    assert own["return again_through_another_line(n - 1) if n else _stack_of(sys._getframe())"] == (
        pytest.approx(0.03)
    )
    assert own["return again(n)"] == 0.0


def test_samples_in_a_wait_are_left_out():
    samples = [Sample(0, 10, STACKS[0]), Sample(10, 20, STACKS[0]), Sample(20, 30, STACKS[0])]
    time_of = PythonTime(samples, [SimpleNamespace(begin_ns=15, end_ns=25)])
    assert [sample.end_ns for sample in time_of.samples] == [10, 30]


def test_the_flame_graph_has_a_box_as_wide_as_the_time():
    samples = [Sample(0, 10 * MS, STACKS[0]), Sample(10 * MS, 40 * MS, STACKS[1])]
    drawing = PythonTime(samples, []).flame()
    widths = {}
    for group in ElementTree.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}g"):
        title, box = group[0].text, group[1]
        widths.setdefault(title.partition(": ")[0], []).append(float(box.get("width")))
    assert widths["the program"] == [660.0]
    line = next(name for name in widths if name.startswith("test_sampler.py"))
    assert sum(widths[line]) <= 660.0
    assert any("return inner()" in text for text in drawing.svg.split("<title>"))


def test_slices_of_a_saved_trace_nest_and_take_the_time(tmp_path):
    with profile() as trace:
        nd.ones((2, 2)).wait_to_read()
    begin = trace.begin_ns
    times = (0, 10), (10, 40), (40, 50), (60, 70)  # nothing was sampled from 50 to 60
    trace.samples = [
        Sample(begin + MS * a, begin + MS * b, stack)
        for (a, b), stack in zip(times, (STACKS[0], *STACKS))
    ]
    trace.save(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [event for event in events if event.get("cat") == "python"]
    inner_ones = [(e["ts"], e["dur"]) for e in slices if "sys._getframe" in e["name"]]
    assert sorted(inner_ones) == [(0, 40e3), (40e3, 10e3), (60e3, 10e3)]
    assert sum(e["dur"] for e in slices if "return inner()" in e["name"]) == 20e3
    assert all(e["ts"] >= 0 and e["dur"] > 0 for e in slices)


def test_no_samples_no_picture():
    with profile() as trace:
        nd.ones((2, 2)).wait_to_read()
    assert trace.python().lines == []
    with pytest.raises(ValueError, match="sample_hz=1000"):
        trace.python().flame()


def test_a_slow_line_is_found_and_the_switch_interval_is_as_before():
    before = sys.getswitchinterval()
    with profile(sample_hz=500) as trace:
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            sum(range(1000))
    assert sys.getswitchinterval() == before
    assert any("sum(range(1000))" in line.where for line in trace.python().lines)


def test_a_wrong_rate_is_refused():
    with pytest.raises(ValueError, match="from 1 to 10000"):
        profile(sample_hz=0.5)
