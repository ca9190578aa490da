"""The core of a chapter takes at most 45 minutes, at 150 words a minute with all cells run."""

import pytest
from teaching_table import CHAPTERS, length_of


@pytest.mark.parametrize("path", sorted(CHAPTERS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_core_takes_at_most_45_minutes(path):
    known = length_of(path)
    assert known.run_s is not None, "make outputs measures how long its cells run"
    assert 5 < known.core_minutes <= 45
    assert known.core and known.core_words < known.words + 1
    text = path.read_text(encoding="utf-8")
    assert "**After this chapter you can**" in text and "**Core path:**" in text
