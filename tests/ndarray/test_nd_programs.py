"""Small programs on arrays and Symbols say what they say in MXNet 1.9.1: values, shapes, errors.
See `tools/nd_programs.py`. The differences are those that `differences.txt` names,
with a reason."""

from __future__ import annotations

import json
from typing import Any

import nd_programs
import pytest
from nd_programs import MODULES, alike, before, everything, programs
from oracle import Oracle

from d2lmini import install_as_mxnet
from d2lmini.compat.mxnet_alias import uninstall

ANSWERS = json.loads(nd_programs.ANSWERS.read_text(encoding="utf-8"))
LEFT_OUT = (nd_programs.DATA / "nd_programs" / "left_out.txt").read_text("utf-8").splitlines()[1:]


@pytest.fixture(scope="module")
def ours() -> Any:
    """This library under the name of `mxnet`."""
    install_as_mxnet()
    import mxnet

    yield mxnet
    uninstall()


@pytest.mark.parametrize("module", MODULES)
def test_programs_answer_as_in_mxnet(module: str, ours: Any, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # programs write files
    wrong = []
    for program in programs(module):
        said, told = nd_programs.answer(ours, program, before(module)), ANSWERS[program]
        why = nd_programs.reason_of(program)
        if alike(said, told) == (why is not None):
            wrong.append(f"{program}\n  ours   {said}\n  MXNet  {told}\n  named  {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES)
def test_stored_answers_are_those_of_mxnet(module: str, mxnet: Oracle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the process starts
    for program in programs(module):
        told = mxnet.ask(nd_programs.answer, program, before(module))
        assert alike(told, ANSWERS[program]), program


def test_every_program_is_stored_and_every_difference_is_one_of_a_program():
    total = sum(len(programs(module)) for module in MODULES)
    assert total == len(everything()) == len(ANSWERS) >= 2500
    pieces = nd_programs.differences()
    assert [
        piece for piece in pieces if not any(piece in program for program in everything())
    ] == []


@pytest.mark.parametrize("program", LEFT_OUT)
def test_other_storage_types_are_refused(program: str, ours: Any):
    names = {"mx": ours} | {name: getattr(ours, name) for name in ("nd", "sym", "gluon")}
    with pytest.raises((ours.MXNetError, NotImplementedError, AttributeError), match="left out"):
        exec(program, names)
