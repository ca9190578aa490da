"""Constant folding: what does not depend on any variable is computed once, by the compiler.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = x * sym.exp(sym.zeros((3,)) + 1)
>>> before = graph_of(y, x=(3,))
>>> print(listing(constant_fold(before)))
x                                           # (3,) float32
exp0 = 2.7182819843292236 everywhere        # (3,) float32
_mul0 = elemwise_mul(x, exp0)               # (3,) float32
return _mul0

With all its variables given a value (`bind_values`) a graph is nothing but its result:

>>> a, b, c, d = (sym.var(name) for name in "abcd")
>>> with sym.NameManager():
...     before = graph_of((a + b) + (c + d), a=(1,), b=(1,), c=(1,), d=(1,))
>>> values = dict(zip("abcd", [1, 2, 3, 4]))
>>> print(listing(constant_fold(bind_values(before, values))))
_plus2 = 10.0                               # (1,) float32
return _plus2

The results are those that the ops compute, to the bit. Nodes that draw are no constants. What would
take more than a megabyte is left to the run, but for elementwise ops on arrays that are the same
number everywhere: such an array is that number, whatever its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.errstate import run_quietly
from d2lmini.graph.constant import CONSTANT, array_of, constant, is_constant, make_filled, uniform
from d2lmini.graph.ir import Draw, Entry, Node, compute, mutated_by, spec_of, topological, transform
from d2lmini.graph.passes.rewrite import Replacement, rewritten
from d2lmini.graph.passes.views import SPREADS, TRANSPOSES, is_reshape

#: The largest constant that a program holds, in bytes.
LARGEST = 1 << 20

#: Calls whose result is everywhere what their input is everywhere.
SPREADING = (
    *SPREADS, *TRANSPOSES, "slice", "slice_axis", "slice_like", "tile", "repeat", "reverse",
    "_getitem", "max", "min",
)  # fmt: skip


def constant_fold(outputs: Sequence[Entry]) -> list[Entry]:
    """With constants in the place of all values that are known."""
    return rewritten(outputs, _fold, is_local=True)


def bind_values(outputs: Sequence[Entry], values: Mapping[str, Any]) -> list[Entry]:
    """The graph with some variables given, by name: arrays, or numbers that fill their shape.
    MXNetError for the name of no variable, and for a variable that some node changes."""
    order = topological(outputs)
    variables = {node.name: node for node in order if node.op is None}
    changed = mutated_by(order)
    replaced: dict[Entry, Entry] = {}
    for name, value in values.items():
        node = variables.get(name)
        if node is None or node in changed:
            what = "no variable of this graph" if node is None else "changed when the graph runs"
            raise MXNetError(f"bound: {name!r} is {what}; variables are {list(variables)}")
        shape, dtype = spec_of((node, 0))
        value = np.broadcast_to(np.asarray(value, dtype), shape)
        replaced[node, 0] = constant(value, name)
    return transform(outputs, given=replaced)


def _fold(node: Node) -> Replacement:
    op, specs = node.op, node.specs
    assert op is not None and specs is not None
    if op is CONSTANT or op.random or op.mutates:
        return None
    if any(type(value) is Draw for value in node.attrs.values()):
        return None
    if op.name in ("zeros_like", "ones_like"):
        return _everywhere(node, uniform((node, 0)))
    numbers = [uniform(e) for e in node.inputs]
    if numbers and all(number is not None for number in numbers):
        if op.name in SPREADING or is_reshape(node):
            return _everywhere(node, numbers[0])
        if op.elementwise and len(specs) == 1:
            one = [
                np.full((1,) * len(spec_of(e).shape), number, spec_of(e).dtype)
                for e, number in zip(node.inputs, numbers)
                if e is not None
            ]
            results = _compute(node, one)
            if results is not None and results[0].size == 1:
                return _everywhere(node, results[0].reshape(-1)[0].item())
    known = node.sources
    if sum(spec.nbytes for spec in specs) > LARGEST:
        return None
    if not all(is_constant(e) for e in known):
        return None
    results = _compute(node, [array_of(e) for e in known])
    if results is None:
        return None
    return [constant(y, node.name) for y in results]


def _everywhere(node: Node, number: Any) -> Entry | None:
    spec = spec_of((node, 0))
    if spec.nbytes <= LARGEST:
        return constant(np.full(spec.shape, number, spec.dtype), node.name)
    assert node.op is not None
    return None if node.op.name == "_full" else make_filled(spec, number, node.name)


def _compute(node: Node, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """What the op makes of these arrays; None if it fails, which is then the run's to tell."""
    given = iter(arrays)
    inputs = [None if e is None else next(given) for e in node.inputs]
    try:
        return run_quietly(lambda: compute(np, node, inputs))
    except Exception:
        return None
