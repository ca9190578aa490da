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

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from d2lmini import engine
from d2lmini.d2l import load as cores
from labs import reference
from labs.grading import CheckFailed

#: A program that neither pushes nor waits for so long, while work is pending, waits by other means.
_PATIENCE_S = 0.2


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
        answer = "yes" if holds else "no"
        if not holds and self.busy:
            answer = f"machine too busy to tell (other programs used {self.elsewhere:.1f} cores)"
        text = f"measured: {question} {answer}: {found}"
        if not holds and not self.busy and otherwise:
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
    load, begin = Load(), cores.snapshot(children=True)
    yield load
    end = cores.snapshot(children=True)
    load.cores, load.elsewhere = end.cores, cores.cores_elsewhere(begin, end)


@contextmanager
def never_stuck(most: int = 2) -> Iterator[None]:
    """Step the stepped engine if an answer waits by means that the engine does not see, such as a
    loop that looks at a list until a pushed function has filled it. CheckFailed if it does so more
    often than `most`: a busy machine may look like such an answer, once or twice."""
    over, times = threading.Event(), 0

    def step() -> None:
        nonlocal times
        seen = None
        while not over.wait(_PATIENCE_S):
            current = engine.current
            counts = current.stats()  # not `engine.stats`, which traces record as a wait
            if counts == seen and counts.pending and hasattr(current, "run"):
                times += 1
                current.run()
            seen = counts

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if times > most:
        raise CheckFailed(
            "waiting",
            f"{times} times the program went on only when its work was done: it waits by means of "
            "its own, such as a loop or a sleep. The engine keeps the order by itself: leave it "
            "out",
        )
