"""The stepper in JupyterLab: forward, run, guess; every button does what it says."""

import pytest

pytestmark = pytest.mark.timeout(180)

PROGRAM = """
import d2lmini
from d2lmini import nd

def program():
    a = nd.ones((1, 2))
    b = a * 2
    c = a * 3
    a += 1

d2lmini.widgets.Stepper(program)
"""


def test_stepper_steps_and_asks(page):
    page.lab.write("stepper.ipynb", [PROGRAM])
    page.open("stepper.ipynb")
    page.run_cell(0)
    box = page.shown(0, ".d2l-stepper[data-step]")

    def stands_at(step):
        page.wait(lambda: box.get_attribute("data-step") == str(step), f"move {step}")

    def press(word):
        box.get_by_role("button", name=word, exact=True).click()

    stands_at(0)
    page.picture("beginning", box)
    for step in (1, 2, 3, 4):
        press("forward ▶")
        stands_at(step)
    # 2 and 3 read a; 4, which writes it, stands in line behind them.
    rows = box.locator("tr").all_inner_texts()
    assert any(row.startswith("a\t") and "2 R" in row and "4 W" in row for row in rows), rows
    assert "4 a += 1 must wait: 2 and 3 still read a." in box.locator(".d2l-told").inner_text()
    page.picture("two-readers-and-a-writer", box)
    box.focus()
    page.page.keyboard.press("ArrowRight")
    stands_at(5)

    press("run")
    page.wait(lambda: "It is over" in box.inner_text(), "the end of the run")
    page.picture("end", box)
    box.get_by_role("button", name="4 a += 1").click()
    assert "Selected: 4 a += 1" in box.inner_text()
    press("reset")
    stands_at(0)

    press("guess")
    page.wait(lambda: "Which operation can begin next?" in box.inner_text(), "the question")
    arrows = box.locator(".d2l-graph .d2l-arrow")
    assert arrows.count() and not any(arrow.is_visible() for arrow in arrows.all())
    nodes = box.locator(".d2l-box[role=button]")
    nodes.nth(3).click()
    page.wait(lambda: "No: 4 cannot begin" in box.inner_text(), "the answer to a wrong guess")
    page.picture("wrong-guess", box, themes=["light"])
    nodes.nth(0).click()
    page.wait(lambda: "1 of 2 right" in box.inner_text(), "the answer to a right guess")

    # The cell that follows computes on the engine of the notebook, not on the stepper's.
    assert page.python("print((nd.ones(2) * 3).asnumpy())") == "[3. 3.]\n"
    page.assert_clean()

    page.restart_kernel()
    page.wait_until_disabled(box)
    page.picture("restarted", box)
