"""Whoever can write into memory holds it: nothing lends it to another as long as a view exists.

What other files test by values is tested here by who keeps what alive: blocks of the pool, arenas
of compiled nets, scratch memory and loans.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import check_memory
import numpy as np
import pytest

from d2lmini import Context, autograd, cpu, engine, init, nd, storage
from d2lmini.device import scratch
from d2lmini.device.storage import Chunk, Pool
from d2lmini.gluon import nn


@pytest.fixture
def unchecked():
    """Without the memory checker, for which some of what is done here is a fault."""
    was_on = storage.checker is not None
    check_memory.turn_on(False)
    yield
    check_memory.turn_on(was_on)


#: Sizes of arrays that were made after a net was compiled: every size class up to 40 KiB.
LATER = [n * 256 for n in range(1, 17)] + [n * 1024 for n in range(5, 40, 2)]

LAYERS: dict[str, Callable[[], Any]] = {
    "Dense": lambda: nn.Dense(32, activation="relu"),
    "LayerNorm": lambda: nn.LayerNorm(),
    "BatchNorm": lambda: nn.BatchNorm(),
    "softmax": lambda: nn.HybridLambda(lambda F, x: F.softmax(x * 2)),
    "relu": lambda: nn.Activation("relu"),
    "exp": lambda: nn.HybridLambda(lambda F, x: F.exp(x * 0.5)),
    "elementwise": lambda: nn.HybridLambda(lambda F, x: F.sqrt(F.abs(x) + 1) * x),
    "sums": lambda: nn.HybridLambda(lambda F, x: F.broadcast_sub(x, F.mean(x, axis=1, keepdims=1))),
    "Dropout": lambda: nn.Dropout(0.5),
    "Embedding": lambda: nn.HybridLambda(lambda F, x: F.one_hot(F.abs(x).sum(axis=1), 8)),
}
SIZES = [(1, 7), (3, 33), (8, 64), (16, 33), (32, 32), (32, 64), (64, 32), (50, 41), (128, 16)]


def later_arrays() -> list[Any]:
    """Arrays of all sizes, each full of its own number."""
    return [nd.full((nbytes // 4,), i) for i, nbytes in enumerate(LATER)]


def changed(arrays: list[Any]) -> list[int]:
    """Those that hold another number than their own."""
    return [i for i, x in enumerate(arrays) if not (x.asnumpy() == i).all()]


@pytest.mark.parametrize("options", [{}, {"static_alloc": True}], ids=["plain", "static"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_compiled_net_writes_into_no_array_made_after_it(layer: str, options: dict):
    for rows, columns in SIZES:
        net = nn.HybridSequential()
        net.add(LAYERS[layer](), nn.Dense(10))
        net.initialize(init.Xavier())
        net.hybridize(**options)
        x = nd.random.normal(shape=(rows, columns))
        net(x)
        with autograd.record():
            net(x).backward()
        mine = later_arrays()
        for _ in range(2):
            net(x)
            with autograd.record():
                net(x).backward()
        assert changed(mine) == [], f"{layer}, x {rows} x {columns}"


# -- blocks of the pool ----------------------------------------------------------------------------


@pytest.fixture
def ctx():
    """A context of its own, so that the pool begins with nothing."""
    return Context("cpu", random.randrange(1000, 10**6))


def lent(pool: Pool, nbytes: int) -> tuple[Chunk, int]:
    """A chunk, and the address of its memory."""
    chunk = Chunk(pool, nbytes)
    return chunk, chunk.allocate((nbytes,), np.dtype("uint8")).ctypes.data


VIEWS: dict[str, Callable[[np.ndarray], Any]] = {
    "the array": lambda a: a,
    "a slice": lambda a: a[100:200],
    "a view of a view": lambda a: a.reshape(64, -1)[3].view(np.float32)[::2],
    "transposed": lambda a: a.reshape(64, -1).T,
    "by its buffer": lambda a: memoryview(a),
    "by frombuffer": lambda a: np.frombuffer(a, np.float32),
    "by DLPack": lambda a: np.from_dlpack(a),
    "a capsule": lambda a: a.__dlpack__(),
    "a closure": lambda a: lambda: a.fill(1),
    "by ctypes": lambda a: a.ctypes.data_as(__import__("ctypes").c_void_p),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_block_is_lent_again_only_if_no_view_of_it_exists(kind: str):
    pool = Pool(cpu())
    chunk, address = lent(pool, 8192)
    view = VIEWS[kind](chunk.data)
    del chunk
    other, elsewhere = lent(pool, 8192)
    assert elsewhere != address
    del other, view
    assert lent(pool, 8192)[1] == elsewhere, "what nobody looks into is lent again"


def test_a_lease_keeps_its_chunk(ctx):
    for make in (np.from_dlpack, lambda x: x._chunk.lease()):
        x = nd.ones((100, 100), ctx=ctx)
        x.wait_to_read()
        part = make(x)[3:5]
        del x
        gc.collect()
        assert storage.stats(ctx).live == 40_000
        del part
        engine.waitall()
        assert storage.stats(ctx).live == 0


# -- scratch memory, and arrays that came from outside ---------------------------------------------


@pytest.mark.parametrize("kind", VIEWS)
def test_scratch_memory_is_given_again_only_if_no_view_of_it_exists(kind: str, unchecked):
    mine = scratch.Scratch()
    view = VIEWS[kind](mine.array("a", 8192, np.uint8))
    first = mine.memory["a"].ctypes.data
    assert mine.array("a", 8192, np.uint8).ctypes.data != first
    del view
    second = mine.memory["a"].ctypes.data
    assert mine.array("a", 4096, np.uint8).ctypes.data == second
