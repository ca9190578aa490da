"""Each op on bfloat16 and float16: what the compiler touches gives what eager calls give.

A seed chooses a row of the table of all ops, gives it arrays of 16 bits, and perhaps arithmetic
before and behind it, so that the op meets fusion and the passes. The net runs eagerly and in each
compiled mode, with its gradients:

    python tests/generators/run.py --programs 3000 sixteen_bits
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
from op_rows import table

import d2lmini
from d2lmini import autograd, gluon, nd
from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops.core import Op, Value

MODES: dict[str, tuple[dict[str, Any], Any]] = {
    "hybridized": ({}, nullcontext),
    "static": ({"static_alloc": True, "static_shape": True}, nullcontext),
    "mirror": ({"backward_do_mirror": True}, nullcontext),
    "lazy": ({"active": False}, d2lmini.lazy),
}

#: Arithmetic on a floating value.
AROUND = (
    "a", "a * 2", "a + 0.5", "-a", "a * a", "F.tanh(a)", "F.relu(a)", "a / 3", "F.exp(-a * a)",
    "F.clip(a, -1, 1)", "F.sqrt(a * a + 1)", "F.sigmoid(a)", "a - a * 0.5",
)  # fmt: skip


@cache
def rows() -> list[Any]:
    """The rows with floating inputs, of ops that a net can call."""
    return [
        case
        for case in table.ROWS
        if isinstance(op := table.find(case.op), Op)
        and op.symbolic
        and not op.mutates
        and any(isinstance(x, np.ndarray) and x.dtype == np.float32 for x in case.inputs)
        and not op.name.startswith(("_assign", "_copyto", "_set"))
    ]


class Net(gluon.HybridBlock):
    """The row's call between arithmetic."""

    def __init__(self, case: Any, before: str, behind: str):
        super().__init__()
        self.op, self.case, self.texts = table.find(case.op), case, (before, behind)

    def forward(self, *arrays: Any) -> Any:
        before, behind = self.texts
        given = iter(arrays)
        inputs = []
        for x in self.case.inputs:
            value = next(given) if isinstance(x, np.ndarray) else x
            if isinstance(value, Value) and is_float(np.dtype(value.dtype)):
                value = eval(before, {"F": nd, "a": value})
            inputs.append(value)
        results = self.op(*inputs, **self.case.attrs)
        results = list(results) if self.op.outputs != 1 else [results]
        return [
            eval(behind, {"F": nd, "a": y}) if is_float(np.dtype(y.dtype)) else y
            for y in results
            if isinstance(y, Value)
        ]


def run(net: Net, inputs: list[Any], mode: str, training: bool) -> Any:
    """Outputs and gradients as lists of arrays; the kind of the error, if the call is refused."""
    flags, scope = MODES.get(mode, ({"active": False}, nullcontext))
    net.hybridize(**flags)
    d2lmini.random.seed(7)
    given = [nd.array(x, dtype=x.dtype) for x in inputs]
    learnt = [x for x in given if is_float(np.dtype(x.dtype))]
    for x in learnt:
        x.attach_grad()
    try:
        with scope():
            with autograd.record(train_mode=training):
                outputs = net(*given)
            heads = [y for y in outputs if is_float(np.dtype(y.dtype)) and y._node is not None]
            if heads:
                autograd.backward(heads)
            return [x.asnumpy() for x in (*outputs, *[x.grad for x in learnt])]
    except (MXNetError, ValueError, TypeError, UserWarning) as problem:  # a test raises warnings
        return type(problem).__name__


def draw(seed: int) -> str:
    """The row, the dtype, and what stands around."""
    rng = random.Random(seed)
    case = rng.choice(rows())
    return repr((
        case.id, rng.choice(("bfloat16", "bfloat16", "float16")),
        rng.choice(AROUND) if rng.random() < 0.5 else "a",
        rng.choice(AROUND) if rng.random() < 0.7 else "a",
        rng.random() < 0.5,
    ))  # fmt: skip


def check(seed: int) -> bool:
    """AssertionError where a mode differs from an eager run."""
    rng = random.Random(seed)
    case = rng.choice(rows())
    _, dtype, before, behind, training = eval(draw(seed))
    narrow = nd.ones(1, dtype=dtype).dtype
    with np.errstate(over="ignore"):  # numbers beyond float16 are inf there
        inputs = [
            x.astype(narrow) if x.dtype == np.float32 else x
            for x in case.inputs
            if isinstance(x, np.ndarray)
        ]
    net = Net(case, before, behind)
    wanted = run(net, inputs, "eager", training)
    ulp = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    for mode in MODES:
        found = run(net, inputs, mode, training)
        where = f"{mode} and eager of {draw(seed)}"
        if isinstance(wanted, str) or isinstance(found, str):
            assert type(found) is type(wanted), f"{where}: {found} and {wanted}"
            continue
        for i, (y, want) in enumerate(zip(found, wanted, strict=True)):
            assert y.dtype == want.dtype and y.shape == want.shape, f"{where}: value {i}"
            a, b = y.astype(float), want.astype(float)
            room = 6 * ulp * max(1.0, float(np.max(np.abs(b), initial=0, where=np.isfinite(b))))
            assert np.allclose(a, b, 6 * ulp, room, equal_nan=True), f"{where}: value {i}\n{a}\n{b}"
    return False
