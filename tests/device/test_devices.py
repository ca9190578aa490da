"""What every device promises, written once and run over all kinds: the CPU, virtual GPUs, CUDA's.

Each test gets `ctx`; beside it there are always two GPUs of one kind to copy to (`gpu_kinds`). That
things happen at once is shown by tasks that wait for each other, never by a clock.
"""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from gpu_kinds import FUNCTION, some_gpus
from op_rows.case import Case
from op_rows.table import ROWS, TABLES, expected, find
from rows import over

from d2lmini import Context, MXNetError, autograd, cpu, engine, gpu, nd, storage, virtual_gpus
from d2lmini.base import instrument
from d2lmini.device.devices import device_of

MB = 1 << 20
PLACES = (cpu(0), gpu(0), gpu(1))


@pytest.fixture(params=PLACES, ids=str)
def ctx(request, gpu_kind):
    """The device under test, with two GPUs of 64 MB there."""
    with some_gpus(gpu_kind, 2, memory=64 * MB):
        yield request.param
        engine.waitall()


@pytest.fixture(params=["threaded", "naive"])
def any_engine(request, ctx):
    with engine.use(request.param):
        yield request.param
        engine.waitall()


def other(ctx: Context) -> Context:
    """Another device."""
    return PLACES[(PLACES.index(ctx) + 1) % len(PLACES)]


def meet(parties: int) -> threading.Barrier:
    """Whoever waits at it goes on when all are there; nobody waits forever."""
    return threading.Barrier(parties, timeout=30)


# -- arrays and operations -------------------------------------------------------------------------


FIRST = {case.op: case for case in reversed(ROWS) if case.inputs}
FAMILIES = {
    name: [case for case in table if FIRST.get(case.op) is case] for name, table in TABLES.items()
}


@over("case", {name: cases for name, cases in FAMILIES.items() if cases}, name=lambda case: case.id)
def test_every_op_computes_there(gpu_kind, case: Case):
    """The first row of each op, on a GPU, on both engines."""
    with some_gpus(gpu_kind, 1):
        for kind in ("threaded", "naive"):
            with engine.use(kind), gpu(0):
                inputs = [
                    nd.array(i, dtype=i.dtype) if isinstance(i, np.ndarray) else i
                    for i in case.inputs
                ]
                results = find(case.op)(*inputs, **case.attrs)
                results = results if isinstance(results, list) else [results]
                assert all(y.context == gpu(0) for y in results)
                for y, want in zip(results, expected(case), strict=True):
                    np.testing.assert_allclose(y.asnumpy(), want, rtol=case.rtol, atol=case.atol)


def test_inputs_of_two_devices_are_refused_at_the_call(ctx):
    a, b = nd.ones(2, ctx=ctx), nd.ones(2, ctx=other(ctx))
    with pytest.raises(MXNetError, match=r"inputs are on .*; move one with"):
        a + b
    with pytest.raises(MXNetError, match="out= is on"):
        nd.exp(a, out=b)
    assert (a + 1).asnumpy().tolist() == [2, 2]


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", PLACES, ids=str)
@pytest.mark.parametrize("n", [5, 5000])
def test_copies_from_everywhere_to_everywhere(any_engine, ctx, there, n):
    values = np.arange(n) % 100
    x = nd.array(values, ctx=ctx, dtype="int32")
    new = x.copyto(there)
    old = nd.zeros((2, n), ctx=there)
    assert x.copyto(old[1:2].reshape((n,))).context == there
    moved = x.as_in_context(there)
    assert (moved is x) == (ctx == there)
    assert new.context == there and new.dtype == np.int32
    x[:] = 0  # comes after the copies
    assert (new.asnumpy() == values).all()
    assert old.asnumpy().tolist() == [[0] * n, values.tolist()]
    with pytest.raises(MXNetError, match="source has shape"):
        x.copyto(nd.zeros(3, ctx=there))


def test_a_copy_is_one_task_on_the_lane_of_the_device(gpu_kind):
    class Listen(instrument.Instrument):
        def __init__(self):
            self.seen = []

        def start(self, task, worker):
            self.seen.append((task.name, worker.rsplit("-", 1)[0]))

    with some_gpus(gpu_kind, 2), instrument.listening(Listen()) as listen:
        x = nd.array([1, 2, 3], ctx=gpu(0))
        y = x.as_in_context(gpu(1))
        z = y + 1
        z.asnumpy()
    assert listen.seen == [
        ("CopyCPU2GPU", "d2lmini-gpu(0)-in"),
        ("CopyGPU2GPU", "d2lmini-gpu(1)-in"),
        ("_plus_scalar", "d2lmini-gpu(1)-compute"),
        ("CopyGPU2CPU", "d2lmini-gpu(1)-out"),
    ]


def test_gradients_travel_back(any_engine, ctx):
    x, w = nd.array([1, 2], ctx=ctx), nd.array([3, 4], ctx=other(ctx))
    for leaf in (x, w):
        leaf.attach_grad()
    with autograd.record():
        y = (x * x).as_in_context(other(ctx)) * w
        z = y.copyto(cpu()).sum() + y.astype("float64").copyto(cpu()).astype("float32").sum()
    z.backward()
    assert x.grad.context == ctx and w.grad.context == other(ctx)
    assert x.grad.asnumpy().tolist() == [12, 32]
    assert w.grad.asnumpy().tolist() == [2, 8]
    with autograd.record():
        (g,) = autograd.grad((x**3).as_in_context(other(ctx)), [x], create_graph=True)
    g.backward()
    assert x.grad.asnumpy().tolist() == [6, 12]


def test_memory_of_a_virtual_gpu_is_not_lent():
    with virtual_gpus(1):
        x = nd.ones(3, ctx=gpu(0))
        with pytest.raises(MXNetError, match=r"is on gpu\(0\), whose memory is not shared"):
            x.__dlpack__()
        with gpu(0):
            assert nd.from_numpy(np.ones(3)).context == cpu()


# -- memory ----------------------------------------------------------------------------------------


def test_each_device_has_books_of_its_own(any_engine, ctx):
    engine.waitall()
    before = {place: storage.stats(place).live for place in PLACES}
    x = nd.ones((MB,), ctx=ctx)
    y = x + x
    y.wait_to_read()
    used = {place: storage.stats(place).live - before[place] for place in PLACES}
    assert used == {place: 8 * MB * (place == ctx) for place in PLACES}
    assert storage.stats(ctx).peak >= before[ctx] + 8 * MB
    free, total = ctx.memory_info()
    assert 0 < free < total
    if device_of(ctx).kind == "virtual":
        assert (free, total) == (56 * MB, 64 * MB)
    del x, y
    assert storage.stats(ctx).live == before[ctx]
    ctx.empty_cache()
    assert storage.stats(ctx).cached == 0


def test_out_of_memory_on_one_device_is_its_own(any_engine, ctx):
    before = storage.stats(ctx).limit
    storage.set_limit(ctx, storage.stats(ctx).live + 10 * MB)
    try:
        x = nd.ones((MB,), ctx=ctx)
        big = nd.concat(x, x, x, dim=0)
        copied = nd.ones((3 * MB,), ctx=other(ctx)).as_in_context(ctx)
        fine = nd.ones((3 * MB,), ctx=other(ctx)) * 2
        for missing in (big, big[:2] + 1, copied):
            with pytest.raises(MemoryError, match=re.escape(f"out of memory on {ctx}")):
                missing.asnumpy()
        assert fine[:2].asnumpy().tolist() == [2, 2]
        assert (x + 1)[:2].asnumpy().tolist() == [2, 2]
    finally:
        storage.set_limit(ctx, before)
    assert nd.concat(x, x, x, dim=0)[:2].asnumpy().tolist() == [1, 1]


def test_copies_do_not_run_ahead_of_a_small_memory(gpu_kind):
    """Twenty batches of 4 MB pass through a memory of 20 MB: the pushes pause, nothing fails."""
    with some_gpus(gpu_kind, 1, memory=20 * MB, link_gb_s=12):
        total = nd.zeros((MB,), ctx=gpu(0))
        paused = engine.stats().paused
        for i in range(20):
            batch = nd.full((MB,), i).as_in_context(gpu(0))
            total += nd.sqrt(batch * batch)
        assert total[0].asscalar() == 190
        assert engine.stats().paused > paused
        assert storage.stats(gpu(0)).peak <= 20 * MB
    assert engine.stats().pending_bytes == 0


# -- failures --------------------------------------------------------------------------------------


def test_a_wait_inside_a_task_is_refused(ctx):
    x, tag = nd.ones(3, ctx=ctx), engine.new_var()
    engine.push(x.asnumpy, writes=[tag], ctx=ctx)
    with pytest.raises(MXNetError, match="a task must not wait"):
        engine.wait_for_var(tag)


# -- at the same time ------------------------------------------------------------------------------


def test_a_device_computes_while_it_copies_both_ways(gpu_kind, monkeypatch):
    """A task, a copy in and a copy out, each of which waits until all three run."""
    with some_gpus(gpu_kind, 1):
        x = nd.ones(5000, ctx=gpu(0))
        x.wait_to_read()
        barrier = meet(3)
        device = device_of(gpu(0))
        copy = device.copy

        def held(target, source):
            barrier.wait()
            copy(target, source)

        monkeypatch.setattr(device, "copy", held)
        tag = engine.new_var()
        engine.push(barrier.wait, writes=[tag], ctx=gpu(0))
        y = nd.array(np.ones(5000), ctx=gpu(0))
        z = x.as_in_context(cpu())
        engine.wait_for_var(tag)
        monkeypatch.undo()
        assert y.sum().asscalar() == z.sum().asscalar() == 5000


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_equal_numpy(gpu_kind, seed):
    """Arithmetic, writes in place, views and copies among three devices, in the program's order.

    Devices round alike, but tanh may differ by `FUNCTION` units; with what differs the program goes
    on, and each operation may round what it gets apart."""
    rng = np.random.default_rng(seed)
    eps = np.finfo("float32").eps
    with some_gpus(gpu_kind, 2, memory=64 * MB, seed=seed):
        size = int(rng.choice([60, 6000]))
        arrays = [rng.standard_normal((2, size)).astype("float32") for _ in range(4)]
        bounds = [np.zeros((2, size)) for _ in arrays]
        places = [PLACES[i] for i in rng.integers(0, 3, 4)]
        values = [nd.array(a, ctx=place) for a, place in zip(arrays, places, strict=True)]
        for _ in range(120):
            (i, j), kind = rng.integers(0, 4, 2), rng.integers(0, 6)
            there, x, bound = values[i].context, arrays[i].copy(), bounds[i].copy()
            if kind == 0:
                values[i] = values[i] * 0.5 + values[j].as_in_context(there)
                x = x * np.float32(0.5) + arrays[j]
                bound = bound / 2 + bounds[j] + eps * np.abs(x)
            elif kind == 1:
                values[i][0] -= values[j].as_in_context(there)[1]
                x[0] -= arrays[j][1]
                bound[0] += bounds[j][1] + eps * np.abs(x[0])
            elif kind == 2 and i != j:
                values[j].copyto(values[i])
                x, bound = arrays[j].copy(), bounds[j].copy()
            elif kind == 3:
                values[i] = values[i].copyto(PLACES[rng.integers(0, 3)])
            elif kind == 4:
                values[i][1] = values[j][0]
                x[1], bound[1] = arrays[j][0], bounds[j][0]
            else:
                values[i] = nd.tanh(values[i])
                x = np.tanh(x)
                bound += FUNCTION * eps * np.abs(x)
            arrays[i], bounds[i] = x, bound
        for value, want, bound in zip(values, arrays, bounds, strict=True):
            assert (np.abs(value.asnumpy() - want) <= bound).all()
