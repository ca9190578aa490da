"""A graph in ops that MXNet has.

Most are the same there, some under another name (`op.mxnet_name`). Some of ours do at once what
MXNet takes several for (a loss from logits, `x[1, ::2]` of a traced `forward`): these say how
(`op.written_in_mxnet`), and are written out. What has no words there, as the ops of our gradients,
is an error.

>>> from d2lmini import sym
>>> from d2lmini.symbol.node import topological
>>> gap = sym._contrib_isnan(sym.var("x"), name="gap")
>>> [node.op.name for node in topological(in_mxnet_words(gap._entries)) if node.op]
['_not_equal']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.core import Op
from d2lmini.ops.fluent import Fluent
from d2lmini.symbol.node import Entry, Node, topological


def in_mxnet_words(
    entries: Sequence[Entry], remove_amp_cast: bool = False, others: bool = False
) -> list[Entry]:
    """The graph behind `entries` in ops that MXNet has.

    remove_amp_cast: leave out conversions that mixed precision put in. Where MXNet has no words for
    an op, MXNetError naming it and the node; with `others` it stays.
    """
    made: dict[Entry, Entry] = {}
    for node in topological(entries):
        outputs: Sequence[Entry]
        inputs = tuple([e and made[e] for e in node.inputs])
        if node.op is None:
            outputs = [(node, 0)]
        elif node.op.name == "amp_cast" and remove_amp_cast:
            outputs = inputs[:1]  # type: ignore[assignment]
        elif node.op.mxnet_rule is not None:
            outputs = [_written_out(node, inputs)]
        elif not node.op.in_mxnet and not others:
            raise MXNetError(
                f"node {node.name!r}: MXNet has no op {node.op.name!r}, which is d2lmini's own, so "
                "this graph cannot be written to its file format; use ops of MXNet's instead"
            )
        else:
            same = all(a == b for a, b in zip(inputs, node.inputs))
            new = node if same else _with_inputs(node, inputs)
            outputs = [(new, i) for i in range(node.n_outputs)]
        for i, entry in enumerate(outputs):
            made[node, i] = entry
    return [made[entry] for entry in entries]


def _with_inputs(node: Node, inputs: tuple[Entry | None, ...]) -> Node:
    return Node(node.op, node.name, inputs, node.attrs, labels=node.labels, site=node.site)


def _written_out(node: Node, inputs: Sequence[Entry | None]) -> Entry:
    """The nodes that stand for one of ours; the last gets its name."""
    op = node.op
    assert op is not None and op.mxnet_rule is not None
    writer = _Writer(node)
    values = [None if entry is None else _Value(entry, writer) for entry in inputs]
    try:
        last = op.mxnet_rule(*values, **node.attrs).entry[0]
    except MXNetError as problem:
        raise MXNetError(f"node {node.name!r}: {problem}") from None
    return Node(last.op, node.name, last.inputs, last.attrs, None, node.labels), 0


class _Writer:
    """Names the nodes that stand for one of ours after it, and counts them."""

    def __init__(self, node: Node):
        self.node = node
        self.count = 0

    def write(self, op: Op, inputs: tuple[Entry | None, ...], attrs: dict[str, Any]) -> _Value:
        name = f"{self.node.name}_{op.name.strip('_')}{self.count}"
        self.count += 1
        return _Value((Node(op, name, inputs, attrs, None, self.node.labels), 0), self)


class _Value(Fluent):
    """What a rule that writes an op out computes with."""

    __slots__ = ("entry", "writer")

    def __init__(self, entry: Entry, writer: _Writer):
        self.entry = entry
        self.writer = writer

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any) -> _Value:
        entries = tuple([None if x is None else x.entry for x in inputs])
        return inputs[0].writer.write(op, entries, attrs)
