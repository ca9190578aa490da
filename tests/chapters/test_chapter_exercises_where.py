"""The exercises of the chapter "Where the time went": right answers pass its check, each plausible
wrong answer is told what is wrong, and what the text says of the two scripts is so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chapter_cells import code_of, names_in, refusal_of

from d2lmini import MXNetError, engine, nd, profile, profiler

NAME = "where-the-time-went"
TRACES = "chapters/traces"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the chapter's imports, of its scripts and its check, and the folded answers."""
    checks = ("def length_ms", "def drawn_trace", "def check_best_wait")
    place = names_in(NAME, "def fresh", *checks)
    for name in ("slow_epoch", "quiet_epoch"):
        source = next(cell for cell in code_of(NAME) if f"def {name}(" in cell)
        exec(source.partition("\n\n\n")[0], place)
    return place


# -- exercise 8 ------------------------------------------------------------------------------------


def length_ms(trace):
    return (trace.end_ns - trace.begin_ns) / 1e6


def saved_ms(trace, row):
    line = row.where.partition(": ")[0]
    return length_ms(trace.replay()) - length_ms(trace.replay(without_wait_at=line))


def gives_nothing(trace):
    return None


def broken(trace):
    return undefined_name  # noqa: F821


def gives_the_row_alone(trace):
    return max(trace.waits(), key=lambda row: saved_ms(trace, row))


def gives_a_line(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row.where, saved_ms(trace, row)


def takes_the_longest(trace):
    row = max(trace.waits(), key=lambda row: row.seconds)
    return row, saved_ms(trace, row)


def takes_the_most_frequent(trace):
    row = max(trace.waits(), key=lambda row: row.times)
    return row, saved_ms(trace, row)


def takes_the_last(trace):
    row = list(trace.waits())[-1]
    return row, saved_ms(trace, row)


def takes_the_least(trace):
    row = min(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, saved_ms(trace, row)


def gives_the_seconds_of_the_ledger(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, 1e3 * row.seconds


def gives_seconds(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, saved_ms(trace, row) / 1e3


def gives_what_is_left(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, length_ms(trace) - saved_ms(trace, row)


def gives_what_all_save_together(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    lines = [row.where.partition(": ")[0] for row in trace.waits()]
    return row, length_ms(trace) - length_ms(trace.replay(without_wait_at=lines))


WRONG = {
    gives_nothing: "return a row",
    gives_the_row_alone: "return a row of trace.waits() and the saved milliseconds",
    gives_a_line: "first a row of trace.waits()",
    takes_the_longest: "another line",
    takes_the_most_frequent: "another line",
    takes_the_last: "another line",
    takes_the_least: "another line",
    gives_the_seconds_of_the_ledger: "ms, not",
    gives_seconds: "ms, not",
    gives_what_is_left: "ms, not",
    gives_what_all_save_together: "ms, not",
}


@pytest.mark.parametrize("answer", WRONG, ids=lambda answer: answer.__name__)
def test_a_wrong_wait_is_told_what_is_wrong(chapter, answer):
    check = chapter["check_best_wait"]
    assert WRONG[answer] in refusal_of(check, answer, np.random.RandomState(3))


def by_the_shortest_replay(trace):
    def length_without(row):
        return length_ms(trace.replay(without_wait_at=row.where.partition(": ")[0]))

    row = min(trace.waits(), key=length_without)
    return row, length_ms(trace) - length_without(row)


def by_a_loop(trace):
    best, most_ms = None, -1.0
    for row in trace.waits():
        if saved_ms(trace, row) > most_ms:
            best, most_ms = row, saved_ms(trace, row)
    return [best, most_ms]


def by_numpy(trace):
    rows = list(trace.waits())
    saved = np.array([saved_ms(trace, row) for row in rows])
    return rows[saved.argmax()], saved.max()


def by_line_numbers(trace):
    def saved_at(row):
        replayed = trace.replay(without_wait_at=int(row.where.split(":")[1]))
        return trace.replay().end_ns - replayed.end_ns

    row = sorted(trace.waits(), key=saved_at)[-1]
    return row, saved_at(row) / 1e6


def by_predictions(trace):
    def saved_ns(row):
        line = row.where.partition(": ")[0]
        return trace.replay().prediction.ns - trace.replay(without_wait_at=line).prediction.ns

    row = max(trace.waits(), key=saved_ns)
    return row, saved_ns(row) / 1e6


RIGHT = [by_the_shortest_replay, by_a_loop, by_numpy, by_line_numbers, by_predictions]


@pytest.mark.parametrize("answer", RIGHT, ids=lambda answer: answer.__name__)
def test_an_unusual_answer_is_right(chapter, answer, capsys):
    chapter["check_best_wait"](answer)
    assert capsys.readouterr().out.startswith("the best wait of 3 programs")


def test_the_folded_answer_is_right_and_errors_come_out(chapter):
    chapter["check_best_wait"](chapter["best_wait"])
    with pytest.raises(NameError, match="undefined_name"):
        chapter["check_best_wait"](broken)


# -- what the answers, and the text, say -----------------------------------------------------------


@pytest.fixture(scope="module")
def runs(chapter):
    """The traces of the slow script and of the quiet one, and the results of both."""
    with engine.stepped(workers=2):
        slow_net, quiet_net = chapter["fresh"](), chapter["fresh"]()
        with profile() as before:
            slow = chapter["slow_epoch"](*slow_net)
        with profile() as after:
            quiet = chapter["quiet_epoch"](*quiet_net)
    return before, after, slow, quiet


def test_the_quiet_script_learns_the_same_with_two_waits(runs):
    before, after, (mean_loss, norms), (quiet_loss, quiet_norms) = runs
    assert np.isclose(mean_loss, quiet_loss) and np.allclose(norms, quiet_norms)
    assert [wait.kind for wait in before.waits] == ["bool", "float", "float"] * 10
    assert [wait.kind for wait in after.waits] == ["asnumpy"] * 2


def test_each_line_waits_for_what_section_1_says(runs):
    rows = sorted(runs[0].waits(), key=lambda row: row.site[1])
    assert [row.awaited.name for row in rows] == ["_greater_scalar", "mean", "norm"]


def test_the_mean_of_a_step_is_computed_once_in_the_quiet_script(runs):
    """The answer of section 4."""
    before, after, _, _ = runs
    counts = [[o.name for o in trace.operations].count("mean") for trace in (before, after)]
    assert counts[0] - counts[1] == 10
    assert not any(operation.name == "_greater_scalar" for operation in after.operations)


def test_a_waitall_in_the_loop_is_what_the_diff_reports(chapter, runs):
    """Exercise 4."""
    source = next(cell for cell in code_of(NAME) if "def quiet_epoch(" in cell)
    source = source.partition("\n\n\n")[0]
    norm = "        norms.append(net[0].weight.data().norm())\n"
    assert norm in source
    place = dict(chapter)
    exec(source.replace(norm, norm + "        nd.waitall()\n"), place)
    with engine.stepped(workers=2):
        net = place["fresh"]()
        with profile() as trace:
            place["quiet_epoch"](*net)
    found = [(finding.n, finding.name) for finding in runs[1].diff(trace).of("newly waiting")]
    assert (10, "waitall") in found


def test_what_is_broken_says_what_the_answers_tell():
    """Exercises 5 and 6."""
    x = nd.ones((2,))
    with profile() as trace:
        float(x.sum())
    with pytest.raises(MXNetError, match=r"no wait at 1000; the program waited at\n.*float\(x"):
        trace.replay(without_wait_at=1000)
    with pytest.raises(MXNetError, match="devices"):
        profiler.load(f"{TRACES}/gpu-generated.json.gz").replay(devices=1)
