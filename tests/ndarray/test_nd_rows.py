"""Small programs on arrays say what they say in MXNet 1.9.1: values, shapes, dtypes, errors. See
`nd_rows`. The differences are those that `nd_rows/differences.py` names, with their reasons."""

from __future__ import annotations

import importlib
import json
from typing import Any

import nd_rows
import pytest
from nd_rows import storage
from nd_rows.answers import STORED
from nd_rows.differences import PIECES, reason_of
from oracle import Oracle

from d2lmini import install_as_mxnet
from d2lmini.compat.mxnet_alias import uninstall

ANSWERS = json.loads(STORED.read_text(encoding="utf-8"))


def programs(module: str) -> list[str]:
    return nd_rows.programs(importlib.import_module(f"nd_rows.{module}"))


@pytest.fixture(scope="module")
def ours() -> Any:
    """This library under the name of `mxnet`."""
    install_as_mxnet()
    import mxnet

    yield mxnet
    uninstall()


@pytest.mark.parametrize("module", nd_rows.MODULES)
def test_programs_answer_as_in_mxnet(module: str, ours: Any, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = {}
    for program in programs(module):
        answer = nd_rows.answer(ours, program)
        if nd_rows.alike(answer, ANSWERS[program]) == (reason_of(program) is not None):
            wrong[program] = answer, ANSWERS[program], reason_of(program)
    report = [f"{program}\n  ours   {a}\n  MXNet  {b}\n  {r}" for program, (a, b, r) in wrong.items()]
    assert not wrong, "\n".join(report)


@pytest.mark.parametrize("module", nd_rows.MODULES)
def test_stored_answers_are_those_of_mxnet(module: str, mxnet: Oracle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the process starts
    for program in programs(module):
        assert nd_rows.alike(mxnet.ask(nd_rows.answer, program), ANSWERS[program]), program


def test_every_program_is_stored_and_every_difference_is_one_of_a_program():
    everything = [program for module in nd_rows.MODULES for program in programs(module)]
    assert len(everything) == len(set(everything)) == len(ANSWERS) >= 1600
    assert [piece for piece in PIECES if not any(piece in p for p in everything)] == []


@pytest.mark.parametrize("program", storage.LEFT_OUT.strip().splitlines())
def test_other_storage_types_are_refused(program: str, ours: Any):
    names = {"mx": ours, "tu": ours.test_utils}
    names |= {name: getattr(ours, name) for name in ("nd", "sym", "gluon")}
    with pytest.raises((ours.MXNetError, NotImplementedError, AttributeError), match="left out"):
        exec(program, names)
