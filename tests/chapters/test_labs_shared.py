"""A line that says which sentence holds in this run, on a quiet machine and on a busy one."""

from __future__ import annotations

import pytest
from labs.shared import Load


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
