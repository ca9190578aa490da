"""What the stepped engine has to show: its clock, its log, and tables of who holds and who waits.

>>> from d2lmini import engine
>>> with engine.stepped(workers=1) as s:
...     a, b = engine.new_var(), engine.new_var()
...     s.name(a=a, b=b)
...     engine.push(print, writes=[a], name="fill a")
...     engine.push(print, reads=[a], writes=[b], name="copy a to b")
...     engine.push(print, reads=[a], name="look at a")
...     print(s.ready)
...     print(s.who_waits_for_whom())
...     engine.cancel_pending()
[1 fill a]
2 copy a to b waits to read a, which 1 fill a writes
3 look at a waits to read a, which 1 fill a writes
3
"""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakKeyDictionary

from d2lmini.engine.core import Task, Var
from d2lmini.engine.engine import Engine
from d2lmini.engine.stepped_records import LogEntry, SteppedOperation, Text


class View(Engine):
    """The part of the stepped engine that keeps the record.

    log         what happened, in order
    operations  the pushed operations, by number
    numbers     of the Vars, in the order of their first use
    now_us      the virtual clock
    steps       number of begins and ends
    """

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.log: list[LogEntry] = []
        self.operations: dict[int, SteppedOperation] = {}
        self.numbers: WeakKeyDictionary[Var, int] = WeakKeyDictionary()
        self.now_us = 0.0
        self.steps = 0
        self._made_ns = time.perf_counter_ns()
        self._named: dict[int, str] = {}
        self._n_vars = 0

    def clock(self) -> int:  # type: ignore[override]
        """The virtual clock, in nanoseconds; it starts at the real clock when it is created."""
        return self._made_ns + round(1000 * self.now_us)

    @property
    def pushed(self) -> int:
        """Number of operations pushed."""
        return self._sequence

    def _log(self, kind: str, operation: SteppedOperation) -> LogEntry:
        event = LogEntry(kind, operation.number, operation.name, operation.worker, self.now_us)
        self.log.append(event)
        return event

    def _number(self, var: Var) -> int:
        number = self.numbers.get(var)
        if number is None:
            self._n_vars += 1
            number = self.numbers[var] = self._n_vars
        return number

    def name(self, **values: Any) -> None:
        """Name Vars, or the Vars of NDArrays, in the tables: `s.name(a=a, b=b)`."""
        for name, value in values.items():
            var = value if isinstance(value, Var) else getattr(value, "_chunk", None)
            if not isinstance(var, Var):
                raise TypeError(f"name: {name} is no Var and no NDArray: {type(value).__name__}")
            self._named[self._number(var)] = name

    def name_of(self, number: int) -> str:
        """The name of Var `number` in the tables: as given to `name`, else the number with the
        operation that wrote the Var first: `v3 (of 2 _mul_scalar)`."""
        if number in self._named:
            return self._named[number]
        operations = self.operations.values()
        writer = next((each for each in operations if number in each.writes), None)
        return f"v{number}" if writer is None else f"v{number} (of {writer})"

    @property
    def ready(self) -> list[SteppedOperation]:
        """The operations that could begin now, by number."""
        return [operation for operation in self._in_order() if operation.status == "ready"]

    def _in_order(self) -> list[SteppedOperation]:
        return [operation for _, operation in sorted(self.operations.items())]

    def _yet_to_begin(self) -> list[SteppedOperation]:
        ahead = ("waiting", "ready")
        return [operation for operation in self._in_order() if operation.status in ahead]

    def who_waits_for_whom(self) -> Text:
        """A sentence for each operation that waits for another."""
        lines = []
        for number, var in self._busy():
            name = self.name_of(number)
            ahead = [(reader, False) for reader in _by_number(var.readers)]
            ahead += [(var.writer, True)] if var.writer is not None else []
            for task, writes in var.queue:
                for other, wrote in ahead:
                    if writes or wrote:
                        verb = "writes" if wrote else "reads"
                        words = f"waits to {'write' if writes else 'read'} {name}, which"
                        said = f"{task.seq} {task.name} {words} {other.seq} {other.name} {verb}"
                        lines.append((task.seq, other.seq, said))
                ahead.append((task, writes))
        return Text("\n".join(said for *_, said in sorted(lines)) or "no operation waits")

    def _busy(self) -> list[tuple[int, Var]]:
        return sorted((number, var) for var, number in self.numbers.items() if not var.idle)

    def __str__(self) -> str:
        """The clock, and a line for each operation."""
        rows = self._in_order()
        counts = {status: 0 for status in ("done", "failed", "skipped", "running", "ready")}
        for row in rows:
            counts[row.status] = counts.get(row.status, 0) + 1
        summary = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        head = f"{self.now_us:g} us: {summary or 'nothing was pushed'}"
        table = [
            (str(operation), operation.status, operation.worker, self._when(operation))
            for operation in rows
        ]
        widths = [max((len(row[i]) for row in table), default=0) for i in range(3)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths)), r[3]]) for r in table]
        return "\n".join([head, *(line.rstrip() for line in lines)])

    def _when(self, operation: SteppedOperation) -> str:
        if not operation.began_ns:
            return ""
        began_us = (operation.began_ns - self._made_ns) / 1000
        if not operation.ended_ns:
            return f"since {began_us:g} us"
        return f"{began_us:g} to {(operation.ended_ns - self._made_ns) / 1000:g} us"

    def __repr__(self) -> str:
        return f"<stepped engine at {self.now_us:g} us, {self.steps} steps>"


def _by_number(tasks: set[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: task.seq)
