"""Guard misses: why a compiled net had to be compiled again.

What was compiled holds for one kind of input. A call with another kind compiles anew, which takes
a thousand times longer than a call; who sees that in a loop wants to know what changed.

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

from collections.abc import Sequence
from typing import Any, NamedTuple

from d2lmini.context import Context
from d2lmini.ops.core import modes


class Kind(NamedTuple):
    """What a compiled program holds for."""

    specs: tuple[Any, ...]
    training: bool
    recording: bool
    ctx: Context


class Guards:
    """The kinds of inputs that were seen, and what was new about each of them but the first."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.misses: list[str] = []

    def note(self, names: Sequence[str], arrays: Sequence[Any], wanted: bool, ctx: Context) -> None:
        """Something was compiled for these arrays. wanted: for gradients too."""
        kind = Kind(tuple([x._spec for x in arrays]), modes.training, wanted, ctx)
        if self.kinds:
            self.misses.append(self._reason(names, kind))
        self.kinds.append(kind)

    def _reason(self, names: Sequence[str], new: Kind) -> str:
        reasons = []
        for i, (name, spec) in enumerate(zip(names, new.specs)):
            seen = list(dict.fromkeys(old.specs[i] for old in self.kinds))
            for what, value, known in (
                ("shape", spec.shape, dict.fromkeys(str(old.shape) for old in seen)),
                ("dtype", spec.dtype, dict.fromkeys(str(old.dtype) for old in seen)),
            ):
                if str(value) not in known:
                    reasons.append(
                        f"input {i} ({name}): {what} {value} was not seen before "
                        f"(have {', '.join(known)})"
                    )
        if all(old.training != new.training for old in self.kinds):
            reasons.append(f"training was {not new.training} in all calls before")
        if all(old.recording != new.recording for old in self.kinds):
            with_, without = "gradients were asked for", "no gradients were asked for"
            before, now = (without, with_) if new.recording else (with_, without)
            reasons.append(f"{now}; in all calls before {before}")
        if all(old.ctx != new.ctx for old in self.kinds):
            seen_ctx = ", ".join(map(str, dict.fromkeys(old.ctx for old in self.kinds)))
            reasons.append(f"context {new.ctx} was not seen before (have {seen_ctx})")
        return "; ".join(reasons) or "this combination of shapes and modes was not seen before"
