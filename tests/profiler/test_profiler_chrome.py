"""The file for Perfetto, by the documented rules of the Trace Event Format: phases, microseconds,
names of processes and threads."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import Any

import pytest

from d2lmini import (
    MXNetError,
    autograd,
    engine,
    gluon,
    gpu,
    kv,
    nd,
    profile,
    profiler,
    virtual_gpus,
)
from d2lmini.base import callsite
from d2lmini.gluon import nn
from d2lmini.profiler.records import Operation
from d2lmini.profiler.trace_file import FACTS

#: Phase -> the fields it must have besides name, ph, pid, tid; and those it may have.
PHASES = {
    "X": ({"ts", "dur"}, {"cat", "args"}),
    "i": ({"ts", "s"}, {"cat", "args"}),
    "M": ({"args"}, {"ts"}),
}


def check(text: str) -> list[dict]:
    """The events of a file; AssertionError for one that breaks a rule of the format."""
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(found) <= {"traceEvents", "displayTimeUnit", "otherData", "records"}
    assert found.get("displayTimeUnit", "ms") in ("ms", "ns")
    events = found["traceEvents"]
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    named: dict[str, set] = defaultdict(set)
    for event in events:
        must, may = PHASES[event["ph"]]
        keys = set(event) - {"name", "ph", "pid", "tid"}
        assert must <= keys <= must | may, event
        assert isinstance(event["name"], str) and event["name"]
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "M":
            assert set(event["args"]) == {"name"}
            named[event["name"]].add((event["pid"], event["tid"]))
            continue
        assert type(event["ts"]) in (int, float)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            span = (event["ts"], event["ts"] + event["dur"])
            slices[event["pid"], event["tid"]].append(span)
        elif event["ph"] == "i":
            assert event["s"] in ("t", "p", "g")
    for event in events:
        if event["ph"] != "M":
            assert (event["pid"], event["tid"]) in named["thread_name"]
            assert (event["pid"], 0) in named["process_name"]
    for row in slices.values():  # slices of a thread lie beside or within each other
        open_: list[float] = []
        for begin, end in sorted(row, key=lambda span: (span[0], -span[1])):
            while open_ and open_[-1] <= begin + 1e-3:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-3
            open_.append(end)
    return events


def saved(trace, tmp_path) -> list[dict]:
    trace.save(tmp_path / "t.json")
    check_same(profiler.load(tmp_path / "t.json"), trace)
    return check((tmp_path / "t.json").read_text(encoding="utf-8"))


def check_same(again: Any, trace: Any) -> None:
    """Two traces have the same records."""
    assert _records(again) == _records(trace)


def _records(trace: Any) -> list[Any]:
    facts = [getattr(trace, name) for name in (*FACTS, "shared", "roles", "recording")]
    fields = [name for name in Operation.__slots__ if name not in ("site", "footprint", "_cost")]
    operations = [
        [getattr(operation, name) for name in (*fields, "where", "flops", "nbytes", "place")]
        for operation in trace.operations
    ]
    waits = [(*wait._replace(site=None), wait.where) for wait in trace.waits]
    changes = [
        (*change._replace(site=None), callsite.describe(change.site)) for change in trace.memory
    ]
    told = [(*notice._replace(site=None), notice.where) for notice in trace.notices]
    pauses = [(*pause[:3], callsite.describe(pause.site)) for pause in trace.cpu.pauses]
    return [facts, operations, waits, changes, trace.order, trace.cpu.times, pauses, told]


def training() -> None:
    """Forward, backward, an update, small operations run inline, hidden waits."""
    net = nn.Dense(4, in_units=3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for _ in range(3):
        with autograd.record():
            loss = net(nd.ones((2, 3))).sum()
        loss.backward()
        trainer.step(2)
        float(loss)


def failing() -> None:
    """One that fails, what is skipped for it, one that nobody waits for."""
    a = engine.new_var()
    engine.push(lambda: 1 / 0, writes=[a], name="fails")
    engine.push(int, reads=[a], writes=[a], name="skipped")
    y = nd.random.normal(0, -1, shape=(2,)) + 1
    with pytest.raises(MXNetError):
        engine.wait_for_var(a)
    with pytest.raises(MXNetError):
        y.wait_to_read()


def many_threads() -> None:
    """Threads of one name that push and wait at the same time; tasks that push."""
    both = threading.Barrier(2)

    def work() -> None:
        both.wait(30)
        for _ in range(20):
            (nd.ones((200, 200)) * 2).wait_to_read()
            nd.ones((2, 2)).asnumpy()
        both.wait(30)

    threads = [threading.Thread(target=work, name="loader") for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.push(lambda: engine.push(int, name="inner"), name="outer")


def on_devices() -> None:
    """Copies to two devices and back, a meeting of both."""
    with virtual_gpus(2, link_gb_s=1):
        ctxs = [gpu(0), gpu(1)]
        parts = gluon.utils.split_and_load(nd.ones((4, 50_000)), ctxs)
        parts = [part * 2 for part in parts]
        store = kv.create("device")
        store.init(0, parts[0])
        store.push(0, parts)
        store.pull(0, out=parts)
        nd.waitall()


KINDS = [training, failing, many_threads, on_devices]
ENGINES: dict[str, dict[str, Any]] = {
    "threaded": {"workers": 3},
    "pushed": {"workers": 2, "inline_below": 0},
    "naive": {},
    "stepped": {"times": 20},
    "seeded": {"seed": 3},
}


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("program", KINDS, ids=lambda program: program.__name__)
def test_traces_of_every_kind_keep_the_rules(program: Any, kind: str, tmp_path):
    stepped = kind in ("stepped", "seeded")
    name = "naive" if kind == "naive" else "threaded"
    with engine.stepped(**ENGINES[kind]) if stepped else engine.use(name, **ENGINES[kind]):
        if kind == "naive" and program is failing:
            pytest.skip("it raises where it is pushed")
        with profile() as trace:
            program()
    assert trace.operations
    events = saved(trace, tmp_path)
    told = [e for e in events if e["ph"] in "Xi" and "number" in e.get("args", ())]
    assert len(told) == len(trace.operations)
    # What is foreseen of it keeps them, too.
    predicted = trace.replay()
    predicted.recorded = None  # which no file has
    saved(predicted, tmp_path)


def test_names_are_escaped_and_nothing_is_no_trouble(tmp_path):
    with profile() as trace:
        engine.push(int, name='a "quoted" \\ name, ä\n')
    assert any(e["name"] == 'a "quoted" \\ name, ä\n' for e in saved(trace, tmp_path))
    with profile() as empty:
        pass
    assert {e["ph"] for e in saved(empty, tmp_path)} == {"M"}
