"""`d2lmini info --for FILE`: the names of MXNet that a program uses and that are missing here, or
work differently. `compat/mxnet_alias/examine.py` finds them, this file prints them:

    old.ipynb: 1 of 27 names of MXNet that it uses is missing

    missing
      mxnet.image.imread  (cell 3, line 2; cell 5, line 1)
          left out: MXNet's image operations
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from d2lmini import addons
from d2lmini.cli import batch
from d2lmini.cli.errors import CommandError
from d2lmini.cli.files import check_program

#: The number of places that the text shows of each name; JSON has all.
_PLACES = 4


def show(path: str, as_json: bool) -> int:
    """Read the programs at a path, and print what they lack; 1 if a name is missing, else 0."""
    if os.path.isdir(path):
        programs = batch.programs_in(path)
    else:
        check_program(path)
        programs = [path]
    try:
        found = [addons.find("examine")(program) for program in programs]
    except ValueError as problem:
        raise CommandError(problem) from None
    if as_json:
        pairs = zip(programs, found, strict=True)
        print(json.dumps([{"file": name, **asdict(program)} for name, program in pairs], indent=2))
    else:
        shown = batch.names_to_show(programs)
        texts = [as_text(*pair) for pair in zip(shown, found, strict=True)]
        if len(programs) > 1:
            texts.append(closing(found))
        # A blank line only before and after what is longer than a line.
        for before, text in zip(["", *texts], texts, strict=False):
            print("\n" * ("\n" in before or (bool(before) and "\n" in text)) + text)
    return int(any(program.missing for program in found))


def as_text(name: str, found: Any) -> str:
    """All about one program."""
    lines = [f"{name}: {_headline(found)}"]
    for title, names in (("missing", found.missing), ("works differently", found.differs)):
        lines += ["", title] if names else []
        for name_used in names:
            places = _list(name_used.places)
            lines += batch.wrap(f"{name_used.name}  ({places})", "  ", "      ")
            lines += batch.wrap(name_used.reason, "      ", "      ")
    if found.not_python:
        lines += ["", *batch.wrap(f"not Python 3: {_list(found.not_python)}", "", "  ")]
    return "\n".join(lines)


def _headline(found: Any) -> str:
    if not found.names:
        return "uses no name of MXNet"
    if not found.missing:
        if found.names == 1:
            return "the one name of MXNet that it uses is here"
        return f"all {found.names} names of MXNet that it uses are here"
    noun = "names" if found.names > 1 else "name"
    verb = "is" if len(found.missing) == 1 else "are"
    return f"{len(found.missing)} of {found.names} {noun} of MXNet that it uses {verb} missing"


def closing(found: Sequence[Any]) -> str:
    """The last line about a folder."""
    lacking = sum(bool(program.missing) for program in found)
    names = {name.name for program in found for name in program.missing}
    if not names:
        return f"{len(found)} programs: no name is missing"
    verb = "lacks" if lacking == 1 else "lack"
    lacked = "a name" if len(names) == 1 else f"{len(names)} names in all"
    return f"{len(found)} programs: {lacking} of them {verb} {lacked}"


def _list(places: Sequence[str]) -> str:
    """The first places, and how many there are besides."""
    counted = dict.fromkeys(places)
    more = len(counted) - _PLACES
    shown = "; ".join(list(counted)[: _PLACES if more > 1 else None])
    return f"{shown}; {more} more" if more > 1 else shown
