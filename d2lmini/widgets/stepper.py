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
3 c = a * 3 begins on cpu 2: it reads a, writes c. 2 reads a at the same time.
4 a += 1 must wait: 2 and 3 still read a.
>>> print(stepper.queues())
a [[1. 1.]]: 2 reads, 3 reads; in line: 4 to write
b: 2 writes
c: 3 writes
>>> stepper.able()
[2 ends, 3 ends]
>>> stepper
stepper of 4 operations
1 a = nd.ones((1, 2))                 cpu 1  0 to 10 us
2 b = a * 2            after 1        cpu 1  10 to 20 us
3 c = a * 3            after 1        cpu 2  10 to 20 us
4 a += 1               after 1, 2, 3  cpu 1  20 to 30 us
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from d2lmini.engine.stepped_records import Text, Times
from d2lmini.widgets import stepper_words as words
from d2lmini.widgets.base import Message, Widget
from d2lmini.widgets.stepper_play import Move, Playback
from d2lmini.widgets.stepper_program import record_program
from d2lmini.widgets.stepper_scene import Drawing, after, drawing, scene, workers

#: The view describes this many of the last moves.
TOLD = 40


class Stepper(Widget):
    """The program as a graph, the queue of each Var, the workers; buttons to step forward and back.

    program  a function without arguments that issues operations; it is run once, here
    workers  of the CPU, on the virtual clock
    times    microseconds of all operations, {name: microseconds}, a function of the task, or None:
             as predicted
    seed     None: the order of a threaded engine that keeps to the times; a number: a random legal
             order
    guess    ask before each move which operation can begin next, and hide the arrows of operations
             that have not begun; `right` of `asked` answers were right

    Keys in the view: arrows step forward and back, Home goes to the beginning, End to the end.
    ValueError for more than 200 operations.
    """

    script = "stepper"
    words = "stepper"

    def __init__(
        self,
        program: Callable[[], object],
        workers: int = 2,
        times: Times = 10.0,
        seed: int | None = None,
        guess: bool = False,
    ):
        super().__init__()
        self.program = record_program(program, workers, times)
        self.play = Playback(self.program, seed)
        self._lock = threading.RLock()  # moves come from cells and from the view
        self._told: list[list[str]] = []  # the description of each move
        self._problem = ""
        self.guessing = guess
        self.right = self.asked = 0
        whole = Playback(self.program, seed)
        whole.run()
        self._whole = whole
        self._drawing: Drawing | None = None

    # -- moves -------------------------------------------------------------------------------------

    def step(self, number: int | None = None) -> Text:
        """Make one move: the next, or the one by which this operation begins or ends; returns what
        happened and why, in words. ValueError if that operation can neither begin nor end now."""
        with self._lock:
            told = words.step(self.play, number)
            if told:
                self._told[self.play.steps - 1 :] = [told]
        self._tell()
        return Text("\n".join(told) or "It is over.")

    def back(self, steps: int = 1) -> None:
        """Take moves back; at the beginning nothing happens."""
        with self._lock:
            for _ in range(steps):
                self.play.back()
            del self._told[self.play.steps :]
        self._tell()

    def run(self) -> None:
        """Move until the program is over."""
        with self._lock:
            while told := words.step(self.play):
                self._told.append(told)
        self._tell()

    def run_to(self, number: int) -> Text:
        """Move until this operation begins; if it has begun, go back to its begin. ValueError for a
        number that no operation has."""
        with self._lock:
            if number not in self.program.operations:
                most = len(self.program.operations)
                raise ValueError(f"run_to: the operations are 1 to {most}, got {number!r}")
            while number in self.play.began_us:
                self.play.back()
            del self._told[self.play.steps :]
            while number not in self.play.began_us:
                self._told.append(words.step(self.play))
            told = self._told[-1]
        self._tell()
        return Text("\n".join(told))

    def reset(self, seed: int | None = None) -> None:
        """Go to the beginning; `seed`, if given, draws the next order."""
        with self._lock:
            self.play.restart(seed)
            self._told.clear()
            self.right = self.asked = 0
        self._tell()

    def guess(self, number: int | None) -> Text:
        """Which operation can begin next? None: none can, one must end first. A right answer makes
        the move; a wrong answer is explained."""
        with self._lock:
            able = [move.number for move in self.play.able() if move.begins]
            if not self.play.able():
                return Text("It is over.")
            self.asked += 1
            if number in able or (number is None and not able):
                self.right += 1
                told = words.step(self.play, number)
                self._told[self.play.steps - 1 :] = [told]
                answer = "Right. " + told[0]
            elif number is None:
                one = words.title(self.play, able[0])
                answer = f"No: {one} can begin, for nothing that it needs is pending."
            elif number in self.program.operations:
                answer = f"No: {number} cannot begin, {words.why_not(self.play, number)}."
            else:
                answer = f"No: there is no operation {number}."
            self._problem = answer
        self._tell()
        return Text(answer)

    # -- how it stands -----------------------------------------------------------------------------

    def able(self) -> list[Move]:
        """All moves that are legal now."""
        return self.play.able()

    def queues(self) -> Text:
        """For each Var in use: the operations that hold it, and those in its queue."""
        lines = []
        for var, name in self.program.names.items():
            line = self.play.line(var)
            held = [f"{n} {'writes' if w else 'reads'}" for n, w, holds in line if holds]
            queue = [f"{n} to {'write' if w else 'read'}" for n, w, holds in line if not holds]
            if line:
                value = f" {value}" if (value := self.play.value(var)) else ""
                waiting = f"; in line: {', '.join(queue)}" if queue else ""
                lines.append(f"{name}{value}: {', '.join(held)}{waiting}")
        return Text("\n".join(lines) or "all Vars are idle")

    def state(self) -> dict[str, Any]:
        """The present state as plain data (for JSON): what the view draws. The arrows to the
        operations in "hidden" are not drawn: they would give the answer to a guess."""
        play = self.play
        with self._lock:
            hides = self.guessing  # hide what would give the answer away
            status = {
                n: "ahead" if hides and s in ("waiting", "ready") else s
                for n, s in play.status.items()
            }
            upcoming = play.next()
            spans = [
                [play.worker[n], n, us, play.ended_us.get(n)] for n, us in play.began_us.items()
            ]
            told = self._told[-TOLD:] or [words.beginning(play)]
            return {
                "step": play.steps,
                "us": play.now_us,
                "status": status,
                "hidden": [n for n in status if hides and n not in play.began_us],
                "notes": {n: self._note(n) for n in status},
                "able": [] if hides else [[m.number, m.begins] for m in play.able()],
                "next": None if hides or upcoming is None else list(upcoming),
                "over": upcoming is None,
                "vars": [] if hides else [
                    {"name": name, "value": play.value(var), "line": play.line(var)}
                    for var, name in self.program.names.items()
                ],
                "spans": spans,
                "order": play.order,
                "told": [message[:1] if hides else message for message in told],
                "seed": play.seed,
                "guessing": self.guessing,
                "right": self.right,
                "asked": self.asked,
                "problem": self._problem,
            }  # fmt: skip

    def _note(self, number: int) -> str:
        """The state of an operation in a few words, for its box."""
        play, status = self.play, self.play.status[number]
        if status == "running":
            end = play.began_us[number] + self.program.operations[number].us
            return f"runs on {play.worker[number]} until {end:.4g} us"
        if status in ("done", "failed", "skipped"):
            return f"{status}, {play.worker[number]}, {play.began_us[number]:.4g} to " + (
                f"{play.ended_us[number]:.4g} us"
            )
        if self.guessing:
            return "not issued yet" if status == "later" else "has yet to begin"
        if status == "waiting":
            those = {n for _, _, ahead in play.ahead(number) for n, _ in ahead}
            return f"waits for {words.some(those)}"
        return "not issued yet" if status == "later" else "ready"

    # -- what the view is told and tells -----------------------------------------------------------

    def whole(self) -> Message:
        """The drawing, the lanes, and the present state."""
        lanes = workers(self.program)
        return {**scene(self.play), "workers": lanes, "state": self.state()}, []

    def _tell(self) -> None:
        self.say({"state": self.state()})
        self._problem = ""

    def received(self, message: dict[str, Any]) -> None:
        """A button was pressed."""
        kind, number = message.get("kind"), message.get("number")
        try:
            if kind == "step" and not (self.guessing and not number):
                self.step(number)
            elif kind == "back":
                self.back()
            elif kind == "run":
                self.run()
            elif kind == "run_to" and isinstance(number, int):
                self.run_to(number)
            elif kind == "reset":
                seed = message.get("seed")
                self.reset(seed if isinstance(seed, int) else None)
            elif kind == "guess":
                self.guess(number)
            elif kind == "guessing":
                self.guessing = bool(message.get("on"))
                self._tell()
        except ValueError as problem:  # the view showed an outdated state
            self._problem = str(problem)
            self._tell()

    def picture(self) -> Drawing:
        """The whole run: the graph, the order, which worker ran what when."""
        if self._drawing is None:
            self._drawing = drawing(self._whole)
        return self._drawing

    def __repr__(self) -> str:
        whole = self._whole
        rows = []
        for n, (needs, room) in after(self.program).items():
            behind = f"after {', '.join(map(str, sorted(needs | room)))}" if needs | room else ""
            when = f"{whole.began_us[n]:.4g} to {whole.ended_us[n]:.4g} us"
            if whole.status[n] != "done":
                when += f", {whole.status[n]}"
            rows.append((words.title(whole, n), behind, whole.worker[n], when))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths)), r[3]]) for r in rows]
        return "\n".join([f"stepper of {len(rows)} operations", *lines])
