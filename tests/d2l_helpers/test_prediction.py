"""A prediction and the outcome, compared; without a browser."""

import pytest

from d2lmini import d2l
from d2lmini.d2l import prediction


@pytest.fixture(autouse=True)
def fresh():
    prediction._made.clear()
    yield
    prediction._made.clear()


@pytest.mark.parametrize(
    ("text", "outcome", "measured", "line"),
    [
        ("", 14, None, "prediction: none was made; it is 14"),
        ("", 1.9, "times", "measured prediction: none was made; it is 1.90 times"),
        ("14", 14, None, "prediction: 14; it is 14, as predicted"),
        ("about 12 steps", 14, None, "prediction: about 12 steps; it is 14 (1.17 times as much)"),
        ("0", 3, None, "prediction: 0; it is 3 (+3)"),
        ("1,000", 1000, None, "prediction: 1,000; it is 1000, as predicted"),
        ("2", 1.9, "times", "measured prediction: 2 times; it is 1.90 times (0.95 times as much)"),
        ("2 s", 4.0, "s", "measured prediction: 2 s; it is 4.00 s (2 times as much)"),
        ("both", "gpu(0)", None, "prediction: both; it is gpu(0)"),
        ("yes", True, None, "prediction: yes; it is True"),
    ],
)  # fmt: skip
def test_the_line(text, outcome, measured, line, capsys):
    box = d2l.predict("How much?")
    if text:
        box.make(text)
    box.compare(outcome, measured=measured)
    assert capsys.readouterr().out == line + "\n"


def test_what_was_typed_is_there_when_the_cell_is_run_again():
    d2l.predict("How much?").received({"kind": "predict", "text": " 12 "})
    again = d2l.predict("How much?")
    assert again.text == "12" and again.value == 12
    assert again.whole() == ({"question": "How much?", "text": "12"}, [])
    assert d2l.predict("How long?").text == ""
    assert repr(again) == "<prediction: How much?>"
