"""`d2lmini info --for FILE`: the names of MXNet that a program uses and that are missing here, or
work differently. An add-on finds them (`compat/mxnet_alias/examine.py`), this file prints them:

    old.ipynb: 1 of 27 names of MXNet are missing
      mxnet.image.imread (cell 3, line 2; cell 5, line 1): left out: MXNet's image operations
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import Any

from d2lmini import addons
from d2lmini.cli.errors import CommandError
from d2lmini.cli.files import check_program


def show(paths: list[str], as_json: bool) -> int:
    """Read programs, and print what they lack; 1 if a name is missing, else 0."""
    for path in paths:
        check_program(path)
    try:
        found = {path: addons.find("examine")(path) for path in paths}
    except ValueError as problem:
        raise CommandError(problem) from None
    if as_json:
        print(json.dumps([{"file": path, **asdict(x)} for path, x in found.items()], indent=2))
    else:
        print("\n".join(as_text(path, program) for path, program in found.items()))
    return int(any(program.missing for program in found.values()))


def as_text(path: str, program: Any) -> str:
    """All about one program: a headline, and a paragraph for each name."""
    said = [f"{name.name} ({_list(name.places)}): {name.reason}" for name in program.missing]
    said += [
        f"{name.name} ({_list(name.places)}) differs: {name.reason}" for name in program.differs
    ]
    if program.not_python:
        said.append(f"not Python 3: {_list(program.not_python)}")
    headline = f"{path}: {len(program.missing)} of {program.names} names of MXNet are missing"
    texts = [textwrap.fill(x, 100, initial_indent="  ", subsequent_indent="    ") for x in said]
    return "\n".join([headline, *texts])


def _list(places: list[str]) -> str:
    """The places, each once."""
    return "; ".join(dict.fromkeys(places))
