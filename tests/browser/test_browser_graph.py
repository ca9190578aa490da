"""The graph view in JupyterLab: before and after fusion, and what every box costs."""

import pytest

pytestmark = pytest.mark.timeout(180)

GRAPH = """
import d2lmini
from d2lmini import sym

x, w = sym.var("x"), sym.var("w")
y = sym.relu(sym.dot(x, w) * 2 + 1)
d2lmini.widgets.graph_view(y, x=(1000, 500), w=(500, 2000))
"""


def test_graph_view_toggles_and_tells_costs(page):
    page.lab.write("graph.ipynb", [GRAPH])
    page.open("graph.ipynb")
    page.run_cell(0)
    view = page.shown(0, ".d2l-graph-view[data-stage]")
    boxes = view.locator(".d2l-box[role=button]")
    buttons = view.get_by_role("group", name="stages").get_by_role("button")

    def press(stage):
        buttons.filter(has_text=stage).first.click()
        page.wait(lambda: view.get_attribute("data-stage") == stage, f"the stage {stage}")
        return boxes.count()

    # x, w, dot, and the three that run element by element; then one pass for these three.
    assert [press("as written"), press("fused")] == [6, 4]
    page.picture("fused", view)
    press("as written")
    boxes.filter(has_text="dot").first.hover()
    facts = view.locator("dl").first
    page.wait(lambda: "2 GFLOP" in facts.inner_text(), "what the product costs")
    assert "1000 × 2000" in facts.inner_text()
    page.picture("as-written", view, themes=["light"])
    view.press("ArrowRight")
    page.wait(lambda: view.get_attribute("data-stage") != "as written", "the next stage")
    page.assert_clean()
