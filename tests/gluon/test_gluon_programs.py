"""Programs with Gluon tell what they tell in MXNet 1.9.1: `data/small_programs/`."""

from __future__ import annotations

from operator import attrgetter

from rows import over
from small_programs import check, programs_of

name_of = attrgetter("id")


@over("program", programs_of("blocks"), name=name_of)
def test_blocks(program):
    check(program)


@over("program", programs_of("cells"), name=name_of)
def test_cells(program):
    check(program)


@over("program", programs_of("data"), name=name_of)
def test_data(program):
    check(program)


@over("program", programs_of("inside"), name=name_of)
def test_inside(program):
    check(program)


@over("program", programs_of("layers"), name=name_of)
def test_layers(program):
    check(program)


@over("program", programs_of("losses"), name=name_of)
def test_losses(program):
    check(program)


@over("program", programs_of("names"), name=name_of)
def test_names(program):
    check(program)


@over("program", programs_of("parameters"), name=name_of)
def test_parameters(program):
    check(program)


@over("program", programs_of("trainer"), name=name_of)
def test_trainer(program):
    check(program)


@over("program", programs_of("training"), name=name_of)
def test_training(program):
    check(program)
