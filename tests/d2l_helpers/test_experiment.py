"""d2l.Experiment: what is printed, kept and drawn, and which mistakes are told at once."""

import time

import pytest

from d2lmini import d2l, engine, nd
from d2lmini.d2l.experiment import MOST, Experiment


def add(x, y=2):
    return x + y


def test_it_runs_once_with_where_the_controls_stand_and_prints(capsys):
    experiment = Experiment(add, x=(0, 10), y=[1, 2, 3])
    assert capsys.readouterr().out == "add(x=5, y=2): 7\n"
    assert experiment.run(y=3) == 8
    assert capsys.readouterr().out == "add(x=5, y=3): 8\n"
    assert [(run.number, run.parameters, run.value) for run in experiment.runs] == [
        (1, {"x": 5, "y": 2}, 7), (2, {"x": 5, "y": 3}, 8),
    ]  # fmt: skip
    assert experiment.table() == (["run", "x", "y", "result"], [list("1527"), list("2538")])
    assert repr(experiment) == "<experiment add over x, y>"
    experiment.clear()
    assert experiment.runs == [] and experiment.draw() is None


def test_results_by_name_with_a_unit(capsys):
    Experiment(lambda n=2: {"a": nd.array([n]), "b": 0.5 * n}, n=(1, 3), unit="MB")
    assert capsys.readouterr().out == "f(n=2)\n  a: 2 MB\n  b: 1 MB\n"
    Experiment(lambda data: 0.0123, data=nd.ones((3,)), unit="s")
    assert capsys.readouterr().out == "f(): 12.30 ms\n"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Experiment(add, z=1, x=1), TypeError, "got an unexpected keyword argument 'z'"),
        (lambda: Experiment(add), TypeError, "missing a required argument: .x.; give"),
        (lambda: Experiment(add, x=(1, 2, 3, 4)), TypeError, "x: a slider is made of two or three"),
        (lambda: Experiment(add, x=[]), ValueError, "x: an empty list leaves no choice"),
        (lambda: Experiment(lambda: "text"), TypeError, "the function gave str; expected numbers"),
        (lambda: Experiment(lambda: nd.ones((2,))), TypeError, "the function gave NDArray;"),
        (lambda: Experiment(lambda n: 1 / n, n=0), ZeroDivisionError, "by zero"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_once(make, error, text):
    with pytest.raises(error, match=text):
        make()
    assert engine.stats().pending == 0


def test_a_run_in_the_background_reports_progress_and_is_cancelled():
    def count(n=2, progress=None):
        for i in range(n):
            progress(i, n)
            time.sleep(0.001)
        return n

    experiment = d2l.Experiment(count, n=(1, 10**9))
    experiment.start(n=3)
    assert experiment.wait(20) and [run.value for run in experiment.runs] == [2, 3]
    experiment.start(n=10**9)
    experiment.close()
    assert not experiment.running and len(experiment.runs) == 2


@pytest.mark.parametrize("parameters", [{"x": (0, 20)}, {"x": 1, "y": [1, 2]}, {"x": True}])
def test_runs_are_drawn_over_what_differs_or_their_numbers(parameters):
    pytest.importorskip("matplotlib")
    experiment = Experiment(add, **parameters)
    for value in range(MOST + 3 if "x" in parameters and len(parameters) == 1 else 2):
        experiment.run(**({"x": value} if parameters["x"] == (0, 20) else {}))
    assert experiment.draw().png.startswith(b"\x89PNG")
