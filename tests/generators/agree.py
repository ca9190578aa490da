"""One program on every engine: all must keep the same bits, and leave nothing behind.

>>> [a] = agree("x = nd.arange(4) * 2; keep(x.sum())")
>>> a
array([12.], dtype=float32)
"""

from __future__ import annotations

import contextlib
import io
import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np

import d2lmini
from d2lmini import engine
from d2lmini.compat.mxnet_alias import install_as_mxnet, installed, uninstall

#: Options of `engine.use` by the name that messages give.
ENGINES: dict[str, dict[str, Any]] = {
    "naive": {"kind": "naive"},
    "threaded, 1 worker": {"kind": "threaded", "workers": 1},
    "threaded, 2 workers": {"kind": "threaded", "workers": 2},
    "threaded, 4 workers": {"kind": "threaded", "workers": 4, "inline_below": 0},
    "stepped": {"kind": "stepped", "seed": 1},
}


class Disagreement(AssertionError):
    """Two runs of one program kept different values; its text is in the message."""


def results(text: str) -> list[np.ndarray]:
    """What the program keeps, on the engine in use. What it prints is not shown."""
    kept: list[np.ndarray] = []

    def keep(value: Any) -> None:
        kept.append(np.array(value.asnumpy() if hasattr(value, "asnumpy") else value))

    names = {"mx": d2lmini, "np": np, "keep": keep, "__name__": "__generated__"}
    names |= {name: getattr(d2lmini, name) for name in ("nd", "autograd", "gluon", "init")}
    file = f"<generated {hash(text) & 0xFFFFFF:x}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    with contextlib.redirect_stdout(io.StringIO()), as_mxnet():
        exec(compile(text, file, "exec"), names)
    engine.waitall()
    return kept


@contextlib.contextmanager
def as_mxnet() -> Iterator[None]:
    """As under `d2lmini run`: programs of MXNet's time see what they saw then."""
    if installed():
        yield
        return
    install_as_mxnet()
    try:
        yield
    finally:
        uninstall()


def check(generator: Any, seed: int) -> bool:
    """AssertionError where the results of a drawn program differ. A generator may bring a check of
    its own, `check(seed) -> bool`, which says whether there was a twin in MXNet."""
    if hasattr(generator, "check"):
        return bool(generator.check(seed))
    agree(generator.draw(seed))
    return False


def agree(text: str) -> list[np.ndarray]:
    """The results on the naive engine; Disagreement if another engine gives other bits."""
    first: list[np.ndarray] | None = None
    for name, options in ENGINES.items():
        with engine.use(**options):
            found = results(text)
            assert engine.stats().pending == 0, f"{name}: the program left tasks behind\n{text}"
        if first is None:
            first = found
        same_bits(first, found, f"naive and {name}", text)
    return first or []


def same_bits(a: list[np.ndarray], b: list[np.ndarray], who: str, text: str) -> None:
    """Disagreement unless both lists hold the same bits."""
    if len(a) != len(b):
        raise Disagreement(f"{who}: {len(a)} and {len(b)} values were kept\n{text}")
    for i, (x, y) in enumerate(zip(a, b)):
        if x.shape != y.shape or x.dtype != y.dtype or x.tobytes() != y.tobytes():
            raise Disagreement(f"{who}: value {i} differs\n{x}\n{y}\n{text}")


def close(
    a: list[np.ndarray], b: list[np.ndarray], rtol: float, atol: float, who: str, text: str
) -> None:
    """Disagreement unless both lists hold nearly the same numbers, in the same shapes. `atol` is
    meant for numbers up to 1; of larger arrays it is a share of the largest number, for that is
    what sums lose."""
    if len(a) != len(b):
        raise Disagreement(f"{who}: {len(a)} and {len(b)} values were kept\n{text}")
    for i, (x, y) in enumerate(zip(a, b)):
        room = atol * max(1.0, float(np.max(np.abs(y), initial=0, where=np.isfinite(y))))
        if x.shape != y.shape or not np.allclose(x, y, rtol, room, equal_nan=True):
            raise Disagreement(f"{who}: value {i} differs\n{x}\n{y}\n{text}")
