"""Arguments that an op has in MXNet and not here are refused by name, never ignored."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import Oracle

from d2lmini import nd, sym
from d2lmini.ops.core import registry

OPS = {op.name: op for op in registry.values()}


@pytest.mark.parametrize(
    ("name", "left"), [(name, left) for name, op in OPS.items() for left in op.left_out]
)
def test_it_is_refused_by_name(name, left):
    inputs = [nd.array(np.ones((1, 1))) for _ in OPS[name].input_names]
    with pytest.raises(TypeError, match=f"'{left}' is left out of d2lmini"):
        OPS[name](*inputs, **{left: 1})


def test_values_are_refused_by_name_too():
    softmax, x = registry["softmax"], sym.var("x")
    for call in (
        lambda: softmax(x, length=x),
        lambda: softmax(nd.ones(1), length=np.ones(2)),
    ):
        with pytest.raises(TypeError, match="'length' is left out of d2lmini"):
            call()


def arguments(mx, name):
    """The names in the signature of MXNet's op; [] for one that it has not under this name."""
    import inspect  # for the other process

    function = getattr(mx.nd, name, None) or getattr(mx.nd._internal, name, None)
    return [] if function is None else list(inspect.signature(function).parameters)


def test_an_op_that_reads_no_argument_has_none_in_mxnet(mxnet: Oracle):
    """It ignores all, as in MXNet: so one that it has there would be ignored silently."""
    for name, op in OPS.items():
        if not op.attr_names and not op.variadic:
            known = {*op.input_names, *op.left_out, "data", "out", "name", "kwargs"}
            assert set(mxnet.ask(arguments, name)) <= known, name
