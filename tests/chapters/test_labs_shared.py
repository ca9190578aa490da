"""A line that says which sentence holds in this run, on a quiet machine and on a busy one."""

from __future__ import annotations

import pytest
from labs.shared import Load, watch


@pytest.mark.parametrize(
    ("holds", "elsewhere", "said"),
    [
        (True, 0.0, "measured: is it? yes: 3 ms"),
        (True, 1.5, "measured: is it? yes: 3 ms"),
        (True, None, "measured: is it? yes: 3 ms"),
        (False, 0.1, "measured: is it? no: 3 ms; the cores are shared"),
        (False, None, "measured: is it? no: 3 ms; the cores are shared"),
        (
            False, 1.5,
            "measured: is it? machine too busy to tell (other programs used 1.5 cores): 3 ms",
        ),
    ],
)  # fmt: skip
def test_what_is_said(holds, elsewhere, said, capsys):
    load = Load()
    load.elsewhere = elsewhere
    load.say("is it?", "3 ms", holds=holds, otherwise="the cores are shared")
    assert capsys.readouterr().out == said + "\n"


def test_the_figure_of_a_quiet_machine_stands_below_where_the_run_could_not_tell(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LMINI_REFERENCE", str(tmp_path / "reference.json"))
    monkeypatch.setenv("D2LMINI_CHAPTER", "a-chapter")
    load = Load()
    load.elsewhere, load.cores = 0.0, 2
    load.say("is it?", "3 ms", holds=True)
    assert "reference:" not in capsys.readouterr().out
    monkeypatch.delenv("D2LMINI_REFERENCE")
    for holds, elsewhere, shown in ((False, 1.5, True), (False, 0.0, True), (True, 0.0, False)):
        load.elsewhere = elsewhere
        load.say("is it?", "5 ms", holds=holds)
        assert ("reference: 3 ms; a quiet machine" in capsys.readouterr().out) == shown


def test_a_watched_scope_knows_the_cores():
    with watch() as load:
        assert not load.busy
    assert load.cores > 0
