"""A dial's runs without a browser: what is pressed, what runs, how it ends; nothing stays."""

import threading

import pytest
from fronts import Front
from invariants import check_invariants
from worlds import until

from d2lmini import MXNetError, engine, nd
from d2lmini.engine.scheduler import interrupts
from d2lmini.widgets import dial as dial_module
from d2lmini.widgets import refresher
from d2lmini.widgets.background_job import NAME, BackgroundJob
from d2lmini.widgets.dial import MemoryDial

SOON_S = 20


@pytest.fixture(autouse=True)
def nothing_stays():
    """After every test no run's thread is there, and the refresher has nobody to beat for."""
    yield
    until(lambda: not refresher.running())
    names = [thread.name for thread in threading.enumerate()]
    assert NAME not in names and refresher.NAME not in names
    assert interrupts == {}


@pytest.fixture
def gate():
    """An operation that ends when the gate is set: `gate.push()` gives the Var it writes."""

    class Gate(threading.Event):
        def push(self):
            var = engine.new_var()
            engine.push(lambda: self.wait(SOON_S), writes=[var])
            return var

    made = Gate()
    yield made
    made.set()
    engine.waitall()


# -- jobs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_cancel_ends_a_loop_at_its_next_wait(kind):
    with engine.use(kind):
        x, rounds = nd.ones((4,)), []

        def forever():
            while True:
                rounds.append((x + 1).asnumpy())

        job = BackgroundJob(forever)
        job.start()
        until(lambda: rounds)
        job.cancel()
        job.join(SOON_S)
        assert (job.state, job.problem) == ("cancelled", "")
        assert (x + 1).asnumpy().tolist() == [2, 2, 2, 2]
        check_invariants()


def test_cancel_ends_a_wait_that_lasts_and_keeps_what_was_pushed(gate):
    """The wait is left at once; what had been pushed is done to its end."""
    x, left = nd.zeros((2,)), []

    def waits():
        nonlocal x
        var = gate.push()
        x += 1
        try:
            engine.wait_for_var(var)
        finally:
            left.append(True)

    job = BackgroundJob(waits)
    job.start()
    until(lambda: engine.stats().pending)
    job.cancel()
    until(lambda: left)
    assert job.alive and job.stopping  # it waits for what it has pushed
    gate.set()
    job.join(SOON_S)
    assert job.state == "cancelled" and not job.is_alive()
    assert x.asnumpy().tolist() == [1, 1]


def test_cancelled_twice_drops_what_has_not_begun(gate):
    made = []

    def pushes():
        var = gate.push()
        after = engine.new_var()
        engine.push(lambda: made.append("too late"), reads=[var], writes=[after])
        made.append(after)
        engine.waitall()

    job = BackgroundJob(pushes)
    job.start()
    until(lambda: made and engine.stats().pending == 2)
    job.cancel()
    job.cancel()
    until(lambda: engine.stats().pending < 2 or not job.alive or job._heard == 2)
    gate.set()
    job.join(SOON_S)
    assert job.state == "cancelled" and made[1:] == []
    with pytest.raises(MXNetError, match="cancelled before it ran"):
        engine.wait_for_var(made[0])


# -- the view's buttons ----------------------------------------------------------------------------


class Program:
    """What a dial runs: it may fail, or go on until it is cancelled."""

    __name__ = "program"
    how = "plain"

    def __call__(self):
        x = nd.ones((4,))
        if self.how == "fail":
            raise ValueError("nothing doubled")
        while self.how == "wait":
            (x + 1).wait_to_read()


@pytest.fixture
def dial(monkeypatch):
    # The end of the slider follows the memory that is available, which other programs change.
    monkeypatch.setattr(dial_module, "default_limit", lambda: 8 << 30)
    made = MemoryDial(Program())
    made._front = Front()
    made.drawn_on = []
    draw = dial_module.picture_of

    def drawn(*args):
        made.drawn_on.append(threading.current_thread().name)
        return draw(*args)

    monkeypatch.setattr(dial_module, "picture_of", drawn)
    yield made
    made.close()
    assert not made.running


def press(dial, kind, megabytes=5.0):
    """As the view does it."""
    dial.received({"kind": kind, "at": dial.places.index(megabytes)})


def limits(dial):
    return [row[1] for row in dial.table()[1]]


def test_run_and_run_again(dial):
    press(dial, "run", 3.0)
    assert dial.wait(SOON_S)
    press(dial, "run", 5.0)
    assert dial.wait(SOON_S)
    assert limits(dial) == ["3 MB", "5 MB"]
    until(  # the refresher's thread may still be telling the first run
        lambda: dial._front.wholes and len(dial._front.wholes[-1]["rows"]) == 2
    )
    assert dial._front.wholes[-1]["rows"] == dial.table()[1]
    assert set(dial.drawn_on) == {NAME}  # not the refresher's thread, nor this one
    numbers = [header["n"] for header, _ in dial._front.sent]
    assert numbers == list(range(1, len(numbers) + 1))
    image = dial.whole()[1][0]
    assert image[:8] == b"\x89PNG\r\n\x1a\n" and len(dial.drawn_on) == 2


def test_what_a_view_sends_is_taken_to_the_nearest_position(dial):
    dial.turn(5)  # the engine's own limit was a position, too
    for at, found in ((-5, dial.places[0]), (10**9, dial.places[-1])):
        dial.received({"kind": "turn", "at": at})
        assert dial.limit_mb == found


def test_one_run_at_a_time_and_cancel_ends_it(dial):
    dial._f.how = "wait"
    press(dial, "run")
    until(lambda: any(h.get("state", {}).get("running") for h, _ in dial._front.sent))
    assert dial.state()["text"].startswith("running, ")
    press(dial, "run", 1.0)  # one at a time: nothing happens
    press(dial, "cancel")
    assert dial.wait(SOON_S)
    assert dial.state()["text"].startswith("cancelled in ") and dial.runs == []
    dial._f.how = "plain"
    press(dial, "run", 7.0)
    assert dial.wait(SOON_S) and limits(dial) == ["7 MB"]


def test_an_error_is_shown_and_the_next_run_runs(dial):
    dial._f.how = "fail"
    press(dial, "run")
    assert dial.wait(SOON_S)
    state = dial.state()
    assert state["problem"].startswith("ValueError: nothing doubled\n  at ")
    assert "test_widgets_jobs.py" in state["problem"] and state["text"].startswith("failed")
    dial._f.how = "plain"
    press(dial, "run", 2.0)
    assert dial.wait(SOON_S) and limits(dial) == ["2 MB"] and not dial.state()["problem"]


def test_called_from_the_program(dial):
    assert dial.run(limit=6).limit == 6_000_000
    dial._f.how = "fail"
    with pytest.raises(ValueError, match="nothing doubled"):
        dial.run()
    dial._f.how = "wait"
    dial.start()
    with pytest.raises(RuntimeError, match="a run is going on"):
        dial.run(1)
    with pytest.raises(RuntimeError, match="a run is going on"):
        MemoryDial(Program()).start()  # there is one limit
    assert not dial.wait(0.01)
    dial.cancel()
    assert dial.wait(SOON_S)
