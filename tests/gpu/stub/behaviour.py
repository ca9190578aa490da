"""What the library relies on in CuPy, and what it must not do; on the stand-ins.

Collected by `run.py`, not by `make test`: it needs the Python that has them.
"""

from __future__ import annotations

import gc

import gpu_stub_boot as stub

# isort: split
import cupy
import numpy as np
import pytest

from d2lmini import autograd, gluon, gpu, nd
from d2lmini.ops.reduce import reduce_into


@pytest.fixture(autouse=True)
def quiet():
    nd.waitall()
    yield
    nd.waitall()


class Asked:
    """How often things were asked of the stand-ins since this was made."""

    def __init__(self) -> None:
        self.before = stub.counts()

    def __getitem__(self, name: str) -> int:
        return stub.counts().get(name, 0) - self.before.get(name, 0)


def test_cupy_hands_on_the_answer_to_a_question_about_an_event():
    """The fake does so, too; a wait relies on it."""
    event = cupy.cuda.Event()
    assert cupy.cuda.runtime.eventQuery(event.ptr) == 0 and event.done
    stub.lose(700)
    try:
        assert cupy.cuda.runtime.eventQuery(event.ptr) == 700 and not event.done
    finally:
        stub.lose(0)


@pytest.mark.parametrize("method", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("axes", [(0,), (0, 1), (2,), (0, 1, 2)], ids=str)
def test_a_reduction_leaves_the_layout_of_its_output_alone(method, dtype, axes):
    """CuPy's kernels made with CUB give an output the layout of their input."""
    x = cupy.ones((2, 3, 512), dtype).transpose(2, 1, 0)
    kept = [n for a, n in enumerate(x.shape) if a not in axes]
    out = cupy.empty(kept, "float32" if dtype == "float16" else dtype)
    place = out.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
    before = place.strides
    got = reduce_into(cupy, x, axes, place, method)
    assert got.strides == before == place.strides


def test_cupy_still_does_what_the_reductions_avoid():
    """When this fails, `out=` can be given again (`ops/reduce.py`)."""
    out = cupy.empty((3, 2), "float32")
    before = out.strides
    cupy.ones((2, 3, 512), "float16").T.sum(axis=0, dtype="float32", out=out)
    assert out.strides != before
    with pytest.raises(TypeError):
        cupy.ones((2, 3)).min(axis=1, out=cupy.empty(2))


def test_a_training_loop_makes_no_events_and_destroys_none():
    net = gluon.nn.Dense(4, in_units=3)
    net.initialize(ctx=gpu(0))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    x = nd.ones((2, 3), ctx=gpu(0))

    def steps(n: int) -> None:
        for _ in range(n):
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(2)
            nd.waitall()
        gc.collect()

    steps(5)
    asked = Asked()
    steps(20)
    assert 0 < asked["eventRecord"] < 200  # a few in a step, not one for each operation
    assert asked["eventCreate"] < 5 and asked["eventDestroy"] == 0


def test_dropped_arrays_make_no_stream_wait():
    """They were read by the stream that copies to the host, and by none that is not done."""
    x = nd.ones((100,), ctx=gpu(0))
    y = [x + i for i in range(20)]
    nd.waitall()
    asked = Asked()
    for z in y:
        z.asnumpy()
    waits = asked["streamWaitEvent"]  # each copy's, for what was computed
    del y, z
    for _ in range(20):
        x = x + 1
    nd.waitall()
    assert asked["streamWaitEvent"] == waits


def test_pinned_memory_is_copied_from_and_to_directly():
    """No staging: one copy of the host's array, and one back, from memory that CUDA knows."""
    from d2lmini import cpu_pinned

    values = np.arange(3_000_000, dtype="float32")  # more than a piece
    x = nd.array(values, ctx=cpu_pinned())
    nd.waitall()
    asked = Asked()
    y = x.as_in_context(gpu(0))
    nd.waitall()
    assert asked["memcpyAsync"] == 1 and asked["memcpyAsync-PAGEABLE-h2d"] == 0
    back = nd.zeros(x.shape, ctx=cpu_pinned())
    nd.waitall()
    asked = Asked()
    y.copyto(back)
    nd.waitall()
    assert asked["memcpyAsync"] == 1 and asked["memcpyAsync-PAGEABLE-d2h"] == 0
    assert (back.asnumpy() == values).all()
    assert asked["hostAlloc"] == 0
