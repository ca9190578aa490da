"""The first page names every chapter, in their order, and nothing else."""

from __future__ import annotations

import re

from chapter_cells import CHAPTERS, words_of

from d2lmini.cli.files import find_chapter

NAME = "start-here"


def test_the_table_names_every_chapter_in_order():
    table = words_of(NAME).partition("\n## The chapters\n")[2].partition("\n## ")[0]
    links = re.findall(r"^\| .*?\]\(([\w-]+\.ipynb)\)", table, re.M)
    others = [path.name for path in sorted(CHAPTERS.glob("*.ipynb"))]
    assert [find_chapter(NAME).name, *links] == others


def test_a_chapter_needs_earlier_ones_only():
    rows = re.findall(r"^\| (\d+) \| [^|]* \| ([\d, ]+) \|", words_of(NAME), re.M)
    assert len(rows) >= 8
    assert all(int(needed) < int(row) for row, all_ in rows for needed in all_.split(", "))
