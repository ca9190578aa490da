"""`d2lmini.watch()` without a browser: what it records, what it tells a view, what remains."""

import gc
import json
import os
import subprocess
import sys
import threading
import time

import pytest
from worlds import until

import d2lmini
from d2lmini import engine, nd
from d2lmini.base import instrument
from d2lmini.widgets import refresher
from d2lmini.widgets.watch import RecentRecords, waiting_now

SIZE = 300  # of arrays that are too large to be computed where they are called


@pytest.fixture(autouse=True)
def nothing_is_left():
    nd.waitall()
    yield
    nd.waitall()
    gc.collect()
    assert not any(isinstance(listener, RecentRecords) for listener in instrument.listeners)
    until(lambda: not refresher.running())


def large():
    return nd.ones((SIZE, SIZE))


@pytest.fixture
def held():
    """`held(x)`: a task that writes x runs, and ends at the end of the test or at `go.set()`."""
    started, go = threading.Event(), threading.Event()

    def hold():
        started.set()
        go.wait(20)

    def begin(x):
        engine.push(hold, writes=[x])
        assert started.wait(10)

    begin.go = go
    yield begin
    go.set()


# --- what it records ---


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_it_agrees_with_a_trace_of_the_same_run(kind):
    with engine.use(kind), d2lmini.watch() as w, d2lmini.profile() as trace:
        x = large()
        for _ in range(20):
            y = x + 1
            x[:] = y * 0.5
            small = nd.ones((2,)) + 1
        total = y.sum().asscalar()
        small.asnumpy()
        assert not instrument.apart, "nobody wants small operations event by event"
    assert total > 0
    seen = sorted(w.operations, key=lambda each: each.number)
    assert list(map(str, seen)) == list(map(str, trace.operations)) and w.count == len(seen)
    assert [each.after for each in seen] == trace.order
    assert [each.reads for each in seen] == [each.reads for each in trace.operations]
    wait = next(wait for wait in w._recent.waits if wait.kind == "asscalar")
    assert seen[wait.operation - 1].name == "sum" and "y.sum().asscalar()" in wait.where


def test_the_ring_forgets_and_the_order_of_the_rest_stays_right():
    with d2lmini.watch(keep=50) as w:
        x = large()
        for _ in range(200):
            y = x + 1  # reads the same array over and over
            y *= 2
    assert w.count == 401
    assert len(w.operations) == 50 and len(w._recent.samples) <= 50
    assert max(operation.number for operation in w.operations) == 401
    # Nothing is known any more of Vars that only forgotten operations touched.
    assert not w._recent._open and len(w._recent._ordering.writer) <= 50
    assert sum(map(len, w._recent._ordering._readers.values())) <= 50
    for operation in w.operations:
        if operation.name == "_mul_scalar":
            assert operation.after[0] == (operation.number - 1,)


def test_if_nobody_looks_the_oldest_are_lost_and_nothing_grows():
    recent = RecentRecords(keep=100)
    x = nd.ones((2,))
    with instrument.listening(recent):
        for _ in range(30_000):
            x + 1
    assert len(recent._pushed) == len(recent._ended) < 30_000
    look = recent.look()
    assert look.ended[-1].number == recent.count == 30_000
    assert len(recent.operations) == 100


def test_a_wait_is_seen_while_it_lasts(held):
    def mine():
        found = waiting_now(time.perf_counter_ns())
        return next((each for each in found if each.thread == "a waiter"), None)

    x = nd.ones((2,))
    held(x)
    waiter = threading.Thread(target=x.wait_to_read, name="a waiter")
    with d2lmini.watch() as w:
        waiter.start()
        until(mine)
        found = mine()
        assert found.kind == "wait_to_read" and 0 < found.begin_ns <= time.perf_counter_ns()
        held.go.set()
        waiter.join(10)
        assert mine() is None
    assert [wait.thread for wait in w._recent.waits] == ["a waiter"]


# --- its life ---


def test_one_watches_at_a_time_and_stopping_twice_does_no_harm():
    first = d2lmini.watch()
    second = d2lmini.watch()
    large() + 1
    second.stop()
    second.stop()
    large() + 1
    assert (first.count, second.count) == (0, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_watch():
    code = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is what is tried here
import d2lmini
from d2lmini.base import instrument
from d2lmini import nd
with d2lmini.watch() as w:
    nd.ones((300, 300)).wait_to_read()
    child = os.fork()
    if child == 0:
        nd.ones((300, 300)).wait_to_read()
        w.stop()
        os._exit(instrument.listeners != () or w.count != 1)
    status = os.waitpid(child, 0)[1]
w2 = d2lmini.watch()  # the program may end while it watches
sys.exit(os.waitstatus_to_exitcode(status))
"""
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


NOTEBOOK = (
    """
import d2lmini
from d2lmini import nd
with d2lmini.watch() as w:
    x = nd.ones((300, 300)) + 1
    x.wait_to_read()
""",
    "w",
)


def test_in_a_notebook_the_outputs_hold_the_view_the_picture_and_a_text_that_is_always_the_same():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("anywidget")
    cells = [nbformat.v4.new_code_cell(text) for text in NOTEBOOK]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=100, store_widget_state=False).execute()
    for cell in notebook.cells:
        view, picture = (output["data"] for output in cell.outputs)
        assert view["text/plain"] == "<live view of the engine>"
        assert "application/vnd.jupyter.widget-view+json" in view
        assert picture["text/plain"] == "" and 1000 < len(picture["image/png"]) < 150_000


# --- what it tells a view ---

RECORDS = ("operations", "waits", "samples")


def test_the_news_together_are_everything():
    with d2lmini.watch() as w:
        refresher.remove(w)
        told = {kind: list(w.whole()[0][kind]) for kind in RECORDS}  # of a first beat, perhaps
        x = large()
        for _ in range(5):
            for _ in range(7):
                x = x + 1
            x.wait_to_read()
            message = w.changes()[0]
            for kind in RECORDS:
                told[kind] += message[kind]
        whole = w.whole()[0]
    assert told == {kind: whole[kind] for kind in RECORDS}
    assert len(whole["operations"]) >= 36 and len(whole["waits"]) == 5
    _, name, row, *times, line, failure, needs, room = whole["operations"][2]
    assert name == "+" and needs == (2,) and room == () and failure == "" and "x = x + 1" in line
    assert dict(whole["rows"])[row].startswith("cpu") and times == sorted(times)
    json.dumps(whole)


def test_what_runs_now_is_told(held):
    with d2lmini.watch() as w:
        refresher.remove(w)
        x = nd.ones((2,))
        held(x)
        y = x + 1
        header, _ = w.changes()
        held.go.set()
        y.wait_to_read()
        after, _ = w.changes()
        quiet = [w.changes() is not None for _ in range(40)]
    (running,) = header["running"]
    assert running[1] == "hold" and header["queued"] == 2 and header["live"]
    assert after["running"] == [] and after["queued"] == 0
    assert 3 <= sum(quiet) <= 12, "an idle engine is told of once a second"


def test_the_picture_has_lanes_and_is_small():
    pytest.importorskip("matplotlib")
    with d2lmini.watch() as w:
        assert w.picture() is None
        x = large()
        for _ in range(1000):
            x = x + 1
        x.asnumpy()
    picture = w.picture()
    (lanes,) = picture.figure.axes
    rows = [label.get_text() for label in lanes.get_yticklabels()]
    assert rows[0] == "front end" and rows[1].startswith("cpu")
    assert len(picture._repr_png_()[0]) < 150_000
