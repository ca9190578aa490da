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

The rules are the stepped engine's (`engine.simulation`), and so are the policies
(`engine.policies`), without computation: so a play can stay in a notebook for hours, holds no
memory, blocks no thread, and emits no instrument events. For a seed it gives the log that
`engine.stepped(seed=...)` gives.

A path through the program is the list of its moves. `back` replays the same path from the beginning
with one move less: milliseconds, for programs of this size. Forward again takes the same moves,
until the caller chooses another.
"""

from __future__ import annotations

from typing import NamedTuple

from d2lmini.engine.order import order_of
from d2lmini.engine.policies import make_policy
from d2lmini.engine.schedule import worker_names
from d2lmini.engine.simulation import ProgramStep, SimulatedTask, Simulation
from d2lmini.engine.stepped_records import LogEntry
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
    seed     None: an operation begins as soon as it may, by priority and age; then the earliest end
             comes. A number: a random legal order
    steps    number of moves made
    now_us   the virtual clock
    status   number -> "later" (not issued yet), "waiting", "ready", "running", or how it ended:
             "done", "failed", "skipped"
    worker, began_us, ended_us   number -> its worker, its begin, its end
    log      the events, in the stepped engine's format
    schedule the ready and the running operations (as `policies` asks)
    """

    def __init__(self, program: Program, seed: int | None = None):
        self.program = program
        self._steps = _steps(program)
        self._order = order_of(list(program.operations.values()))  # type: ignore[arg-type]
        self._workers = {
            operation.place: worker_names(operation.place, operation.workers)
            for operation in program.operations.values()
        }
        self._uses: dict[int, list[tuple[int, bool]]] = {}  # Var -> (operation, writes it?)
        for number, operation in program.operations.items():
            for var in dict.fromkeys((*operation.reads, *operation.writes)):
                self._uses.setdefault(var, []).append((number, var in operation.writes))
        self.restart(seed)

    def restart(self, seed: int | None = None) -> None:
        """Go to the beginning, and drop the path."""
        self._policy = make_policy(seed)
        self.seed = seed
        self._way: list[Move] = []
        self._go(0)

    def _go(self, steps: int) -> None:
        """Go to the state after this many moves of the path."""
        self._jobs = self._make_jobs()
        self._run = Simulation(self._jobs, {"main": self._steps}, self._workers)
        self.schedule = self._run.schedule
        self.steps = 0
        self.worker: dict[int, str] = {}
        self.began_us: dict[int, float] = {}
        self.ended_us: dict[int, float] = {}
        self.log: list[LogEntry] = []
        self._newest = 0  # the highest number of an operation that was pushed
        self._settle()
        for move in self._way[:steps]:
            self._do(move)
        self._look()

    def _make_jobs(self) -> list[SimulatedTask]:
        jobs: list[SimulatedTask] = []
        for operation, (needs, room) in zip(self.program.operations.values(), self._order):
            job = SimulatedTask(
                operation.number, operation.place, operation.us, 0, operation.priority
            )
            job.follows([jobs[number - 1] for number in needs + room])
            if operation.by:
                jobs[operation.by - 1].children.append((0, job))
            jobs.append(job)
        return jobs

    # -- what may happen ---------------------------------------------------------------------------

    @property
    def now_us(self) -> float:
        """The virtual clock."""
        return float(self._run.now)

    @property
    def pushed(self) -> int:
        """Number of operations pushed."""
        return len(self._run.issued)

    @property
    def awaited(self) -> tuple[Wait, set[int]] | None:
        """The wait at which the program stands, and the operations it is for; None: it is over."""
        thread = self._run.threads["main"]
        if thread.since < 0:
            return None
        step = thread.steps[thread.at]
        jobs = self._run.issued if step.jobs is None else [self._jobs[n - 1] for n in step.jobs]
        return step.wait, {job.number for job in jobs if job.ended < 0}

    def able(self) -> list[Move]:
        """All moves that are legal now; begins come first."""
        begins = [Move(job.number, True) for job in self.schedule.able_to_begin()]
        return begins + [Move(job.number, False) for job in self.schedule.able_to_end()]

    def next(self) -> Move | None:
        """The move made by default; None at the end."""
        if self.steps < len(self._way):
            return self._way[self.steps]
        found = self._policy.next(self)
        return None if found is None else Move(found.operation.number, found.begins)

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
        event = self._do(move)
        self._look()
        return event

    def back(self) -> bool:
        """Take the last move back; False at the beginning."""
        if self.steps:
            self._go(self.steps - 1)
            return True
        return False

    def run(self) -> None:
        """Move until the program is over."""
        while self.step() is not None:
            continue

    def _do(self, move: Move) -> LogEntry:
        number, job = move.number, self._jobs[move.number - 1]
        name = self.program.operations[number].name
        if move.begins:
            self._run.begin(job)
            self.worker[number], self.began_us[number] = job.worker, job.began
        else:
            self._run.end(job)
            self.ended_us[number] = job.ended
        kind = "begin" if move.begins else "end"
        event = LogEntry(kind, number, name, job.worker, self.now_us)
        self.log.append(event)
        self.steps += 1
        self._settle()
        return event

    def _settle(self) -> None:
        """The program goes on to its next wait for an operation that is not done."""
        before = self.pushed
        self._run.settle()
        for job in self._run.issued[before:]:
            name = self.program.operations[job.number].name
            self.log.append(LogEntry("push", job.number, name, "", self.now_us))
            self._newest = max(self._newest, job.number)

    def _look(self) -> None:
        self.status = {job.number: self._status(job) for job in self._jobs}

    def _status(self, job: SimulatedTask) -> str:
        if job.ended >= 0:
            return self.program.operations[job.number].status
        if job.began >= 0:
            return "running"
        return "ready" if job.ready >= 0 else "waiting" if job.pushed >= 0 else "later"

    # -- who stands where --------------------------------------------------------------------------

    def line(self, var: int) -> list[tuple[int, bool, bool]]:
        """The queue of a Var, from its head: (number, writes?, holds it?). The engine's rule:
        readers hold it together, a writer alone."""
        line: list[tuple[int, bool, bool]] = []
        for number, writes in self._uses.get(var, ()):
            job = self._jobs[number - 1]
            if job.ended < 0 and number <= self._newest:
                first = not line if writes else not any(wrote for _, wrote, _ in line)
                line.append((number, writes, first and job.pushed >= 0))
        return line

    def ahead(self, number: int) -> list[tuple[int, bool, list[tuple[int, bool]]]]:
        """For each Var that an operation still waits for: the Var, whether the operation writes it,
        and the operations that come first: (number, writes?)."""
        found = []
        operation = self.program.operations[number]
        shared = [var for var in operation.reads if var not in operation.writes]
        for var in (*shared, *operation.writes):
            writes = var in operation.writes
            those: list[tuple[int, bool]] = []
            for other, wrote, holds in self.line(var):
                if other == number:
                    if not holds:
                        found.append((var, writes, those))
                    break
                if writes or wrote:
                    those.append((other, wrote))
        return found

    def value(self, var: int) -> str:
        """The contents of a small Var: the value that the last ended writer left there. None while
        an operation writes it."""
        wrote = [n for n in self.order if var in self.program.operations[n].writes]
        if wrote and wrote[-1] not in self.ended_us:
            return ""
        known = self.program.operations[wrote[-1]].values if wrote else self.program.values
        return known.get(var, "")


def _steps(program: Program) -> list[ProgramStep]:
    """The program's actions; a wait is for the operations that it found pushed."""
    steps, last = [], 0
    for item in program.script:
        if not isinstance(item, Wait):
            last = item
            steps.append(ProgramStep(0, item))
            continue
        jobs = None
        if item.var is not None:
            reads_too = item.kind == "wait_to_write"
            jobs = tuple(
                number
                for number, operation in program.operations.items()
                if number <= last
                and (item.var in operation.writes or (reads_too and item.var in operation.reads))
            )
        steps.append(ProgramStep(0, 0, jobs, 0, item))
    return steps
