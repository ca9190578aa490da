"""Which operations are recorded as launches; why the others are not; and what recorded ones give.

What cannot be recorded runs as it is written, slower but right. So a defect in recording could go
unnoticed: this table would change.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from gpu_kinds import fake_gpus
from op_rows.table import OP_ROWS, expected, find

from d2lmini import engine, gpu, nd
from d2lmini.cuda.kernels.launch import Kernel, NotRecorded
from d2lmini.cuda.recorder import At, Recorder
from d2lmini.cuda.stream_worker import StreamWorker
from d2lmini.ops import pool
from d2lmini.ops.composed import Composed
from d2lmini.ops.core import registry
from d2lmini.ops.windows import geometry

needs_kernels = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")


#: Why launches are not recorded -> the operations for whose rows that is so: mostly the function of
#: CuPy's that is no launch of ours.
NOT_RECORDED = {
    "add.reduce": "_squared_error _sum_to mean nansum norm sum_axis",
    "allclose": "_contrib_allclose",
    "an array that runs backwards": "SequenceReverse _getitem _getitem_grad _unslice crop",
    "an array without elements": (
        "Pad RNN _getitem _rnn_layer _split_v2 _spread crop one_hot repeat shape_array "
        "slice_axis tile"
    ),
    "arange": (
        "SequenceLast SequenceMask SequenceReverse _contrib_ctc_loss _getitem_grad _pick_grad"
        " _sequence_last_grad _take_grad _undiag batch_take choose_element_0index "
        "fill_element_0index"
    ),
    "argmax": "argmax topk",
    "argmin": "argmin",
    "argsort": "_first _take_grad argsort topk",
    "cumsum": "_np_cumsum",
    "diag": "diag",
    "diagonal": "diag",
    "elements by index": "_getitem",
    "flip": "Pad flip",
    "full": "SequenceLast _contrib_ctc_loss",
    "logical_and.reduce": "_are_finite",
    "matmul": "batch_dot dot",
    "maximum.reduce": "max_axis",
    "minimum.reduce": "min_axis",
    "multiply.reduce": "prod",
    "put_along_axis": "_put_along",
    "sort": "sort",
    "stack": "_sums_of_squares",
    "take": "Embedding take",
    "take_along_axis": "_take_along",
    "where": "_contrib_ctc_loss broadcast_mod nansum one_hot",
}

#: Rows without empty arrays, which need no launch.
ROWS = [case for case in OP_ROWS if all(np.size(i) for i in case.inputs if i is not None)]


def call(case: Any) -> list[nd.NDArray]:
    """The row's operation on gpu(0)."""
    inputs = [
        nd.array(i, ctx=gpu(0), dtype=i.dtype) if isinstance(i, np.ndarray) else i
        for i in case.inputs
    ]
    with gpu(0):
        found = find(case.op)(*inputs, **case.attrs)
    return found if isinstance(found, list) else [found]


def names_by_reason() -> dict[str, set[str]]:
    """Reason -> the operations for which it is given for some row."""
    found: dict[str, set[str]] = defaultdict(set)
    calls = {id(plan): name for name, op in registry.items() for plan in op.plans.values()}
    for key, reason in engine.current.runners[gpu(0), "compute"].reasons.items():
        found[reason].add(calls[key[0] if isinstance(key, tuple) else key])
    return found


@pytest.mark.law
def test_these_operations_are_not_recorded(monkeypatch):
    def prepare_only(lane: Any, task: Any) -> None:
        if lane.name != "compute" or task.callee is None:
            run(lane, task)

    run = StreamWorker._run_ordered
    monkeypatch.setattr(StreamWorker, "_run_ordered", prepare_only)
    with fake_gpus(1):
        for case in ROWS:
            call(case)
        engine.waitall()
        found = names_by_reason()
    assert {why: " ".join(sorted(names)) for why, names in found.items()} == NOT_RECORDED


def test_bfloat16_has_no_kernels_to_record():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    with fake_gpus(1):
        a = nd.array(x, ctx=gpu(0), dtype="bfloat16")
        for _ in range(3):
            np.testing.assert_array_equal(nd.concat(a, a, dim=0).asnumpy(), np.concatenate([x, x]))


def test_what_is_no_part_of_the_program_is_not_recorded():
    recorder, other = Recorder(), Recorder()
    kernel = Kernel("k", 'extern "C" __global__ void k(const float* x, float* y, const int n) {}')
    a, y = recorder.empty((4, 6), "float32"), recorder.empty((24,), "float32")
    kernel(recorder, 24, a[1:], y, 24)
    assert recorder.steps[-1].memory == (At(0, 24), At(1, 0))
    for x in (a.T.ravel(), other.empty((24,), "float32")):
        with pytest.raises(NotRecorded, match="an array that is no part of the program"):
            kernel(recorder, 24, x, y, 24)


def test_a_kernel_over_windows_takes_each_array_once_and_serves_any_number_of_channels():
    geo, recorder = geometry((4, 4), (2, 2), (2, 2)), Recorder()
    for n in (3, 5):
        g = recorder.empty((n, 2, 2, 2), "float32").swapaxes(0, 1)
        pool.pooling_spread.kernels["cuda"](recorder, g, pool=geo, kind=1)
    names = [step.kernel.name for step in recorder.steps]
    assert names == ["copy_kernel", "spread_windows"] * 2
    assert len({step.kernel for step in recorder.steps if step.kernel.name != "copy_kernel"}) == 1


def named(name: str) -> Any:
    """Always those whose kernels are generated; the others are those of `test_ops_cupy`."""
    return pytest.param(name, marks=() if isinstance(find(name), Composed) else pytest.mark.stress)


@pytest.mark.law
@needs_kernels
@pytest.mark.parametrize("name", [named(op) for op in sorted({case.op for case in ROWS})])
def test_recorded_launches_give_what_numpy_gives(name):
    for case in [case for case in ROWS if case.op == name]:
        with fake_gpus(1):
            found = [y.asnumpy() for y in call(case)]
        for got, want in zip(found, expected(case), strict=True):
            assert got.dtype == want.dtype
            scale = max(abs(want[np.isfinite(want)]).max(initial=0), 1)
            rtol, atol = (2e-2, 2e-2) if got.dtype == np.float16 else (1e-4, 1e-5)
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol * scale)
