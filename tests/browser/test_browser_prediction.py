"""The box of a prediction in JupyterLab: typed text reaches the kernel and stays."""

import pytest

pytestmark = pytest.mark.timeout(180)

ASK = """
from d2lmini import d2l

steps = d2l.predict("How many steps do two workers take?")
"""


def test_what_is_typed_is_compared_and_stays(page):
    page.lab.write("prediction.ipynb", [ASK, "steps.compare(14)"])
    page.open("prediction.ipynb")
    page.run_cell(0)
    box = page.shown(0, ".d2l-prediction")
    page.wait(lambda: "two workers" in box.inner_text(), "the question")
    text = box.get_by_role("textbox")
    text.fill("12")
    text.press("Enter")
    page.wait(lambda: "kept" in box.inner_text(), "the kernel's answer")
    page.picture("typed", box)
    page.run_cell(1)
    page.wait(lambda: "prediction: 12; it is 14" in page.output(1).inner_text(), "the comparison")
    page.run_cell(0)
    again = page.shown(0, ".d2l-prediction").get_by_role("textbox")
    page.wait(lambda: again.input_value() == "12", "what was typed before")
