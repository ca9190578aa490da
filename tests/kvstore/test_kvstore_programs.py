"""Programs with the KVStore tell what they tell in MXNet 1.9.1: `data/small_programs/`."""

from __future__ import annotations

from operator import attrgetter

from rows import over
from small_programs import check, programs_of

name_of = attrgetter("id")


@over("program", programs_of("kvstore"), name=name_of)
def test_programs(program):
    check(program)
