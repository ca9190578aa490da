"""d2l.Experiment: what is printed, what a function may give, what is drawn, how a run ends."""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook

import d2lmini
from d2lmini import d2l, engine, nd
from d2lmini.base import instrument
from d2lmini.d2l.experiment import Experiment
from d2lmini.d2l.experiment_plot import MOST, picture_of
from d2lmini.d2l.experiment_results import amount, result_of
from d2lmini.widgets import refresher
from d2lmini.widgets.background_job import NAME

SOON_S = 20
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    until = time.monotonic() + SOON_S
    while refresher.running() and time.monotonic() < until:
        time.sleep(0.01)
    assert not {NAME, refresher.NAME} & {thread.name for thread in threading.enumerate()}


def add(x, y=2):
    return x + y


# -- parameters ------------------------------------------------------------------------------------


def test_it_runs_once_with_where_the_controls_stand_and_prints(capsys):
    experiment = d2l.Experiment(add, x=(0, 10), y=[1, 2, 3])
    assert capsys.readouterr().out == "add(x=5, y=2): 7\n"
    assert [(run.number, run.parameters, run.value) for run in experiment.runs] == [
        (1, {"x": 5, "y": 2}, 7)
    ]
    assert experiment.run(y=3) == 8
    assert capsys.readouterr().out == "add(x=5, y=3): 8\n"
    assert repr(experiment) == "<experiment add over x, y>"


def test_nothing_of_the_lab_is_imported_in_a_script(tmp_path):
    """No widgets, no picture: and the process ends while a run goes on, which is cancelled."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import sys, time
from d2lmini import d2l, nd

def f(n=2, progress=None):
    for i in range(n):
        progress(i, n)
        (nd.ones((2,)) + 1).asnumpy()
    return n

experiment = d2l.Experiment(f, n=(1, 10**9))
for name in ("matplotlib", "ipywidgets", "anywidget", "IPython"):
    assert name not in sys.modules, name
experiment.start(n=10**9)
time.sleep(0.1)
assert experiment.running
print("end")
"""
    )
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert (done.stdout, done.stderr, done.returncode) == ("f(n=2): 2\nend\n", "", 0)
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Experiment(3), TypeError, r"expected a function, got int; did you write f\(...\)"),
        (lambda: Experiment(add, z=1, x=1), TypeError, "got an unexpected keyword argument 'z'"),
        (lambda: Experiment(add), TypeError, "missing a required argument: .x.; give"),
        (lambda: Experiment(add, x=(1, 2, 3, 4)), TypeError, "x: a slider is made of two or three"),
        (lambda: Experiment(add, x=[]), ValueError, "x: an empty list leaves no choice"),
        (lambda: Experiment(lambda: "text"), TypeError, "the function gave str; expected a number"),
        (lambda: Experiment(lambda: nd.ones((2,))), TypeError, "the function gave NDArray;"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_once(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_fixed_values_keyword_functions_and_fs_own_defaults(capsys):
    data = nd.ones((3,))
    Experiment(lambda data, n, **more: float(data.sum().asscalar()) * n + more["k"],
               data=data, n=2, k=(0, 4))  # fmt: skip
    assert capsys.readouterr().out == "f(n=2, k=2): 8\n"
    Experiment(add, x=1)
    assert capsys.readouterr().out == "add(x=1): 3\n"


def test_what_the_first_run_raises_passes_through():
    with pytest.raises(ZeroDivisionError):
        Experiment(lambda n: 1 / n, n=0)
    assert engine.stats().pending == 0


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "values"),
    [
        (3, {"": 3.0}),
        (True, {"": 1.0}),
        (np.float32(0.5), {"": 0.5}),
        (np.array([2.0]), {"": 2.0}),
        (nd.array([4.0]), {"": 4.0}),
        ({"a": 1, "b": nd.array([2.0])}, {"a": 1.0, "b": 2.0}),
    ],
)
def test_numbers_of_all_kinds(value, values):
    assert result_of(value, [], 1.0).values == values


def test_a_list_and_the_points_of_a_generator_are_curves(capsys):
    assert result_of([3, 1], [], 1.0).curves == {"": [3.0, 1.0]}

    def train(lr, steps=4):
        w = 1.0
        for _ in range(steps):
            w -= lr * w
            yield {"w": nd.array([w])}

    experiment = Experiment(train, lr=[0.5, 0.25])
    assert capsys.readouterr().out == "train(lr=0.5)\n  w  0.0625 at the end of 4 steps\n"
    assert experiment.runs[0].result.curves == {"w": [0.5, 0.25, 0.125, 0.0625]}

    def both():
        yield 1
        yield 2
        return {"sum": 3}

    result = Experiment(both).runs[0].result
    assert result.values == {"sum": 3.0} and result.curves == {"": [1.0, 2.0]}
    assert capsys.readouterr().out == "both()\n  sum  3\n"


def test_none_is_the_time_until_all_is_computed():
    x = nd.ones((4,))

    def pushes():
        engine.push(lambda: time.sleep(0.05), writes=[x])

    run = Experiment(pushes).runs[0]
    assert run.result.timed and run.result.values["time"] >= 0.05


def test_a_verdict(capsys):
    verdict = d2l.Verdict.from_times({"slow": [2.0, 2.1, 2.2, 2.1, 2.0], "fast": [1.0] * 5})
    experiment = Experiment(lambda n: verdict, n=(1, 3))
    assert capsys.readouterr().out == (
        "f(n=2)\n  slow  2.10 s\n  fast  1.00 s\n"
        "verdict: fast is 2.1 times faster than slow (2.0-2.2, 5 rounds)\n"
    )
    result = experiment.runs[0].result
    low, high = result.spread["slow"]
    assert 2.0 <= low < 2.1 < high <= 2.2


def test_a_trace(capsys):
    def traced(n):
        with d2lmini.profile() as trace:
            for _ in range(n):
                nd.ones((64, 64)) + 1
        return trace

    experiment = Experiment(traced, n=[2, 3])
    out = capsys.readouterr().out
    assert re.fullmatch(r"traced\(n=2\)\n  time  [\d.]+ [mu]?s\n4 operations in the trace\n", out)
    alone = picture_of(experiment)._repr_png_()[1]["height"]
    assert experiment.picture().size["height"] > alone + 50  # the timeline beneath


def test_amounts():
    told = [amount(v, u) for v, u in ((0, ""), (1e15, ""), (-12345, "MB"), (2e-5, "s"))]
    assert told == ["0", "1e+15", "-12,345 MB", "20.0 us"]


def test_units_by_name(capsys):
    experiment = Experiment(
        lambda wait: {"time": 1.5, "memory": 100 + wait}, wait=False,
        unit={"time": "s", "memory": "MB"},
    )  # fmt: skip
    assert capsys.readouterr().out == "f(wait=False)\n  time    1.50 s\n  memory  100 MB\n"
    experiment.run(wait=True)
    left, right = picture_of(experiment).figure.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("time (s)", "memory (MB)")


# -- pictures --------------------------------------------------------------------------------------


def labels_of(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def bar_labels(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_bars_are_named_by_what_differs():
    experiment = Experiment(lambda size, how, n: size, size=[10, 20], how=["a$", "b"], n=3,
                            unit="MB", title="memory")  # fmt: skip
    [axes] = picture_of(experiment).figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [r"1: size=10, how=a\$, n=3"]
    experiment.run(size=20, how="b")
    [axes] = picture_of(experiment).figure.axes
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == [r"1: size=10, how=a\$", "2: size=20, how=b"]
    assert bar_labels(axes) == ["10 MB", "20 MB"] and axes.get_xlabel() == "memory (MB)"
    # The last is in the accent, and the numbers stand at the bars: nothing hangs on colour alone.
    first, last = (patch.get_facecolor() for patch in axes.patches)
    assert first != last


def test_one_number_that_differs_is_the_axis():
    experiment = Experiment(lambda n, k: {"a": n / 1000, "b": n}, n=[1, 2, 3], k=1, unit="s")
    experiment.run(n=3)
    experiment.run(n=2)
    figure = picture_of(experiment).figure
    [axes] = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("n", "time (s)")
    assert labels_of(figure) == ["the last run", "a", "b"]
    line = axes.lines[0]
    assert line.get_xdata().tolist() == [1, 2, 3] and np.allclose(
        line.get_ydata(), [1e-3, 2e-3, 3e-3]
    )
    assert axes.get_ylim()[0] == 0 and axes.get_xscale() == "linear"
    experiment.runs[0].parameters["n"] = 1000
    assert picture_of(experiment).figure.axes[0].get_xscale() == "log"


def test_bars_of_several_results_and_the_spread_of_times():
    experiment = Experiment(lambda n: {"a": n, "b": -n} if n < 3 else {"b": n}, n=[1, 2, 3])
    [axes] = picture_of(experiment).figure.axes
    assert bar_labels(axes) == ["1 a", "-1 b"]
    experiment.run(n=3)
    [axes] = picture_of(experiment).figure.axes
    assert [len(line.get_xdata()) for line in axes.lines[:2]] == [1, 2]
    assert axes.get_ylim()[0] < 0
    for run in experiment.runs:
        run.result.spread["b"] = (0.0, 4.0)
    [axes] = picture_of(experiment).figure.axes
    assert len(axes.containers) == 2
    experiment.runs.clear()
    assert experiment.draw() is None


def test_curves_over_steps():
    experiment = Experiment(lambda lr: [lr, lr / 2, lr / 4], lr=[1.0, 2.0], title="loss")
    experiment.run(lr=2.0)
    figure = picture_of(experiment).figure
    [axes] = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
    assert labels_of(figure) == ["1: lr=1", "2: lr=2"]
    first, last = axes.lines
    assert last.get_linewidth() > first.get_linewidth()
    assert first.get_marker() != last.get_marker()


def test_many_runs_show_the_last_and_negative_values_are_seen():
    experiment = Experiment(lambda n, m: -n, n=(1, 100), m=["a", "b"])
    for n in range(MOST + 3):
        experiment.run(n=n + 1, m="ab"[n % 2])
    [axes] = picture_of(experiment).figure.axes
    assert len(axes.get_yticklabels()) == MOST and bar_labels(axes)[-1] == f"-{MOST + 3}"
    assert len(experiment.table()[1]) == MOST + 4  # the table has all


def test_the_table():
    experiment = Experiment(add, x=(0, 4), y=[2, 3], title="sum")
    experiment.run(x=4)
    assert experiment.table() == (
        ["run", "x", "y", "sum"], [["1", "2", "2", "4"], ["2", "4", "2", "6"]]
    )  # fmt: skip
    experiment.runs.clear()
    assert experiment.table()[1] == [] and experiment.picture() is None
    experiment.run(x=1)
    assert experiment.runs[0].number == 1


# -- in the background -----------------------------------------------------------------------------


def test_a_run_in_the_background_joins_the_others(capsys):
    experiment = Experiment(add, x=(0, 4))
    experiment.start(x=3)
    assert experiment.wait(SOON_S)
    assert [run.value for run in experiment.runs] == [4, 5]
    assert capsys.readouterr().out == "add(x=2): 4\n"  # nobody reads what a thread prints


def test_a_generator_is_cancelled_at_a_yield_and_cleans_up():
    closed = []

    def forever(wait=False):
        try:
            n = 0
            while wait or n < 3:
                yield n
                n += 1
        finally:
            closed.append(n)

    experiment = Experiment(forever, wait=False)
    experiment.start(wait=True)
    while not experiment.state()["done"]:
        time.sleep(0.001)
    experiment.cancel()
    assert experiment.wait(SOON_S)
    assert experiment.state()["text"].startswith("cancelled in ") and len(closed) == 2
    assert len(experiment.runs) == 1
    experiment.close()


def test_progress_is_passed_to_who_has_a_parameter_of_that_name():
    def counts(n, progress):
        for i in range(n):
            progress(i + 1, n)
        return n

    experiment = Experiment(counts, n=[3, 4])
    experiment.start(n=4)
    assert experiment.wait(SOON_S) and experiment.runs[1].value == 4
    assert (experiment.state()["done"], experiment.state()["total"]) == (4, 4)

    assert Experiment(lambda progress: progress, progress=5).runs[0].value == 5  # its own


def test_a_trace_or_a_race_that_is_cancelled_listens_no_more():
    x = nd.ones((256, 256))

    def traced(forever=False):
        with d2lmini.profile() as trace:
            while True:
                nd.dot(x, x).wait_to_read()
                if not forever:
                    return trace

    def race(forever=False):
        def one():
            while forever:
                nd.dot(x, x).wait_to_read()

        return d2l.compare({"a": one, "b": lambda: None}, rounds=5, min_time=0)

    for f in (traced, race):
        experiment = Experiment(f, forever=False)
        experiment.start(forever=True)
        time.sleep(0.05)
        experiment.cancel()
        assert experiment.wait(SOON_S) and experiment.state()["text"].startswith("cancelled")
        assert instrument.listeners == () and engine.stats().pending == 0
        engine.current.check()


def test_cleared_while_a_run_goes_on():
    experiment = Experiment(lambda n, progress: [progress(i) for i in range(n)][-1] or n, n=[3, 9])
    experiment._front = type("Front", (), {"send": lambda *a: None, "close": lambda *a: None})()
    experiment.start(n=200_000)
    experiment.runs.clear()
    assert experiment.wait(SOON_S)
    assert [run.number for run in experiment.runs] == [1]
    assert experiment.state()["problem"] == "" and experiment.picture() is not None
    experiment.close()


def test_errors_are_told_in_the_panel():
    experiment = Experiment(lambda n: 1 / n, n=[1, 0])
    experiment.start(n=0)
    assert experiment.wait(SOON_S)
    problem = experiment.state()["problem"]
    assert problem.startswith("ZeroDivisionError: ") and "test_experiment.py" in problem
    experiment.start(n=1)
    assert experiment.wait(SOON_S) and len(experiment.runs) == 2


# -- in a kernel -----------------------------------------------------------------------------------

CELLS = [
    "from d2lmini import d2l",
    "def square(x=3):\n    return x * x",
    "experiment = d2l.Experiment(square, x=(0, 10), title='square')\nexperiment",
    "experiment.run(x=4)",
    "experiment.close()",
]


def test_in_a_kernel_without_a_front_end(tmp_path):
    """Executed headless: the printed run and a picture stand there; run again, nbval's strict
    comparison finds the same."""
    from nbclient import NotebookClient

    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    NotebookClient(notebook, timeout=100, kernel_name="python3", store_widget_state=False).execute()
    outputs = notebook.cells[2].outputs
    assert outputs[0].text == "square(x=3): 9\n"
    pngs = [output.data["image/png"] for output in outputs[1:] if "image/png" in output.data]
    assert len(pngs) == 1 and 1000 < len(pngs[0]) < 200_000
    assert "<experiment square over x>" in [o.data.get("text/plain") for o in outputs[1:]]
    assert len(json.dumps(outputs)) < 200_000
    assert not notebook.metadata.get("widgets")
    path = tmp_path / "experiment.ipynb"
    nbformat.write(notebook, path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider",
         "--nbval-current-env", "-c", "/dev/null", "--rootdir", str(tmp_path), str(path)],
        capture_output=True, text=True, timeout=110, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
