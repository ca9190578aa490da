"""`d2l.mxnet`: figures hold what they were given."""

from __future__ import annotations

import sys

import numpy
import pytest

from d2lmini import np, npx
from d2lmini.compat.books import shared
from d2lmini.d2l import mxnet as d2l

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def clean():
    npx.set_np()
    yield
    npx.reset_np()
    pyplot.close("all")
    pyplot.rcdefaults()


def lines():
    """The curves of the current figure, as lists of points."""
    return [list(zip(*map(list, line.get_data()))) for line in pyplot.gca().get_lines()]


x = np.arange(3)
ON_INDEX = [(0, 0), (1, 2), (2, 4)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((x * 2,), [ON_INDEX]),
        (([np.array(0), np.array(2), np.array(4)],), [ON_INDEX]),
        (([x * 2, x * 2],), [ON_INDEX] * 2),
        ((x, x * 2), [ON_INDEX]),
        ((x, [x * 2, x]), [ON_INDEX, [(0, 0), (1, 1), (2, 2)]]),
        (([x, x], [x * 2, x * 2]), [ON_INDEX] * 2),
        ((x, np.stack([x * 2, x * 2])), [ON_INDEX] * 2),
        (([[0, 1, 2]], [[np.array(0), 2, 4]]), [ON_INDEX]),
    ],
)
def test_plot(arguments, expected):
    d2l.plot(*arguments)
    assert lines() == expected


def test_what_stands_around_a_plot():
    d2l.plot(x + 1, [x + 1], "a", "b", legend=["c"], xlim=[1, 2], ylim=[1, 9], yscale="log",
             fmts=["r:"], figsize=(4, 3))  # fmt: skip
    axes = pyplot.gca()
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("a", "b", "log")
    assert axes.get_xlim() == (1, 2) and axes.get_ylim() == (1, 9)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["c"]
    assert axes.get_lines()[0].get_color() == "r"
    assert list(pyplot.gcf().get_size_inches()) == [4, 3]
    d2l.plot(x, x)  # begins anew
    assert len(lines()) == 1 and pyplot.gca() is axes
    _, other = pyplot.subplots()
    d2l.plot(x, x, axes=other)
    assert len(other.get_lines()) == 1
    d2l.set_axes(other, "p", "q", None, None, "linear", "linear", None)
    assert other.get_xlabel() == "p" and other.get_legend() is None


@pytest.fixture
def notebook(monkeypatch):
    """A notebook that remembers what it shows."""
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(shared, "_in_notebook", lambda: True)
    monkeypatch.setattr(display, "display", shown.append)
    monkeypatch.setattr(display, "clear_output", lambda wait: None)
    return shown


def test_growing_curves_in_a_notebook(notebook):
    board = d2l.ProgressBoard("epoch", xlim=[0, 2], ylim=[0, 9], yscale="linear")
    for value in range(3):
        board.draw(value, 2 * value, "loss")
    assert notebook == [board.fig] * 3 and lines() == [ON_INDEX]
    assert pyplot.gca().get_xlim() == (0, 2) and pyplot.gca().get_xlabel() == "epoch"
    d2l.ProgressBoard("x").draw(0, 1, "loss")  # with limits of Matplotlib's own
    notebook.pop()
    animator = d2l.Animator(xlabel="epoch", legend=["a", "b"])
    animator.add(1, (1, 2))
    animator.add(2, (3, np.array(4)))
    assert notebook[3:] == [animator.fig] * 2
    assert numpy.array(lines()).tolist() == [[[1, 1], [2, 3]], [[1, 2], [2, 4]]]


@pytest.mark.parametrize("missing", ["IPython", "matplotlib_inline.backend_inline"])
def test_without_ipython_nothing_is_drawn_and_nothing_changes(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    d2l.use_svg_display()
    d2l.Animator().add(1, 2)
    assert pyplot.get_fignums() == []
