"""Arguments that an op has in MXNet and not here are refused by name, never ignored."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import Oracle

from d2lmini import nd, sym
from d2lmini.gluon import rnn
from d2lmini.ops.core import registry

OPS = {op.name: op for op in registry.values()}


@pytest.mark.parametrize(
    ("name", "left"), [(name, left) for name, op in OPS.items() for left in op.left_out]
)
def test_it_is_refused_by_name(name, left):
    inputs = [nd.array(np.ones((1, 1))) for _ in OPS[name].input_names]
    with pytest.raises(TypeError, match=f"'{left}' is left out of d2lmini"):
        OPS[name](*inputs, **{left: 1})


def test_a_value_is_refused_by_name_too():
    """It is no plain value, with which a program says that it does without."""
    x = nd.ones((1, 1))
    for data, value in ((sym.var("x"), sym.var("n")), (x, nd.ones(1)), (x, np.ones(2))):
        with pytest.raises(TypeError, match="'length' is left out of d2lmini"):
            registry["softmax"](data, length=value)


def test_a_layer_refuses_by_name():
    with pytest.raises(TypeError, match=r"LSTM\.projection_size is left out of d2lmini, \w"):
        rnn.LSTM(4, projection_size=2)
    with pytest.raises(TypeError, match=r"LSTM\(\): got an unexpected keyword argument 'size'"):
        rnn.LSTM(4, size=2)


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
