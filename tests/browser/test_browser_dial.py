"""The memory dial in JupyterLab: the limit is turned, the curve moves, Run and Cancel."""

import pytest

pytestmark = pytest.mark.timeout(180)

DIAL = """
import time
import d2lmini
from d2lmini import engine, nd

def program():
    for _ in range(60):
        x = nd.zeros((250_000,))
        engine.push(lambda: time.sleep(0.05), writes=[x])

dial = d2lmini.widgets.memory_dial(program, limits_mb=[100])
dial
"""


def test_dial_bounds_what_is_pending(page):
    page.lab.write("dial.ipynb", [DIAL])
    page.open("dial.ipynb")
    page.run_cell(0)
    dial = page.shown(0, ".d2l-dial", 60)
    rows, canvas = dial.locator("tbody tr"), dial.locator("canvas")
    run, cancel = (dial.get_by_role("button", name=word, exact=True) for word in ("Run", "Cancel"))
    page.wait(lambda: rows.count() == 1, "the first run")
    events = int(canvas.get_attribute("data-events"))
    assert events > 5

    def limit():
        return page.python("print(engine.stats().limit_bytes)")

    assert limit() == "None\n"  # between its runs the engine has its own: not chosen yet
    slider = dial.get_by_role("slider")
    for _ in range(6):
        slider.press("ArrowLeft")
    run.click()
    page.wait(lambda: dial.get_attribute("data-state") == "running", "a run")
    page.wait(lambda: limit() == "10000000\n", "the engine's limit to be what the slider says")
    draws = int(canvas.get_attribute("data-draws"))
    page.wait(lambda: int(canvas.get_attribute("data-draws")) > draws + 3, "the curve to move")
    page.picture("running", dial)
    page.wait(lambda: rows.count() == 2, "the second run")
    page.wait(lambda: dial.locator("img").evaluate("image => image.naturalWidth") > 300, "picture")
    page.picture("two-runs", dial)
    _, bound = (float(row.locator("td").nth(2).inner_text().split()[0]) for row in rows.all())
    assert bound <= 12

    run.click()
    page.wait(lambda: dial.get_attribute("data-state") == "running", "a third run")
    cancel.click()
    cancel.click()
    status = dial.locator("span[role=status]")
    page.wait(lambda: "cancelled" in status.inner_text(), "the end of the cancelled run")
    assert limit() == "None\n"
    page.assert_clean()
