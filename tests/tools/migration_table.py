"""Which of MXNet's names are here, what differs, and which small programs answer alike: the tables
of docs/migration.md (see `computed_docs.py`).

`data/mxnet_names.txt` has the names of MXNet 1.9.1, as `mxnet_names.py` found them. A name that is
not here says so when it is asked for, and why: by that it is counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

import listed_differences
import mxnet_names
import nd_programs
import small_programs

from d2lmini import install_as_mxnet, nd, np, sym
from d2lmini.compat.left_out import Missing
from d2lmini.compat.mxnet_alias import uninstall

#: What d2lmini does differently on purpose. A paragraph is a row: what differs, what MXNet does,
#: and what d2lmini does, as Markdown.
DIFFERENCES = (Path(__file__).parents[1] / "data" / "differences.txt").read_text(encoding="utf-8")
ROW = re.compile(r"(.*?) MXNet: (.*?) d2lmini: (.*)")
#: The message of a name that is left out ends with the reason.
LEFT_OUT = re.compile(r"left out of d2lmini, (?:as (?:all of |is |are )?)?(.*)")

#: What a program that is no part of MXNet has no use for.
INNER = re.compile(
    r"backward_\w+|gen_\w+|get_\w+_op|\w+_code|\w+_axes|handle|writable|"
    r"check_call|classproperty|with_metaclass"
)


class Found(NamedTuple):
    """The names of one module: how many there are in MXNet, and those that are not here."""

    total: int
    left_out: dict[str, str]  # name -> why


def look_up(path: str, names: list[str]) -> Found:
    """Ask the library for each. AssertionError for a missing name that no row explains."""
    install_as_mxnet()
    values = {"nd.NDArray": nd.ones(1), "np.ndarray": np.ones(1), "sym.Symbol": sym.var("x")}
    left_out = {}  # a value explains what it lacks, its class does not
    names = [name for name in names if not INNER.fullmatch(name)]
    for name in names:
        try:
            place = values[path] if path in values else resolve_name(f"mxnet.{path}")
            value = getattr(place, name)
            message = value.__doc__ if isinstance(value, Missing) else None
        except AttributeError as problem:
            message = str(problem)
        if message is not None:
            reason = LEFT_OUT.search(message)
            assert reason is not None, f"{path}.{name}: {message}"
            left_out[name] = reason[1].partition(";")[0]
    uninstall()
    return Found(len(names), left_out)


def differences() -> str:
    """What differs on purpose, as Markdown."""
    found = [ROW.fullmatch(" ".join(row.split())) for row in DIFFERENCES.split("\n\n")]
    rows = [f"| {' | '.join(row.groups())} |" for row in found if row is not None]
    assert len(rows) == len(found)
    return "\n".join(["| | MXNet | d2lmini |", "| --- | --- | --- |", *rows]) + "\n"


def tables() -> str:
    """How many names of each module are here, why the others are not, how many small programs
    answer as in MXNet, and which answers of the sweep differ, as Markdown."""
    rows, reasons = [], defaultdict(list)
    for path in mxnet_names.SPACES:
        found = look_up(path, mxnet_names.stored()[path])
        rows.append(f"| `{path}` | {found.total} | {found.total - len(found.left_out)} |")
        for name, reason in found.left_out.items():
            reasons[reason].append(f"{path}.{name}")
    by_reason = [f"| {reason} | {shown(names)} |" for reason, names in sorted(reasons.items())]
    head = ["| module | names in MXNet 1.9.1 | here |", "| --- | --- | --- |"]
    why = ["", "| not here | which |", "| --- | --- |"]
    words = (
        "`make test-mxnet` calls each name with drawn arguments, in MXNet and here. These differ:"
    )
    differ = "\n".join(["", words, "", listed_differences.table()])
    counted = "\n".join([*head, *rows, *why, *by_reason, *behaviour()]) + "\n"
    return counted + programs() + differ


def behaviour() -> list[str]:
    """What small programs tell, counted by subject, and by reason where that differs."""
    by_subject, by_reason = defaultdict(list), defaultdict(list)
    for program in small_programs.programs():
        by_subject[program.file].append(program)
        if program.reason:
            by_reason[program.reason].append(f"{program.title} ({program.file})")
    rows = [
        f"| {subject} | {len(some)} | {sum(not program.reason for program in some)} |"
        for subject, some in by_subject.items()
    ]
    return [
        "", "| small programs on | in all | that tell what they tell in MXNet 1.9.1 |",
        "| --- | --- | --- |", *rows, "", "| what differs | in programs on |", "| --- | --- |",
        *(f"| {reason} | {'; '.join(found)} |" for reason, found in sorted(by_reason.items())),
    ]  # fmt: skip


def programs() -> str:
    """How many small programs answer as in MXNet (`nd_programs.py`), and why the others do not."""
    rows, reasons = [], dict.fromkeys(nd_programs.differences().values(), 0)
    for module in nd_programs.MODULES:
        known = [nd_programs.reason_of(program) for program in nd_programs.programs(module)]
        about = nd_programs.title_of(module).rstrip(".")
        rows.append(f"| {about} | {len(known)} | {known.count(None)} |")
        for reason in filter(None, known):
            reasons[reason] += 1
    head = ["", "| small programs | in all | that answer as in MXNet |", "| --- | --- | --- |"]
    why = ["", "| what the others show | programs |", "| --- | --- |"]
    by_reason = [f"| {reason} | {count} |" for reason, count in reasons.items()]
    return "\n".join([*head, *rows, *why, *by_reason]) + "\n"


def shown(names: list[str]) -> str:
    """`nd.a`, `b`, `c`: each module once; a name of `nd` that `sym` lacks as well is said once."""
    by_module = defaultdict(list)
    for name in names:
        module, _, last = name.rpartition(".")
        if module != "sym" or f"nd.{last}" not in names:
            by_module[module].append(last)
    parts = [f"`{module}.{first}`" + "".join(f" `{n}`" for n in rest)
             for module, (first, *rest) in by_module.items()]  # fmt: skip
    return "; ".join(parts)
