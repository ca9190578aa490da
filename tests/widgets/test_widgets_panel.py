"""Panels without a browser: what is pressed, what runs, how it ends; nothing stays."""

import threading

import pytest
from fronts import Front
from worlds import until

from d2lmini import MXNetError, engine, nd
from d2lmini.draw.picture import DrawnPicture
from d2lmini.draw.timeline import timeline
from d2lmini.engine.scheduler import interrupts
from d2lmini.widgets import refresher
from d2lmini.widgets.background_job import NAME, BackgroundJob
from d2lmini.widgets.panel import Panel, control

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


# -- controls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "default", "kind", "value"),
    [
        ((1, 9), None, "slider", 5),
        ((1, 9), 3, "slider", 3),
        ((1, 9), 30, "slider", 5),
        ((0, 100, 25), 70, "slider", 75),
        ((0.0, 1.0), 0.3, "slider", 0.3),
        ((4, 4), None, "slider", 4),
        ([1, 2, 4], 2, "choice", 2),
        (["a", "b"], "z", "choice", "a"),
        ([nd.dot, nd.sum], nd.sum, "choice", nd.sum),
        (True, None, "switch", True),
    ],
)
def test_a_value_makes_a_control(given, default, kind, value):
    made = control("p", given, default)
    assert (made.kind, made.value) == (kind, value) and type(made.value) is type(value)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((1,), TypeError, "p: a slider is made of two or three numbers, got"),
        (("a", "b"), TypeError, "expected .low, high. or .low, high, step., a list of choices"),
        ((True, False), TypeError, "two or three numbers"),
        ((9, 1), ValueError, "p: low must be at most high, both finite"),
        ((0.0, float("inf")), ValueError, "finite"),
        ((0.0, float("nan")), ValueError, "finite"),
        ((0, 9, 0), ValueError, "the step must be more than 0"),
        ([], ValueError, "an empty list leaves no choice"),
    ],
)
def test_what_gives_no_control_says_why(given, error, text):
    with pytest.raises(error, match=text):
        control("p", given)


def test_what_a_view_sends_is_taken_to_the_nearest_allowed_value():
    slider = control("p", (10, 50, 20))
    assert [slider.take(sent) for sent in (-5, 10, 21, 31, 900)] == [10, 10, 30, 30, 50]
    assert all(isinstance(slider.take(sent), int) for sent in (10.0, 29.9))
    fractions = control("p", (0.0, 0.5, 0.1))
    assert [fractions.take(sent) for sent in (0.30000000000000004, 2)] == [0.3, 0.5]
    uneven = control("p", (0, 10, 4))
    assert uneven.take(10) == 8  # the last step that is not beyond the end
    choice = control("p", ["a", "b"])
    assert [choice.take(sent) for sent in (-1, 1, 7)] == ["a", "b", "b"]
    assert control("p", False).take(1) is True


# -- jobs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_cancel_ends_a_loop_at_its_next_wait(kind):
    with engine.use(kind):
        x, rounds = nd.ones((4,)), []

        def forever(job):
            while True:
                rounds.append((x + 1).asnumpy())

        job = BackgroundJob(forever)
        job.start()
        until(lambda: rounds)
        job.cancel()
        assert job.join(SOON_S)
        assert (job.state, job.problem) == ("cancelled", "")
        assert (x + 1).asnumpy().tolist() == [2, 2, 2, 2]
        engine.current.check()


def test_cancel_ends_a_wait_that_lasts_and_keeps_what_was_pushed(gate):
    """The wait is left at once; what had been pushed is done to its end."""
    x, left = nd.zeros((2,)), []

    def waits(job):
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
    assert job.join(SOON_S) and job.state == "cancelled"
    assert x.asnumpy().tolist() == [1, 1]


def test_cancelled_twice_drops_what_has_not_begun(gate):
    made = []

    def pushes(job):
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
    assert job.join(SOON_S) and job.state == "cancelled" and made[1:] == []
    with pytest.raises(MXNetError, match="cancelled before it ran"):
        engine.wait_for_var(made[0])


# -- panels ----------------------------------------------------------------------------------------


class Doubling(Panel):
    words = "doubling"

    def __init__(self):
        super().__init__([control("x", (0, 10)), control("how", ["plain", "fail", "wait"])])
        self.rows, self.drawn_on, self.event = [], [], threading.Event()

    def work(self, job, values):
        if values["how"] == "fail":
            raise ValueError("nothing doubled")
        if values["how"] == "wait":
            for i in range(10**9):
                job.progress(i, 10**9)
                self.event.wait(0.001)
        return 2 * values["x"]

    def note(self, job, values):
        self.rows.append([str(values["x"]), str(job.result)])

    def table(self):
        return ["x", "2 x"], list(self.rows)

    def forget(self):
        self.rows = []

    def draw(self):
        if not self.rows:
            return None
        self.drawn_on.append(threading.current_thread().name)
        return DrawnPicture(timeline([("one", [("compute", 0.0, 1.0)])]))


@pytest.fixture
def panel():
    made = Doubling()
    made._front = Front()
    yield made
    made.close()
    assert not made.running


def press(panel, kind, **values):
    """As the view does it."""
    panel.received({"kind": kind, "values": {"x": 5, "how": 0, **values}})


def test_run_and_run_again(panel):
    press(panel, "run", x=3)
    assert panel.wait(SOON_S)
    press(panel, "run", x=4)
    assert panel.wait(SOON_S)
    assert panel.rows == [["3", "6"], ["4", "8"]]
    until(  # the refresher's thread may still be telling the first run
        lambda: panel._front.wholes and len(panel._front.wholes[-1]["rows"]) == 2
    )
    whole = panel._front.wholes[-1]
    assert whole["head"] == ["x", "2 x"] and whole["rows"] == [["3", "6"], ["4", "8"]]
    assert set(panel.drawn_on) == {NAME}  # not the refresher's thread, nor this one
    numbers = [header["n"] for header, _ in panel._front.sent]
    assert numbers == list(range(1, len(numbers) + 1))
    image = panel.whole()[1][0]
    assert image[:8] == b"\x89PNG\r\n\x1a\n" and len(panel.drawn_on) == 2


def test_while_it_runs_the_view_is_told_how_far_it_is_and_cancel_ends_it(panel):
    press(panel, "run", how=2)
    until(lambda: any(h.get("state", {}).get("done") for h, _ in panel._front.sent))
    state = panel.state()
    assert state["running"] and state["total"] == 10**9 and " of 1e+09" in state["text"]
    press(panel, "run", x=1)  # one at a time: nothing happens
    press(panel, "clear")
    press(panel, "cancel")
    assert panel.wait(SOON_S)
    assert panel.state()["text"].startswith("cancelled in ") and panel.rows == []
    press(panel, "run", x=7)
    assert panel.wait(SOON_S) and panel.rows == [["7", "14"]]


def test_an_error_is_shown_and_the_next_run_runs(panel):
    press(panel, "run", how=1)
    assert panel.wait(SOON_S)
    state = panel.state()
    assert state["problem"].startswith("ValueError: nothing doubled\n  at ")
    assert "test_widgets_panel.py" in state["problem"] and state["text"].startswith("failed")
    press(panel, "run", x=2)
    assert panel.wait(SOON_S) and panel.rows == [["2", "4"]] and not panel.state()["problem"]


def test_called_from_the_program(panel):
    assert panel.run(x=6) == 12
    with pytest.raises(ValueError, match="nothing doubled"):
        panel.run(how="fail")
    with pytest.raises(
        TypeError, match=r"doubling: there is no control 'y'; there are .'x', 'how'"
    ):
        panel.run(y=3)
    panel.start(how="wait")
    with pytest.raises(RuntimeError, match="a run is going on"):
        panel.run(x=1)
    assert not panel.wait(0.01)
    panel.cancel()
    assert panel.wait(SOON_S)
    assert panel.run(x=1) == 2
