"""Composed ops on a GPU: programs whose kernels are generated, run by the fake of CUDA, give what a
CPU gives, forward and backward, in few launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from fakes.cuda import fake_cuda
from op_rows.table import OP_ROWS, find

from d2lmini import autograd, cpu, gpu, nd
from d2lmini.cuda import module
from d2lmini.cuda.device import logical_gpus
from d2lmini.ops.composed import Composed

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")


def rows_of(op: Composed) -> list:
    """A few rows of an op: the first, and the last of each dtype of 16 and of 32 bits."""
    rows = [case for case in OP_ROWS if find(case.op) is op and case.inputs]
    found = {id(row): row for row in rows[:1]}
    for dtype in ("float16", "float32"):
        last = [row for row in rows if getattr(row.inputs[0], "dtype", None) == dtype][-1:]
        found |= {id(row): row for row in last}
    return list(found.values())


COMPOSED = sorted(
    {op for case in OP_ROWS if isinstance(op := find(case.op), Composed)}, key=lambda op: op.name
)


def run(op: Composed, case: Any, ctx: Any) -> list[np.ndarray]:
    """The outputs, the inputs afterwards, and the gradients of the floating inputs."""
    inputs = [nd.array(a, ctx=ctx, dtype=np.asarray(a).dtype) for a in case.inputs]
    written = op.mutated(len(inputs), {**op.defaults, **case.attrs})
    with_gradient = [
        x for i, x in enumerate(inputs)
        if np.dtype(x.dtype).kind == "f" and op.rule is not None and i not in written
    ]  # fmt: skip
    for x in with_gradient:
        x.attach_grad()
    with autograd.record():
        found = op(*inputs, **case.attrs)
    outputs = found if isinstance(found, list) else [found]
    if with_gradient:
        outputs[0].backward()
    values = [*outputs, *inputs, *[x.grad for x in with_gradient]]
    return [x.asnumpy() for x in values]


@pytest.mark.parametrize("op", COMPOSED, ids=lambda op: op.name)
def test_a_gpu_computes_what_a_cpu_computes(op):
    for case in rows_of(op):
        with fake_cuda(1) as fake, module.using(fake), logical_gpus(1):
            got = run(op, case, gpu(0))
        half = any(getattr(a, "dtype", None) == np.float16 for a in case.inputs)
        for on_gpu, on_cpu in zip(got, run(op, case, cpu()), strict=True):
            assert on_gpu.dtype == on_cpu.dtype
            scale = max(abs(on_cpu[np.isfinite(on_cpu)]).max(initial=0), 1)
            np.testing.assert_allclose(
                on_gpu, on_cpu, rtol=2e-2 if half else 1e-4, atol=(2e-2 if half else 1e-5) * scale
            )  # fmt: skip
