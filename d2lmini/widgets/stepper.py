"""Step through a program, operation by operation: which holds what, which waits for which, and why.

    def program():
        a = nd.ones((1, 2))
        b = a * 2
        c = a * 3
        a += 1

    d2lmini.widgets.Stepper(program)

The program runs once, in the cell, on a stepped engine, which is then removed. The reader steps
through the record: the same operations, lines and rules, without computation (`stepper_play`). So
later cells run as usual, however far the reader has stepped, and every legal order can be tried
again and again. The same moves can be made from Python:

>>> from d2lmini import nd
>>> def program():
...     a = nd.ones((1, 2))
...     b = a * 2
...     c = a * 3
...     a += 1
>>> stepper = Stepper(program)
>>> for _ in range(4):
...     told = stepper.step()
>>> print(told)
3 c = a * 3 begins on cpu 2: it reads a, writes c.
4 a += 1 must wait: 2 and 3 still read a.
>>> stepper.play.able()
[2 ends, 3 ends]
>>> stepper
stepper of 4 operations
1 a = nd.ones((1, 2))                 cpu 1  0 to 10 us
2 b = a * 2            after 1        cpu 1  10 to 20 us
3 c = a * 3            after 1        cpu 2  10 to 20 us
4 a += 1               after 1, 2, 3  cpu 1  20 to 30 us

The layout of the graph is the same in the live view and in the picture of a whole run. A solid
arrow carries a value, a dashed one only makes room: the later operation overwrites what the earlier
one reads or wrote.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from d2lmini.draw import svg
from d2lmini.draw.picture import Drawing, DrawnPicture
from d2lmini.draw.timeline import STYLES, timeline
from d2lmini.engine.order import drop_implied, edges_of, order_of
from d2lmini.engine.stepped_engine import SteppedOperation, Times
from d2lmini.ops.fluent import shown_name
from d2lmini.profiler.summary import align
from d2lmini.widgets import stepper_play as words
from d2lmini.widgets.base import Message, Widget
from d2lmini.widgets.stepper_play import Playback
from d2lmini.widgets.stepper_program import code_of, record_program

#: The view describes this many of the last moves.
TOLD = 40
#: From this many operations on the picture has only the timeline: the graph would be too long.
MOST_DRAWN = 50


class Text(str):
    """Text that a notebook shows without quotes and escapes."""

    __slots__ = ()

    __repr__ = str.__str__


class Stepper(Widget):
    """The program as a graph, the queue of each Var, the workers; buttons to step.

    program  a function without arguments that issues operations; it is run once, here
    workers  of the CPU, on the virtual clock
    times    microseconds of all operations, {name: microseconds}, a function of the task, or None:
             as predicted
    guess    ask before each move which operation can begin next, and hide the arrows of operations
             that have not begun; `right` of `asked` answers were right

    Keys in the view: the right arrow steps, Home goes to the beginning, End to the end.
    ValueError for more than 200 operations.
    """

    script = "stepper"
    words = "stepper"

    def __init__(
        self,
        program: Callable[[], object],
        workers: int = 2,
        times: Times = 10.0,
        guess: bool = False,
    ):
        super().__init__()
        self.program = record_program(program, workers, times)
        #: For each operation, those whose values it needs, and those for which it makes room.
        self.after = drop_implied(order_of(self.program.operations))
        self._lock = threading.RLock()  # moves come from cells and from the view
        self.guessing = guess
        self._begin()

    def _begin(self) -> None:
        self.play = Playback(self.program)
        self._told: list[list[str]] = []  # the description of each move
        self._problem = ""
        self.right = self.asked = 0

    # -- moves -------------------------------------------------------------------------------------

    def step(self, number: int | None = None) -> Text:
        """Make one move: the next, or the one by which this operation begins or ends; returns what
        happened and why, in words. ValueError if that operation can neither begin nor end now."""
        with self._lock:
            told = self._step(number)
        self._tell()
        return Text("\n".join(told) or "It is over.")

    def _step(self, number: int | None = None) -> list[str]:
        told = words.step(self.play, number)
        if told:
            self._told.append(told)
        return told

    def run(self) -> None:
        """Move until the program is over."""
        with self._lock:
            while self._step():
                continue
        self._tell()

    def reset(self) -> None:
        """Go to the beginning."""
        with self._lock:
            self._begin()
        self._tell()

    def guess(self, number: int | None) -> Text:
        """Which operation can begin next? None: none can, one must end first. A right answer makes
        the move; a wrong answer is explained."""
        with self._lock:
            if not self.play.able():
                return Text("It is over.")
            able = [move.number for move in self.play.able() if move.begins]
            self.asked += 1
            if number in able or (number is None and not able):
                self.right += 1
                answer = "Right. " + self._step(number)[0]
            elif number is None:
                one = self.program.titles[able[0] - 1]
                answer = f"No: {one} can begin, for nothing that it needs is pending."
            elif 1 <= number <= len(self.program.operations):
                answer = f"No: {number} cannot begin, {words.why_not(self.play, number)}."
            else:
                answer = f"No: there is no operation {number}."
            self._problem = answer
        self._tell()
        return Text(answer)

    # -- what the view is told and tells -----------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The present state as plain data (for JSON): what the view draws. The arrows to the
        operations in "hidden" are not drawn: they would give the answer to a guess."""
        play, hides = self.play, self.guessing
        with self._lock:
            status = play.statuses()
            begun = [job for job in play.jobs if job.began >= 0]
            upcoming = play.next()
            told = self._told[-TOLD:] or [words.beginning(play)]
            return {
                "step": play.steps,
                "us": play.now_us,
                "status": {
                    n: "ahead" if hides and s in ("waiting", "ready") else s
                    for n, s in status.items()
                },
                "hidden": [j.number for j in play.jobs if hides and j.began < 0],
                "notes": {n: self._note(n, s) for n, s in status.items()},
                "able": [] if hides else play.able(),
                "next": None if hides else upcoming,
                "over": upcoming is None,
                "vars": [] if hides else [
                    {"name": name, "value": play.value(var), "line": play.line(var)}
                    for var, name in self.program.names.items()
                ],
                "spans": [[j.worker, j.number, j.began, max(j.ended, j.began + j.run),
                           j.ended < 0] for j in begun],
                "order": play.order,
                "told": [message[:1] if hides else message for message in told],
                "guessing": hides,
                "right": self.right,
                "asked": self.asked,
                "problem": self._problem,
            }  # fmt: skip

    def _note(self, number: int, status: str) -> str:
        """The state of an operation in a few words, for its box."""
        job = self.play.jobs[number - 1]
        if status == "running":
            return f"runs on {job.worker} until {job.began + job.run:.4g} us"
        if job.ended >= 0:
            return f"{status}, {job.worker}, {job.began:.4g} to {job.ended:.4g} us"
        if status == "waiting" and not self.guessing:
            those = {n for _, ahead in self.play.ahead(number) for n, _ in ahead}
            return f"waits for {words.some(those)}"
        if status == "later":
            return "not issued yet"
        return "has yet to begin" if self.guessing else "ready"

    def whole(self) -> Message:
        """The drawing, the lanes, and the present state."""
        scene = self._scene.describe()
        for operation, box, told in zip(self.program.operations, scene["boxes"], self._lines):
            us = (operation.ended_ns - operation.began_ns) / 1e3
            about = f"{told[0]}; {operation.name}, takes {us:g} us; issued at {operation.where}"
            box |= {"lines": [*told, ""], "about": about}
        lanes = [name for names in self.program.workers.values() for name in names]
        us = max(x.ended_ns - x.began_ns for x in self.program.operations) / 1e3
        return {"scene": scene, "workers": lanes, "longest": us, "state": self.state()}, []

    def _tell(self) -> None:
        self.say({"state": self.state()})
        self._problem = ""

    def received(self, message: dict[str, Any]) -> None:
        """A button was pressed."""
        kind, number = message.get("kind"), message.get("number")
        try:
            if kind == "step" and not (self.guessing and not number):
                self.step(number)
            elif kind in ("run", "reset"):
                getattr(self, kind)()
            elif kind == "guess":
                self.guess(number)
            elif kind == "guessing":
                self.guessing = bool(message.get("on"))
                self._tell()
        except ValueError as problem:  # the view showed an outdated state
            self._problem = str(problem)
            self._tell()

    # -- the whole run, as a picture and as text ---------------------------------------------------

    @cached_property
    def _lines(self) -> list[tuple[str, str]]:
        """The text in the box of each operation: title, and its name or line, what is not there."""
        found = []
        for x in self.program.operations:
            title, name = self.program.titles[x.number - 1], shown_name(x.name)
            of_line = title != f"{x.number} {name}"
            found.append((title, name if of_line else svg.shorten(code_of(x.line), 34)))
        return found

    @cached_property
    def _scene(self) -> svg.Scene:
        note = " " * 26  # room for the state of an operation
        sizes = [svg.size_of(svg.Box([*lines, note])) for lines in self._lines]
        return svg.arrange(sizes, edges_of(self.after))

    def _when(self, number: int) -> str:
        x, us = self.program.operations[number - 1], self.program.us
        when = f"{us(x.began_ns):.4g} to {us(x.ended_ns):.4g} us"
        return when if x.status == "done" else f"{when}, {x.status}"

    def picture(self) -> DrawnPicture:
        """The whole run: the graph, and which worker ran what when."""
        return self._picture

    @cached_property
    def _picture(self) -> DrawnPicture:
        operations, us = self.program.operations, self.program.us
        lanes = timeline([
            (worker, [
                (_style(x), us(x.began_ns) / 1e6, us(x.ended_ns) / 1e6)
                for x in operations if x.worker == worker
            ])
            for names in self.program.workers.values() for worker in names
        ])  # fmt: skip
        if len(operations) > MOST_DRAWN:
            return DrawnPicture(lanes)
        boxes = [
            svg.Box([*lines, f"{x.worker}, {self._when(x.number)}"], STYLES[_style(x)][0])
            for x, lines in zip(operations, self._lines)
        ]  # fmt: skip
        width, height = max(self._scene.width, 460.0), self._scene.height
        hint = "an arrow: it needs the value; dashed: it overwrites what was read or written"
        parts = [*self._scene.draw(boxes), svg.draw_text(svg.MARGIN, height + 10, hint)]
        words = f"steps of {len(operations)} operations"
        return DrawnPicture(Drawing(svg.page(width, height + 20, parts), words), lanes)

    def __repr__(self) -> str:
        rows = []
        for x, (needs, room) in zip(self.program.operations, self.after):
            behind = f"after {', '.join(map(str, sorted(needs | room)))}" if needs | room else ""
            title = self.program.titles[x.number - 1]
            rows.append((title, behind, x.worker, self._when(x.number)))
        return "\n".join([f"stepper of {len(rows)} operations", *align(rows, "<<<<")])


def _style(operation: SteppedOperation) -> str:
    return "compute" if operation.status == "done" else "wait"
