"""How long each chapter takes: the table of docs/teaching.md.

Minutes are counted, not measured: words that are read, lines of code that are read, a minute for
each prediction, and what each kind of exercise takes. Only the time in which the cells run is
measured (`execute_chapters.py`, on a quiet machine).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from d2lmini.cli.assign import find_exercises

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
#: Words that a student reads in a minute, and seconds for a line of code.
WORDS_A_MINUTE, SECONDS_A_LINE = 200, 4
PREDICTION = 1.0
#: Minutes for an exercise of a section, and for one of each kind at the end of a chapter.
EXERCISE = 1.0
KINDS = {"Recall": 1.0, "Predict": 2.0, "Break it": 3.0, "Build": 10.0}
#: What counts as "with exercises": the checked ones are homework.
CORE_KINDS = ("Recall", "Predict", "Break it")


class Length(NamedTuple):
    """Minutes of a chapter, and what they are counted from.

    words      of the Markdown that is read: without folded answers and exercises
    lines      of code cells, without blank ones and the imports of the first cell
    exercises  of sections, and by kind
    run_s      seconds that the cells take on a quiet machine; None if not measured
    checked    how many exercises a function checks"""

    title: str
    words: int
    lines: int
    predictions: int
    in_sections: int
    exercises: dict[str, int]
    run_s: float | None
    checked: int

    @property
    def reading(self) -> float:
        """Reading, predicting, and running all cells."""
        minutes = self.words / WORDS_A_MINUTE + self.lines * SECONDS_A_LINE / 60
        return minutes + PREDICTION * self.predictions + (self.run_s or 0) / 60

    @property
    def with_exercises(self) -> float:
        """And the exercises that take no programming."""
        own = sum(KINDS[kind] * self.exercises[kind] for kind in CORE_KINDS)
        return self.reading + EXERCISE * self.in_sections + own

    @property
    def building(self) -> float:
        return KINDS["Build"] * self.exercises["Build"]


def length_of(path: Path) -> Length:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = [("".join(c["source"]), c["cell_type"]) for c in cells]
    text = "\n\n".join(source for source, kind in sources if kind == "markdown")
    code = [source for source, kind in sources if kind == "code"][1:]
    read = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    read, _, asked = read.partition("\n## Exercises\n")
    read = re.sub(r"\n## Sources\n.*?(?=\n## |\Z)", "", read, flags=re.S)
    exercises = dict.fromkeys(KINDS, 0)
    for part in re.split(r"(?m)^### ", asked)[1:]:
        for kind in KINDS:
            if part.startswith(kind):
                exercises[kind] += len(re.findall(r"(?m)^\d+\. ", part))
    return Length(
        text.splitlines()[0].removeprefix("# "), len(read.split()),
        sum(bool(line.strip()) for source in code for line in source.splitlines()),
        text.count("**Your prediction.**"), text.count("**Exercise.**"), exercises,
        _run_s(path.stem), len(find_exercises(cells)),
    )  # fmt: skip


def _run_s(chapter: str) -> float | None:
    """What `execute_chapters.py` measured."""
    kept = json.loads((CHAPTERS / "reference.json").read_text(encoding="utf-8"))
    run = kept.get(chapter, {}).get("run")
    return float(run["found"].split()[0]) if run else None


def table() -> str:
    head = "| chapter | words | read and run | with exercises | to build | cells run | checked |"
    rows = [head, "| --- |" + " --- |" * 6]
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        known = length_of(path)
        cells = [
            f"[{known.title}](../chapters/{path.name})",
            f"{known.words}",
            f"{known.reading:.0f} min",
            f"{known.with_exercises:.0f} min",
            f"{known.building:.0f} min" if known.building else "",
            "" if known.run_s is None else f"{known.run_s:.0f} s",
            f"{known.checked}" if known.checked else "",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
