"""`d2lmini.watch()` without a browser: what it records, what it tells a view, what remains."""

import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from worlds import until

import d2lmini
from d2lmini import cpu, engine, gpu, instrument, nd, virtual_gpus
from d2lmini.base import MXNetError
from d2lmini.engine.order import order_of
from d2lmini.widgets import base, refresher
from d2lmini.widgets.watch_messages import OPERATION, WAIT
from d2lmini.widgets.watch_records import RecentRecords, waiting_now

SIZE = 300  # of arrays that are too large to be computed where they are called


@pytest.fixture(autouse=True)
def nothing_is_left():
    nd.waitall()
    yield
    nd.waitall()
    gc.collect()
    assert not any(isinstance(listener, RecentRecords) for listener in instrument.listeners)
    until(lambda: not refresher.running())


@pytest.fixture(params=["threaded", "naive"])
def kind(request):
    with engine.use(request.param):
        yield request.param


def test_without_the_packages_of_the_view_it_does_not_begin(monkeypatch):
    monkeypatch.setattr(base, "in_notebook", lambda: True)
    monkeypatch.setattr(base, "_front_class", lambda script: base.need("a_package_that_is_missing"))
    with pytest.raises(ImportError, match="pip install"):
        d2lmini.watch()
    assert not any(isinstance(listener, RecentRecords) for listener in instrument.listeners)


def large():
    return nd.ones((SIZE, SIZE))


def read(message, texts=None):
    """What a view makes of a message: operations by number, waits, samples; and the words."""
    header, [buffer] = message
    texts = [] if texts is None else texts
    assert len(texts) == header["known"]
    texts += header["texts"]
    told = np.frombuffer(buffer).tolist()
    rows, found, waits, samples = dict(header["rows"]), {}, [], []
    while told:
        kind, n = told[:2]
        record, told = told[2 : 2 + int(n)], told[2 + int(n) :]
        if kind == OPERATION:
            number, name, lane, *times, line, failure, needs = record[:10]
            found[int(number)] = {
                "name": texts[int(name)],
                "row": rows.get(int(lane)),
                "times": times,
                "line": "" if line < 0 else texts[int(line)],
                "failure": None if failure < 0 else texts[int(failure)],
                "needs": record[10 : 10 + int(needs)],
                "room": record[10 + int(needs) :],
            }
        else:
            (waits if kind == WAIT else samples).append(record)
    return found, waits, samples, texts


# --- what it records ---


def test_operations_and_waits_as_they_were(kind):
    with d2lmini.watch() as w:
        a = large()
        b = a + 1
        a *= 2
        c = a * b
        total = c.sum().asscalar()
    assert total == 4 * SIZE * SIZE
    operations = sorted(w.operations, key=lambda each: each.number)
    assert [operation.number for operation in operations] == list(range(1, w.count + 1))
    names = [operation.name for operation in operations]
    assert names[:4] == ["_ones", "_plus_scalar", "_mul_scalar", "broadcast_mul"]
    assert [operation.after for operation in operations] == order_of(operations), (
        "by the trace's own rule"
    )
    assert operations[2].after == ((1,), (2,)), "it needs the first, and room of the second"
    for operation in operations:
        assert w._recent.begin_ns <= operation.pushed_ns <= operation.ready_ns <= operation.began_ns
        assert operation.began_ns <= operation.ended_ns and operation.worker
        assert "test_widgets_watch.py" in operation.where
    wait = next(wait for wait in w.waits if wait.kind == "asscalar")
    assert operations[wait.operation - 1].name == "sum" and "c.sum().asscalar()" in wait.where


def test_its_own_wait_at_the_end_is_none_of_the_programs():
    with d2lmini.watch() as w:
        large() + 1
    assert len(w.operations) == 2 and not w.waits


def test_it_agrees_with_a_trace_of_the_same_run():
    with d2lmini.watch() as w, d2lmini.profile() as trace:
        x = large()
        for _ in range(20):
            y = x + 1
            x[:] = y * 0.5
            small = nd.ones((2,)) + 1
        small.asnumpy()
    seen = sorted(w.operations, key=lambda each: each.number)
    assert [str(operation) for operation in seen] == [
        str(operation) for operation in trace.operations
    ]
    assert [each.after for each in seen] == trace.order
    assert [operation.reads for operation in seen] == [
        operation.reads for operation in trace.operations
    ]


def test_the_ring_forgets_and_the_order_of_the_rest_stays_right():
    with d2lmini.watch(keep=50) as w:
        x = large()
        for _ in range(200):
            y = x + 1  # reads the same array over and over
            y *= 2
    assert w.count == 401
    w._pass_on()
    assert len(w.operations) == 50 and len(w._recent.samples) <= 50
    numbers = sorted(operation.number for operation in w.operations)
    assert numbers[-1] == 401
    assert not w._recent._open
    # Nothing is known any more of Vars that only forgotten operations touched.
    assert len(w._recent._ordering.writer) <= 50
    assert sum(map(len, w._recent._ordering._readers.values())) <= 50
    for operation in w.operations:
        if operation.name == "_mul_scalar":
            assert operation.after[0] == (operation.number - 1,)


def test_what_failed_says_why_and_stop_raises_nothing():
    with d2lmini.watch() as w:
        a = nd.array(np.ones((SIZE, SIZE)))
        bad = nd.linalg.potrf(-a)
        worse = bad + 1
    failures = {
        operation.name: operation.failure for operation in w.operations if operation.failure
    }
    assert len(failures) == 2 and all("potrf" in text for text in failures.values())
    with pytest.raises(MXNetError, match="potrf"):
        worse.asnumpy()


def test_the_queue_and_the_memory_over_time():
    with d2lmini.watch() as w:
        x = large()
        ys = []
        for _ in range(300):
            ys.append(x + 1)
            time.sleep(0.0002)
        nd.waitall()
    times = [sample.when_ns for sample in w.samples]
    assert times == sorted(times) and len(times) > 3
    assert w.samples[-1].queued == 0
    live, _cached, pending = w.samples[-1].held[cpu()]
    assert live >= 300 * SIZE * SIZE * 4 and pending == 0


def test_devices_and_their_links_have_lanes_and_memory_of_their_own():
    with virtual_gpus(2), d2lmini.watch() as w:
        x = nd.ones((SIZE, SIZE), ctx=gpu(0))
        y = (x + 1).as_in_context(gpu(1))
        (y * 2).asnumpy()
        w._pass_on()
        rows, *_ = read(w.whole())
        devices = w.whole()[0]["devices"]
    lanes = {row["row"] for row in rows.values()}
    assert {"gpu(0)", "gpu(1)", "gpu(1) in", "gpu(1) out"} <= lanes
    assert {"gpu(0)", "gpu(1)"} <= set(devices)


def test_small_operations_are_seen_and_do_not_take_the_long_road():
    x = nd.ones((2, 2))
    y = x + 1
    with d2lmini.watch() as w:
        for _ in range(10):
            y = x + 1
        assert not instrument.apart, "nobody wants them event by event"
    assert [operation.worker for operation in w.operations] == ["caller"] * 10
    assert (y.asnumpy() == 2).all()


def test_a_wait_is_seen_while_it_lasts():
    started, go = threading.Event(), threading.Event()

    def hold():
        started.set()
        go.wait(20)

    x = nd.ones((2,))
    engine.push(hold, writes=[x])
    assert started.wait(10)
    waiter = threading.Thread(target=x.wait_to_read, name="a waiter")
    with d2lmini.watch() as w:
        waiter.start()
        until(
            lambda: any(each.thread == "a waiter" for each in waiting_now(time.perf_counter_ns()))
        )
        found = next(
            each for each in waiting_now(time.perf_counter_ns()) if each.thread == "a waiter"
        )
        assert found.kind == "wait_to_read"
        assert 0 < found.begin_ns <= time.perf_counter_ns()
        go.set()
        waiter.join(10)
        assert not any(each.thread == "a waiter" for each in waiting_now(time.perf_counter_ns()))
    assert [wait.thread for wait in w.waits] == ["a waiter"]


# --- its life ---


def test_stopping_twice_and_starting_another():
    first = d2lmini.watch()
    second = d2lmini.watch()
    assert not first._watches and second._watches, "one watches at a time"
    large() + 1
    second.stop()
    second.stop()
    assert (first.count, second.count) == (0, 2)
    large() + 1
    assert second.count == 2


def test_the_scope_ends_with_its_own_error():
    with pytest.raises(ZeroDivisionError):
        with d2lmini.watch() as w:
            large() + 1
            1 / 0
    assert len(w.operations) == 2


def test_nothing_is_shown_outside_a_notebook(capsys):
    with d2lmini.watch() as w:
        large() + 1
    assert w._front is None and capsys.readouterr() == ("", "")
    assert repr(w) == "<live view of the engine>"


def test_a_watch_of_nothing_has_no_picture():
    with d2lmini.watch() as w:
        pass
    assert w.picture() is None and w.count == 0


def test_keep_must_be_positive():
    with pytest.raises(ValueError, match="at least 1 operation"):
        d2lmini.watch(keep=0)


def test_the_ring_is_emptied_between_looks_by_the_refresher():
    with d2lmini.watch() as w:
        x = large()
        for _ in range(50):
            x + 1
        nd.waitall()
        until(lambda: len(w._recent.operations) == 51)
        assert not w._recent._pushed and not w._recent._ended


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_watch():
    code = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is what is tried here
import d2lmini
from d2lmini import instrument, nd
with d2lmini.watch() as w:
    nd.ones((300, 300)).wait_to_read()
    child = os.fork()
    if child == 0:
        nd.ones((300, 300)).wait_to_read()
        w.stop()
        os._exit(instrument.listeners != () or w.count != 1)
    status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status))
"""
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_program_may_end_while_it_watches():
    code = "import d2lmini; from d2lmini import nd; w = d2lmini.watch(); nd.ones((300, 300)) + 1"
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


NOTEBOOK = (
    """
import d2lmini
from d2lmini import nd
with d2lmini.watch() as w:
    x = nd.ones((300, 300)) + 1
    x.wait_to_read()
""",
    "w",
    """
w2 = d2lmini.watch()
y = x + 1
y.wait_to_read()
""",
    "y = y + 1; y.wait_to_read()",
)


def test_in_a_notebook_the_outputs_hold_the_view_the_picture_and_a_text_that_is_always_the_same():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("anywidget")
    cells = [nbformat.v4.new_code_cell(text) for text in NOTEBOOK]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=100, store_widget_state=False).execute()
    for cell in (notebook.cells[0], notebook.cells[2]):
        view, picture = (output["data"] for output in cell.outputs)
        assert view["text/plain"] == "<live view of the engine>"
        assert "application/vnd.jupyter.widget-view+json" in view
        assert picture["text/plain"] == "" and 1000 < len(picture["image/png"]) < 150_000
    assert len(notebook.cells[1].outputs) == 2, "named at the end of another cell: shown there too"
    assert not notebook.cells[3].outputs, "the picture of the third cell was renewed in its place"


# --- what it tells a view ---


def test_the_news_together_are_everything():
    with d2lmini.watch() as w:
        refresher.remove(w)
        told, _, more, texts = read(w.whole())  # the refresher may have had a first beat
        samples, waits = len(more), 0
        x = large()
        for _ in range(5):
            for _ in range(7):
                x = x + 1
            x.wait_to_read()
            found, some, more, texts = read(w.changes(), texts)
            assert not told.keys() & found.keys()
            told.update(found)
            waits, samples = waits + len(some), samples + len(more)
        whole, all_waits, all_samples, all_texts = read(w.whole())
    assert len(told) >= 36 and told == whole and texts == all_texts
    assert waits == len(all_waits) == 5 and samples == len(all_samples)
    third = whole[3]
    assert third["name"] == "+" and third["needs"] == [2] and not third["room"]
    assert "x = x + 1" in third["line"] and third["row"].startswith("cpu")
    pushed, ready, begin, end = third["times"]
    assert 0 < pushed <= ready <= begin <= end
    json.dumps(w.whole()[0])  # the header is nothing but JSON


def test_a_late_view_gets_at_most_what_is_kept():
    with d2lmini.watch(keep=40) as w:
        refresher.remove(w)
        x = large()
        for _ in range(20):
            for _ in range(10):
                x = x + 1
            nd.waitall()
            w.changes()
        found, *_ = read(w.whole())
    assert 30 <= len(found) <= 80 and max(found) == 201


def test_what_runs_now_is_told():
    started, go = threading.Event(), threading.Event()

    def hold():
        started.set()
        go.wait(20)

    with d2lmini.watch() as w:
        refresher.remove(w)
        x = nd.ones((2,))
        engine.push(hold, writes=[x])
        y = x + 1
        assert started.wait(10)
        header, _ = w.changes()
        texts = w.whole()[0]["texts"]
        go.set()
        y.wait_to_read()
        after, _ = w.changes()
    (running,) = header["running"]
    assert texts[running[1]] == "hold" and header["queued"] == 2 and header["live"]
    assert after["running"] == [] and after["queued"] == 0


def test_an_idle_engine_is_told_of_once_a_second():
    with d2lmini.watch() as w:
        refresher.remove(w)
        told = [w.changes() is not None for _ in range(40)]
    assert 3 <= sum(told) <= 12


# --- what remains ---


def test_the_picture_has_lanes_queue_and_memory_and_is_small():
    pytest.importorskip("matplotlib")
    with d2lmini.watch() as w:
        x = large()
        for _ in range(1000):
            x = x + 1
        x.asnumpy()
    picture = w.picture()
    lanes, queue, memory = picture.figure.axes
    rows = [label.get_text() for label in lanes.get_yticklabels()]
    assert rows[0] == "front end" and rows[1].startswith("cpu")
    assert queue.get_ylabel() == "queued\noperations"
    assert memory.get_ylabel() == "memory\nMB" and memory.get_xlabel() == "milliseconds"
    legend = {text.get_text() for text in memory.get_legend().get_texts()}
    assert {"live cpu(0)", "pending cpu(0)"} <= legend
    image, _ = picture._repr_png_()
    assert image.startswith(b"\x89PNG") and len(image) < 150_000
    assert repr(picture) == "<live view of the engine>"


def test_the_picture_shows_the_devices_that_hold_most():
    """With a name for each of many devices there would be no room for the picture."""
    pytest.importorskip("matplotlib")
    kept = [nd.ones((2, 2), ctx=cpu(i)) for i in range(12)]
    with d2lmini.watch() as w:
        x = large()
        for _ in range(300):
            x = x + 1
        x.asnumpy()
    picture = w.picture()
    legend = picture.figure.axes[2].get_legend().get_texts()
    names = {text.get_text().split()[-1] for text in legend}
    assert "cpu(0)" in names and len(names) <= 4 < len(kept)
    assert picture._repr_png_()


# --- what it costs ---


def test_a_small_operation_costs_some_microseconds_more():
    """CPU time of this thread, in turns; a factor of 6 is what the long road would take."""
    x = nd.ones((2, 2))

    def loop():
        begin = time.thread_time()
        for _ in range(500):
            x + 1
        return time.thread_time() - begin

    loop()
    plain, watched = [], []
    for _ in range(7):
        plain.append(loop())
        with d2lmini.watch():
            watched.append(loop())
    assert min(watched) < 5 * min(plain) + 0.002


def test_the_benchmark_of_its_cost_runs():
    path = Path(__file__).parents[1] / "benchmarks" / "watch.py"
    command = [sys.executable, str(path), "--n", "20", "--size", "300", "--turns", "2"]
    ended = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "20 times y = x + 1" in ended.stdout and "sent: " in ended.stdout
