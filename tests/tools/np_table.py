"""How each name of `np` and `npx` is tested: the table of docs/np.md (see `computed_docs.py`).

The table is read off the rows of `np_rows`, by the names that MXNet 1.9.1 has (`mxnet_names.txt`).
"""

from __future__ import annotations

import re
from collections import defaultdict

import migration_table
import mxnet_names
import small_programs
from np_rows import draws
from np_rows.case import Row
from np_rows.table import ROWS

#: The interface: its modules and its class, as `mxnet_names.txt` has them.
SPACES = ("np", "np.linalg", "np.random", "npx", "np.ndarray")
_CALL = re.compile(r"\b(npx?(?:\.(?:random|linalg)(?=\.))?)\.(\w+)")
_METHOD = re.compile(r"[\w)\]]\.(\w+)")


def uses() -> dict[str, list[Row]]:
    """The rows in which each name occurs; rows without options for the draws and small programs."""
    found: dict[str, list[Row]] = defaultdict(list)
    plain = [Row("draw", text, grad=False, traced=False) for text in draws.DRAWS]
    plain += [
        Row("program", program.code, grad=False, traced=False)
        for program in small_programs.programs("np: ")
    ]
    for row in (*ROWS, *plain):
        if row.error:
            continue
        called = row.name if row.name.startswith("npx.") else f"np.{row.name}"
        names = {f"{space}.{name}" for space, name in _CALL.findall(row.text)}
        names |= {f"np.ndarray.{name}" for name in _METHOD.findall(row.text)}
        if row.text.startswith(f"{called}("):
            names = {called}
        for name in names:
            found[name].append(row)
    return found


#: What the rows of a name compare, and how that is said.
KINDS = {
    (True, True): "equal in gradient, and in a hybridized net",
    (False, True): "equal in a hybridized net; no gradient",
    (True, False): "equal in gradient; not in a hybridized net",
    (False, False): "equal in value alone",
}


def table() -> str:
    """For each module the names by what is compared, those that differ from MXNet, and those that
    are left out, as Markdown."""
    found, parts = uses(), []
    for space in SPACES:
        names = mxnet_names.stored()[space]
        left_out = migration_table.look_up(space, names).left_out
        kinds: dict[str, list[str]] = defaultdict(list)
        differ: dict[str, list[str]] = defaultdict(list)
        for name in names:
            rows = found.get(f"{space}.{name}", [])
            if rows:
                kind = any(row.grad for row in rows), any(row.traced for row in rows)
                kinds[KINDS[kind]].append(name)
            elif name in left_out:
                kinds["left out"].append(name)
            for why in dict.fromkeys(why for row in rows for why in (row.mxnet, row.slope) if why):
                differ[why].append(name)
        parts += [f"### {space}", ""]
        for kind in (*KINDS.values(), "left out"):
            if kinds[kind]:
                parts += [f"*{kind[0].upper()}{kind[1:]}:* {_shown(kinds[kind])}", ""]
        if differ:
            parts += ["| MXNet 1.9.1 differs | where |", "| --- | --- |"]
            parts += [f"| {why} | {_shown(which)} |" for why, which in differ.items()]
            parts.append("")
    return "\n".join(parts)


def _shown(names: list[str]) -> str:
    """One piece of code, which is not broken into a word each: `abs add all`."""
    return f"`{' '.join(names)}`"


def missing() -> list[str]:
    """The names that neither a row nor a reason covers."""
    found, absent = uses(), []
    for space in SPACES:
        names = [n for n in mxnet_names.stored()[space] if not migration_table.INNER.fullmatch(n)]
        left_out = migration_table.look_up(space, names).left_out
        absent += [
            f"{space}.{name}" for name in names
            if f"{space}.{name}" not in found and name not in left_out
        ]  # fmt: skip
    return absent
