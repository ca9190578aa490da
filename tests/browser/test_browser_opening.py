"""Opening a copied chapter: the notebook stays saved, and no output answers a prediction."""

import os

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from d2lmini.cli import files
from d2lmini.cli.files import chapter_name, find_chapter

pytestmark = pytest.mark.timeout(180)

STATE = """() => {
  const { context, content } = jupyterapp.shell.currentWidget;
  const cells = [...content.model.cells].filter(cell => cell.type === "code");
  return [context.path, context.model.dirty, cells.every(cell => cell.trusted)];
}"""


@pytest.mark.parametrize("trusted", [False, True])
def test_opening_a_copied_chapter_leaves_it_saved(page, trusted):
    folder = f"mine-{trusted}"
    files.copy(page.lab.root / folder)
    path = f"{folder}/chapters/00-start-here.ipynb"
    if trusted:
        notary = NotebookNotary(data_dir=str(page.lab.home / "data"))
        notary.sign(page.lab.read(path))
        notary.store.close()
    before = nbformat.read(page.lab.root / path, as_version=4)
    page.open(path)
    page.python("0")  # the kernel has told its language
    page.page.wait_for_timeout(5000)
    assert page.page.evaluate(STATE) == [path, False, trusted]
    assert page.lab.read(path) == before


NAMES = os.environ.get("D2LMINI_BROWSER_CHAPTERS", "async-computation").split()
if NAMES == ["all"]:
    NAMES = [chapter_name(p) for p in sorted((files.originals() / "chapters").glob("*.ipynb"))]

# In JavaScript: how many cells have outputs, and, if n is one, how many predictions there are; the
# n-th of them, counted from 0, comes into sight.
LOOK = """async n => {
  const { content } = jupyterapp.shell.currentWidget;
  const texts = content.widgets.map(cell => cell.model.sharedModel.getSource());
  const asks = [...texts.keys()].filter(at => texts[at].includes("**Your prediction.**"));
  if (n < asks.length) {
    content.activeCellIndex = asks[n];
    await content.scrollToItem(asks[n], "start");
  }
  const cells = [...content.model.cells].filter(cell => cell.type === "code");
  return [cells.filter(cell => cell.outputs.length).length, asks.length];
}"""


@pytest.mark.parametrize("chapter", NAMES)
def test_a_newcomer_sees_no_output_before_the_prediction(page, chapter):
    files.copy(page.lab.root / "newcomer")
    page.open(f"newcomer/chapters/{find_chapter(chapter).name}")
    _, predictions = page.page.evaluate(LOOK, 0)
    assert predictions
    size = page.page.viewport_size
    for number in range(predictions):
        assert page.page.evaluate(LOOK, number)[0] == 0
        assert page.page.locator(".jp-OutputArea-output:visible").count() == 0
        assert page.page.locator("details[open]").count() == 0
        themes = ["light", "dark"] if number == 0 else ["light"]
        page.page.wait_for_timeout(300)
        page.picture(f"prediction-{number + 1}", themes=themes)
    page.page.set_viewport_size({"width": 700, "height": 1000})
    page.page.evaluate(LOOK, 0)
    page.page.wait_for_timeout(500)
    page.picture("prediction-1-narrow", themes=["light"])
    page.page.set_viewport_size(size)
    page.assert_clean()
