"""Programs of updates: what the formula says, in any place, in few passes."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini.ops.core import registry
from d2lmini.ops.update_program import Formula

RULES = {op.name: op for op in registry.values() if isinstance(op, Formula)}
NUMBERS = {"lr": 0.1, "t": 3, "rate": 0.2, "ahead": 0.7, "along": 0.6, "momentum": 0.9}
SWITCHES = [
    {},
    {"rescale_grad": 0.5},
    {"wd": 0.05, "rescale_grad": 0.5},
    {"wd": 0.05, "clip_gradient": 0.3, "clip_grad": 0.3, "clip_weights": 0.5, "wd_lh": 0.02},
    {"wd": 1.0, "clip_gradient": 1.0, "momentum": 0.0, "bias_correction": False},
]


def attributes_of(op, options):
    return {name: (op.defaults | NUMBERS | options).get(name) for name in op.attr_names}


def draw(op, dtype):
    rng = np.random.default_rng(len(op.name))
    return [rng.uniform(0.4, 0.6, 50).astype(dtype) for _ in op.input_names]


@pytest.mark.parametrize("options", SWITCHES, ids=str)
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-13), ("float32", 1e-5)])
@pytest.mark.parametrize("name", RULES)
def test_a_program_computes_its_formula(name, dtype, rtol, options):
    """Also where the weight or the gradient is the destination."""
    op = RULES[name]
    attrs = attributes_of(op, options)
    wide = [a.astype("float64") for a in draw(op, dtype)]
    want = op.values(np, *wide, **attrs)
    for place in (None, 0, *({1} - set(op.mutates))):
        arrays = draw(op, dtype)
        y = op.compute(np, *arrays, out=None if place is None else arrays[place], **attrs)
        assert (y is arrays[place]) if place is not None else y.dtype == dtype
        np.testing.assert_allclose(y, want[0], rtol=rtol, atol=rtol)
        for i, value in zip(op.mutates, want[1:], strict=True):
            if i != place:
                np.testing.assert_allclose(arrays[i], value, rtol=rtol, atol=rtol)
        for i, (now, before) in enumerate(zip(arrays, draw(op, dtype), strict=True)):
            assert i in (*op.mutates, place) or now.tobytes() == before.tobytes()
