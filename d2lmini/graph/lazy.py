"""The lazy scope: what is never read is never computed.

>>> import d2lmini
>>> from d2lmini import engine, nd
>>> x = nd.ones((2, 3))
>>> nd.waitall()
>>> before = engine.stats().executed
>>> with d2lmini.lazy() as scope:
...     for _ in range(1000):
...         y = x + 1                # recorded; the one before, which nobody can read, is dropped
...     y.asnumpy()                  # a wait: what it needs is compiled and run
array([[2., 2., 2.],
       [2., 2., 2.]], dtype=float32)
>>> engine.stats().executed - before
1
>>> scope
<lazy scope: 1000 recorded, 1 computed, 999 dropped, 1 program compiled>

Outside a scope the engine runs every operation that is pushed, as MXNet's does. Inside, operations
of this thread become steps of a graph (`lazy_graph`). The first wait for a value brings what that
needs through the compiler's passes, and it runs as one task (`lazy_task`); `print(scope.program())`
shows the generated code. At the end of the scope all that somebody can still read is pushed.

All else keeps its meaning. Shapes are checked at the call, and random numbers drawn there. An
operation that changes part of an array, or is none of ours (`engine.push`, a compiled net), is
pushed as always, after all that it reads, and all that must read before it writes. Other threads
may wait for what is recorded. An error is that of the operation which failed, with its line. What
lies on several devices is recorded alike; a copy between them is pushed, and computes what it takes
along.

How it is done is told in `lazy_recorder`.
"""

from __future__ import annotations

from functools import partial

from d2lmini.base import MXNetError
from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.graph.lazy_recorder import recorder, thread_state
from d2lmini.graph.program import Program


class lazy(Scope):
    """A scope in which operations of this thread are recorded and computed when they are needed.

    recorded  operations so far
    computed  those that a task was pushed for
    dropped   those whose results can't be read any more
    compiled  how many programs had to be compiled for them
    """

    def __init__(self) -> None:
        self.recorded = self.computed = self.compiled = 0
        self._programs: dict[Program, None] = {}
        self.outer: lazy | None = None

    @property
    def dropped(self) -> int:
        """How many operations were recorded whose results can't be read any more."""
        return self.recorded - self.computed - recorder.waiting(self)

    def program(self) -> str:
        """The source of the programs that ran, each once."""
        return "\n".join(map(str, self._programs))

    def _begin(self, undo: Undo) -> lazy:
        if self in recorder.scopes:
            raise MXNetError("this lazy scope is open already; make another: with d2lmini.lazy():")
        self.outer = thread_state.scope
        undo.append(partial(recorder.end, self))
        recorder.begin(self)
        undo.append(partial(recorder.finish, self))
        swap(undo, thread_state, "scope", self)
        return self

    def __repr__(self) -> str:
        programs = "1 program" if self.compiled == 1 else f"{self.compiled} programs"
        return (
            f"<lazy scope: {self.recorded} recorded, {self.computed} computed, "
            f"{self.dropped} dropped, {programs} compiled>"
        )
