"""Guard misses: why a compiled net was compiled again.

A compiled program is for one kind of input. A call with another kind compiles again, which takes a
thousand times longer than a call; the guard misses tell what changed.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Dense(2)
>>> net.initialize()
>>> net.hybridize()
>>> for n in 1, 1, 4:
...     y = net(nd.ones((n, 512)))
>>> net.guard_misses()
['input 0 (data): shape (4, 512) was not seen before (have (1, 512))']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from d2lmini.context import Context
from d2lmini.ops.core import modes

#: Number of misses kept, the last ones.
MOST_MISSES = 100
#: Number of values remembered for each property, the last ones; and number named in a message.
MOST_SEEN = 1000
MOST_NAMED = 8


class Guards:
    """The properties of the calls that compiled, and what was new in each call after the first.

    seen    the values of each property of a call, such as the shape of input 0, the latest last
    misses  the reasons of the last recompilations
    """

    def __init__(self) -> None:
        self.seen: dict[Any, dict[Any, None]] = {}
        self.misses: deque[str] = deque(maxlen=MOST_MISSES)
        self._inputs: set[int] | None = None  # positions of inputs common to all calls

    def note(self, inputs: Mapping[int, tuple[str, Any]], wanted: bool, ctx: Context) -> None:
        """Record a compilation for these inputs: by position, name and spec. wanted: gradients are
        compiled too."""
        first = self._inputs is None
        reasons = []
        for i, (name, spec) in inputs.items():
            for what, value in ("shape", spec.shape), ("dtype", spec.dtype):
                known = self._new((i, what), value)
                if known:
                    reasons.append(
                        f"input {i} ({name}): {what} {value} was not seen before "
                        f"(have {', '.join(known)})"
                    )
                elif known is not None and not first and what == "shape":
                    reasons.append(f"input {i} ({name}) was not given in any call before")
        for i in sorted((self._inputs or set()) - inputs.keys()):
            reasons.append(f"input {i} was given in all calls before")
        self._inputs = inputs.keys() & (inputs.keys() if self._inputs is None else self._inputs)
        if self._new("training", modes.training):
            reasons.append(f"training was {not modes.training} in all calls before")
        if self._new("recording", wanted):
            with_, without = "gradients were asked for", "no gradients were asked for"
            before, now = (without, with_) if wanted else (with_, without)
            reasons.append(f"{now}; in all calls before {before}")
        others = self._new("context", ctx)
        if others:
            reasons.append(f"context {ctx} was not seen before (have {', '.join(others)})")
        if not first:
            text = "; ".join(reasons)
            self.misses.append(text or "this combination of shapes and modes was not seen before")

    def _new(self, what: Any, value: Any) -> list[str] | None:
        """Remember the value; None if it was known, else the known values as text."""
        seen = self.seen.setdefault(what, {})
        if value in seen:
            return None
        known = [str(known_value) for known_value in islice(reversed(seen), MOST_NAMED)][::-1]
        if len(seen) > MOST_NAMED:
            known.insert(0, f"{len(seen) - MOST_NAMED} others")
        seen[value] = None
        if len(seen) > MOST_SEEN:
            seen.pop(next(iter(seen)))
        return known
