"""The stream programs of the chapter: is there a data race, is the result right, who waits?"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini import streams
from d2lmini.d2l.check import Sentence, Wrong

ORDERS = 20

#: Work that computes nothing.
_BOOKKEEPING = {"poison", "copy to host"}

_HINTS = {
    "race": "{error}",
    "value": "the program returned {got}, expected {expected}",
    "waits": "the host waits before all work is issued ({why}): order the streams by an event, and "
    "let the host wait for the result only",
    "serial": "each copy waits for all kernels before it, so no copy runs beside a kernel. It only "
    "has to wait for the kernels that read the buffer that it fills",
}


def _host(draw: np.random.Generator, *shape: int) -> np.ndarray:
    return draw.integers(1, 100, size=shape).astype(float)


def _square_sum(host: np.ndarray) -> Any:
    return (host * host).sum()


#: Case -> the argument of the program, and its result computed by NumPy.
_CASES: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any], Any]]] = {
    "read back": (lambda draw, n: _host(draw, n), _square_sum),
    "event": (lambda draw, n: _host(draw, n), lambda host: np.sqrt(host) + 1),
    "default stream": (lambda draw, n: _host(draw, n), lambda host: host / host.sum()),
    "reuse": (lambda draw, n: _host(draw, n), lambda host: (np.sqrt(host), np.zeros(host.shape))),
    "double buffer": (
        lambda draw, n: list(_host(draw, n, 4)),
        lambda batches: [_square_sum(batch) for batch in batches],
    ),
}


def check_streams(case: str, program: Callable[[Any], Any]) -> Sentence:
    """A sentence if the stream program is right in 20 orders; else `Wrong`, with a hint.

    case     "read back", "event", "default stream", "reuse" or "double buffer"; ValueError for
             another word
    program  gets an array of the host with random values ("double buffer": a list of batches), and
             returns the result on the host

    Hints: "race" (with the message of the `OrderError`), "value", "waits", "serial". An error in
    the program itself, such as a NameError, is raised as it is.
    """
    if case not in _CASES:
        raise ValueError(f"check_streams: expected one of {', '.join(_CASES)}, got {case!r}")
    make, compute = _CASES[case]
    seed = random.randrange(1 << 30)
    host = make(np.random.default_rng(seed), seed % 5 + 5)
    expected = compute(host)
    for order in range(ORDERS):
        works: list[tuple[Any, int]] = []
        try:
            with streams.simulate(seed=seed + order) as machine:
                _record(machine, works)
                got = program(host)
        except streams.OrderError as error:
            raise Wrong("race", _HINTS["race"].format(error=error)) from None
        if not _agree(got, expected):
            raise Wrong("value", _HINTS["value"].format(got=got, expected=expected))
        waited = max((count for _, count in works), default=0)
        if case != "read back" and waited:
            raise Wrong("waits", _HINTS["waits"].format(why=machine.waits[0][1]))
        if case == "double buffer":
            _check_overlap([work for work, _ in works])
    return Sentence(f"no data race, and the right result, in {ORDERS} orders")


def _record(machine: streams.Machine, works: list[tuple[Any, int]]) -> None:
    """Note all work that computes or copies, and how often the host had waited before."""
    enqueue = machine.enqueue

    def note(work: Any) -> None:
        if work.run is not None and work.name not in _BOOKKEEPING:
            works.append((work, len(machine.waits)))
        enqueue(work)

    machine.enqueue = note  # type: ignore[method-assign]


def _agree(got: Any, expected: Any) -> bool:
    if isinstance(expected, (list, tuple)):
        same_kind = isinstance(got, (list, tuple, np.ndarray)) and len(got) == len(expected)
        return same_kind and all(map(_agree, got, expected))
    try:
        return np.shape(got) == np.shape(expected) and bool(np.allclose(got, expected))
    except (TypeError, ValueError):
        return False


def _check_overlap(works: list[Any]) -> None:
    """Wrong if every copy comes after all kernels that were issued before it."""
    kernels: list[Any] = []
    for work in works:
        if work.name != "copy from host":
            kernels.append(work)
        elif kernels and not all(work.is_after(kernel, {}) for kernel in kernels):
            return
    raise Wrong("serial", _HINTS["serial"])
