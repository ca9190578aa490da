"""The profiler against the real MXNet 1.9.1, where one is at hand (`make test-mxnet`).

The same program runs in both: signatures, tables, JSON and errors are compared; times are not.
MXNet's own bookkeeping (its C interface, deletions, the seed of a random stream) is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

MXNET = os.environ.get("D2LMINI_MXNET_PYTHON")
if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)

PROGRAM = r"""
import inspect, json, os, re, sys, tempfile, time, warnings
import MODULE as mx
from MODULE import profiler
warnings.simplefilter("ignore")
os.chdir(tempfile.mkdtemp())
found = {}

def attempt(key, call):
    try:
        found[key] = ["returns", call()]
    except Exception as problem:
        text = re.sub(r"(?s).*Check failed: [^:]*: |MXNetError: ", "", str(problem))
        found[key] = [type(problem).__name__, re.split(r"[:,;] |\n", text)[0]]

names = ["set_config", "set_state", "pause", "resume", "dump", "dumps", "dump_profile",
         "profiler_set_config", "profiler_set_state"]
for name in names:
    found["signature " + name] = [
        [p.name, str(p.kind), p.default if p.default is not p.empty else "-"]
        for p in inspect.signature(getattr(profiler, name)).parameters.values()]
for cls in ("Domain", "Task", "Frame", "Event", "Counter", "Marker"):
    kind = getattr(profiler, cls)
    for name in ["__init__"] + [name for name in dir(kind) if name[0] != "_"]:
        method = getattr(kind, name)
        if callable(method):
            found["signature %s.%s" % (cls, name)] = [
                [p.name, p.default if p.default is not p.empty else "-"]
                for p in inspect.signature(method).parameters.values()]

attempt("dump before a run", profiler.dump)
attempt("unknown option", lambda: profiler.set_config(bogus=1))
attempt("positional", lambda: profiler.set_config("x"))
attempt("unknown state", lambda: profiler.set_state("walk"))
attempt("dumps at first", profiler.dumps)
attempt("config", lambda: profiler.set_config(
    profile_all=True, aggregate_stats=True, filename="p.json"))
attempt("run", lambda: profiler.set_state("run"))
domain = profiler.Domain("dom")
task = domain.new_task("tk"); task.start(); time.sleep(0.003); task.stop()
frame = domain.new_frame("fr"); frame.start(); frame.stop()
event = profiler.Event("ev"); event.start(); event.stop()
counter = domain.new_counter("cn", 5)
counter += 3; counter -= 1; counter.increment(2); counter.decrement(); counter.set_value(50)
marker = domain.new_marker("mk"); marker.mark(); marker.mark("thread")
found["words"] = [str(x) for x in (domain, task, frame, event, counter)]
attempt("unknown scope", lambda: marker.mark("bogus"))
attempt("counter of words", lambda: profiler.Counter(domain, "c", "x"))
attempt("increment by words", lambda: counter.increment("x"))
x = mx.nd.ones((100, 100)); y = mx.nd.dot(x, x); y.asnumpy()
for _ in range(3):
    z = y + 1
z.wait_to_read()
mx.nd.waitall()
attempt("pause", profiler.pause)
mx.nd.sin(y).wait_to_read()
attempt("resume", profiler.resume)
mx.nd.cos(y).wait_to_read()
mx.nd.waitall()
attempt("unknown format", lambda: profiler.dumps(format="xml"))
attempt("unknown order", lambda: profiler.dumps(sort_by="name"))
found["table"] = profiler.dumps()
found["by count"] = profiler.dumps(sort_by="count", ascending=True)
found["json"] = json.loads(profiler.dumps(format="json"))
found["reset"] = profiler.dumps(reset=True)
found["after reset"] = profiler.dumps()
attempt("stop", lambda: profiler.set_state("stop"))
attempt("dump", profiler.dump)
with open("p.json") as file:
    found["events"] = sorted({e["name"] for e in json.load(file)["traceEvents"]})
print("ANSWER" + json.dumps(found))
"""

#: Of MXNet's table: what belongs to its own machinery.
THEIRS = {"MXNET_C_API", "ResourceParallelRandomSetSeed", "WaitForVar", "DeleteVariable"}


def run(python: str, module: str) -> dict:
    done = subprocess.run(
        [python, "-c", PROGRAM.replace("MODULE", module)],
        check=True, capture_output=True, timeout=300, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.rpartition("ANSWER")[2])


@pytest.fixture(scope="module")
def theirs() -> dict:
    return run(str(MXNET), "mxnet")


@pytest.fixture(scope="module")
def ours() -> dict:
    return run(sys.executable, "d2lmini")


def test_signatures_errors_and_words(ours, theirs):
    same = {key for key in theirs if isinstance(theirs[key], list)} - {"events"}
    assert len(same) > 35
    assert {k: ours[k] for k in same} == {k: theirs[k] for k in same}


def sections(table: str) -> dict[str, list[str]]:
    """Title -> its lines."""
    lines = table.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("====")]
    return {lines[i - 1]: lines[i + 1 :][: lines[i + 1 :].index("")] for i in starts}


@pytest.mark.parametrize("key", ["table", "by count"])
def test_tables_look_alike(ours, theirs, key):
    mine, real = sections(ours[key]), sections(theirs[key])
    assert ours[key].splitlines()[:3] == theirs[key].splitlines()[:3]
    assert set(real) - THEIRS == set(mine) - {"Wait"}
    for title in set(real) - THEIRS:
        assert mine[title][:2] == real[title][:2], "the same head"

        def rows(lines: list[str]) -> dict[str, tuple[str, int]]:
            split = [line.rsplit(None, lines[0].count("  Time") + 5) for line in lines[2:]]
            return {" ".join(row[:-5]) if len(row) > 5 else row[0]: row[-5:][0] for row in split}

        if title not in ("Device Storage",):
            known = {name: n for name, n in rows(real[title]).items() if name not in THEIRS}
            assert rows(mine[title]) == known, title
            assert {len(line) for line in mine[title]} == {
                len(line) for line in real[title] if line.split()[0] not in THEIRS
            }


def test_the_json_has_the_same_shape(ours, theirs):
    mine, real = ours["json"], theirs["json"]
    assert set(mine) == set(real) and mine["Unit"] == real["Unit"]
    for title in set(real["Time"]) - THEIRS:
        known = {k: v for k, v in real["Time"][title].items() if k not in THEIRS}
        assert {k: v["Count"] for k, v in mine["Time"][title].items()} == {
            k: v["Count"] for k, v in known.items()
        }
        for name, row in known.items():
            assert list(mine["Time"][title][name]) == list(row)
    assert mine["Time"]["dom"]["cn"]["Total"] == real["Time"]["dom"]["cn"]["Total"] == 0.05
    (used,), (really,) = (
        mine["Memory"]["Device Storage"].values(),
        real["Memory"]["Device Storage"].values(),
    )
    assert list(mine["Memory"]["Device Storage"]) == list(real["Memory"]["Device Storage"])
    assert list(used) == list(really) and used["Min"] == really["Min"] == 40.0


def test_a_reset_empties_it_and_the_file_has_the_names(ours, theirs):
    assert ours["reset"].splitlines()[:3] == theirs["reset"].splitlines()[:3]
    assert "dot" in ours["reset"] and "dot" not in ours["after reset"]
    assert "dot" in theirs["reset"] and "dot" not in theirs["after reset"]
    for events in (ours["events"], theirs["events"]):
        assert {"_ones", "dot", "cos", "tk", "fr", "ev", "cn", "mk"} <= set(events)
        assert "sin" not in events, "it was paused"
