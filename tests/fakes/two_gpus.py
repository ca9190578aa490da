"""gpu(0) and gpu(1) of the fake, and what a check of theirs raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_kinds import fake_gpus

from d2lmini import MXNetError


@contextmanager
def two_gpus(seed: int, **options: Any) -> Iterator[Any]:
    """gpu(0) and gpu(1), of the fake; gives its machine."""
    with fake_gpus(2, seed, **options) as cupy:
        yield cupy.machine


def errors_of(function: Callable, *args: Any) -> list[Exception]:
    """What `function` raises: AssertionError for values, MXNetError for what a task met."""
    try:
        function(*args)
    except (AssertionError, MXNetError) as error:
        return [error]
    return []
