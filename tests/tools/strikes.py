"""Interrupt a scenario at every line of the engine, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from interrupts import ENGINE_FILES, interrupt_at
from invariants import check_invariants

from d2lmini import MXNetError, engine


def work() -> None:
    """Long enough that whoever waits for it has to block."""
    sum(range(3000))


class Cells:
    """Two Vars and the log of what wrote them; the world of one strike."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.a, self.b = engine.new_var(), engine.new_var()

    def push(self, name: str, bytask: Callable[[], None] = work) -> None:
        def run() -> None:
            bytask()
            self.log.append(name)

        engine.push(run, reads=[self.b], writes=[self.a], name=name)

    def heal(self) -> None:
        """Struck tasks may have left word that their results are not known: overwrite them."""
        for var in (self.a, self.b):
            if var.error is not None:
                with pytest.raises(MXNetError, match=r"interrupted by Ctrl-C .*\n.*issued at"):
                    engine.wait_for_var(var)
                engine.push(work, writes=[var])

    def verify(self, once: tuple[str, ...] = (), at_most_once: tuple[str, ...] = ()) -> None:
        """The engine is whole, `once` ran, and the Vars work."""
        check_invariants()
        engine.waitall()
        check_invariants()
        assert self.a.idle and self.b.idle
        assert all(self.log.count(name) == 1 for name in once), self.log
        assert all(self.log.count(name) <= 1 for name in at_most_once), self.log
        self.push("again")
        engine.push(lambda: self.log.append("b"), writes=[self.b])
        engine.wait_for_var(self.a)
        engine.wait_for_var(self.b)
        assert {"again", "b"} <= set(self.log)
        assert engine.stats().pending == 0 and engine.stats().pending_bytes == 0


def strike_everywhere(scenario: Callable, files: tuple[str, ...] = ENGINE_FILES) -> None:
    """Run `scenario` once for every point; it is a generator: prepare, yield what is struck, verify
    (told whether it was interrupted)."""
    for k in count():
        steps = scenario()
        act = next(steps)
        with interrupt_at(k, files) as strike:
            act()
        try:
            steps.send(strike.done)
        except StopIteration:
            pass
        except BaseException as problem:
            raise AssertionError(f"struck at {strike.where}") from problem
        if not strike.done:
            assert k > 5, "the scenario has hardly any points: is the tracing broken?"
            return
