"""Hidden waits: lines that wait for a value without saying so.

`x.asnumpy()` is an explicit wait. `if loss < 1:` and `print(loss)` are not, but the program stops
there until the engine has computed the value, and issues nothing meanwhile.

>>> import d2lmini
>>> from d2lmini import nd
>>> loss = nd.ones((2,)).mean()
>>> with d2lmini.lint_waits("raise"):
...     if loss < 2:
...         pass
Traceback (most recent call last):
  ...
d2lmini.profiler.lint.HiddenWait: hidden wait (bool): ... waits for _lesser_scalar, ...

A wait is hidden if

- Python asks for the value implicitly: a truth value, a number, a text, an index, membership
  (`in`), a NumPy array (`np.median(x)`), or a shape that depends on values;
- a function of this library reads the value although its name does not say so (`metric.update`);
- it is within `autograd.record()`, where backward cannot be issued yet.

Not hidden: asnumpy, asscalar, item, tolist, wait_to_read and similar calls by the program itself,
writing to files, and back-pressure, which `engine.limit_pending` requests.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from d2lmini.base import MXNetError, callsite, forks, instrument
from d2lmini.base.callsite import Site
from d2lmini.base.scopes import Standing
from d2lmini.engine.core import Task, Var
from d2lmini.ops.core import modes

#: Kinds of hidden waits, each with an alternative.
HIDDEN = {
    "bool": "keep both results and choose with nd.where, or ask once in many steps",
    "float": "calculate with the array itself, and read the number when the loop is over",
    "int": "calculate with the array itself, and read the number when the loop is over",
    "index": "index an NDArray with it (x[i], nd.take), which does not wait",
    "print": "print when the loop is over, or once in many steps; x.shape is known without a wait",
    "in": "(x == value).sum() stays an array; read it when the loop is over",
    "__array__": "use the function of nd, or write asnumpy() where the value is needed",
    "dlpack": "write wait_to_read() before it, where waiting costs least",
}

#: Kinds that are explicit, if the program's own line calls them.
READING = frozenset({"asnumpy", "asscalar", "item", "tolist"})

#: Prefixes of our functions whose purpose is to read values.
_READERS = tuple("save load export assert_ check_ compare same almost_equal to_dlpack".split())

MODES = ("warn", "raise", "off")


class HiddenWait(MXNetError):
    """A line waits for a value without saying so; raised by `lint_waits("raise")`."""


@lru_cache(maxsize=1000)
def why_hidden(kind: str, call: str, recording: bool) -> str | None:
    """An alternative to a hidden wait of this kind, by a line that called our function `call`,
    perhaps within `record`. None if the wait is not hidden, or no line of the program called."""
    name = call.rpartition(".")[2]
    if not name or name.startswith(_READERS):
        return None
    if kind in HIDDEN:
        return HIDDEN[kind]
    if kind not in READING:
        return None
    if name != kind:
        return f"{call} reads values: call it when more work is issued, or once in many steps"
    if recording:
        return "read it after the record() scope, when backward() is issued"
    return None


@dataclass(slots=True)
class LintFinding:
    """A line with a hidden wait.

    kind    the kind of wait; `site` the line
    awaited, issued    the operation that computes the awaited value, and the line that issued it
    times   number of waits so far
    """

    kind: str
    site: Site | None
    awaited: str
    issued: Site | None
    instead: str
    times: int = 0

    @property
    def where(self) -> str:
        """ "train.py:12: if loss < 1:" """
        return callsite.describe(self.site)

    def __str__(self) -> str:
        awaited = "a value from the host, or from before the lint"
        if self.awaited:
            awaited = f"{self.awaited}, issued at {callsite.describe(self.issued)}"
        return (
            f"hidden wait ({self.kind}): {self.where} waits for {awaited}. Instead: {self.instead}"
        )


class Lint(Standing, instrument.Instrument):
    """Finds hidden waits on all threads; made by `lint_waits`.

    found    the lines, in the order of their first wait
    """

    def __init__(self, mode: str):
        super().__init__()
        self.mode = mode
        self.found: list[LintFinding] = []
        self._known: dict[tuple[str, Any], LintFinding] = {}  # by kind and line
        self._writers: WeakKeyDictionary[Var, tuple[str, Site | None]] = WeakKeyDictionary()

    def push(self, task: Task) -> None:
        for var in task.writes:
            self._writers[var] = task.name, task.site

    def small(
        self, name: str, ctx: Any, reads: Any, writes: tuple[Var, ...], site: Site | None, *_: Any
    ) -> None:
        for var in writes:
            self._writers[var] = name, site

    def before_wait(self, kind: str, var: Var | None) -> None:
        """Called before each wait, on its thread."""
        instead = why_hidden(kind, callsite.name_of(callsite.called_function()), modes.recording)
        if instead is None:
            return
        site = callsite.find()
        key = kind, callsite.same_line(site)
        found = self._known.get(key)
        first = found is None
        if found is None:
            awaited, issued = ("", None) if var is None else self._writers.get(var, ("", None))
            found = self._known[key] = LintFinding(kind, site, awaited, issued, instead)
            self.found.append(found)
        found.times += 1
        if self.mode == "raise":
            raise HiddenWait(str(found))
        if first:
            callsite.warn(str(found))

    def __str__(self) -> str:
        return "\n".join(f"{wait} ({wait.times} x)" for wait in self.found) or "no hidden wait"

    def __repr__(self) -> str:
        return f"<lint_waits({self.mode!r}): {len(self.found)} lines with hidden waits>"


_current: Lint | None = None
_door = forks.guard(threading.Lock())


def lint_waits(mode: str = "warn") -> Lint:
    """Look for hidden waits from now on, on all threads; in a `with` statement until its end.

    mode: "warn" warns once for each line and kind of wait, "raise" raises HiddenWait in place of
    waiting, "off" ends the search. The engine stays usable; a refused wait loses no result. `found`
    of the result lists the lines. ValueError for another mode.
    """
    if mode not in MODES:
        raise ValueError(f"lint_waits: mode is {mode!r}, need one of {', '.join(MODES)}")
    lint = Lint(mode)
    lint.undo.append(partial(_install, _current))
    lint.install(partial(_install, None if mode == "off" else lint))
    return lint


def _install(lint: Lint | None) -> None:
    """Activate `lint`; None: no lint."""
    global _current
    with _door:
        if _current is not None:
            instrument.remove(_current)
        _current = lint
        instrument.before_wait = None
        if lint is not None:
            instrument.add(lint)
            instrument.before_wait = lint.before_wait
