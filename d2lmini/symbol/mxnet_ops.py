"""Convert a graph to ops that MXNet has.

Most ops are the same in MXNet, some under another name (`op.mxnet_name`). Some of ours fuse what
takes several ops in MXNet (a loss from logits, `x[1, ::2]` of a traced `forward`): these declare an
equivalent (`op.written_in_mxnet`), which replaces them. An op without an equivalent, such as the
ops of our gradients, is an error.

>>> from d2lmini import sym
>>> from d2lmini.graph.ir import topological
>>> gap = sym._contrib_isnan(sym.var("x"), name="gap")
>>> [node.op.name for node in topological(in_mxnet_words(gap._entries)) if node.op]
['_not_equal']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Inputs, Node, Replacement, transform
from d2lmini.ops.core import Op
from d2lmini.ops.fluent import Fluent


def in_mxnet_words(
    entries: Sequence[Entry], remove_amp_cast: bool = False, others: bool = False
) -> list[Entry]:
    """The graph behind `entries` in ops that MXNet has.

    remove_amp_cast: drop casts that mixed precision inserted. For an op without an equivalent in
    MXNet, MXNetError naming the op and the node; with `others` the op stays.
    """

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node.op is None:
            return None
        if node.op.name in ("amp_cast", "amp_multicast") and remove_amp_cast:
            return inputs
        if node.op.mxnet_rule is not None:
            return [_written_out(node, inputs)]
        if not node.op.in_mxnet and not others:
            raise MXNetError(
                f"node {node.name!r}: MXNet has no op {node.op.name!r}, which is d2lmini's own, so "
                "this graph cannot be written to its file format; use ops of MXNet's instead"
            )
        return None if inputs is node.inputs else node.replace(inputs=inputs, specs=None)

    return transform(entries, rule)


def _written_out(node: Node, inputs: Sequence[Entry | None]) -> Entry:
    """The nodes that replace one of our nodes; the last of them gets its name."""
    op = node.op
    assert op is not None and op.mxnet_rule is not None
    numbers = count()
    values = [None if entry is None else _Value(entry, node, numbers) for entry in inputs]
    try:
        last = op.mxnet_rule(*values, **node.attrs).entry[0]
    except MXNetError as problem:
        raise MXNetError(f"node {node.name!r}: {problem}") from None
    return Node(last.op, node.name, last.inputs, last.attrs, None, node.labels), 0


class _Value(Fluent):
    """The value type on which a `written_in_mxnet` rule computes: an entry of the nodes that
    replace `node`, which are named after it and numbered."""

    __slots__ = ("entry", "node", "numbers")

    def __init__(self, entry: Entry, node: Node, numbers: Iterator[int]):
        self.entry = entry
        self.node = node
        self.numbers = numbers

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> _Value:
        node, numbers = inputs[0].node, inputs[0].numbers
        name = f"{node.name}_{op.name.strip('_')}{next(numbers)}"
        entries = tuple([None if x is None else x.entry for x in inputs])
        return _Value((Node(op, name, entries, attrs, None, node.labels), 0), node, numbers)
