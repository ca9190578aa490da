"""MXNet's own profiler: states, tables, objects; and beside the real one (`make test-mxnet`)."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from oracle import Oracle

from d2lmini import MXNetError, engine, instrument, nd, profiler
from d2lmini.compat import mx_profiler, mx_profiler_objects
from d2lmini.compat.mxnet_alias import install_as_mxnet, uninstall


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Every test has a profiler that never ran, and leaves none running."""
    new = type(mx_profiler.profiler)()
    monkeypatch.setattr(mx_profiler, "profiler", new)
    monkeypatch.setattr(mx_profiler_objects, "profiler", new)
    monkeypatch.chdir(tmp_path)
    yield
    profiler.set_state("stop")
    assert new.trace not in instrument.listeners


def counts(**how) -> dict[str, int]:
    table = json.loads(profiler.dumps(format="json", **how))
    return {name: row["Count"] for name, row in table["Time"].get("operator", {}).items()}


def test_run_pause_resume_stop():
    profiler.set_config(aggregate_stats=True)
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
    nd.waitall()
    assert counts() == {"_plus_scalar": 1, "cos": 1}
    profiler.resume()  # what was stopped is not resumed
    nd.tanh(x)
    assert counts() == {"_plus_scalar": 1, "cos": 1}
    profiler.set_state("run")  # the run goes on
    nd.tanh(x)
    nd.tanh(x).wait_to_read()
    profiler.set_state("stop")
    assert counts() == {"_plus_scalar": 1, "cos": 1, "tanh": 2}
    profiler.dump()
    written = json.loads(Path("profile.json").read_text())["traceEvents"]
    names = [event["name"] for event in written if event.get("ph") == "X"]
    assert [names.count(name) for name in ("_plus_scalar", "sin", "cos", "tanh")] == [1, 0, 1, 2]


def test_a_stop_waits_for_what_was_pushed():
    profiler.set_config(aggregate_stats=True)
    with engine.use("threaded", workers=1, inline_below=0):
        profiler.set_state("run")
        x = nd.ones((400, 400))
        for _ in range(5):
            x = nd.dot(x, x) * 0.001
        profiler.set_state("stop")
        assert counts() == {"_ones": 1, "dot": 5, "_mul_scalar": 5}


def test_the_table():
    profiler.set_config(profile_all=True, aggregate_stats=True)
    profiler.set_state("run")
    x = nd.ones((100, 100))
    y = nd.dot(x, x) + 1
    y.asnumpy()
    profiler.set_state("stop")
    text = profiler.dumps()
    assert text.startswith(
        "\nProfile Statistics:\n\tNote the difference in units for different entries.\n"
        "Device Storage\n=================\n"
    )
    rows = {line[:25].strip(): line.split() for line in text.splitlines()}
    assert rows["dot"][1] == "1" and len(rows["dot"]) == 6
    assert float(rows["Memory: cpu/0"][-2]) >= 120.0
    assert re.search(r"Wait\n=+\nName .*\n---- .*\nasnumpy +1 ", text)
    lengths = {len(line) for line in text.splitlines() if re.match(r"(dot|_ones|Name)\b", line)}
    assert lengths == {109, 92}, "columns as wide as MXNet's"


def test_rows_are_sorted_and_reset():
    profiler.set_config(aggregate_stats=True)
    profiler.set_state("run")
    big, small = nd.ones((500, 500)), nd.ones((2, 2))
    for _ in range(4):
        small + 1
    nd.dot(big, big).wait_to_read()
    nd.waitall()
    assert next(iter(counts(sort_by="max"))) == "dot"
    assert next(iter(counts(sort_by="count"))) == "_plus_scalar"
    assert list(counts(sort_by="count", ascending=True))[-1] == "_plus_scalar"
    assert "dot" in profiler.dumps(reset=True)
    assert "dot" not in profiler.dumps()
    nd.sin(small)
    nd.waitall()
    assert counts() == {"sin": 1}, "it goes on"


def test_what_is_configured():
    assert profiler.dumps() == "", "no aggregate_stats"
    profiler.set_config(aggregate_stats=True, profile_memory=False, profile_api=False)
    profiler.set_state("run")
    nd.ones((200, 200)).asnumpy()
    profiler.set_state("stop")
    text = profiler.dumps()
    assert "_ones" in text and "Memory" not in text and "asnumpy" not in text
    profiler.set_config(profile_imperative=False, profile_symbolic=False, profile_memory=True)
    assert "_ones" not in profiler.dumps() and "Memory: cpu/0" in profiler.dumps()
    profiler.set_config(profile_all=True)
    assert "_ones" in profiler.dumps() and "asnumpy" in profiler.dumps()


def test_what_is_refused():
    with pytest.raises(
        MXNetError, match="Cannot find argument 'bogus', Possible Arguments:\nprofile"
    ):
        profiler.set_config(bogus=1)
    with pytest.raises(KeyError, match="nobody"):
        profiler.set_config(profile_process="nobody")
    with pytest.raises(KeyError, match="walk"):
        profiler.set_state("walk")
    with pytest.raises(KeyError, match="nobody"):
        profiler.pause("nobody")
    with pytest.raises(MXNetError, match="no server processes"):
        profiler.resume("server")
    with pytest.raises(AssertionError, match="Invalid value provided for format: xml"):
        profiler.dumps(format="xml")
    with pytest.raises(AssertionError, match="Invalid value provided for sort_by: name"):
        profiler.dumps(sort_by="name")
    with pytest.raises(MXNetError, match="Profiler hasn't been run"):
        profiler.dump()


def test_objects_of_the_user():
    profiler.set_config(aggregate_stats=True)
    domain = profiler.Domain("d")
    task, counter = profiler.Task(domain, "t"), profiler.Counter(domain, "c")
    task.start()
    task.stop()  # not recorded: it does not run
    profiler.set_state("run")
    task.start()
    task.stop()
    task.stop()  # it has not begun
    counter.set_value(7)
    counter += 3
    counter -= 1
    counter.increment(2)
    counter.decrement()
    profiler.Event("e").stop()
    domain.new_marker("m").mark()
    profiler.set_state("stop")
    times = json.loads(profiler.dumps(format="json"))["Time"]
    assert times["d"]["t"]["Count"] == 1
    assert times["d"]["c"] == {"Count": 5, "Total": 0.01, "Min": 0.007, "Max": 0.011, "Avg": 0.0094}
    assert times["d,instant_marker"] == {}
    assert "event" not in times
    for make in (profiler.Task, profiler.Frame, profiler.Counter, profiler.Marker):
        assert str(make(domain, "x").name) == "x"
        with pytest.raises(TypeError, match=rf"{make.__name__}: its domain is 'd'; give it a"):
            make("d", "x")
    with pytest.raises(ValueError, match="invalid literal"):
        counter.increment("x")
    with pytest.raises(MXNetError, match=r"Invalid Input: 'here', valid values are: \{'global',"):
        profiler.Marker(domain, "m").mark("here")


def test_older_names_warn():
    with pytest.warns(UserWarning, match=r"Please use profiler.set_config\(\) instead") as caught:
        profiler.profiler_set_config("all", "old.json")
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="profiler_set_state"):
        profiler.profiler_set_state("run")
    nd.ones((2,)).wait_to_read()
    with pytest.warns(UserWarning, match="dump_profile"):
        profiler.dump_profile()
    with open("old.json", encoding="utf-8") as file:
        assert any(e["name"] == "_ones" for e in json.load(file)["traceEvents"])


def test_a_dump_that_is_not_the_last_goes_on():
    profiler.set_state("run")
    x = nd.ones((2,))
    nd.waitall()
    profiler.dump(finished=False)
    x + 1
    profiler.dump()
    with open("profile.json", encoding="utf-8") as file:
        names = {e["name"] for e in json.load(file)["traceEvents"]}
    assert {"_ones", "_plus_scalar"} <= names
    assert not mx_profiler.profiler.running


def test_it_is_found_where_old_programs_look():
    install_as_mxnet()
    try:
        mxnet = importlib.import_module("mxnet")
        assert importlib.import_module("mxnet.profiler").set_config is profiler.set_config
        assert mxnet.profiler.dumps is profiler.dumps
    finally:
        uninstall()


# -- beside the real MXNet -------------------------------------------------------------------------
#
# The same program runs in both: signatures, tables, JSON and errors are compared; times are not.
# MXNet's own bookkeeping (its C interface, deletions, the seed of a random stream) is left out.


def profile(mx):
    """Signatures, tables, JSON and errors by name; `mx` is either library."""
    import inspect
    import json
    import os
    import re
    import tempfile
    import time

    profiler = mx.profiler
    os.chdir(tempfile.mkdtemp())
    found = {}

    def attempt(key, call):
        try:
            found[key] = ["returns", call()]
        except Exception as problem:
            text = re.sub(r"(?s).*Check failed: [^:]*: |MXNetError: ", "", str(problem))
            found[key] = [type(problem).__name__, re.split(r"[:,;] |\n", text)[0]]

    names = [
        "set_config",
        "set_state",
        "pause",
        "resume",
        "dump",
        "dumps",
        "dump_profile",
        "profiler_set_config",
        "profiler_set_state",
        "set_kvstore_handle",
    ]
    for name in names:
        found["signature " + name] = [
            [p.name, str(p.kind), p.default if p.default is not p.empty else "-"]
            for p in inspect.signature(getattr(profiler, name)).parameters.values()
        ]
    for cls in ("Domain", "Task", "Frame", "Event", "Counter", "Marker"):
        kind = getattr(profiler, cls)
        for name in ["__init__"] + [name for name in dir(kind) if name[0] != "_"]:
            method = getattr(kind, name)
            if callable(method):
                found[f"signature {cls}.{name}"] = [
                    [p.name, p.default if p.default is not p.empty else "-"]
                    for p in inspect.signature(method).parameters.values()
                ]

    attempt("dump before a run", profiler.dump)
    attempt("unknown option", lambda: profiler.set_config(bogus=1))
    attempt("positional", lambda: profiler.set_config("x"))
    attempt("unknown state", lambda: profiler.set_state("walk"))
    attempt("dumps at first", profiler.dumps)
    attempt(
        "config",
        lambda: profiler.set_config(profile_all=True, aggregate_stats=True, filename="p.json"),
    )
    attempt("run", lambda: profiler.set_state("run"))
    domain = profiler.Domain("dom")
    task = domain.new_task("tk")
    task.start()
    time.sleep(0.003)
    task.stop()
    frame = domain.new_frame("fr")
    frame.start()
    frame.stop()
    event = profiler.Event("ev")
    event.start()
    event.stop()
    counter = domain.new_counter("cn", 5)
    counter += 3
    counter -= 1
    counter.increment(2)
    counter.decrement()
    counter.set_value(50)
    marker = domain.new_marker("mk")
    marker.mark()
    marker.mark("thread")
    found["words"] = [str(x) for x in (domain, task, frame, event, counter)]
    attempt("unknown scope", lambda: marker.mark("bogus"))
    attempt("counter of words", lambda: profiler.Counter(domain, "c", "x"))
    attempt("increment by words", lambda: counter.increment("x"))
    x = mx.nd.ones((100, 100))
    y = mx.nd.dot(x, x)
    y.asnumpy()
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
    attempt("handle", lambda: profiler.set_kvstore_handle(None))
    for op in (mx.nd.log, mx.nd.tan, mx.nd.tan):
        profiler.set_state("run")
        op(y).wait_to_read()
        profiler.set_state("stop")
        mx.nd.sqrt(y).wait_to_read()
    counts = json.loads(profiler.dumps(format="json"))["Time"]["operator"]
    found["runs"] = [counts.get(name, {}).get("Count") for name in ("log", "tan", "sqrt")]
    attempt("dump", profiler.dump)
    with open("p.json") as file:
        found["events"] = sorted({e["name"] for e in json.load(file)["traceEvents"]})
    return found


#: Of MXNet's table: what belongs to its own machinery.
THEIRS = {"MXNET_C_API", "ResourceParallelRandomSetSeed", "WaitForVar", "DeleteVariable"}


@pytest.fixture(scope="module")
def theirs(mxnet: Oracle) -> dict:
    return mxnet.ask(profile)


@pytest.fixture(scope="module")
def ours() -> dict:
    with Oracle("d2lmini") as process:  # whose profiler never ran
        return process.ask(profile)


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
        assert {"_ones", "dot", "cos", "log", "tan", "tk", "fr", "ev", "cn", "mk"} <= set(events)
        assert "sin" not in events, "it was paused"
