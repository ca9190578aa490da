"""Traces that were recorded once give the same answers, to the nanosecond.

`traces` holds programs on every engine, with threads, devices, links, back-pressure, split and
failed operations, and traces of PyTorch and JAX on a CPU;
`answers.json` what they answer. After a change that is meant to alter an answer:

    python tests/profiler/test_stored_traces.py
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from d2lmini import MXNetError, cpu
from d2lmini.base import callsite
from d2lmini.profiler import Trace, load
from d2lmini.profiler.replay import Recording

FOLDER = Path(__file__).parent / "traces"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.gz"))


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def simulated(recording: Recording, **changes: Any) -> list[Any]:
    """A run under other conditions, by the engine's rules alone."""
    run = recording.simulate(replace(recording.recorded, **changes))
    jobs = [(job.pushed, job.ready, job.began, job.ended, job.worker) for job in run.jobs]
    waits = [(wait and wait.kind, *others) for wait, *others in run.waits]
    return [run.ended, run.left, digest(jobs), digest(waits)]


def answers(trace: Trace) -> dict[str, Any]:
    """What a trace says of its order, its waits, and of other conditions."""
    path, bounds, recording = trace.critical_path(), trace.bounds(), Recording(trace)
    steps = [(s.kind, s.name, s.operation, s.where, s.begin_ns, s.end_ns)
             for s in path.steps]  # fmt: skip
    last, recorded = len(trace.waits) - 1, recording.recorded
    conditions: dict[str, dict[str, Any]] = {
        "as it was": {},
        "without the last wait": {"dropped": frozenset({last})},
        "without waits": {"dropped": frozenset(range(last + 1))},
        "issuing": {"own_ns": lambda *span: 0},
        "no order": {"order": False},
        "3 workers": {"workers": dict.fromkeys(recorded.workers, 3)},
        "twice as fast": {"run_ns": [ns // 2 for ns in recorded.run_ns]},
    }
    rng, n = random.Random(len(trace.operations)), len(trace.operations)
    near = [(k, min(n, k + rng.randint(1, 6))) for k in rng.sample(range(1, n), min(n - 1, 40))]
    pairs = [*near, *(sorted(rng.sample(range(1, n + 1), 2)) for _ in range(40))]
    graph = trace.events
    return {
        "order": digest(trace.order),
        "path": [path.length_ns, digest(steps), str(path).splitlines()[0]],
        "bounds": str(bounds),
        "waits": str(trace.waits()).splitlines()[-1],
        "ledger": digest([(r.kind, r.where, r.times, r.awaited and r.awaited.number, r.held, r.idle)
                          for r in trace.waits()]),
        "obstacles": " ".join(f"{a}-{b}:{graph.between(trace[a], trace[b])}" for a, b in pairs),
        "simulated": {name: simulated(recording, **c) for name, c in conditions.items()},
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_trace_answers_as_before(name: str) -> None:
    expected = json.loads((FOLDER / "answers.json").read_text())[name]
    assert json.loads(json.dumps(answers(load(FOLDER / f"{name}.json.gz")))) == expected


#: Files as 079a55d ("training") and 4c2ec34 wrote them.
EARLIER = Path(__file__).parents[1] / "data/earlier_traces"


def load_earlier(path: Path) -> Trace:
    with pytest.warns(UserWarning, match="an earlier version saved this trace, and .* say w"):
        return load(path)


@pytest.mark.parametrize("name", [x.name for x in EARLIER.glob("*.gz") if x.stem[:8] != "training"])
def test_an_earlier_file_answers_as_its_records_do_today(name: str) -> None:
    earlier, today = load_earlier(EARLIER / name), load(FOLDER / name)
    assert answers(earlier) == answers(today)
    for question in ("account", "off_cpu", "summary", "memory"):
        assert str(getattr(earlier, question)()) == str(getattr(today, question)())


def test_an_earlier_training_run_is_saved_as_it_was_read(tmp_path: Path) -> None:
    trace = load_earlier(EARLIER / "training.json.gz")
    assert callsite.describe(trace.copies[3].site) == "train.py:12: l.asnumpy()"
    report = trace.memory()[cpu()]
    sizes = report.begin_bytes, report.peak_bytes, *report.roles.values()
    assert sizes == (104, 424, 72, 72, 0, 52, 228)
    trace.save(tmp_path / "t.json")
    again = load(tmp_path / "t.json")
    assert answers(again) == answers(trace) and str(again.account()) == str(trace.account())


def test_what_an_earlier_file_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    tree = json.loads(gzip.decompress((EARLIER / "events.json.gz").read_bytes()))
    args = next(e["args"] for e in tree["traceEvents"] if e.get("args", {}).get("reads"))
    tree["otherData"]["spans"] = [["MainThread", 10, 20, "gil"]]  # as the last of them had
    args["joined"] = args["reads"][:1]  # what it came to read after its push
    path.write_text(json.dumps(tree))
    trace = load_earlier(path)
    assert trace.cpu.spans == [("MainThread", 10, 20, "blocked")]
    assert trace[args["number"]].reads == tuple(args["reads"][1:])
    args["place"] = "rank 0 cpu"
    path.write_text(json.dumps(tree))
    with pytest.raises(MXNetError, match=r"t\.json: a merged trace of several processes"):
        load(path)


if __name__ == "__main__":
    text = json.dumps({name: answers(load(FOLDER / f"{name}.json.gz")) for name in NAMES}, indent=0)
    (FOLDER / "answers.json").write_text(text + "\n")
