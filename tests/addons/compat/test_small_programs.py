"""Small programs tell what they tell in MXNet 1.9.1; `data/small_programs/` has the exceptions.
(The tests of Gluon, the KVStore and autograd run theirs.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import small_programs
from oracle import Oracle
from rows import by, over

PROGRAMS = by(lambda program: program.file, small_programs.programs())
ELSEWHERE = {file for files in small_programs.TESTED_IN.values() for file in files}


@pytest.fixture(scope="module")
def here():
    """This library, in a process of its own: programs register classes and change folders."""
    with Oracle("d2lmini") as oracle:
        yield oracle


@over(
    "program",
    {file: programs for file, programs in PROGRAMS.items() if file not in ELSEWHERE},
    name=lambda program: program.id,
)
def test_a_program_tells_what_its_file_says(program, here: Oracle):
    small_programs.check(program, small_programs.ask(here, program))


def test_the_programs_of_every_file_run():
    assert set(PROGRAMS) > ELSEWHERE
    tests = Path(__file__).parents[2]
    for folder, files in small_programs.TESTED_IN.items():
        text = (tests / folder / f"test_{folder}_programs.py").read_text()
        assert re.findall(r'programs_of\("(\w+)"\)', text) == [*files]


@over("program", PROGRAMS, name=lambda program: program.id)
def test_mxnet_tells_what_its_file_says(program, mxnet: Oracle):
    told = small_programs.ask(mxnet, program)
    lines = "\n".join(small_programs.as_texts(told))
    assert small_programs.agree(program.told, told, strictly=True), lines


def test_what_counts_as_the_same():
    agree = small_programs.agree
    assert agree(["[1, 0.33333] float32"], ["[1, 0.33334] float32"])
    assert not agree(["[1, 0.333] float32"], ["[1, 0.334] float32"])
    assert not agree(["[1] float32"], ["[1] float64"])
    assert not agree(["1"], ["1", "2"])
    assert agree(["raises ValueError"], [["JSONDecodeError", "ValueError", "Exception"]])
    assert agree(["raises AssertionError"], [["TypeError", "Exception"]])
    assert not agree(["raises AssertionError"], [["TypeError", "Exception"]], strictly=True)
    assert not agree(["raises KeyError"], [["TypeError", "Exception"]])
    assert not agree(["raises KeyError"], ["None"])
