"""The Experiment panel in JupyterLab: sliders, Run, Cancel, and runs kept side by side."""

import pytest

pytestmark = pytest.mark.timeout(180)

EXPERIMENT = """
from d2lmini import d2l, nd

def multiply(size=200, n=3, progress=print):
    x = nd.ones((size, size))
    with d2l.Benchmark(sync=True, quiet=True) as clock:
        for i in range(n):
            y = nd.dot(x, x)
            y.wait_to_read()
            progress(i + 1, n)
    return clock.elapsed

sizes = [100, 200, 400, 800]
d2l.Experiment(multiply, size=sizes, n=(1, 5000), unit="s", title="time")
"""

FAILING = """
def divide(x=1):
    return 1 / x

d2l.Experiment(divide, x=(0, 4))
"""


def test_panel_runs_cancels_and_keeps_the_runs(page):
    page.lab.write("panel.ipynb", [EXPERIMENT, "print('alive')", FAILING])
    page.open("panel.ipynb")
    page.run_cell(0)
    panel = page.shown(0, ".d2l-panel")
    rows = panel.locator("tbody tr")
    status = panel.locator("span[role=status]")
    run, cancel, clear = (
        panel.get_by_role("button", name=word, exact=True) for word in ("Run", "Cancel", "Clear")
    )
    size, n = (panel.get_by_role("slider", name=name, exact=True) for name in ("size", "n"))
    page.wait(lambda: rows.count() == 1, "the first run, with the defaults")
    assert [slider.get_attribute("aria-label") for slider in (size, n)] == ["size", "n"]

    size.press("ArrowRight")
    assert size.evaluate("slider => slider.value") == "2"
    run.press("Enter")
    page.wait(lambda: rows.count() == 2, "a second run")
    assert run.evaluate("each => each === document.activeElement"), "Run has lost the focus"
    values = [row.locator("td").nth(1).inner_text() for row in rows.all()]
    assert values == ["200", "400"]
    image = panel.locator("img")
    assert image.evaluate("image => image.naturalWidth") > 300
    page.picture("two-runs", panel)

    # A long run: it says how far it is, the notebook runs other cells meanwhile, Cancel ends it.
    n.press("End")
    run.click()
    page.wait(lambda: " of 5000" in status.inner_text(), "progress")
    assert run.is_disabled()
    page.picture("running", panel, themes=["light"])
    before = status.inner_text()
    page.run_cell(1)
    page.wait(lambda: "alive" in page.output(1).inner_text(), "a cell beside the run")
    page.wait(lambda: status.inner_text() != before, "more progress")
    cancel.click()
    page.wait(lambda: "cancelled" in status.inner_text(), "the end of the cancelled run")
    assert rows.count() == 2
    assert run.is_enabled()
    assert page.python("print((nd.ones(2) + 1).asnumpy())") == "[2. 2.]\n"

    # What a page has lost by being loaded again, it is told again.
    page.reload()
    page.wait(lambda: rows.count() == 2, "the runs after the page was loaded again")
    clear.click()
    page.wait(lambda: rows.count() == 0, "no runs")

    # A run that fails says why, and where.
    page.run_cell(2)
    panel = page.shown(2, ".d2l-panel")
    panel.get_by_role("slider").press("Home")
    panel.get_by_role("button", name="Run", exact=True).click()
    problem = panel.get_by_role("alert")
    page.wait(lambda: "ZeroDivisionError" in problem.inner_text(), "the error")
    page.picture("error", panel, themes=["light"])
    assert panel.locator(".d2l-restarted").count() == 0
    page.assert_clean()

    page.restart_kernel()
    page.wait_until_disabled(panel)
    page.picture("restarted", panel)
    page.run_cell(0)
    panel = page.shown(0, ".d2l-panel[data-runs='1']")
    assert panel.locator(".d2l-restarted, [inert]").count() == 0
