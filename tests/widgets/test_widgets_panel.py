"""Panels without a browser: what is pressed, what runs, how it ends; nothing stays."""

import io
import sys
import threading
import time

import pytest
from fronts import Front
from matplotlib import image
from worlds import until

from d2lmini import MXNetError, engine, nd
from d2lmini.draw.picture import DrawnPicture
from d2lmini.draw.timeline import timeline
from d2lmini.engine.scheduler import interrupts
from d2lmini.widgets import refresher
from d2lmini.widgets.background_job import NAME, BackgroundJob, Cancelled
from d2lmini.widgets.controls import control, word
from d2lmini.widgets.panel import Panel

SOON_S = 20


@pytest.fixture(autouse=True)
def nothing_stays():
    """After every test no run's thread is there, and the refresher has nobody to beat for."""
    before = sys.stdout
    yield
    until(lambda: not refresher.running())
    names = [thread.name for thread in threading.enumerate()]
    assert NAME not in names and refresher.NAME not in names
    assert interrupts == {} and sys.stdout is before


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
        ((0.01, 0.5), 0.1, "slider", 0.1),
        ((1, 2.0), None, "slider", 1.5),
        (range(3), None, "slider", 1),
        (range(10, 0, -5), 10, "slider", 10),
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


@pytest.mark.parametrize("given", [3, 0.5, "a", None, nd.ones((2,)), {"a": 1}])
def test_other_values_are_fixed(given):
    assert control("p", given) is None


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
        (range(0), ValueError, "a slider needs one value at least"),
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


def test_views_are_told_plain_values():
    assert control("p", [1, 2, 4], 2).describe()["rising"] is True
    assert control("p", [2, 1]).describe()["rising"] is False
    told = control("p", [nd.dot, nd.ones((1,)), None]).describe()
    assert told["choices"] == ["dot", "<NDArray>", "None"] and told["value"] == 0
    assert [word(v) for v in (0.1 + 0.2, 7, "x", True)] == ["0.3", "7", "x", "True"]


# -- jobs ------------------------------------------------------------------------------------------


def test_a_job_runs_beside_and_its_result_is_kept():
    over = []
    job = BackgroundJob(lambda job: float(nd.ones((3,)).sum().asscalar()), over.append)
    assert (job.state, job.alive) == ("new", False)
    job.start()
    assert job.join(SOON_S)
    assert (job.state, job.result, job.problem, over) == ("done", 3.0, "", [job])
    assert job.elapsed_s > 0


def test_what_was_pushed_belongs_to_the_run(gate):
    """The run is over when all is computed; what fails late fails the run."""
    job = BackgroundJob(lambda job: gate.push() and None)
    job.start()
    until(lambda: engine.stats().pending)
    assert job.alive
    gate.set()
    assert job.join(SOON_S) and job.state == "done"

    def drops():
        nd.random.normal(0, -1, shape=(2,))

    def fails():
        drops()
        raise ValueError("this, too")

    for function, begin in ((drops, ""), (fails, "ValueError: this, too\n")):
        late = BackgroundJob(lambda job, function=function: function())
        late.start()
        assert late.join(SOON_S)
        assert late.state == "failed" and late.problem.startswith(begin)
        assert "_random_normal: scale must be 0 or more, got -1.0\n  issued at" in late.problem
        assert engine.current.take_unreported() == ([], [])  # told there, and nowhere again


def test_an_error_is_told_with_the_users_lines():
    def inner(x):
        raise ValueError(f"{x} is too small")

    job = BackgroundJob(lambda job: inner(3))
    job.start()
    assert job.join(SOON_S)
    said, at, by = job.problem.splitlines()
    assert said == "ValueError: 3 is too small"
    assert at.startswith("  at ") and 'raise ValueError(f"{x} is too small")' in at
    assert by.startswith("  called from ") and "inner(3)" in by and "test_widgets_panel.py" in by


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


def test_what_cleans_up_may_wait_and_bare_excepts_cannot_go_on():
    x, seen = nd.ones((2,)), []

    def stubborn(job):
        while True:
            try:
                job.progress(len(seen))
                (x + 1).asnumpy()
            except Exception:
                raise AssertionError("Cancelled is no Exception") from None
            finally:
                seen.append((x * 3).asnumpy().sum())  # a wait on the way out

    job = BackgroundJob(stubborn)
    job.start()
    until(lambda: len(seen) > 3)
    job.cancel()
    assert job.join(SOON_S) and job.state == "cancelled" and seen[-1] == 6

    def swallows(job):
        while True:
            try:
                job.progress(1)
            except Cancelled:
                seen.append("swallowed")
                if len(seen) > 100:
                    raise

    job = BackgroundJob(swallows)
    job.start()
    job.cancel()
    assert job.join(SOON_S) and job.state == "cancelled"  # each step says it again


def test_an_engine_of_its_own_is_left_in_order(gate):
    """Cancelled within `engine.use`: the engine of before is back."""
    outer = engine.current

    def switches(job):
        with engine.use("threaded", workers=1):
            engine.wait_for_var(gate.push())

    job = BackgroundJob(switches)
    job.start()
    until(lambda: engine.current is not outer and engine.stats().pending)
    job.cancel()
    gate.set()
    assert job.join(SOON_S) and job.state == "cancelled"
    assert engine.current is outer and engine.stats().pending == 0


def test_cancel_concerns_the_jobs_thread_alone(gate):
    """A wait of another thread, this one, goes on."""
    job = BackgroundJob(lambda job: engine.wait_for_var(gate.push()))
    job.start()
    until(lambda: engine.stats().pending)
    mine = nd.ones((2,))
    job.cancel()
    assert (mine + 1).asnumpy().tolist() == [2, 2]
    gate.set()
    assert job.join(SOON_S)


def test_progress_of_a_count_and_of_a_loop():
    job = BackgroundJob(lambda job: job.progress(3, 10))
    job.run()
    assert (job.done, job.total, job.alive) == (3, 10, False)
    job = BackgroundJob(lambda job: list(job.progress("abc")))
    assert job.run() == ["a", "b", "c"] and (job.done, job.total) == (3, 3)
    job = BackgroundJob(lambda job: list(job.progress(iter("ab"))))
    assert job.run() == ["a", "b"] and (job.done, job.total) == (2, None)


def test_on_this_thread_errors_and_ctrl_c_pass_through():
    def fails(job):
        raise ValueError("no")

    def interrupted(job):
        raise KeyboardInterrupt

    for function, error, state in ((fails, ValueError, "failed"),
                                   (interrupted, KeyboardInterrupt, "cancelled")):  # fmt: skip
        job = BackgroundJob(function)
        with pytest.raises(error):
            job.run()
        assert (job.state, job.alive) == (state, False)


# -- what is printed -------------------------------------------------------------------------------


def test_prints_of_a_job_are_kept_and_others_pass(capsys):
    inside, go_on = threading.Event(), threading.Event()

    def prints(job):
        print("from the run")
        inside.set()
        go_on.wait(SOON_S)

    job = BackgroundJob(prints)
    job.start()
    inside.wait(SOON_S)
    print("from the cell")
    assert sys.stdout.writable()  # it is asked for all else, too
    go_on.set()
    assert job.join(SOON_S)
    assert job.printed == "from the run\n" and capsys.readouterr().out == "from the cell\n"


# -- panels ----------------------------------------------------------------------------------------


class Doubling(Panel):
    words = "doubling"

    def __init__(self):
        super().__init__([control("x", (0, 10)), control("how", ["plain", "fail", "wait"])])
        self.rows, self.drawn_on, self.event = [], [], threading.Event()

    def work(self, job, values):
        print("with", values["x"])
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
        lambda: (
            panel._front.wholes
            and panel._front.wholes[-1]["printed"] == "with 4\n"
            and not panel._front.wholes[-1]["state"]["running"]
        )
    )
    whole = panel._front.wholes[-1]
    assert whole["head"] == ["x", "2 x"] and whole["rows"] == [["3", "6"], ["4", "8"]]
    assert not whole["state"]["running"] and whole["state"]["text"].startswith("done in ")
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


def test_clear_forgets(panel):
    panel.run(x=1)
    assert panel.picture() is not None
    press(panel, "clear")
    assert panel.rows == [] and panel.picture() is None and panel.whole()[1] == []
    assert panel.state()["text"] == "" and len(panel.drawn_on) == 1


def test_called_from_the_program(panel, capsys):
    assert panel.run(x=6) == 12 and capsys.readouterr().out == "with 6\n"
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


def test_the_programs_own_run_can_be_cancelled_from_the_view(panel):
    """`run` in a cell: Cancel reaches it, on the refresher's thread."""
    timer = threading.Timer(0.05, lambda: press(panel, "cancel"))
    timer.start()
    with pytest.raises(Cancelled):
        panel.run(how="wait")
    timer.join()
    assert panel.run(x=2) == 4


def test_what_note_raises_is_the_runs_error(panel):
    panel.note = lambda job, values: 1 / 0
    press(panel, "run")
    assert panel.wait(SOON_S)
    assert "ZeroDivisionError" in panel.state()["problem"] and not panel.running


def test_close_ends_a_run_and_twice_does_no_harm(panel):
    front = panel._front
    press(panel, "run", how=2)
    until(lambda: panel.running)
    panel.close()
    assert not panel.running and front.closed
    panel.close()


def test_without_a_notebook_nothing_is_shown_and_nobody_beats(capsys):
    panel = Doubling()
    panel.start(x=1)
    assert panel.wait(SOON_S) and panel.rows == [["1", "2"]]
    assert panel.drawn_on == []
    panel.show()
    assert "ipywidgets" not in repr(panel) and repr(panel) == "<doubling>"
    panel.close()


def test_watching_a_run_costs_its_thread_nothing(panel):
    """What goes to the view goes from the refresher's thread: `progress` only notes a number."""
    job = BackgroundJob(lambda job: None)
    job.enter()
    begin = time.thread_time()
    for i in range(100_000):
        job.progress(i, 100_000)
    assert (time.thread_time() - begin) / 100_000 < 20e-6
    job.leave()


def test_pictures_below_one_another():
    def lanes(n):
        return timeline([(str(i), [("compute", 0.0, 1.0)]) for i in range(n)])

    def height(picture):
        return image.imread(io.BytesIO(picture._repr_png_()[0])).shape[0]

    both = DrawnPicture(lanes(1), below=lanes(3))
    pixels = height(lanes(1)) + height(lanes(3))  # odd with some versions of matplotlib
    assert height(both) == pixels and both.size["height"] == pixels // 2
