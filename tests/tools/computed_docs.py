"""What is computed in the pages of `docs/`: between two marks stands what a function returns. A
page may have several such parts.

python tests/tools/computed_docs.py       # writes it anew; a test says when it is stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # np_rows

import migration_table
import np_table
import reading_order
import teaching_table

from d2lmini import cli

DOCS = Path(__file__).resolve().parents[2] / "docs"
MARKS = ("<!-- computed: begin -->\n", "<!-- computed: end -->\n")


def commands() -> str:
    """The commands, and the words that each takes, as Markdown: read off the parsers themselves."""
    parsers = argparse.ArgumentParser().add_subparsers()
    for module in cli.COMMANDS:
        module.add_to(parsers)
    parts = []
    for name, parser in parsers.choices.items():
        parts += [f"### d2lmini {name}", "", (parser.description or "").strip(), ""]
        rows = [
            f"- {_words(action)}: {action.help or ''}"
            for action in parser._actions
            if not isinstance(action, argparse._HelpAction)
        ]
        parts += [*rows, ""] if rows else []
    return "\n".join(parts) + f"\n```text\n{cli.STATUS}```\n"


def _words(action: argparse.Action) -> str:
    """`-n N`, `FILE`: how it is written."""
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return ", ".join(f"`{word} {value}`".replace(" `", "`") for word in action.option_strings)


#: The page, and what computes each of its parts, in order.
PAGES: dict[str, list[Callable[[], str]]] = {
    "migration.md": [migration_table.differences, migration_table.tables],
    "np.md": [np_table.table],
    "command-line.md": [commands],
    "reading-guide.md": [reading_order.table],
    "teaching.md": [teaching_table.table],
}


def renewed(page: str, parts: list[str]) -> str:
    """The page with its parts as they are now."""
    text, *rest = page.split(MARKS[0])
    for part, old in zip(parts, rest, strict=True):
        text += MARKS[0] + part + MARKS[1] + old.partition(MARKS[1])[2]
    return text


if __name__ == "__main__":
    for name, computers in PAGES.items():
        page = DOCS / name
        parts = [compute() for compute in computers]
        page.write_text(renewed(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
