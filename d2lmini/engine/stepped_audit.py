"""Which pushed functions read or write an array that they do not name?

>>> import numpy as np
>>> from d2lmini import engine, nd
>>> def program():
...     a, b = nd.ones((2,)), nd.zeros((2,))
...     x, y = a.asnumpy_view(), b.asnumpy_view()
...     engine.push(lambda: np.multiply(x, 2, out=y), writes=[b], name="double")     # reads=[a]
...     return b
>>> print(engine.audit(program))                 # doctest: +ELLIPSIS
1 pushed function, run with the arrays scrambled that it does not name:
3 double reads v1 (of 1 _ones) and does not name it in reads: issued at ...

`engine.explore` needs an order in which the mistake shows. The audit needs none. The program runs
on the stepped engine, line by line, once as it is; then once more, where each pushed function finds
every array scrambled that it does not name. If such an array is not as scrambled afterwards, the
function writes it. If the function does not do what it did the first time (in the arrays that it
writes, in its error, or in what the program returns), it reads one; halving the set of scrambled
arrays tells which. So there are a few runs for each mistake, and four if there is none.

An array that the function names only in `writes` is not scrambled: its order is right, whether it
is overwritten whole or in part. What is no array of this library (a list, a file, a NumPy array of
its own) is not seen, nor an array from before the program that no operation of it names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from d2lmini import instrument
from d2lmini.base import MXNetError
from d2lmini.engine.core import FunctionTask, Task, Var
from d2lmini.engine.operation import Operation
from d2lmini.engine.stepped_blame import Program, bits_of, outcome_of
from d2lmini.engine.stepped_engine import SteppedEngine


@dataclass(frozen=True)
class Undeclared:
    """A function that uses an array without naming it.

    operation  the pushed function; its `where` is the line that pushed it
    kind       "reads" or "writes"
    array      the array, in words
    """

    operation: Operation
    kind: str
    array: str

    def __str__(self) -> str:
        return (
            f"{self.operation} {self.kind} {self.array} and does not name it in {self.kind}: "
            f"issued at {self.operation.where}"
        )


class Audit:
    """The result of `engine.audit`; print it to read it.

    functions  number of pushed functions
    found      the undeclared reads and writes
    """

    def __init__(self, functions: int, found: Sequence[Undeclared]):
        self.functions = functions
        self.found = list(found)

    def __str__(self) -> str:
        n = f"{self.functions} pushed function{'s' * (self.functions != 1)}"
        said = (
            f"{n}, run with the arrays scrambled that {'it does' if n[:2] == '1 ' else 'they do'} "
        )
        if not self.found:
            return said + "not name: no undeclared read or write"
        return "\n".join([said + "not name:", *map(str, self.found)])

    __repr__ = __str__


class _Run(instrument.Instrument):
    """One run of the program, in which some arrays are scrambled while some functions run.

    scrambles   (number of the function, place of the array) -> scramble it?
    left        what each function left, in the run without scrambling, in arrays that it does not
                name: by number and place
    did         for each function: what it wrote, and its error
    wrote       for each function: the places of arrays that it changed and does not name
    """

    def __init__(
        self,
        engine: SteppedEngine,
        scrambles: Callable[[int, int], bool],
        left: dict[tuple[int, int], np.ndarray],
    ):
        self.engine = engine
        self.scrambles = scrambles
        self.left = left
        self.places: WeakKeyDictionary[Var, int] = WeakKeyDictionary()
        self._made = 0
        self.numbers: dict[int, int] = {}  # by place: the number under which the engine knows it
        self.did: dict[int, object] = {}
        self.wrote: dict[int, list[int]] = {}
        self.seen: dict[int, list[int]] = {}
        self._kept: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []

    def push(self, task: Task) -> None:
        for var in (*task.shared, *task.writes):
            self._place(var)

    def alloc(self, ctx: Any, nbytes: int, var: Any) -> None:
        self._place(var)

    def _place(self, var: Var) -> int:
        if var not in self.places:
            self.places[var] = self._made
            self._made += 1
        return self.places[var]

    def start(self, task: Task, worker: str) -> None:
        """Scramble what the function does not name. What it only reads must stay as it is."""
        for var in (*task.shared, *task.writes):
            self.numbers[self._place(var)] = self.engine.numbers[var]
        if not isinstance(task, FunctionTask):
            return
        self.seen[task.seq] = []
        for var, place in sorted(self.places.items(), key=lambda item: item[1]):
            data = getattr(var, "data", None)
            if var in task.writes or not isinstance(data, np.ndarray):
                continue
            if not (data.size and data.flags.writeable):
                continue
            before = data.copy()
            if var not in task.shared:
                self.seen[task.seq].append(place)
                if self.scrambles(task.seq, place):
                    data[...] = _scramble(before)
            self._kept.append((place, data, before, data.copy()))

    def end(self, task: Task, failure: Any) -> None:
        """Compare, and give the arrays their contents back."""
        if not isinstance(task, FunctionTask):
            return
        self.wrote[task.seq] = []
        for place, data, before, there in self._kept:
            if not _equal(data, there):
                self.wrote[task.seq].append(place)
                if _equal(before, there):  # not scrambled
                    self.left.setdefault((task.seq, place), data.copy())
            if not _equal(before, there):
                data[...] = self.left.get((task.seq, place), before)
        self._kept.clear()
        contents = [bits_of(_contents(var)) for var in task.writes]
        self.did[task.seq] = contents, None if failure is None else failure.report.text

    def name(self, place: int) -> str:
        """The array, in words."""
        number = self.numbers.get(place)
        return "an array that no operation names" if number is None else self.engine.name_of(number)


class _Auditor:
    def __init__(self, use: Callable[..., AbstractContextManager[Any]], program: Program):
        self.use = use
        self.program = program
        self.left: dict[tuple[int, int], np.ndarray] = {}

    def run(self, scrambles: Callable[[int, int], bool]) -> tuple[object, _Run]:
        """The outcome of the program, and what its functions did."""
        with self.use("stepped", order=()) as engine:
            run = _Run(engine, scrambles, self.left)
            with instrument.listening(run):
                return outcome_of(self.program, engine, "audit"), run

    def audit(self) -> Audit:
        """See `engine.audit`."""
        self.expected, plain = self.run(lambda number, place: False)
        self.did = plain.did
        again, repeated = self.run(lambda number, place: False)
        if again != self.expected or repeated.did != plain.did:
            raise MXNetError(
                "audit: the program does not do the same when it is run twice line by line; let it "
                "begin with new arrays, and seed what it draws (d2lmini.random.seed)"
            )
        operations = plain.engine.operations
        scrambled = self.run(lambda number, place: True)[1]
        found = [
            Undeclared(operations[number], "writes", plain.name(place))
            for run in (plain, scrambled)
            for number, places in run.wrote.items()
            for place in places
            if number in operations
        ]
        found = list(dict.fromkeys(found))
        cleared: set[int] = set()
        while (number := self._first_other(set(plain.did) - cleared)) is not None:
            place = self._read_by(number, plain.seen[number])
            found.append(Undeclared(operations[number], "reads", plain.name(place)))
            cleared.add(number)
        found.sort(key=lambda undeclared: undeclared.operation.number)
        return Audit(len(plain.did), found)

    def _is_other(self, numbers: set[int], places: set[int] | None = None) -> list[int] | None:
        """Scramble arrays while these functions run. None if all is as it was; else the functions
        that did something else, perhaps none of them."""
        outcome, run = self.run(
            lambda number, place: number in numbers and (places is None or place in places)
        )
        other = [number for number in sorted(numbers) if run.did.get(number) != self.did[number]]
        return other if other or outcome != self.expected else None

    def _first_other(self, numbers: set[int]) -> int | None:
        """The first function that does something else when arrays are scrambled that it does not
        name; None if there is none."""
        other = self._is_other(numbers)
        if other is None:
            return None
        if other:
            return other[0]
        # A function keeps what it read where only the program's result shows it: halve.
        candidates = sorted(numbers)
        while len(candidates) > 1:
            half = candidates[: len(candidates) // 2]
            candidates = half if self._is_other(set(half)) is not None else candidates[len(half) :]
        return candidates[0]

    def _read_by(self, number: int, places: list[int]) -> int:
        """One of the arrays whose scrambling changes what function `number` does."""
        while len(places) > 1:
            half = places[: len(places) // 2]
            changed = self._is_other({number}, set(half)) is not None
            places = half if changed else places[len(half) :]
        return places[0]


def audit(use: Callable[..., AbstractContextManager[Any]], program: Program) -> Audit:
    """See `engine.audit`; `use` is `engine.use`."""
    return _Auditor(use, program).audit()


def _contents(var: Var) -> Any:
    data = getattr(var, "data", None)
    return data.copy() if isinstance(data, np.ndarray) else None


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


def _scramble(data: np.ndarray) -> np.ndarray:
    """Other contents, in each element, of the same shape and dtype."""
    if data.dtype == bool:
        return ~data
    rng = np.random.default_rng(data.size)
    if np.issubdtype(data.dtype, np.integer):
        return data + rng.integers(1, 5, data.shape).astype(data.dtype)
    return np.asarray(
        np.where(np.isfinite(data), -3 * data, 0) + 1 + rng.random(data.shape)
    ).astype(data.dtype)
