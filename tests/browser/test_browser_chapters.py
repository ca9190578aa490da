"""A reader opens a chapter and runs it: no error, nothing asked of the network."""

import os

import pytest
from lab_server import ROOT

from d2lmini.cli.files import chapter_name, find_chapter

pytestmark = pytest.mark.timeout(400)

# One chapter by default; D2LMINI_BROWSER_CHAPTERS=all, or names of chapters, for more.
NAMES = os.environ.get("D2LMINI_BROWSER_CHAPTERS", "multiple-gpus").split()
CHAPTERS = sorted(chapter_name(path) for path in (ROOT / "chapters").glob("*.ipynb"))


@pytest.mark.parametrize("chapter", CHAPTERS if NAMES == ["all"] else NAMES)
def test_chapter_runs_from_top_to_bottom(page, chapter):
    page.open(f"chapters/{find_chapter(chapter).name}")
    page.run_all()
    page.wait_until_done(timeout_s=300)
    page.picture("end", themes=["light"])
    page.assert_clean()
