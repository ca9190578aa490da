"""How long each chapter takes: the table of docs/teaching.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from d2lmini.cli.assign import find_exercises

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
#: Words a minute that a student reads of such a text.
PACE = 150
MORE = "(more)"


class Length(NamedTuple):
    """words     of the Markdown that is read: without folded answers, exercises and word tables
    sections     the numbers of the core's sections, and of the others
    run_s        seconds that its cells take on a quiet machine; None if not measured
    checked      how many exercises a function checks"""

    title: str
    words: int
    core_words: int
    core: list[int]
    more: list[int]
    run_s: float | None
    checked: int

    @property
    def core_minutes(self) -> float:
        """Reading the core, and running all cells."""
        return self.core_words / PACE + (self.run_s or 0) / 60


def length_of(path: Path) -> Length:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    title = text.splitlines()[0].removeprefix("# ")
    read = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    read = re.sub(r"\n## (?:Exercises|Words|Sources)\n.*?(?=\n## |\Z)", "", read, flags=re.S)
    parts = re.split(r"(?m)^(?=## )", read)
    numbers: dict[bool, list[int]] = {True: [], False: []}
    core_words = 0
    for part in parts:
        optional = part.splitlines()[0].endswith(MORE) if part else False
        if numbered := re.match(r"## (\d+)\.", part):
            numbers[optional].append(int(numbered[1]))
        core_words += 0 if optional else len(part.split())
    return Length(
        title, len(read.split()), core_words, numbers[False], numbers[True],
        _run_s(path.stem), len(find_exercises(cells)),
    )  # fmt: skip


def _run_s(chapter: str) -> float | None:
    """What `execute_chapters.py` measured."""
    kept = json.loads((CHAPTERS / "reference.json").read_text(encoding="utf-8"))
    run = kept.get(chapter, {}).get("run")
    return float(run["found"].split()[0]) if run else None


def table() -> str:
    head = "| chapter | sections | core | of it reading | all cells run | checked exercises |"
    rows = [head, "| --- |" + " --- |" * 5]
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        known = length_of(path)
        cells = [
            f"[{known.title}](../chapters/{path.name})",
            f"{len(known.core)}" + (f" and {len(known.more)} more" if known.more else ""),
            f"{known.core_minutes:.0f} min",
            f"{known.core_words / PACE:.0f} min",
            "" if known.run_s is None else f"{known.run_s:.0f} s",
            str(known.checked),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
