"""What every operation gives is an array like any other: its memory is its own and in C order, and
what is written into it, or into a view of it, is there afterwards; on every road that a call takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from op_rows.case import Case
from op_rows.table import ROWS, each, find
from rows import by

from d2lmini import engine, gpu, nd, sym, virtual_gpus
from d2lmini.device.storage import SMALL
from d2lmini.gluon.data.dataset import gather
from d2lmini.graph.cached_op import CachedOp
from d2lmini.ndarray.exchange import from_array
from d2lmini.ops.core import Op

#: Of each op the first rows.
FEW = [case for rows in by(lambda case: case.op, ROWS).values() for case in rows[:4]]
#: A call again: the first one plans, the second goes the road that it found, the third the same.
CALLS = 3

ENGINES = {
    "inline": {"kind": "threaded"},
    "worker": {"kind": "threaded", "inline_below": 0},
    "naive": {"kind": "naive"},
}


def check(y: nd.NDArray, who: str) -> None:
    """Writes of every kind arrive."""
    y.wait_to_read()
    memory = y._chunk.data
    assert memory.flags.c_contiguous, f"{who}: not in C order"
    if not y.context.is_cpu or y.size == 0:
        return
    assert memory.flags.writeable, f"{who}: read-only"
    y[:] = 0
    y.reshape(-1)[:] = 1
    assert _all(y, 1), f"{who}: y.reshape(-1)[:] = 1 is lost"
    if y.ndim == 0:
        return
    y[0] = 2
    assert _all(y[0], 2), f"{who}: y[0] = 2 is lost"
    part = y[0:1]
    nd.zeros_like(part, out=part)
    assert _all(y[0], 0), f"{who}: out=y[0:1] is lost"
    if y.dtype is not np.bool_:
        y[0] += 3
        assert _all(y[0], 3), f"{who}: y[0] += 3 is lost"
        y *= 2
        assert _all(y[0], 6), f"{who}: y *= 2 is lost"


def _all(y: nd.NDArray, value: int) -> bool:
    return bool((y.asnumpy() == np.array(value).astype(y.dtype)).all())


def check_apart(results: list[nd.NDArray], others: list, who: str) -> None:
    """No two arrays share memory."""
    arrays = [x for x in (*results, *others) if isinstance(x, nd.NDArray) and x.context.is_cpu]
    assert len({id(x._chunk) for x in results}) == len(results), f"{who}: two results are one"
    memory = [x._chunk.data for x in arrays if x._chunk.data is not None]
    for i, a in enumerate(memory[: len(results)]):
        for b in memory[i + 1 :]:
            assert not np.may_share_memory(a, b), f"{who}: shares memory"


def listed(results) -> list[nd.NDArray]:
    return results if isinstance(results, list) else [results]


def inputs_of(case: Case, times: int, ctx=None) -> list:
    """The row's inputs, `times` as many rows of each."""
    return [
        nd.array(np.concatenate([i] * times) if times > 1 else i, dtype=i.dtype, ctx=ctx)
        if isinstance(i, np.ndarray)
        else i
        for i in case.inputs
    ]


@contextmanager
def _queued() -> Iterator[None]:
    """A scope in which everything is handed to a worker."""
    before, engine.current.inline_below = engine.current.inline_below, 0
    yield
    engine.current.inline_below = before


@each(ROWS)
def test_small(case: Case):
    op = find(case.op)
    for _ in range(CALLS):
        inputs = inputs_of(case, 1)
        results = listed(op(*inputs, **case.attrs))
        nd.waitall()
        check_apart(results, [] if isinstance(op, Op) and op.mutates else inputs, case.id)
        for y in results:
            check(y, case.id)


@pytest.mark.law
@each(FEW)
def test_queued_and_large(case: Case):
    """As many rows as make an array of the pool, by workers; where the op takes no such inputs,
    the row's own. And on a virtual GPU."""
    op = find(case.op)
    largest = max((i.nbytes for i in case.inputs if np.ndim(i)), default=0)
    stackable = largest > 0 and all(np.ndim(i) for i in case.inputs)
    with _queued():
        for times in (1, -(-SMALL // largest)) if stackable else (1,):
            try:
                results = listed(op(*inputs_of(case, times), **case.attrs))
                nd.waitall()
            except Exception:
                assert times > 1
                continue
            for y in results:
                check(y, case.id)
    if any(isinstance(i, np.ndarray) for i in case.inputs):
        with virtual_gpus(1):
            for y in listed(op(*inputs_of(case, 1, gpu(0)), **case.attrs)):
                y.wait_to_read()
                assert y._chunk.data.flags.c_contiguous


@each(FEW)
def test_compiled(case: Case):
    op = find(case.op)
    if not isinstance(op, Op) or not all(isinstance(i, np.ndarray) for i in case.inputs):
        return
    inputs = inputs_of(case, 1)
    variables = [sym.var(f"x{i}") for i in range(len(inputs))]
    # Called by name a broadcast op broadcasts; the operators of Symbols do not.
    call = getattr(sym, case.op) if op.broadcasts else op
    function = CachedOp(call(*variables, **case.attrs)) if inputs else None
    if function is None or len(function.variables) != len(inputs):
        return
    for _ in range(CALLS):
        results = listed(function(*inputs))
        nd.waitall()
        check_apart(results, inputs, case.id)
        for y in results:
            check(y, case.id)


A = np.arange(24, dtype="float32").reshape(2, 3, 4)

WAYS: dict[str, Callable] = {
    "T": lambda x: x.T,
    "moveaxis": lambda x: nd.moveaxis(x, 0, 2),
    "SwapAxis": lambda x: nd.SwapAxis(x, dim1=0, dim2=2),
    "of a transposed one": lambda x: nd.broadcast_add(x.T, x.T),
    "astype": lambda x: x.T.astype("float64"),
    "a column": lambda x: x[:, 0],
    "advanced columns": lambda x: x[:, [0, 2]],
    "Fortran's order": lambda x: nd.array(np.asfortranarray(x.asnumpy())),
    "from_numpy": lambda x: nd.from_numpy(x.asnumpy().T, zero_copy=False),
    "read-only": lambda x: from_array(_read_only(x), x.context, adopt=True),
    "adopted": lambda x: from_array(x.asnumpy().T, x.context, adopt=True),
    "a batch": lambda x: gather(np.asfortranarray(np.ones((4, 5, 6))), [2, 1, 0]),
    "dlpack": lambda x: nd.from_dlpack(np.asfortranarray(x.asnumpy())),
    "grad": lambda x: _gradient(x),
}


def _read_only(x: nd.NDArray) -> np.ndarray:
    array = x.asnumpy()
    array.flags.writeable = False
    return array


def _gradient(x: nd.NDArray) -> nd.NDArray:
    from d2lmini import autograd

    x.attach_grad()
    with autograd.record():
        y = (x.T * 2).sum()
    y.backward()
    return x.grad


@pytest.mark.parametrize("n", [1, 40], ids=["small", "large"])
@pytest.mark.parametrize("how", ENGINES)
def test_ways_to_a_transposed_array(how: str, n: int):
    with engine.use(**ENGINES[how]):
        for name, way in WAYS.items():
            for _ in range(CALLS):
                check(way(nd.array(np.concatenate([A] * n, axis=1))), name)
