"""The moves of a recorded program, in any legal order.

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
1 begins
1 ends
2 begins
>>> play.able()
[3 begins, 2 ends]
>>> play.ahead(4)                             # a, which 4 waits to write: 2 and 3 read it
[(1, [(2, False), (3, False)])]

The moves and their reasons, in words:

>>> play = Playback(record_program(program))
>>> for sentence in beginning(play):
...     print(sentence)
The program has issued 4 operations; none has begun.
1 a = nd.ones((2,)) may begin: nothing that it needs is pending.
2 b = a * 2 must wait: 1 has yet to write a.
And so must 3 and 4.
>>> for _ in range(4):
...     told = step(play)
>>> for sentence in told:
...     print(sentence)
3 c = a * 3 begins on cpu 2: it reads a, writes c.
4 a += 1 must wait: 2 and 3 still read a.

The rules are the stepped engine's (`engine.simulation`), without computation: so a play can stay in
a notebook for hours, holds no memory, blocks no thread, and emits no instrument events. Another
order is another play, from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from d2lmini.engine.operation import Operation
from d2lmini.engine.order import order_of
from d2lmini.engine.simulation import ProgramStep, SimulatedTask, Simulation
from d2lmini.widgets.stepper_program import Program, Wait


class Move(NamedTuple):
    """An operation begins or ends."""

    number: int
    begins: bool

    def __repr__(self) -> str:
        return f"{self.number} {'begins' if self.begins else 'ends'}"


class Playback:
    """A program after some moves.

    program  the record
    steps    number of moves made
    order    the operations that have begun, in the order of their begins
    jobs     the operations; of their times `pushed`, `ready`, `began` and `ended`, in microseconds
             of the virtual clock, -1 means: not yet
    """

    def __init__(self, program: Program):
        self.program = program
        self.steps = 0
        self.order: list[int] = []
        self.jobs = [
            SimulatedTask(x.number, x.place, (x.ended_ns - x.began_ns) / 1e3, 0, x.priority)
            for x in program.operations
        ]
        for job, operation, (needs, room) in zip(
            self.jobs, program.operations, order_of(program.operations)
        ):
            job.follows([self.jobs[number - 1] for number in needs + room])
            if operation.by:
                self.jobs[operation.by - 1].children.append((0, job))
        self._run = Simulation(self.jobs, {"main": _steps_of(program)}, program.workers)
        self._run.settle()

    # -- what may happen ---------------------------------------------------------------------------

    @property
    def now_us(self) -> float:
        """The virtual clock."""
        return float(self._run.schedule.now)

    def able(self) -> list[Move]:
        """All moves that are legal now; begins come first."""
        return [Move(job.number, begins) for job, begins in self._run.schedule.able()]

    def next(self) -> Move | None:
        """The move made by default; None at the end. An operation begins as soon as it may, by
        priority and age; then the earliest end comes."""
        found = self._run.schedule.next()
        return None if found is None else Move(found[0].number, found[1])

    # -- moving ------------------------------------------------------------------------------------

    def step(self, number: int | None = None) -> Move | None:
        """Make the next move, or the one that begins or ends this operation; return the move. None
        if there is none. ValueError if that operation can neither begin nor end now."""
        move = self.next()
        if number is not None:
            move = next((move for move in self.able() if move.number == number), None)
            if move is None:
                able = ", ".join(map(repr, self.able())) or "nothing: it is over"
                raise ValueError(f"step: {number} can neither begin nor end now; possible: {able}")
        if move is not None:
            job = self.jobs[move.number - 1]
            (self._run.begin if move.begins else self._run.end)(job)
            if move.begins:
                self.order.append(move.number)
            self.steps += 1
            self._run.settle()  # the program goes on to its next wait
        return move

    # -- who stands where --------------------------------------------------------------------------

    def status(self, number: int) -> str:
        """ "later" (not issued yet), "waiting", "ready", "running", or how it ended: "done",
        "failed", "skipped"."""
        job = self.jobs[number - 1]
        if job.ended >= 0:
            return self.program.operations[number - 1].status
        if job.began >= 0:
            return "running"
        return "ready" if job.ready >= 0 else "waiting" if job.pushed >= 0 else "later"

    def statuses(self) -> dict[int, str]:
        """The status of each operation."""
        return {job.number: self.status(job.number) for job in self.jobs}

    @property
    def awaited(self) -> tuple[Wait, set[int]] | None:
        """The wait at which the program stands, and the operations it is for; None: it is over."""
        thread = self._run.threads["main"]
        if thread.since < 0:
            return None
        step = thread.steps[thread.at]
        jobs = self._run.issued if step.jobs is None else [self.jobs[n - 1] for n in step.jobs]
        return step.wait, {job.number for job in jobs if job.ended < 0}

    def line(self, var: int) -> list[tuple[int, bool, bool]]:
        """The queue of a Var, from its head: (number, writes?, holds it?). The engine's rule:
        readers hold it together, a writer alone."""
        line: list[tuple[int, bool, bool]] = []
        newest = max((job.number for job in self._run.issued), default=0)
        for x, job in zip(self.program.operations[:newest], self.jobs):
            if job.ended < 0 and (var in x.reads or var in x.writes):
                writes = var in x.writes
                first = not line if writes else not any(wrote for _, wrote, _ in line)
                line.append((x.number, writes, first and job.pushed >= 0))
        return line

    def waits_only_for_running(self, number: int) -> bool:
        """Does an operation that waits stand right behind those that run?"""
        return all(self.jobs[n - 1].began >= 0 for _, those in self.ahead(number) for n, _ in those)

    def ahead(self, number: int) -> list[tuple[int, list[tuple[int, bool]]]]:
        """For each Var that an operation still waits for: the Var, and the operations that come
        first: (number, writes?)."""
        found = []
        operation = self.program.operations[number - 1]
        for var in dict.fromkeys((*operation.reads, *operation.writes)):
            line = self.line(var)
            at = next((i for i, (n, _, _) in enumerate(line) if n == number), None)
            if at is not None and not line[at][2]:
                writes = line[at][1]
                found.append((var, [(n, wrote) for n, wrote, _ in line[:at] if writes or wrote]))
        return found

    def value(self, var: int) -> str:
        """The contents of a small Var: the value that the last ended writer left there. "" while an
        operation writes it."""
        operations = self.program.operations
        wrote = [n for n in self.order if var in operations[n - 1].writes]
        if wrote and self.jobs[wrote[-1] - 1].ended < 0:
            return ""
        return self.program.values[wrote[-1] if wrote else 0].get(var, "")


def _steps_of(program: Program) -> list[ProgramStep]:
    """The program's actions; a wait is for the operations that it found pushed."""
    pushes = [(x.number, ProgramStep(0, x.number)) for x in program.operations if not x.by]
    waits = [(wait.after, ProgramStep(0, 0, _awaited(wait, program), 0, wait))
             for wait in program.waits]  # fmt: skip
    # Sorting is stable: a wait stands behind the push before it.
    return [step for _, step in sorted(pushes + waits, key=lambda entry: entry[0])]


def _awaited(wait: Wait, program: Program) -> tuple[int, ...] | None:
    if wait.var is None:
        return None
    touches = {
        x.number: wait.var in x.writes or (wait.writes and wait.var in x.reads)
        for x in program.operations[: wait.after]
    }
    return tuple(number for number, awaited in touches.items() if awaited)


# -- in words --------------------------------------------------------------------------------------


def why_not(play: Playback, number: int) -> str:
    """Why an operation does not begin now; "" if it may."""
    status, operation = play.status(number), play.program.operations[number - 1]
    if status == "later":
        if operation.by:
            return f"{operation.by} issues it when it begins"
        return f"the program has not issued it: it {_stands(play)}"
    if status == "waiting":
        return "; ".join(_name_holders(play, *ahead) for ahead in play.ahead(number))
    if status == "ready":
        if (number, True) in play.able():
            return ""
        workers = play.program.workers[operation.place]
        return f"it is ready, but {' and '.join(workers)} {'are' if workers[1:] else 'is'} busy"
    worker = play.jobs[number - 1].worker
    return f"it runs on {worker}" if status == "running" else f"it is {status}"


def _name_holders(play: Playback, var: int, those: list[tuple[int, bool]]) -> str:
    """ "2 and 3 still read a; 4 has yet to write a"."""
    parts, name = [], play.program.names[var]
    for verb, writes in (("read", False), ("write", True)):
        found = [n for n, wrote in those if wrote == writes]
        at_work = [n for n in found if play.jobs[n - 1].began >= 0]
        yet = [n for n in found if n not in at_work]
        if at_work:
            parts.append(f"{some(at_work)} still {verb}{'' if at_work[1:] else 's'} {name}")
        if yet:
            parts.append(f"{some(yet)} {'have' if yet[1:] else 'has'} yet to {verb} {name}")
    return "; ".join(parts)


def beginning(play: Playback) -> list[str]:
    """The state before the first move, in words."""
    issued = [n for n, status in play.statuses().items() if status != "later"]
    count = "1 operation" if len(issued) == 1 else f"{len(issued)} operations"
    said = [f"The program has issued {count}; none has begun."]
    return said + _may(play, issued) + _must_wait(play, issued) + _program(play)


def step(play: Playback, number: int | None = None) -> list[str]:
    """Make a move (see `Playback.step`) and describe it; [] if there was none."""
    before = play.statuses()
    move = play.step(number)
    if move is None:
        return []
    program, n, after = play.program, move.number, play.statuses()
    operation, told = program.operations[n - 1], program.titles[n - 1]
    issued = [k for k, status in before.items() if status == "later" != after[k]]
    line = {k for var in (*operation.reads, *operation.writes) for k, _, _ in play.line(var)}
    waiting = [k for k in sorted(line) if after[k] == "waiting"]
    if move.begins:
        said = [f"{told} begins on {play.jobs[n - 1].worker}: {_uses(play, operation)}"]
        said += [f"It issues {some(issued)}."] if issued else []
        return said + _must_wait(play, [k for k in waiting if play.waits_only_for_running(k)])
    how = {"failed": " with an error", "skipped": ", skipped: what it needs is missing"}
    said = [f"{told} ends at {play.now_us:.4g} us{how.get(operation.status, '')}."]
    if issued:
        said.append(f"The program has what it waited for, and issues {some(issued)}.")
    elif "later" in after.values() or not play.able():
        said += _program(play)
    freed = [k for k, status in after.items() if status == "ready" and before[k] == "waiting"]
    said += _may(play, freed + issued) + _must_wait(play, waiting)
    if not play.able():
        said.append(f"All is over. They began in the order {', '.join(map(str, play.order))}.")
    return said


def _uses(play: Playback, operation: Operation) -> str:
    """ "it reads a, writes c."."""
    names, reads, writes = play.program.names, operation.reads, operation.writes
    parts = {
        "reads": [names[var] for var in reads if var not in writes],
        "writes": [names[var] for var in writes if var not in reads],
        "changes": [names[var] for var in writes if var in reads],
    }
    does = ", ".join(f"{verb} {', '.join(those)}" for verb, those in parts.items() if those)
    return f"it {does or 'runs'}."


def _may(play: Playback, numbers: Sequence[int]) -> list[str]:
    may = [n for n in numbers if (n, True) in play.able()]
    if not may:
        return []
    who = some(may) if may[1:] else play.program.titles[may[0] - 1]
    they = "they need" if may[1:] else "it needs"
    return [f"{who} may begin: nothing that {they} is pending."]


def _must_wait(play: Playback, numbers: Sequence[int]) -> list[str]:
    waiting = [n for n in numbers if play.status(n) == "waiting"]
    if not waiting:
        return []
    first, *others = waiting
    said = [f"{play.program.titles[first - 1]} must wait: {why_not(play, first)}."]
    return said + ([f"And so must {some(others)}."] if others else [])


def _program(play: Playback) -> list[str]:
    return [f"The program {_stands(play)}."] if play.awaited else []


def _stands(play: Playback) -> str:
    assert play.awaited is not None
    wait, left = play.awaited
    return f"waits at {wait.line or 'a line'} for {some(left)}"


def some(numbers: Iterable[int]) -> str:
    """ "2, 3 and 4"."""
    words = [str(n) for n in sorted(numbers)]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
