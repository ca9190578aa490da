"""The order that GPUs keep, against the fake of CUDA: random programs over the CPU and two GPUs.

The fake runs streams in a random legal order and reports every two accesses that no event orders.
So the device is right if programs give NumPy's values and nothing was reported; and the fake is
worth that trust if devices that were broken on purpose are found out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from fakes.two_gpus import errors_of, two_gpus
from worlds import until

from d2lmini import MXNetError, autograd, cpu, engine, gluon, gpu, init, nd, storage
from d2lmini import random as mx_random
from d2lmini.cuda import stream_worker, streams
from d2lmini.cuda.device import CudaDevice

CONTEXTS = (cpu(), gpu(0), gpu(1))
SHAPES = ((4, 4), (16, 32), (64, 128))


def train(ctxs: list, kvstore: str = "device", hybridize: bool = False) -> list[list[np.ndarray]]:
    """The parameters, on each device, of a small net after three steps on random batches."""
    mx_random.seed(7)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(8), gluon.nn.Dense(4))
    net.initialize(init.Xavier(), ctx=ctxs)
    if hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
    parameters = net.collect_params()
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore)
    rng = np.random.default_rng(1)
    for _ in range(3):
        X = rng.standard_normal((12, 8)).astype(np.float32)
        with autograd.record():
            losses = [(net(part) ** 2).mean(axis=1) for part in gluon.utils.split_and_load(X, ctxs)]
        autograd.backward(losses)
        trainer.step(len(X))
    return [[x.asnumpy() for x in parameter.list_data()] for parameter in parameters.values()]


class Pair:
    """An array of ours and what it has to hold. Values are small whole numbers, so that every order
    of exact arithmetic gives the same bits, and a wrong order of the work does not."""

    def __init__(self, ours: nd.NDArray, theirs: np.ndarray):
        self.ours, self.theirs = ours, theirs

    def check(self) -> None:
        np.testing.assert_array_equal(self.ours.asnumpy(), self.theirs)


def new(rng: random.Random, contexts: Sequence = CONTEXTS) -> Pair:
    values = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 17, rng.choice(SHAPES))
    values = values.astype(np.float32)
    return Pair(nd.array(values, ctx=rng.choice(contexts)), values.copy())


def moved(pair: Pair, ctx: Any) -> nd.NDArray:
    return pair.ours.as_in_context(ctx)


def step(rng: random.Random, arrays: list[Pair], contexts: Sequence = CONTEXTS) -> None:
    """One random statement, done in both worlds."""
    x = rng.choice(arrays)
    y = rng.choice([a for a in arrays if a.theirs.shape == x.theirs.shape])
    ctx, k = x.ours.context, rng.randrange(1, 9)
    kind = rng.randrange(13)
    if kind <= 1:
        ours = (x.ours + moved(y, ctx)) % 17
        arrays.append(Pair(ours, (x.theirs + y.theirs) % 17))
    elif kind == 2:
        x.ours += moved(y, ctx)
        x.ours %= 17
        x.theirs += y.theirs
        x.theirs %= 17
    elif kind == 3:
        x.ours[:] = k
        x.theirs[...] = k
    elif kind == 4 and x is not y and not np.may_share_memory(x.theirs, y.theirs):
        y.ours.copyto(x.ours)  # across devices, into memory that others read
        x.theirs[...] = y.theirs
    elif kind == 5:
        i = rng.randrange(len(x.theirs))
        x.ours[i] = k
        x.theirs[i] = k
    elif kind == 6 and len(x.theirs) > 2:
        i, j = sorted(rng.sample(range(len(x.theirs) + 1), 2))
        arrays.append(Pair(x.ours[i:j], x.theirs[i:j]))  # shares memory
    elif kind == 7:
        ours = nd.dot(x.ours, moved(y, ctx).T) % 17
        arrays.append(Pair(ours, (x.theirs @ y.theirs.T) % 17))
    elif kind == 8:
        other = rng.choice(contexts)
        arrays.append(Pair(x.ours.copyto(other), x.theirs.copy()))
    elif kind == 9:
        ours = (x.ours * k).sum(axis=0, keepdims=True) % 17
        arrays.append(Pair(ours, (x.theirs * k).sum(axis=0, keepdims=True) % 17))
    elif kind == 10:
        arrays.append(new(rng, contexts))
    elif kind == 11:
        x.check()
    else:
        x.ours.wait_to_read()
    while len(arrays) > 8:  # what is dropped is used again while others still read it
        arrays.pop(rng.randrange(len(arrays)))


def run_program(seed: int, statements: int = 40) -> None:
    rng = random.Random(seed)
    arrays = [new(rng) for _ in range(3)]
    for _ in range(statements):
        step(rng, arrays)
    for pair in arrays:
        pair.check()
    engine.waitall()


# -- the device as it is ---------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_programs_over_cpu_and_gpus_equal_numpy(first: int):
    """The GPU orders its streams itself; the host waits where values go to the host."""
    for seed in range(first, first + 10):
        with two_gpus(seed) as machine:
            run_program(seed)
            assert not machine.errors, f"seed {seed}"
            waiting = {name for name, _ in machine.waits}
            assert waiting, "values were read"
            assert not [name for name in waiting if "compute" in name], f"seed {seed}: {waiting}"


def test_the_serial_engine_too():
    for seed in range(20):
        with engine.use("naive"), two_gpus(seed) as machine:
            run_program(seed)
            assert not machine.errors, f"seed {seed}"


def test_memory_that_runs_short_is_given_back_in_order():
    """Two thirds of a GPU were filled by its copying lane and dropped, and the other GPU still
    reads them, when its computing lane needs as much. Whether that reader is done by then, chance
    says; where it is not, memory goes back by a wait."""
    values = np.arange(16_000, dtype=np.float32)
    waited = 0
    for seed in range(10):
        with two_gpus(seed, memory=100_000) as machine:
            for k in range(2):
                x = nd.array(values + k, ctx=gpu(0))
                y = x.as_in_context(gpu(1))
                del x
                until(lambda: storage.stats(gpu(0)).live == 0)  # the copy was issued
                z = nd.full(values.shape, k, ctx=gpu(0))
                np.testing.assert_array_equal(y.asnumpy(), values + k, f"seed {seed}")
                np.testing.assert_array_equal(z.asnumpy(), np.full(values.shape, k))
                del y, z
            assert not machine.errors, f"seed {seed}"
            waited += "free_all_blocks" in [why for _, why in machine.waits]
    assert waited


needs_kernels = pytest.mark.skipif(
    cuda_cpp.COMPILER is None, reason="no g++, which stands for the compiler of CUDA's kernels"
)


@needs_kernels
@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("kvstore", ["device", "device without NCCL", "local"])
def test_training_on_gpus_equals_training_on_the_cpu(kvstore: str, hybridize: bool):
    """Forward, backward, sums of gradients while backward goes on, steps of all parameters."""
    kind, _, without_nccl = kvstore.partition(" without ")
    expected = train([cpu()])
    for seed, ctxs in enumerate(([gpu(0)], [gpu(0), gpu(1)], [cpu(), gpu(1)])):
        with two_gpus(seed, nccl=not without_nccl) as machine:
            trained = train(ctxs, kind, hybridize)
            assert not machine.errors, f"{ctxs}, seed {seed}"
        for values, (want,) in zip(trained, expected, strict=True):
            for got in values:
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*dropped unseen")
def test_of_a_lost_gpu_nothing_wrong_is_read_and_the_others_go_on():
    """It fails somewhere in a program over it and the CPU: each array is right or an error, at
    whatever time the schedule lets the host know."""
    failures = 0
    for seed in range(20):
        rng = random.Random(seed)
        contexts = (cpu(), gpu(0))
        with two_gpus(seed) as machine:
            machine.fail(0, status=700, after=rng.randrange(40))
            arrays = [new(rng, contexts) for _ in range(3)]
            for _ in range(40):
                failures += len(mxnet_errors(step, rng, arrays, contexts))
            for pair in arrays:
                failures += len(mxnet_errors(pair.check))
            assert (nd.ones(4, ctx=gpu(1)) * 2).asnumpy().tolist() == [2] * 4
            assert (nd.ones(4) * 2).asnumpy().tolist() == [2] * 4
            while mxnet_errors(engine.waitall):
                pass
            assert not machine.errors
    assert failures > 20


# -- the device broken on purpose ------------------------------------------------------------------


def no_waits(monkeypatch) -> None:
    """Streams do not wait for each other."""
    monkeypatch.setattr(streams.Stream, "wait", lambda self, marks: None)


def no_wait_for_writers(monkeypatch) -> None:
    """A reader does not wait for who wrote."""
    marks = lambda self, write: list(self.readers.values()) if write else []  # noqa: E731
    monkeypatch.setattr(streams.StreamOrder, "marks", marks)


def no_wait_for_readers(monkeypatch) -> None:
    """A writer waits for the last writer, not for those that still read."""
    marks = lambda self, write: [] if self.writer is None else [self.writer]  # noqa: E731
    monkeypatch.setattr(streams.StreamOrder, "marks", marks)


def marks_too_early(monkeypatch) -> None:
    """The event is recorded before the work it stands for."""
    begin, end = streams.Stream.begin, streams.Stream.end
    early: dict[streams.Stream, Any] = {}

    def first(self, reads, writes):
        begin(self, reads, writes)
        early[self] = self.mark().event

    def last(self, *what):
        end(self, *what)
        self.last.event = early[self]

    monkeypatch.setattr(streams.Stream, "begin", first)
    monkeypatch.setattr(streams.Stream, "end", last)


def knows_too_much(monkeypatch) -> None:
    """Who has waited for a mark thinks that it has waited for all that its stream does later."""

    wait = streams.Stream.wait

    def wait_and_learn(self, marks):
        marks = [mark for mark in marks if mark.stream is not self]
        wait(self, marks)
        self.seen.update((mark.stream, mark.seq + 1000) for mark in marks)

    monkeypatch.setattr(streams.Stream, "wait", wait_and_learn)


def frees_without_order(monkeypatch) -> None:
    """Memory is given back while others still read it."""

    def free_all(self) -> None:
        with stream_worker.lock:
            self.device.pool.drain()
        while self.pending_free:
            self.pending_free.popleft().array = None

    monkeypatch.setattr(stream_worker.StreamWorker, "free_pending", free_all)


def frees_where_it_happens(monkeypatch) -> None:
    """Another lane gives memory back, which its stream has not waited for either."""
    free_pending = stream_worker.StreamWorker.free_pending

    def others(self) -> None:
        free_pending(self)
        for other in self.device._lanes.values():
            while other.pending_free:
                other.pending_free.popleft().array = None

    monkeypatch.setattr(stream_worker.StreamWorker, "free_pending", others)


def copies_by_no_stream(monkeypatch) -> None:
    """Copies between GPUs go on a stream that nobody orders."""
    copy = CudaDevice.copy

    def copied(self, target, source):
        if isinstance(source, np.ndarray) or isinstance(target, np.ndarray):
            copy(self, target, source)
        elif source.size:
            target.data.copy_from_device_async(source.data, source.nbytes, self.xp.cuda.Stream.null)

    monkeypatch.setattr(CudaDevice, "copy", copied)


BROKEN = (
    no_waits, no_wait_for_writers, no_wait_for_readers, marks_too_early, knows_too_much,
    frees_without_order, frees_where_it_happens, copies_by_no_stream,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*dropped unseen")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__)
def test_a_broken_device_is_found_out(broken: Callable, monkeypatch):
    """By an OrderError, or by values that are wrong."""
    broken(monkeypatch)
    found, seed = False, 0
    while not found:
        assert seed < 40, "never found out"
        with two_gpus(seed) as machine:
            raised = errors_of(run_program, seed)
            while more := errors_of(engine.waitall):
                raised += more
            reported = machine.take_errors()
            values_differ = any(isinstance(error, AssertionError) for error in raised)
            assert reported or values_differ or not raised, raised
            found = bool(reported or values_differ)
            seed += 1


def mxnet_errors(function: Callable, *args: Any) -> list[MXNetError]:
    """What tasks met, if `function` raises it. Wrong values fail the test."""
    try:
        function(*args)
    except MXNetError as error:
        return [error]
    return []
