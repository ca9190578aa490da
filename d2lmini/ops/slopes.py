"""Gradients of the commonest activations, each one operation: g times the slope at the output y.

Written in ops they would be two or three, and an activation's gradient does little but move memory:
each op more reads and writes it once more. They are differentiable in turn.

>>> from d2lmini import nd
>>> from d2lmini.ops.core import registry
>>> registry["_relu_backward"](nd.ones(3), nd.array([0, 1, 2])).asnumpy().tolist()
[0.0, 1.0, 1.0]
"""

from __future__ import annotations

from d2lmini.ops.core import op


@op("_relu_backward", flops=2, elementwise=True)
def relu_backward(xp, g, output, *, out=None):
    """g where the output is above 0, else 0."""
    # As numbers first: an operation that converts while it computes is slow.
    return xp.multiply(g, (output > 0).astype(g.dtype), out=out)


@relu_backward.gradient(saves="output")
def _(gg, output):
    return relu_backward(gg, output), None


@op("_sigmoid_backward", flops=3, elementwise=True)
def sigmoid_backward(xp, g, output, *, out=None):
    """g y (1 - y), y the output."""
    slope = (1 - output) * output
    return xp.multiply(slope, g, out=out)


@sigmoid_backward.gradient(saves="g output")
def _(gg, g, output):
    return sigmoid_backward(gg, output), gg * g * (1 - 2 * output)


@op("_tanh_backward", flops=3, elementwise=True)
def tanh_backward(xp, g, output, *, out=None):
    """g (1 - y^2), y the output."""
    slope = 1 - output * output
    return xp.multiply(slope, g, out=out)


@tanh_backward.gradient(saves="g output")
def _(gg, g, output):
    return tanh_backward(gg, output), gg * g * output * -2
