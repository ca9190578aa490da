"""The programs of the founding texts, one row each: where it stands, and what was repaired.

A text (`../shared/seeds/NNN_*.txt`) holds fenced blocks of Python, or listings in which a column of
line numbers comes before the lines, or programs in the middle of a sentence. A repair is typography
alone, and named: the indentation or the quotes that a web page lost, an import that the text made
elsewhere. No line of code is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"


class Program(NamedTuple):
    """A row: the text; "block 3", "listing 1" or "inline"; what it does; its repairs; the text in
    the sentence."""

    text: str
    place: str
    title: str
    repairs: tuple[str, ...] = ()
    inline: str = ""


PROGRAMS = [
    Program("000", "block 1", "a product is queued, printing waits; NumPy computes at once"),
    Program("000", "block 2", "wait_to_read and waitall"),
    Program("000", "block 3", "memory of predicting 60 batches, waiting for each"),
    Program("000", "block 4", "its loop once more"),
    Program("001", "block 1", "imports"),
    Program("001", "block 2", "a * b + 2"),
    Program("001", "block 3", "class Benchmark"),
    Program("001", "block 4", "queued, then finished"),
    Program("001", "block 5", "wait_to_read"),
    Program("001", "block 6", "waitall"),
    Program("001", "block 7", "asnumpy waits"),
    Program("001", "block 8", "asscalar waits"),
    Program("001", "block 9", "1000 sums, waiting for each and at the end"),
    Program("001", "block 10", "data_iter"),
    Program("001", "block 11", "net, trainer, loss"),
    Program("001", "block 12", "get_mem"),
    Program("001", "block 13", "first batch: parameters get their shapes"),
    Program("001", "block 14", "training, reading each loss"),
    Program("001", "block 15", "training without waiting"),
    Program("002", "block 1", "imperative functions"),
    Program("002", "block 2", "a program as a string, compiled and run"),
    Program("002", "block 3", "a hybridized net"),
    Program("002", "block 4", "before and after hybridizing"),
    Program("002", "block 5", "imports"),
    Program("002", "block 6", "a * b + 2"),
    Program("003", "listing 1", "a program as a string", repairs=("indentation",)),
    Program(
        "003", "inline", "export", repairs=("quotes", "net of text 002"),
        inline="net.export(‘my_mlp’)",
    ),
    Program("003", "listing 2", "a net called with a Symbol", repairs=("import of sym",)),
    Program("003", "listing 3", "a * b + 2, printed", repairs=("import of nd",)),
]  # fmt: skip

# The lines of the listing whose indentation is lost, from 1: bodies of functions, in strings too.
_INDENTED = (2, 4, 8, 10, 11, 12, 13, 17)


def _indentation(source: str) -> str:
    lines = source.split("\n")
    return "\n".join("    " * (i in _INDENTED) + line for i, line in enumerate(lines, start=1))


REPAIRS: dict[str, Callable[[str], str]] = {
    "indentation": _indentation,
    "quotes": lambda source: source.replace("‘", "'").replace("’", "'"),
    "import of nd": lambda source: "from mxnet import nd\n" + source,
    "import of sym": lambda source: "from mxnet import sym\n" + source,
    # The sentence speaks of "a net": the one of the text before, after one call.
    "net of text 002": lambda source: "net(x)\n" + source,
}


def blocks(text: str) -> list[str]:
    """The fenced blocks of Python of a text, in order."""
    return re.findall(r"```[^\n]*python[^\n]*\n(.*?)```", text, flags=re.DOTALL)


def listings(text: str) -> list[str]:
    """The listings of a text: lines 1, 2, ..., n, then n lines of code."""
    lines, found, at = text.split("\n"), [], 0
    while at < len(lines):
        n = 0
        while at + n < len(lines) and lines[at + n] == str(n + 1):
            n += 1
        if n:
            found.append("\n".join(lines[at + n : at + 2 * n]))
        at += max(2 * n, 1)
    return found


def text_of(number: str) -> str:
    """A founding text."""
    (path,) = SEEDS.glob(f"{number}_*.txt")
    return path.read_text(encoding="utf-8")


def source_of(program: Program) -> str:
    """The program, its repairs made."""
    text = text_of(program.text)
    kind, _, number = program.place.partition(" ")
    if kind == "inline":
        assert text.count(program.inline) == 1
        source = program.inline
    else:
        source = {"block": blocks, "listing": listings}[kind](text)[int(number) - 1]
    for repair in program.repairs:
        repaired = REPAIRS[repair](source)
        assert repaired != source, f"{repair} changed nothing"
        source = repaired
    return source
