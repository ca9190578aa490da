"""`autograd.get_symbol`: what was recorded, as a Symbol.

>>> from d2lmini import autograd, nd
>>> x = nd.ones(2)
>>> x.attach_grad()
>>> with autograd.record():
...     y = (x * 3 + nd.ones(2)).tanh()
>>> s = autograd.get_symbol(y)
>>> s, s.list_arguments()
(<Symbol node_2>, ['var0', 'null0'])

Arrays with a gradient attached become the variables var0, var1, ... in the order in which that was
done; arrays without history null0, null1, ... in the order in which they are met, for the tape does
not know whether they were one. A call of a compiled net is written out, node by node.
"""

from __future__ import annotations

from itertools import count
from operator import attrgetter
from typing import Any

from d2lmini.autograd.tape import Leaf, OpNode
from d2lmini.autograd.tape import Node as Step
from d2lmini.base import MXNetError
from d2lmini.graph.cached_op import ProgramNode
from d2lmini.graph.ir import Entry, Node, forget_call, transform
from d2lmini.ndarray import NDArray
from d2lmini.symbol import Symbol


def get_symbol(x: NDArray) -> Symbol:
    """The computation that `x` was recorded with. MXNetError if it was not recorded, if a backward
    has used the record up, and if a `Function` is in it, which is Python and no operation."""
    if x._node is None:
        raise MXNetError(
            "get_symbol: NDArray is not part of a computation graph. Did you forget to turn on "
            "recording? Compute it inside autograd.record() from arrays with attach_grad()"
        )
    head, which = x._node
    steps = _behind(head)
    leaves = [step for step in steps if isinstance(step, Leaf)]
    entries: dict[Any, Entry] = {
        (leaf, 0): (Node(None, f"var{number}", site=leaf.site), 0)
        for number, leaf in enumerate(leaves)
    }
    nulls = count()
    for number, step in enumerate(step for step in steps if not isinstance(step, Leaf)):
        inputs = tuple([
            (Node(None, f"null{next(nulls)}"), 0) if parent is None else entries[parent]
            for parent in step.parents
        ])  # fmt: skip
        for i, entry in enumerate(_write(step, inputs, f"node_{number}")):
            entries[step, i] = entry
    return Symbol((entries[head, which],))


def _behind(head: Step) -> list[Step]:
    """All steps that lead to `head`, itself included, the first recorded first."""
    found = {head}
    todo = [head]
    while todo:
        step = todo.pop()
        if step.parents is None:
            raise MXNetError(
                f"get_symbol: {step.name}: a backward has used up this part of the graph; pass "
                "retain_graph=True to it"
            )
        for parent in step.parents:
            if parent is not None and parent[0] not in found:
                found.add(parent[0])
                todo.append(parent[0])
    return sorted(found, key=attrgetter("order"))


def _write(step: Step, inputs: tuple[Entry, ...], name: str) -> list[Entry]:
    """The outputs of a step as values of the graph."""
    if isinstance(step, OpNode):
        attrs = {k: v for k, v in step.attrs.items() if k in step.op.attr_set}
        node = Node(step.op, name, inputs, attrs, site=step.site)
        return [(node, i) for i in range(len(step.outputs))]
    if isinstance(step, ProgramNode):  # the graph of a compiled call, with these inputs
        given = {(v, 0): entry for v, entry in zip(step.compiled.variables, inputs)}
        return transform(step.compiled.typed, forget_call, given)
    raise MXNetError(f"get_symbol: {step.name} is no operation that a Symbol could name")
