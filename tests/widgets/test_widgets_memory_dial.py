"""The memory dial without a browser: the limit is turned, memory is bounded, all is put back."""

import re
import threading
import time

import numpy as np
import pytest
from fronts import Front
from worlds import until

from d2lmini import engine, nd, widgets
from d2lmini.widgets import refresher
from d2lmini.widgets.background_job import NAME
from d2lmini.widgets.dial import MemoryDial, picture_of

SOON_S = 20
MB = 1_000_000


@pytest.fixture(autouse=True)
def nothing_stays():
    before = engine.current.budget.limit
    yield
    assert engine.current.budget.limit == before
    until(lambda: not refresher.running())
    assert not {NAME, refresher.NAME} & {thread.name for thread in threading.enumerate()}


@pytest.fixture
def runs_ahead():
    """A program that pushes 40 results of 1 MB behind one that takes its time."""

    def program(seconds=0.3):
        first = nd.zeros((250_000,))
        engine.push(lambda: time.sleep(seconds), writes=[first])
        for _ in range(40):
            last = first + 1
        last.wait_to_read()

    return program


def test_the_limit_bounds_what_is_pending(runs_ahead, capsys):
    dial = widgets.memory_dial(runs_ahead, limits_mb=[1000, 10])
    free, bound = dial.runs
    assert free.limit == 1000 * MB and bound.limit == 10 * MB
    assert free.peak_pending > 35 * MB and free.paused == 0
    assert bound.peak_pending <= 11 * MB and bound.paused > 0
    assert bound.seconds > 0.3 and not bound.turned
    told = re.sub(r"[\d.,]+ (MB|ms|s)\b", "N", capsys.readouterr().out)
    assert told == 2 * (
        "memory dial of program, with a limit on pending memory of N\n"
        "  pending memory    at most N\n  memory of arrays  at most N\n  time              N\n"
    )
    dial.close()


def test_turned_while_it_runs(runs_ahead):
    dial = MemoryDial(lambda: [runs_ahead(0.3) for _ in range(2)])
    dial.start(limit=1000)
    until(lambda: engine.stats().pending_bytes >= 35 * MB)
    dial.received({"kind": "turn", "at": dial.places.index(5.0)})
    assert dial.limit_mb == 5 and engine.stats().limit_bytes == 5 * MB
    assert dial.wait(SOON_S)
    [run] = dial.runs
    assert run.turned and run.peak_pending > 35 * MB and run.paused > 0
    assert "1,000 MB, turned" in dial.table()[1][0]
    limits = {point[3] for point in run.points}
    assert limits == {1000 * MB, 5 * MB}
    dial.close()


def test_a_run_that_fails_or_is_cancelled_leaves_all_in_order(runs_ahead):
    calls = []

    def sometimes():
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not this time")
        while len(calls) < 10**6:
            calls.append((nd.ones((250_000,)) + 1).asnumpy()[0])

    dial = MemoryDial(sometimes)
    dial.start()
    assert dial.wait(SOON_S)
    assert dial.state()["problem"].startswith("ValueError: not this time") and dial.runs == []
    dial.start(limit=20)
    until(lambda: len(calls) >= 5)
    dial.cancel()
    assert dial.wait(SOON_S) and dial.state()["text"].startswith("cancelled")
    assert dial.runs == [] and engine.stats().pending == 0
    dial.close()


def test_messages_to_the_view(runs_ahead):
    dial = MemoryDial(lambda: runs_ahead(1.5))
    dial._front = front = Front()
    sent = front.sent
    dial.start(limit=1000)
    assert dial.wait(SOON_S)
    until(lambda: sent and sent[-1][0]["whole"] and sent[-1][0]["rows"])
    header, buffers = sent[-1]
    assert header["places"][header["at"]] == "1000" and header["head"][1] == "limit"
    assert len(buffers) == 1
    assert header["curve"] == dial.runs[0].points
    # What was sent in between grows to that.
    curves = [header["curve"] for header, _ in sent[:-1] if header.get("curve")]
    assert max(map(len, curves)) >= 3
    assert all(point in header["curve"] for points in curves for point in points)
    dial.close()


def test_the_picture_says_what_the_view_says(runs_ahead):
    dial = widgets.memory_dial(lambda: runs_ahead(0.2), limits_mb=[1000, 10])
    figure = picture_of(dial.runs, "x").figure
    [axes] = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds", "MB")
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["pending, run 1 (limit 1,000 MB)", "pending, run 2 (limit 10 MB)",
                     "in arrays, run 2", "limit of run 2"]  # fmt: skip
    # Peaks between two samples are in it, and in the points that the view draws.
    assert axes.lines[0].get_ydata().max() == dial.runs[0].peak_pending / 1e6
    for run in dial.runs:
        _, pending, live, _ = np.array(run.points).T
        assert (pending.max(), live.max()) == (run.peak_pending, run.peak_live)
    assert len(dial.picture()._repr_png_()[0]) < 150_000
    dial.close()
