"""The moves of a recorded program, in any legal order; also backwards.

>>> from d2lmini import nd
>>> from d2lmini.widgets.stepper_program import record_program
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     c = a * 3
...     a += 1
>>> play = Playback(record_program(program))
>>> for _ in range(3):
...     print(play.step())
0 us: cpu 1 begins 1 _ones
10 us: cpu 1 ends 1 _ones
10 us: cpu 1 begins 2 _mul_scalar
>>> play.able()
[3 begins, 2 ends]
>>> play.ahead(4)                             # a, which 4 waits to write: 2 and 3 read it
[(1, True, [(2, False), (3, False)])]

The moves follow the stepped engine's rules (`core.claim`, `core.release`, on shadows of the Vars
and of the operations) and its choices (`stepped_choices`), without computation: so a play can stay
in a notebook for hours, holds no memory, blocks no thread, and emits no instrument events. For a
seed it gives the log that `engine.stepped(seed=...)` gives.

A path through the program is the list of its moves. `back` replays the same path from the beginning
with one move less: milliseconds, for programs of this size. Forward again takes the same moves,
until the caller chooses another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from d2lmini.engine import core
from d2lmini.engine.core import Task, Var
from d2lmini.engine.stepped_choices import choice
from d2lmini.engine.stepped_records import LogEntry
from d2lmini.widgets.stepper_program import Operation, Program, Wait


class Move(NamedTuple):
    """An operation begins or ends."""

    number: int
    begins: bool

    def __repr__(self) -> str:
        return f"{self.number} {'begins' if self.begins else 'ends'}"


class Playback:
    """A program after some moves.

    program  the record
    seed     None: an operation begins as soon as it may, by priority and age; then the earliest end
             comes. A number: a random legal order
    steps    number of moves made
    now_us   the virtual clock
    status   number -> "later" (not issued yet), "waiting", "ready", "running", or how it ended:
             "done", "failed", "skipped"
    worker, began_us, ended_us   number -> its worker, its begin, its end
    log      the events, in the stepped engine's format
    awaited  the wait at which the program stands, and the operations it is for; None: it is over
    """

    def __init__(self, program: Program, seed: int | None = None):
        self.program = program
        self._inside: dict[int, list[int]] = {}  # number -> the operations it pushes as it begins
        for operation in program.operations.values():
            self._inside.setdefault(operation.by, []).append(operation.number)
        self.restart(seed)

    def restart(self, seed: int | None = None) -> None:
        """Go to the beginning, and drop the path."""
        self._choice: Any = choice(seed, False, None, None)
        self.seed = seed
        self._way: list[Move] = []
        self._go(0)

    def _go(self, steps: int) -> None:
        """Go to the state after this many moves of the path."""
        self.steps = 0
        self.now_us = 0.0
        self.status = dict.fromkeys(self.program.operations, "later")
        self.worker: dict[int, str] = {}
        self.began_us: dict[int, float] = {}
        self.ended_us: dict[int, float] = {}
        self.log: list[LogEntry] = []
        self.awaited: tuple[Wait, set[int]] | None = None
        self.vars = {number: Var() for number in self.program.names}
        self._numbers = {var: number for number, var in self.vars.items()}
        self._tasks: dict[int, Task] = {}
        self._ends: dict[int, float] = {}
        self._at = 0
        self._run_program()
        for move in self._way[:steps]:
            self._do(move)

    # -- what may happen (as `stepped_choices` asks) -----------------------------------------------

    def able_to_begin(self) -> Iterator[Task]:
        """The ready operations for which a worker is free, by priority and age."""
        busy = Counter(self._of(number).place for number in self._ends)
        ready = [self._tasks[n] for n, status in self.status.items() if status == "ready"]
        for task in sorted(ready, key=lambda task: (-task.priority, task.seq)):
            operation = self._of(task.seq)
            if busy[operation.place] < operation.workers:
                yield task

    def able_to_end(self) -> list[Task]:
        """The running operations, the first to end first."""
        return [self._tasks[n] for n in sorted(self._ends, key=lambda n: (self._ends[n], n))]

    def able(self) -> list[Move]:
        """All moves that are legal now; begins come first."""
        begins = [Move(task.seq, True) for task in self.able_to_begin()]
        return begins + [Move(task.seq, False) for task in self.able_to_end()]

    def next(self) -> Move | None:
        """The move made by default; None at the end."""
        if self.steps < len(self._way):
            return self._way[self.steps]
        found = self._choice.next(self)
        return None if found is None else Move(found.task.seq, found.begins)

    @property
    def order(self) -> list[int]:
        """The operations that have begun, in the order of their begins."""
        return [event.number for event in self.log if event.kind == "begin"]

    # -- moving ------------------------------------------------------------------------------------

    def step(self, number: int | None = None) -> LogEntry | None:
        """Make the next move, or the one that begins or ends this operation; return the move. None
        if there is none. ValueError if that operation can neither begin nor end now."""
        if number is None:
            move = self.next()
            if move is None:
                return None
        else:
            found = [move for move in self.able() if move.number == number]
            if not found:
                able = ", ".join(map(repr, self.able())) or "nothing: it is over"
                raise ValueError(f"step: {number} can neither begin nor end now; possible: {able}")
            move = found[0]
        if self._way[self.steps : self.steps + 1] != [move]:
            self._way[self.steps :] = [move]
        return self._do(move)

    def back(self) -> bool:
        """Take the last move back; False at the beginning."""
        if self.steps:
            self._go(self.steps - 1)
            return True
        return False

    def rewind(self) -> None:
        """Go back to the beginning; the path is kept."""
        self._go(0)

    def run(self) -> None:
        """Move until the program is over."""
        while self.step() is not None:
            continue

    def run_to(self, number: int) -> None:
        """Move until this operation begins; if it has begun, go back to its begin. ValueError for a
        number that no operation has."""
        if number not in self.program.operations:
            most = len(self.program.operations)
            raise ValueError(f"run_to: operations have numbers from 1 to {most}, got {number!r}")
        if number in self.began_us:
            self._go(self._way.index(Move(number, True)))
        while number not in self.began_us:
            self.step()

    def _do(self, move: Move) -> LogEntry:
        operation, task = self._of(move.number), self._tasks[move.number]
        number, kind = move.number, "begin" if move.begins else "end"
        if move.begins:
            self.worker[number] = self._free_worker(operation)
            self.status[number] = "running"
            self.began_us[number] = self.now_us
            self._ends[number] = self.now_us + operation.us
        else:
            self.now_us = self.ended_us[number] = max(self.now_us, self._ends.pop(number))
            self.status[number] = operation.status
        event = LogEntry(kind, number, operation.name, self.worker[number], self.now_us)
        self.log.append(event)
        self.steps += 1
        if move.begins:
            for inner in self._inside.get(number, ()):
                self._push(inner)
        else:
            for ready in core.release(task):
                self.status[ready.seq] = "ready"
        self._run_program()
        return event

    def _free_worker(self, operation: Operation) -> str:
        n, place = operation.workers, operation.place
        names = [f"{place} {i + 1}" for i in range(n)] if n > 1 else [place]
        busy = {self.worker[end] for end in self._ends}
        return next(name for name in names if name not in busy)

    # -- the program -------------------------------------------------------------------------------

    def _run_program(self) -> None:
        """Run the program as far as possible: to its next wait for an operation that is not
        done."""
        script = self.program.script
        while self._at < len(script):
            item = script[self._at]
            if isinstance(item, Wait):
                if self.awaited is None:
                    self.awaited = item, self._needed(item)
                left = {n for n in self.awaited[1] if n not in self.ended_us}
                if left:
                    self.awaited = item, left
                    return
                self.awaited = None
            else:
                self._push(item)
            self._at += 1

    def _needed(self, wait: Wait) -> set[int]:
        """The operations that must end before a wait ends."""
        pending = [n for n in self._tasks if n not in self.ended_us]
        if wait.var is None:
            return set(pending)
        var, reads_too = self.vars[wait.var], wait.kind == "wait_to_write"
        found = {n for n in pending if var in self._tasks[n].writes}
        return found | {n for n in pending if reads_too and var in self._tasks[n].shared}

    def _push(self, number: int) -> None:
        operation = self._of(number)
        reads, writes = (
            tuple([self.vars[n] for n in numbers])
            for numbers in (operation.reads, operation.writes)
        )
        task = self._tasks[number] = Task(operation.name, reads, writes, None, operation.priority)
        task.prepare()
        task.seq = number
        self.log.append(LogEntry("push", number, operation.name, "", self.now_us))
        self.status[number] = "ready" if core.claim(task) else "waiting"

    # -- who stands where --------------------------------------------------------------------------

    def _of(self, number: int) -> Operation:
        return self.program.operations[number]

    def line(self, var: int) -> list[tuple[int, bool, bool]]:
        """The queue of a Var, from its head: (number, writes?, holds it?)."""
        of = self.vars[var]
        held = [(task.seq, False, True) for task in of.readers]
        held += [(of.writer.seq, True, True)] if of.writer is not None else []
        return sorted(held) + [(task.seq, writes, False) for task, writes in of.queue]

    def ahead(self, number: int) -> list[tuple[int, bool, list[tuple[int, bool]]]]:
        """For each Var that an operation still waits for: the Var, whether the operation writes it,
        and the operations that come first: (number, writes?)."""
        found = []
        task = self._tasks[number]
        for var in (*task.shared, *task.writes):
            if core.holds(task, var):
                continue
            writes, those = var in task.writes, []
            for other, wrote, _ in self.line(self._numbers[var]):
                if other == number:
                    break
                if writes or wrote:
                    those.append((other, wrote))
            found.append((self._numbers[var], writes, those))
        return found

    def value(self, var: int) -> str:
        """The contents of a small Var: the value that the last ended writer left there. None while
        an operation writes it."""
        wrote = [n for n in self.order if var in self._of(n).writes]
        if wrote and wrote[-1] in self._ends:
            return ""
        known = self._of(wrote[-1]).values if wrote else self.program.values
        return known.get(var, "")
