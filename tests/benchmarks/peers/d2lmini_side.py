"""d2lmini: MXNet's programs, and NumPy's product in the same process to subtract from ours.

After every turn the engine must have executed exactly the operations that the turn counts, with
none left pending.
"""

from __future__ import annotations

from typing import Any

from peers.mxnet_side import MXNet
from peers.numpy_side import NumPy
from peers.side import Turn, blas_threads


class D2lmini(MXNet):
    library = "d2lmini"
    module = "d2lmini"
    statement = "from d2lmini import nd"

    def threads(self) -> str:
        return blas_threads()

    def executed(self) -> int | None:
        stats = self.lib.engine.stats()
        assert stats.pending == 0, f"{stats.pending} operations pending after the clock stopped"
        return stats.executed

    def add__pushed(self, calls: int, x: Any) -> Turn:
        """Every operation through the queue and a worker, however small."""
        return self.never_inline(self.add(calls, x))

    def add_sync__pushed(self, calls: int, x: Any) -> Turn:
        return self.never_inline(self.add_sync(calls, x))

    def import_it__lazy(self, calls: int, n: int) -> Turn:
        """The package alone, which imports its parts when they are first asked for."""
        return self.interpreters(calls, "import d2lmini")

    def never_inline(self, turn: Turn) -> Turn:
        engine = self.lib.engine

        def with_dial_at_zero() -> tuple[float, Any]:
            before, engine.inline_below = engine.inline_below, 0
            try:
                return turn()
            finally:
                engine.inline_below = before

        return with_dial_at_zero


class NumPyHere(NumPy):
    """NumPy's own product in d2lmini's process: same BLAS, same threads, the finest comparison."""

    library = "numpy-here"

    def programs(self, name: str) -> dict[str, str]:
        return super().programs(name) if name == "dot" else {}


sides = (D2lmini, NumPyHere)
