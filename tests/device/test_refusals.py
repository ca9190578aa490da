"""What is refused at the call is refused on every device, in the same words.

Wrong calls are made from the rows of operations: of each op, the first row that has an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from gpu_kinds import some_gpus
from op_rows.case import Case
from op_rows.table import ROWS, find

from d2lmini import Context, cpu, gpu, nd
from d2lmini.engine.failure import OutOfRangeError

#: The first row with an array of each op that programs call.
FIRST = {
    case.op: case
    for case in reversed(ROWS)
    if any(isinstance(x, np.ndarray) and x.ndim for x in case.inputs) and case.op[0] != "_"
}


def wrong_calls(case: Case) -> Iterator[tuple[str, list, dict[str, Any]]]:
    """What is wrong, the inputs, the attributes; some ops do take some of them."""
    inputs, attrs = list(case.inputs), dict(case.attrs)
    yield "an input less", inputs[:-1], attrs
    yield "an input more", [*inputs, inputs[0]], attrs
    yield "an unknown attribute", inputs, {**attrs, "colour": 1}
    yield "an attribute less", inputs, dict(list(attrs.items())[1:])
    for name in attrs:
        yield f"a text for {name}", inputs, {**attrs, name: "no such value"}
    for i, x in enumerate(inputs):
        if isinstance(x, np.ndarray):
            changed = {
                "another dtype": np.ones(x.shape, "int32" if x.dtype.kind == "f" else "float32"),
                "an axis more": np.stack([x, x, x]),
                "other sizes": np.concatenate([x, x]) if x.ndim else x,
            }
            for what, other in changed.items():
                yield f"{what} of input {i}", [*inputs[:i], other, *inputs[i + 1 :]], attrs


def answer(op: str, inputs: list, attrs: dict[str, Any], ctx: Context) -> str:
    """What is said at the call; empty if it is taken. Then it runs, unless values are wrong, which
    are seen no earlier."""
    with ctx:
        arrays = [nd.array(x, dtype=x.dtype) if isinstance(x, np.ndarray) else x for x in inputs]
        try:
            find(op)(*arrays, **attrs)
        except Exception as problem:
            return f"{type(problem).__name__}: {problem}".replace(str(ctx), "the device")
        with suppress(OutOfRangeError):
            nd.waitall()
    return ""


@pytest.fixture(scope="module")
def refused() -> list[tuple[Case, str, list, dict[str, Any], str]]:
    """The calls that the CPU refuses, with what it says."""
    calls = [(case, *call) for case in FIRST.values() for call in wrong_calls(case)]
    answers = [answer(case.op, *call, cpu()) for case, _, *call in calls]
    return [(*call, said) for call, said in zip(calls, answers, strict=True) if said]


def test_operations_refuse_everywhere_what_the_cpu_refuses(gpu_kind, refused):
    assert {case.op for case, *_ in refused} == {*FIRST} and len(refused) > 4 * len(FIRST)
    with some_gpus(gpu_kind, 1):
        for case, what, *call, said in refused:
            assert answer(case.op, *call, gpu(0)) == said, (case.id, what)
