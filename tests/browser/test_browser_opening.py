"""Opening a chapter does not make the notebook unsaved."""

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from d2lmini.cli import files

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
