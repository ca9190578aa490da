"""A prediction made before the answer is seen: a box in the notebook, compared with the outcome.

    steps = d2l.predict("How many steps do two workers take?")

In a notebook a text box appears; the reader types a number or a word. A later cell says how good
the prediction was:

>>> from d2lmini import d2l
>>> steps = d2l.predict("How many steps do two workers take?")
>>> steps.compare(14)
prediction: none was made; it is 14
>>> steps.make("12")
>>> steps.compare(14)
prediction: 12; it is 14 (1.17 times as much)
>>> steps.compare(14, measured="ms")
measured prediction: 12 ms; it is 14.0 ms (1.17 times as much)

A cell that is run again shows the prediction that was typed before.
"""

from __future__ import annotations

import re
from typing import Any

from d2lmini.widgets.base import Message, Widget

#: What was typed, by question: a cell may be run again.
_made: dict[str, str] = {}


class Prediction(Widget):
    """The box of one question; made by `predict`.

    question    the text before the box
    """

    script = "prediction"

    def __init__(self, question: str):
        super().__init__()
        self.question = question
        self.words = f"prediction: {question}"

    @property
    def text(self) -> str:
        """What was typed; "" so far."""
        return _made.get(self.question, "")

    @property
    def value(self) -> float | None:
        """The first number of the text; None if it has none."""
        number = re.search(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", self.text.replace(",", ""))
        return float(number[0]) if number else None

    def make(self, text: object) -> None:
        """Predict `text`, as if typed into the box."""
        _made[self.question] = str(text).strip()
        self.say_whole()

    def compare(self, outcome: Any, *, measured: str | None = None) -> None:
        """Print the prediction beside the outcome, a number or anything that can be printed.

        measured: the unit, if the outcome differs from run to run ("ms", "times"); it is then
        printed with three digits, on a line that the test of the chapters leaves out.
        """
        shown, text = f"{outcome}", self.text or "none was made"
        if measured is not None:
            shown = f"{outcome:#.3g}".rstrip(".") + f" {measured}"
            if self.value is not None and measured not in text:
                text += f" {measured}"
        head = "prediction" if measured is None else "measured prediction"
        print(f"{head}: {text}; it is {shown}{self._distance(outcome)}")

    def _distance(self, outcome: Any) -> str:
        if self.value is None or isinstance(outcome, bool) or not isinstance(outcome, (int, float)):
            return ""
        if self.value == outcome:
            return ", as predicted"
        if self.value * outcome <= 0:
            return f" ({outcome - self.value:+.3g})"
        return f" ({outcome / self.value:.3g} times as much)"

    def whole(self) -> Message:
        return {"question": self.question, "text": self.text}, []

    def received(self, message: dict[str, Any]) -> None:
        if message.get("kind") == "predict":
            self.make(message["text"])


def predict(question: str) -> Prediction:
    """Ask the reader for a prediction, in a box below the running cell of a notebook; elsewhere
    nothing is shown. Compare it later with `Prediction.compare`."""
    box = Prediction(question)
    box.show()
    return box
