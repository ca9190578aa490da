"""A few drawn programs of every generator, with fixed seeds (`make fuzz` draws many anew)."""

from __future__ import annotations

import importlib

import pytest
from generators.agree import check
from generators.run import names

#: Of each generator so many programs.
PROGRAMS = 20


@pytest.mark.law
@pytest.mark.parametrize("seed", range(PROGRAMS))
@pytest.mark.parametrize("name", names())
def test_a_drawn_program_gives_the_same_on_every_engine(name, seed):
    check(importlib.import_module(f"generators.{name}"), seed)
