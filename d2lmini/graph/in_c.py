"""Ops written in C: what a node computes, as the lines of a kernel for a GPU.

The op's own `compute` runs on names in C (`device.cuda.kernels.symbols`):

>>> from d2lmini import sym
>>> from d2lmini.device.cuda.kernels.symbols import Body
>>> from d2lmini.graph.typed import typed
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.sigmoid(x, name="y")
>>> _, ((node, _),) = typed(y._entries, {x._entry[0]: Spec((8, 4), "float32")}, False)
>>> body = Body()
>>> value_of(node, [body.given("x0", "float32")])
<Name t4 float32>
>>> print(body.lines[0], body.lines[-1])
const float t1 = -x0; const float t4 = 1.0f / t3;
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.device.cuda.kernels.functions import NotInC
from d2lmini.device.cuda.kernels.symbols import Body, Name, traced
from d2lmini.graph.ir import Node, spec_of


def value_of(node: Node, inputs: Sequence[Name | None]) -> Name:
    """What a node computes, written in C; NotInC if it cannot be."""
    op = node.op
    assert op is not None and node.specs is not None
    value = traced(op.compute, inputs, node.own_attrs)
    if not isinstance(value, Name):
        raise NotInC(f"the result of {op.name}")
    # An op may give its input back; what a later op does in place must not change that.
    value = value.astype(node.specs[0].dtype)
    if value.body is None:  # a constant: who computes with it writes where its inputs are written
        value.body = next(x.body for x in inputs if x is not None)
    return value


def is_in_c(node: Node) -> bool:
    """Can this node be written in C?"""
    body = Body()
    try:
        value_of(node, [e and body.given("x", spec_of(e).dtype) for e in node.inputs])
    except NotInC:
        return False
    return True
