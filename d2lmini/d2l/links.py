"""How many bytes were copied between devices, and in which direction.

>>> from d2lmini import nd, virtual_gpus
>>> from d2lmini.d2l.links import traffic
>>> with virtual_gpus(2) as (a, b):
...     x = nd.ones((1000,), ctx=a)
...     with traffic() as links:
...         y = x.copyto(b)
...         total = y.sum().asscalar()
>>> print(links)
gpu(0) -> gpu(1): 4000 bytes in 1 copy
gpu(1) -> cpu: 4 bytes in 1 copy
>>> links.between["gpu(0)", "gpu(1)"], links.nbytes
(4000, 4004)

With these counts a prediction of the traffic on the links can be checked, whatever issues the
copies: the program, a KVStore, or a wait that copies values to the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from d2lmini import engine
from d2lmini.base import instrument
from d2lmini.base.scopes import contextmanager
from d2lmini.ndarray.exchange import Transfer


class Traffic(instrument.Instrument):
    """The copies of a scope that arrived; made by `traffic()`. Places are "cpu", "gpu(0)", ..."""

    def __init__(self) -> None:
        #: (from, to) -> bytes, and how many copies they were.
        self.between: Counter[tuple[str, str]] = Counter()
        self.copies: Counter[tuple[str, str]] = Counter()

    def end(self, task: Any, failure: Any) -> None:
        if isinstance(task, Transfer) and failure is None:
            way = _place(task.source), _place(task.target)
            source = task.source
            self.between[way] += (source[2] if isinstance(source, tuple) else source).nbytes
            self.copies[way] += 1

    @property
    def nbytes(self) -> int:
        """All bytes."""
        return sum(self.between.values())

    def __str__(self) -> str:
        lines = []
        for way, n in sorted(self.between.items()):
            copies = self.copies[way]
            word = "copy" if copies == 1 else "copies"
            lines.append(f"{way[0]} -> {way[1]}: {n} bytes in {copies} {word}")
        return "\n".join(lines) or "no copies"

    __repr__ = __str__


def _place(end: Any) -> str:
    """Where one end of a copy lies: (chunk, offset, spec), or an array of the host."""
    if not isinstance(end, tuple) or end[0].pool.ctx.is_cpu:
        return "cpu"
    return str(end[0].pool.ctx)


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Count the copies within the scope, which begins and ends with an idle engine."""
    engine.waitall()
    links = Traffic()
    with instrument.listening(links):
        yield links
        engine.waitall()
