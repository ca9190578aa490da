"""The check of *Hybridize*: a model that looked at a value, written again so that it compiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini import MXNetError, init, nd, profile
from d2lmini.d2l.check import Wrong, at_most_waits
from d2lmini.gluon import nn
from d2lmini.ndarray import NDArray
from d2lmini.symbol import NotImplementedForSymbol

#: The earlier model's parameters: weight and bias of its hidden layer, and of its output layer.
SHAPES = [(16, 8), (16,), (4, 16), (4,)]


def check_converted(answer: Any) -> None:
    """Check the class `Converted`: the values of the earlier model, and one operation a call."""
    if isinstance(answer, nn.Block):
        raise Wrong("class", "give the class, not a net: check_converted(Converted)")
    net = answer() if callable(answer) else answer
    if not isinstance(net, nn.HybridBlock):
        text = f"a HybridBlock is needed, got {type(net).__name__}: only its calls can be compiled"
        raise Wrong("block", text)
    net.initialize(init.Xavier())
    try:
        _call(net, nd.ones((3, 8)))
    except NotImplementedError as error:
        raise Wrong("empty", str(error)) from error
    if sorted(p.shape for p in net.collect_params().values()) != sorted(SHAPES):
        found = sorted(p.shape for p in net.collect_params().values())
        text = f"for 8 inputs the layers have parameters of the shapes {SHAPES}, found {found}"
        raise Wrong("parameters", text + ": is each layer an attribute?")
    for p in net.collect_params().values():  # a bias of 0 would not show where it is added
        p.set_data(nd.array(np.random.RandomState().uniform(-0.1, 0.1, p.shape)))
    _check_values(net, "values", "run imperatively, the values differ from the earlier model's")
    net.hybridize()
    try:
        _call(net, nd.ones((3, 8)))
    except (NotImplementedForSymbol, MXNetError) as error:
        text = f"in the trace there are no values to look at: {error}"
        raise Wrong("contents", text) from error
    _check_values(net, "branch", "the trace took a branch, once for all calls: use an operator")
    with profile() as trace:
        net(nd.ones((3, 8)))
    at_most_waits(trace, 0)
    count = sum(operation.name != "_ones" for operation in trace.operations)
    if count != 1:
        raise Wrong("operations", f"a call is {count} operations: compute in hybrid_forward")
    print("right: the values of the earlier model, and a call is one operation")


def _call(net: nn.HybridBlock, X: NDArray) -> NDArray:
    y = net(X)
    if not isinstance(y, NDArray):
        text = f"a call returns {type(y).__name__}: return the result of the last layer"
        raise Wrong("none", text)
    return y


def _check_values(net: nn.HybridBlock, hint: str, text: str) -> None:
    draw = np.random.RandomState()
    for scale in (0.05, 10, 0.05):  # the length is below 1, above 1, and below 1 again
        X = nd.array(scale * draw.normal(size=(3, 8)))
        y, expected = _call(net, X).asnumpy(), _earlier(net, X.asnumpy())
        if y.shape != expected.shape or not np.allclose(y, expected, atol=1e-4):
            raise Wrong(hint, text)


def _earlier(net: nn.HybridBlock, X: np.ndarray) -> np.ndarray:
    """What the earlier model computes from X with the parameters of `net`."""
    of_shape = {p.shape: p.data().asnumpy() for p in net.collect_params().values()}
    weight, bias, output_weight, output_bias = (of_shape[shape] for shape in SHAPES)
    h = np.maximum(X @ weight.T + bias, 0)
    return h / max(np.sqrt((h * h).sum()), 1) @ output_weight.T + output_bias
