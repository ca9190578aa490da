"""MXNet's own profiler: its states, its table, its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d2lmini import MXNetError, engine, nd, profiler
from d2lmini.compat import mx_profiler


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Every test has a profiler that never ran, and leaves none running."""
    monkeypatch.setattr(mx_profiler._State, "trace", None)
    monkeypatch.setattr(mx_profiler, "options", {**mx_profiler.options, "aggregate_stats": True})
    monkeypatch.chdir(tmp_path)
    yield
    profiler.set_state("stop")


def names() -> list[str]:
    profiler.dump()
    events = json.loads(Path("profile.json").read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("ph") == "X"]


def test_run_pause_resume_stop():
    x = nd.ones((3, 3))
    profiler.set_state("run")
    profiler.set_state("run")  # it does already
    x + 1
    nd.waitall()
    profiler.pause()
    nd.sin(x)
    nd.waitall()
    profiler.resume()
    nd.cos(x)
    profiler.set_state("stop")
    nd.tanh(x)
    profiler.resume()  # what was stopped is not resumed
    nd.tanh(x).wait_to_read()
    found = names()
    assert [found.count(name) for name in ("_plus_scalar", "sin", "cos", "tanh")] == [1, 0, 1, 0]
    assert "cos" in profiler.dumps(reset=True) and profiler.dumps() == ""


def test_a_stop_waits_for_what_was_pushed():
    with engine.use("threaded", workers=1, inline_below=0):
        profiler.set_state("run")
        x = nd.ones((400, 400))
        for _ in range(5):
            x = nd.dot(x, x) * 0.001
        profiler.set_state("stop")
        assert names().count("dot") == 5


def test_what_is_refused():
    with pytest.raises(MXNetError, match="Profiler hasn't been run"):
        profiler.dump()
    with pytest.raises(MXNetError, match="Cannot find argument 'nothing', Possible Arguments"):
        profiler.set_config(nothing=1)
    with pytest.raises(KeyError):
        profiler.set_state("begin")
    for name in ("Task", "profiler_set_state", "set_kvstore_handle"):
        with pytest.raises(AttributeError, match=f"profiler.{name} is left out of d2lmini, "):
            getattr(profiler, name)
    profiler.set_config(aggregate_stats=False, profile_all=True)
    assert profiler.dumps() == ""
