"""Sentences that depend on what a run found, on a quiet machine and on a busy one.

    with shared.watch() as load:
        model_ms, run_ms = predict(), measure()
    load.say("is the model right?", f"model {model_ms:.0f} ms, run {run_ms:.0f} ms",
             holds=0.8 < model_ms / run_ms < 1.25)

prints one line that begins with `measured:`. If the claim does not hold and other programs used
the machine meanwhile, the line says so, and a line `reference:` shows what a quiet machine found.
Nothing is raised: a busy machine is no error of the reader's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from d2lmini.d2l import load as cores
from d2lmini.d2l import reference


class Load:
    """How many cores other programs used during `watch`. busy: enough to disturb a measurement."""

    def __init__(self) -> None:
        self.elsewhere: float | None = None
        self.cores = 0

    @property
    def busy(self) -> bool:
        return self.elsewhere is not None and self.elsewhere >= cores.LOADED

    def say(self, question: str, found: str, *, holds: bool, otherwise: str = "") -> None:
        """Print what was found; if the claim does not hold also why, as far as it is known.

        question names the claim: the figure of a quiet machine is kept under it. otherwise: the
        sentence that is true when the claim does not hold on a quiet machine.
        """
        text = f"measured: {question} {'yes' if holds else 'no'}: {found}"
        if not holds and self.busy:
            text += f"; the machine was too busy to tell (others used {self.elsewhere:.1f} cores)"
        elif not holds and otherwise:
            text += f"; {otherwise}"
        print(text)
        kept = reference.keep_or_find(
            reference.key_of([], question), lambda: found, self.cores, self.elsewhere
        )
        if kept and (self.busy or not holds):
            print(kept)


@contextmanager
def watch() -> Iterator[Load]:
    """Watch what other programs use of the machine until the end of the scope."""
    load, begin = Load(), snapshot()
    yield load
    end = snapshot()
    load.cores, load.elsewhere = end.cores, cores.cores_elsewhere(begin, end)


def snapshot() -> cores.Snapshot:
    """The state of the machine now; processes that this one started and that have ended are no
    other programs."""
    return cores.snapshot()._replace(ours_s=sum(os.times()[:4]))
