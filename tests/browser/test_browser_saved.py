"""What remains of a widget when there is no kernel: its picture, in the notebook and as HTML."""

import io

import nbformat
import pytest
from PIL import Image
from playwright.sync_api import Locator

pytestmark = pytest.mark.timeout(240)

CELLS = {
    "watch": """
import d2lmini
from d2lmini import d2l, nd

with d2lmini.watch() as w:
    y = nd.dot(nd.ones((300, 300)), nd.ones((300, 300)))
    y.wait_to_read()
""",
    "stepper": """
def program():
    a = nd.ones((1, 2))
    b = a * 2
    a += 1

d2lmini.widgets.Stepper(program)
""",
    "dial": """
def train():
    for _ in range(100):
        y = nd.ones((100, 100)) + 1

d2lmini.widgets.memory_dial(train, limits_mb=[10, 1])
""",
}

#: The number of the dial's cell.
DIAL = list(CELLS).index("dial")

WIDTHS = """place => {
  place.scrollIntoView();
  const seen = [...place.querySelectorAll("img")].filter(i => i.complete && i.offsetParent);
  return seen.map(image => image.naturalWidth);
}"""


# In JavaScript: is this the notebook in front? Is its first cell trusted?
IN_FRONT = "path => jupyterapp.shell.currentWidget?.context?.path === path"
TRUST = "() => jupyterapp.shell.currentWidget.content.model.cells.get(0).trusted"


def pictures_in(place: Locator) -> list[int]:
    """The widths, as they were made, of the pictures that are to be seen, once it is scrolled to.

    One question to the page: JupyterLab may replace what it shows at any moment."""
    return place.evaluate(WIDTHS)


def wait_for_picture(page, number: int, name: str) -> None:
    """Until a wide picture is to be seen in a cell's output."""
    output = page.output(number)
    page.wait(lambda: max(pictures_in(output), default=0) > 200, f"its {name}")


def test_what_jupyterlab_saved_shows_the_pictures_without_a_kernel(page):
    page.lab.write("saved.ipynb", list(CELLS.values()))
    page.open("saved.ipynb")
    page.run_all()
    page.wait_until_done()
    live = [page.shown(number, ".d2l-widget") for number in range(len(CELLS))]
    assert all(each.is_visible() for each in live)
    page.save()
    page.assert_clean()

    page.page.goto("about:blank")
    page.lab.stop_kernels()
    page.open("saved.ipynb", kernel=False)
    for number, name in enumerate(CELLS):
        wait_for_picture(page, number, name)
        assert page.output(number).locator(".d2l-widget").count() == 0
    page.picture("saved", themes=["light"])
    # Asked last: a kernel takes a second or two to be listed.
    assert page.lab.api("kernels") == []
    assert page.strangers == []


def test_opened_again_with_a_new_kernel_it_shows_pictures_and_tables_and_no_error(page):
    ask = "d2l.predict('How many?').make('12')"
    page.lab.write("again.ipynb", [*CELLS.values(), ask])
    page.open("again.ipynb")
    page.run_all()
    page.wait_until_done()
    dial = page.shown(DIAL, ".d2l-dial[data-runs='2']")
    dial.get_by_role("slider").press("ArrowRight")
    dial.get_by_role("button", name="Run", exact=True).click()
    page.shown(DIAL, ".d2l-dial[data-runs='3'][data-state=idle]")
    stored = (
        f"() => jupyterapp.shell.currentWidget.model.toJSON().cells[{DIAL}].outputs.at(-1).data"
    )
    page.wait(
        lambda: "<td>1.5 MB</td>" in str(page.page.evaluate(stored).get("text/html")), "the table"
    )
    page.save()
    page.picture("live", themes=["light", "dark"])
    page.assert_clean()
    saved = page.lab.read("again.ipynb")
    saved.cells[0].source += "\n"  # another text: not what this user has run
    nbformat.write(saved, page.lab.root / "stranger.ipynb")

    for name, trusted in {"again.ipynb": True, "stranger.ipynb": False}.items():
        page.page.goto("about:blank")
        page.lab.stop_kernels()
        page.name = f"saved-{'trusted' if trusted else 'untrusted'}"  # a workspace of its own
        page.open(name)
        page.page.wait_for_function(IN_FRONT, arg=name)
        for number, what in enumerate(CELLS):
            wait_for_picture(page, number, what)
        assert page.page.evaluate(TRUST) is trusted
        if trusted:
            page.wait(lambda: "not found" in page.output(0).text_content(), "the lost view")
        for number in range(len(CELLS) + 1):
            assert "model" not in page.output(number).inner_text()
        row = page.output(DIAL).locator("tbody tr").last.inner_text()
        assert row.split()[:3] == ["3", "1.5", "MB"]
        assert "How many? 12" in page.output(len(CELLS)).inner_text()
        page.picture("dial", page.output(DIAL))


STATIC = """
from d2lmini import d2l, sym

d2l.timeline([("caller", [("push", 0.0, 2e-6), ("wait", 2e-6, 9e-6)])])
"""


def corners(picture: Locator) -> set[tuple[int, ...]]:
    """The colours that a screenshot has in the corners of a picture."""
    shot = Image.open(io.BytesIO(picture.screenshot())).convert("RGB")
    right, bottom = shot.width - 2, shot.height - 2
    return {shot.getpixel(place) for place in ((1, 1), (right, 1), (1, bottom), (right, bottom))}


def test_pictures_have_the_ground_of_the_page_light_or_dark_without_any_widget(page):
    page.lab.write("dark.ipynb", [STATIC, "sym.relu(sym.var('x') * 2 + sym.var('y')).picture()"])
    page.open("dark.ipynb")
    page.run_all()
    page.wait_until_done()
    pictures = [page.output(number).locator("img") for number in range(2)]
    seen = {}
    for theme in ("light", "dark"):
        page.set_theme(theme)
        seen[theme] = set().union(*map(corners, pictures))
    page.picture("static")
    assert seen["light"] == {(255, 255, 255)}
    assert len(seen["dark"]) == 1 and max(*seen["dark"].pop()) < 64
    page.assert_clean()
