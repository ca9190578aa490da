"""The kinds of GPUs that tests of devices are run over: what is promised of a device holds for all.

    virtual  on the CPU's cores (`d2lmini.virtual_gpus`)
    fake     the CUDA device on a CuPy made of NumPy, which reports accesses that no event orders
    cuda     the CUDA device on real GPUs: skipped where there is none; one is enough, for several
             devices are made on it

`D2LMINI_TEST_GPUS="virtual fake"` chooses among them. `WITH_CPU` is for what holds for several
contexts of the CPU, too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from d2lmini import Context, cpu, engine, virtual_gpus
from d2lmini.base import MXNetError
from d2lmini.device import devices

#: By so many units in the last place a function such as exp may differ from device to device:
#: CUDA's documentation allows its own 4, and NumPy's are as good.
FUNCTION = 8

KINDS = os.environ.get("D2LMINI_TEST_GPUS", "virtual fake cuda").split()
WITH_CPU = ["cpu", *KINDS]


def kinds_and_counts(counts: Iterable[int]) -> list[tuple[str, int]]:
    """For tests over several numbers of GPUs: of the fake, which takes its time, only 3."""
    return [(kind, n) for kind in KINDS for n in counts if kind != "fake" or n == 3]


def using(cupy: Any) -> Any:
    """A scope in which `cupy` stands in for CuPy; None: as if CuPy were missing. Existing devices
    keep the module that they were made with."""
    from d2lmini.cuda import module

    found = module.Found(None, 0, module._INSTALL) if cupy is None else module._probe(cupy)
    return mock.patch.object(module, "look", lambda: found)


@contextmanager
def logical_gpus(n: int, memory: int | None = None) -> Iterator[list[Context]]:
    """A scope in which gpu(0) to gpu(n - 1) are separate devices on the available GPUs, several on
    each if n is larger; `memory`: limit in bytes for the arrays on each, None: the GPU's memory.
    MXNetError if there is no GPU."""
    from d2lmini.cuda import module
    from d2lmini.cuda.device import make_devices

    if not module.look().gpus:
        raise MXNetError(f"logical_gpus: {module.look().missing}")
    engine.current.wait_idle("logical_gpus")
    before, made = devices.state(), make_devices(n, module.look().gpus, memory)
    devices.install(made, None)
    try:
        yield [device.ctx for device in made]
    finally:
        engine.current.wait_idle("logical_gpus")
        devices.install(*before)


@contextmanager
def fake_gpus(n: int = 1, seed: int = 1, logical: int | None = None, **options: Any) -> Iterator:
    """A scope with gpu(0) to gpu(n - 1) of the fake, or `logical` devices on them; the CuPy."""
    # Not at the head of the file: tests run without the add-on too (`test_addons.py`).
    from fakes.cuda import fake_cuda

    with fake_cuda(n, seed=seed, **options) as cupy, using(cupy), logical_gpus(logical or n):
        yield cupy
        engine.waitall()


def real_cupy() -> Any:
    """CuPy if it finds a GPU; else the test is skipped, and says why."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        pytest.skip("CuPy is not installed")
    if not cupy.is_available():
        pytest.skip("CuPy finds no GPU")
    return cupy


@contextmanager
def some_gpus(
    kind: str, n: int, *, memory: int | None = None, link_gb_s: float = 100, seed: int = 0
) -> Iterator[list[Context]]:
    """A scope with n GPUs of a kind, or contexts of the CPU; the last two arguments are of virtual
    ones, and of the fake's order."""
    with ExitStack() as stack:
        if kind == "cpu":
            yield [cpu(i) for i in range(n)]
            return
        if kind == "virtual":
            yield stack.enter_context(virtual_gpus(n, link_gb_s=link_gb_s, memory=memory))
            return
        from fakes.cuda import fake_cuda

        cupy = (
            real_cupy() if kind == "cuda" else stack.enter_context(fake_cuda(max(n, 1), seed=seed))
        )
        stack.enter_context(using(cupy))
        yield stack.enter_context(logical_gpus(n, memory=memory))
