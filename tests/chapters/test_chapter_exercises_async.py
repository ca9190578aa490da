"""The exercises of the chapter on asynchronous computation: its solutions pass its own checks, each
typical wrong answer gets a hint of its own, and what the answers say is so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chapter_cells import hint_of

from d2lmini import MXNetError, autograd, engine, nd, profile

PATH = Path(__file__).parents[2] / "chapters" / "async-computation.ipynb"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the chapter's imports, of its checks, and of the answers in its folds."""
    cells = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    place: dict[str, Any] = {}
    with np.printoptions():
        exec(code[0], place)
    for name in ("by_waiting", "check_quiet", "check_beside", "fresh", "slow_epoch", "quiet_epoch"):
        source = next(cell for cell in code if f"def {name}(" in cell)
        definitions = re.split(r"\n\n\n(?:pair|mean_loss)", source)[0]
        exec(definitions, place)
    for fold in re.findall(r"<details>.*?</details>", text, re.S):
        for block in re.findall(r"```python\n(.*?)```", fold, re.S):
            exec(block, place)
    return place


# -- exercise 10 -----------------------------------------------------------------------------------


def an_epoch(net, trainer, loss, batches, in_the_loop, update=True):
    """An epoch that does something with the loss in each batch."""
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        if update:
            trainer.step(len(X))
        losses.append(l.mean())
        in_the_loop(l)
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())


def floats(*given):
    return an_epoch(*given, lambda l: float(l.mean()))


def compares(*given):
    return an_epoch(*given, lambda l: bool(l.mean() > 100))


def asscalar(*given):
    return an_epoch(*given, lambda l: l.mean().asscalar())


def waits_for_the_loss(*given):
    return an_epoch(*given, lambda l: l.wait_to_read())


def waits_for_all(*given):
    return an_epoch(*given, lambda l: nd.waitall())


def never_learns(*given):
    return an_epoch(*given, lambda l: None, update=False)


def gives_arrays(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.mean())
    losses = nd.concat(*losses, dim=0)
    return losses.mean(), losses.max()


def leaves_one_out(net, trainer, loss, batches):
    return an_epoch(net, trainer, loss, list(batches)[:-1], lambda l: None)


def means_of_the_largest(net, trainer, loss, batches):
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(l.max())
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())


def test_an_epoch_that_asks_at_its_end_is_right(chapter, capsys):
    chapter["check_quiet"](chapter["epoch"])
    assert capsys.readouterr().out == "at most 0 waits for each batch\nat most 2 waits in all\n"


def test_every_mistake_has_its_hint(chapter):
    answers = (floats, compares, asscalar, waits_for_the_loss, waits_for_all, never_learns)
    assert {each.__name__: hint_of(chapter["check_quiet"], each) for each in answers} == {
        "floats": "hidden",
        "compares": "hidden",
        "asscalar": "reading",
        "waits_for_the_loss": "waiting",
        "waits_for_all": "waitall",
        "never_learns": "missing",
    }


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (gives_arrays, "two Python numbers"),
        (leaves_one_out, "other weights"),
        (means_of_the_largest, "another mean"),
    ],
)
def test_wrong_values_have_theirs(chapter, answer, words):
    with pytest.raises(AssertionError, match=words):
        chapter["check_quiet"](answer)


# -- exercise 11 -----------------------------------------------------------------------------------


def waits_in_each(W, n):
    total = 0
    for _ in range(n):
        X = nd.random.normal(0, 0.05, shape=W.shape)
        total += nd.dot(X, W).sum().asscalar()
    return total


def keeps_all(W, n):
    drawn = [nd.random.normal(0, 0.05, shape=W.shape) for _ in range(n)]
    total = 0
    for X in drawn:
        total = total + nd.dot(X, W).sum()
    return total.asscalar()


def in_one_piece(W, n):
    drawn = nd.zeros((n, *W.shape))
    total = 0
    for i in range(n):
        drawn[i] = nd.random.normal(0, 0.05, shape=W.shape)
        total = total + nd.dot(drawn[i], W).sum()
    return total.asscalar()


def one_more(W, n):
    places = [nd.zeros(W.shape), nd.zeros(W.shape)]
    total = 0
    for i in range(n + 1):
        X = nd.random.normal(0, 0.05, shape=W.shape, out=places[i % 2])
        total = total + nd.dot(X, W).sum()
    return total.asscalar()


def draws_in_numpy(W, n):
    total = 0
    for _ in range(n):
        total = total + nd.dot(nd.array(np.random.normal(0, 0.05, W.shape)), W).sum()
    return total.asscalar()


def test_two_places_in_turns_are_right(chapter, capsys):
    chapter["check_beside"](chapter["beside"])
    out = capsys.readouterr().out
    assert out == "_random_normal may run beside dot\nat most 3.2 MB on cpu(0)\n"


def test_every_mistake_has_its_hint_there_too(chapter):
    answers = (chapter["in_one_place"], waits_in_each, keeps_all, in_one_piece, draws_in_numpy)
    assert {each.__name__: hint_of(chapter["check_beside"], each) for each in answers} == {
        "in_one_place": "room",
        "waits_in_each": "waits",
        "keeps_all": "ahead",
        "in_one_piece": "large",
        "draws_in_numpy": "missing",
    }
    with pytest.raises(AssertionError, match="another number"):
        chapter["check_beside"](one_more)


# -- what the answers, and the text, say -----------------------------------------------------------


def test_the_mended_script_learns_the_same_with_two_waits(chapter):
    """Sections 12 and 13: thirty waits, two waits, the same numbers."""
    with engine.stepped(workers=2):
        slow_net, quiet_net = chapter["fresh"](), chapter["fresh"]()
        with profile() as before:
            mean_loss, norms = chapter["slow_epoch"](*slow_net)
        with profile() as after:
            quiet_loss, quiet_norms = chapter["quiet_epoch"](*quiet_net)
    assert np.isclose(mean_loss, quiet_loss) and np.allclose(norms, quiet_norms)
    assert [wait.kind for wait in before.waits] == ["bool", "float", "float"] * 10
    assert [wait.kind for wait in after.waits] == ["asnumpy"] * 2


def test_only_the_truth_of_a_sum_waits():
    """Exercise 1."""
    with profile() as trace:
        y = nd.ones((2, 2))
        assert (y.shape, len(y)) == ((2, 2), 2)
        y * 2, y[0], y.sum(), y.copy()
        str(y.dtype)
        assert not list(trace.waits)
        assert bool(y.sum() > 0)
        assert [wait.kind for wait in trace.waits] == ["bool"]


def test_what_is_broken_says_what_the_answers_tell():
    """Exercises 7 to 9."""
    x, a = nd.ones((2,)), nd.ones((2,))
    engine.push(lambda: x.asnumpy(), writes=[a], name="impatient")
    with pytest.raises(MXNetError, match=r"impatient(.|\n)*reads="):
        a.asnumpy()
    with pytest.raises((MXNetError, TypeError), match=r"dtype|int32"):
        nd.array([1, 2], dtype="int32") / nd.array([0, 1])
    with profile() as trace:
        float(x.sum())
    with pytest.raises(MXNetError, match=r"no wait at 1000; the program waited at\n.*float\(x"):
        trace.replay(without_wait_at=1000)


def test_the_size_at_which_an_addition_moves_to_a_worker():
    """The answer of section 7."""
    where = {}
    for size in (263, 264):
        x = nd.ones((size, size))
        x.wait_to_read()
        with profile() as trace:
            (x + 1).wait_to_read()
        where[size] = trace.operations[-1].inline
    assert where == {263: True, 264: False}
