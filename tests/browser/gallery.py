"""The pictures of docs/what-works.md, from the real browser: `make gallery`.

Widgets in JupyterLab with the cell that shows them, a chapter, the book; light, in few colours, so
that each is small. Look at them before you commit them. Chinese terms need a font that has them
(Debian and Ubuntu: apt install fonts-noto-cjk).
"""

import io

import pytest
from build_book import Book
from lab_server import ROOT
from PIL import Image

pytestmark = pytest.mark.timeout(400)

MOST_BYTES = 150_000
IMPORTS = "import d2lmini\nfrom d2lmini import d2l, engine, nd, sym, widgets"


def keep(name: str, shot: bytes) -> None:
    """Store a screenshot as img/gallery-NAME.png."""
    picture = Image.open(io.BytesIO(shot)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    path = ROOT / "img" / f"gallery-{name}.png"
    picture.save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES, path


def show(page, code: str, css: str, width: int = 1280):
    """The cell of `code` run in a window of this width, and the widget it shows."""
    page.page.set_viewport_size({"width": width, "height": 1400})
    page.lab.write("gallery.ipynb", [IMPORTS, code])
    page.open("gallery.ipynb")
    page.page.evaluate("() => jupyterapp.shell.collapseLeft()")
    page.run_cell(0)
    page.run_cell(1)
    widget = page.shown(1, css, 60)
    page.wait_until_done_with(1)
    return widget


def keep_cell(page, name: str) -> None:
    page.page.mouse.move(0, 0)
    page.page.wait_for_timeout(500)
    keep(name, page.cell(1).screenshot())


WATCH = """
x = nd.ones((1200, 1200))
with d2lmini.watch() as w:
    a = nd.dot(x, x)
    b = nd.dot(x, x) + 1
    c = nd.dot(a, b)
    d = nd.relu(a - b)
    e = nd.dot(c, d) + nd.dot(d, d)
    e.wait_to_read()
"""


def test_watch(page):
    widget = show(page, WATCH, ".d2l-watch")
    page.wait(lambda: "over" in widget.locator(".d2l-watch-status").inner_text(), "its end")
    canvas = widget.locator("canvas[data-events]")
    box, words = canvas.bounding_box(), widget.locator(".d2l-watch-words")
    for share in range(90, 20, -3):
        canvas.click(position={"x": box["width"] * share / 100, "y": 60})
        if "dot, ran" in words.inner_text():
            break
    keep_cell(page, "watch")


EXPERIMENT = """
def multiply(size=200):
    x = nd.random.normal(shape=(size, size))
    nd.dot(x, x).wait_to_read()  # once before the clock runs
    with d2l.Benchmark(quiet=True, sync=True) as clock:
        nd.dot(x, x)
    return clock.elapsed

d2l.Experiment(multiply, size=[200, 400, 800, 1600], unit="s", title="a product of matrices")
"""


def test_experiment(page):
    panel = show(page, EXPERIMENT, ".d2l-panel", width=920)
    rows, slider = panel.locator("tbody tr"), panel.get_by_role("slider")
    for number in range(1, 5):
        page.wait(lambda number=number: rows.count() == number, f"run {number}")
        if number < 4:
            slider.press("ArrowRight")
            panel.get_by_role("button", name="Run", exact=True).click()
    keep_cell(page, "experiment")


STEPPER = """
def program():
    a = nd.ones((1, 2))
    b = a * 2
    c = a * 3
    a += 1

widgets.Stepper(program)
"""


def test_stepper(page):
    box = show(page, STEPPER, ".d2l-stepper[data-step]")
    for step in range(1, 5):
        box.get_by_role("button", name="forward ▶", exact=True).click()
        page.wait(lambda step=step: box.get_attribute("data-step") == str(step), f"move {step}")
    keep_cell(page, "stepper")


DIAL = """
def train(steps=200):
    for _ in range(steps):
        x = nd.random.normal(shape=(500, 500))
        y = nd.dot(x, x).mean()

widgets.memory_dial(train, limits_mb=[1000, 30])
"""


def test_dial(page):
    dial = show(page, DIAL, ".d2l-dial", width=920)
    page.wait(lambda: dial.locator("tbody tr").count() == 2, "two runs", 120)
    page.wait(lambda: dial.locator("img").evaluate("image => image.naturalWidth") > 300, "picture")
    keep_cell(page, "dial")


def test_chapter(page):
    page.page.set_viewport_size({"width": 1200, "height": 900})
    page.open("chapters/02-async-computation.ipynb", kernel=False)
    page.page.evaluate("() => jupyterapp.shell.collapseLeft()")
    page.page.locator(".jp-MarkdownCell h2").first.evaluate("heading => heading.scrollIntoView()")
    page.page.wait_for_timeout(1500)
    keep("chapter", page.page.screenshot())


def test_book(browser, tmp_path):
    Book(ROOT / "chapters", tmp_path / "book").write()
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.goto((tmp_path / "book" / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("virtual clock")
    page.locator("#search li").first.wait_for()
    keep("book", page.screenshot())
    page.close()
