"""A core chapter with its exercises takes at most 45 minutes, as `teaching_table.py` counts."""

import json

import pytest
from teaching_table import CHAPTERS, length_of

CORE = [path for path in sorted(CHAPTERS.glob("*.ipynb")) if path.stem[:2] < "08"]


@pytest.mark.parametrize("path", sorted(CHAPTERS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_chapter_takes_a_lesson(path):
    known = length_of(path)
    assert known.run_s is not None, "make outputs measures how long its cells run"
    assert known.reading > 3
    assert known.with_exercises <= (45 if path in CORE else 55)
    assert "**After this chapter you can**" in path.read_text(encoding="utf-8") or path == CORE[0]


FOLD = "<details><summary>Answer</summary>\n\nLong.\n\n</details>"
CELLS = [
    ("markdown", "# Title\n\none two three\n\n## 1. Four?\n\n**Your prediction.** Two words?"),
    ("code", "import one\nimport two"),
    ("code", "a = 1\n\nb = 2"),
    ("markdown", f"**Exercise.** A word?\n\n{FOLD}"),
    ("markdown", "## Exercises\n\n### Recall\n\n1. A\n2. B\n\n### Predict, then run\n\n3. C"),
    ("markdown", "### Break it, and read the error\n\n4. D\n\n### Build\n\n5. E"),
]  # fmt: skip


def test_what_is_counted(tmp_path):
    path = tmp_path / "00-a.ipynb"
    cells = [{"cell_type": kind, "source": [text]} for kind, text in CELLS]
    path.write_text(json.dumps({"cells": cells}))
    known = length_of(path)
    assert known[:3] == ("Title", 15, 2)
    assert known.exercises == {"Recall": 2, "Predict": 1, "Break it": 1, "Build": 1}
    assert known.reading == pytest.approx(15 / 200 + 8 / 60 + 1)
    assert known.with_exercises == pytest.approx(known.reading + 1 + 2 + 2 + 3)
    assert known.building == 10
