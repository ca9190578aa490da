"""`d2lmini.watch()` in JupyterLab: it moves while the cell is busy, answers clicks, and remains."""

import re

import pytest

pytestmark = pytest.mark.timeout(240)

# The program issues in bursts and waits for each, until the test has seen enough (a file says so);
# then a few long operations.
BUSY = """
import threading, time
from pathlib import Path
import d2lmini
from d2lmini import nd

x = nd.ones((300, 300))
with d2lmini.watch() as w:
    end = time.monotonic() + 60
    while time.monotonic() < end and not Path("enough").exists():
        for i in range(5):
            y = nd.relu(nd.dot(x, x)) + x
        y.wait_to_read()
"""
LONG = """
a = nd.ones((1200, 1200))
with d2lmini.watch() as w2:
    b = nd.dot(a, a)
    c = nd.dot(b, a)
    d = nd.dot(b, b)
    e = nd.dot(c, d)
    a += 1
    e.wait_to_read()
"""
THREADS = "print([t.name for t in threading.enumerate() if 'refresher' in t.name])"


# How many dots of a canvas have the colour of a CSS variable as it is now.
DOTS_LIKE = """(canvas, name) => {
    canvas.style.color = `var(${name})`;
    const rgb = getComputedStyle(canvas).color.match(/\\d+/g).map(Number);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let n = 0;
    for (let i = 0; i < data.length; i += 4) n += rgb.every((each, k) => data[i + k] === each);
    return n;
}"""


def dots_like(canvas, variable: str) -> int:
    return canvas.evaluate(DOTS_LIKE, variable)


def test_watch_moves_while_the_cell_is_busy_and_tells_what_was_clicked(page):
    page.lab.write("watch.ipynb", [BUSY, LONG])
    page.open("watch.ipynb")
    page.run_cell(0)
    view = page.shown(0, ".d2l-watch")
    canvas = view.locator("canvas[data-events]")

    def events():
        return int(canvas.get_attribute("data-events"))

    def dots():
        return canvas.evaluate("canvas => canvas.toDataURL()")

    # It grows, the picture changes, and the cell has not ended.
    first, before = events(), dots()
    page.wait(lambda: events() > first and dots() != before, "a change of the live view")
    assert page.prompts()[0] == "[*]:"
    view.get_by_role("button", name="Pause").click()
    still = dots()
    first = events()
    page.page.wait_for_timeout(500)
    assert page.prompts()[0] == "[*]:" and dots() == still
    view.get_by_role("button", name="Go on").click()
    page.wait(lambda: dots() != still, "the view to go on")
    page.picture("busy", view, themes=["light"])
    assert page.prompts()[0] == "[*]:"
    (page.lab.root / "enough").touch()
    page.wait_until_done_with(0)
    page.wait(
        lambda: "over" in view.locator(".d2l-watch-status").inner_text(), "the end of watching"
    )
    # Its thread ends after it has said so.
    page.wait(lambda: page.python(THREADS).strip() == "[]", "the end of the watching thread")
    page.picture("over", view)

    # What a script draws follows the theme, too: now there are bars of its dark blue.
    assert dots_like(canvas, "--d2l-compute") > 100
    page.set_theme("dark")
    page.wait(lambda: dots_like(canvas, "--d2l-compute") > 100, "bars in the colours of the dark")
    page.set_theme("light")

    count = events()
    page.reload()
    page.wait(lambda: canvas.count() and events() == count, "all events after the page was loaded")

    page.run_cell(1)
    page.wait_until_done_with(1)
    view = page.shown(1, ".d2l-watch")
    canvas = view.locator("canvas[data-events]")
    words = view.locator(".d2l-watch-words")
    page.wait(lambda: "over · 5 operations" in view.inner_text(), "the end of watching")

    # Click along the lanes until each of the products was met.
    box = canvas.bounding_box()
    told = set()
    for y in (36, 60):
        for share in range(20, 100, 4):
            canvas.click(position={"x": box["width"] * share / 100, "y": y})
            told.add(words.inner_text())
    products = {found[1]: text for text in told if (found := re.search(r"(\d) dot, ran", text))}
    assert products.keys() == set("1234"), told
    last = products["4"]
    assert "e = nd.dot(c, d)" in last
    assert re.search(r"needs\s+2 dot, 3 dot", last) and re.search(r"at last for [23] dot", last)
    page.picture("clicked", view)

    # The same by the keyboard, closer.
    canvas.press("Home")
    canvas.press("Enter")
    page.wait(lambda: "operation" in words.inner_text(), "the words about an operation")
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    view.get_by_role("button", name="+", exact=True).click()
    page.wait(lambda: canvas.evaluate("c => c.toDataURL()") != before, "a closer look")
    page.picture("closer", view, themes=["light"])

    # Closed, the picture stays.
    page.python("w.close(); w2.close()")
    page.output(1).locator("img").wait_for()
    assert page.python(THREADS).strip() == "[]"
    page.assert_clean()
