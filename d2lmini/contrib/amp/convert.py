"""A net with the casts of mixed precision in its graph, for prediction.

>>> from d2lmini import gluon, nd
>>> net = gluon.nn.Dense(2, in_units=3)
>>> net.initialize()
>>> net.hybridize()
>>> x = nd.ones((4, 3))
>>> y, mixed = net(x), convert_hybrid_block(net, cast_optional_params=True)
>>> mixed(x).dtype.__name__, mixed.collect_params()[net.weight.name].dtype.__name__
('float32', 'float16')

The casts are those of `init`, by the same lists, with two differences: what is known to have the
dtype is not cast, so that one cast serves all ops that need the same value, and all outputs are
float32. The parameters stay in float32, unless `cast_optional_params`: then those that are used in
16 bits only are stored in 16 bits, and need no casts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from d2lmini.contrib.amp.casts import FLOAT32, Casts, Conditions, bound_places
from d2lmini.gluon.block import Block
from d2lmini.gluon.graphs import graph_and_arrays
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.symbol_block import SymbolBlock
from d2lmini.graph.ir import Entry, Inputs, Node, Replacement, topological, transform
from d2lmini.ops.amp_casts import amp_cast, amp_multicast, is_castable, widest
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import label_dtype
from d2lmini.symbol.lists import output_name


class Conversion:
    """One graph with casts.

    casts     what each call needs
    excluded  names of nodes whose inputs are left as they are
    dtypes    of the new graph's entries, as far as known; a variable without a dtype counts as
              float32
    made      (entry, dtype) -> the entry of its cast
    """

    def __init__(self, casts: Casts, excluded: Sequence[str]):
        self.casts = casts
        self.excluded = frozenset(excluded)
        self.dtypes: dict[Entry, Any] = {}
        self.made: dict[tuple[Entry, Any], Entry] = {}

    def convert(self, entries: Sequence[Entry]) -> list[Entry]:
        return [self.cast(entry, FLOAT32) for entry in transform(entries, self._rule)]

    def cast(self, entry: Entry, dtype: Any) -> Entry:
        """The entry of the cast to `dtype`; `entry` itself if the dtype is known."""
        known = self.dtypes.get(entry)
        is_variable = entry[0].op is None
        if known == dtype or (known is not None and not is_castable(known)):
            return entry
        if (entry, dtype) not in self.made:
            name = f"{output_name(entry)}_amp_cast_{dtype.name}"
            attrs = {"dtype": dtype}
            self.made[entry, dtype] = Node(amp_cast, name, (entry,), attrs), 0
            self.dtypes[self.made[entry, dtype]] = None if is_variable else dtype
        return self.made[entry, dtype]

    def _rule(self, node: Node, inputs: Inputs) -> Replacement | None:
        if node.op is None:
            self.dtypes[node, 0] = label_dtype(node) or FLOAT32
            return None
        kind = None if node.name in self.excluded else self.casts.kind_of(node.op, node.attrs)
        if kind in ("widest", "bound"):
            inputs = self._to_widest(inputs, bound_places(kind, node.op, inputs))
        elif kind is not None:
            target = self.casts.target if kind == "low" else FLOAT32
            inputs = tuple(
                [None if entry is None else self.cast(entry, target) for entry in inputs]
            )
        new = node if inputs == node.inputs else node.replace(inputs=inputs)
        given = [self.dtypes.get(entry) for entry in new.sources]
        data = given[0] if given else None
        if kind in ("widest", "bound"):
            data = data if len(set(given)) == 1 else None
        elif kind is not None:
            data = data or target  # a variable that was cast
        for i, dtype in enumerate(node.op.output_dtypes(node.attrs, data, node.n_outputs)):
            self.dtypes[new, i] = None if dtype is None else np.dtype(dtype)
        return new

    def _to_widest(self, inputs: Inputs, places: Sequence[int]) -> Inputs:
        entries: list[Any] = [inputs[i] for i in places]
        known = [self.dtypes.get(entry) for entry in entries]
        if len(entries) < 2 and len(inputs) > 1:
            return inputs
        if all(dtype is not None and is_castable(dtype) for dtype in known):
            cast: Sequence[Entry] = [self.cast(entry, widest(known)) for entry in entries]
        else:
            name = f"{output_name(entries[0])}_amp_multicast"
            attrs = {**amp_multicast.defaults, "num_outputs": len(entries)}
            node = Node(amp_multicast, name, tuple(entries), attrs)
            cast = [(node, i) for i in range(len(entries))]
        new = dict(zip(places, cast))
        return tuple([new.get(i, entry) for i, entry in enumerate(inputs)])


def _find_low(entries: Sequence[Entry], target: Any, names: Collection[str]) -> set[str]:
    """Those of the parameters `names` that the graph uses as `target` only."""
    users: dict[str, list[Node]] = {name: [] for name in names}
    for node in topological(entries):
        for used, _ in node.sources:
            if used.name in users:
                users[used.name].append(node)
    return {
        name
        for name, nodes in users.items()
        if all(user.op is amp_cast and user.attrs["dtype"] == target for user in nodes)
    }


def _without_casts(entries: Sequence[Entry], names: Collection[str]) -> list[Entry]:
    """The graph without the casts of these variables."""

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node.op is amp_cast and node.inputs[0] is not None and node.inputs[0][0].name in names:
            return list(inputs)
        return None

    return transform(entries, rule)


def convert_hybrid_block(
    block: Block,
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    ctx: Any = None,
    cast_optional_params: bool = False,
) -> SymbolBlock:
    """A SymbolBlock that predicts in mixed precision what the HybridBlock does, with copies of its
    parameters: float32 in, float32 out.

    target_dtype_ops, fp32_ops, conditional_fp32_ops replace the default lists, as in `amp.init`.
    excluded_sym_names: nodes whose inputs get no casts. ctx: where the parameters are; None: where
    the block has them (MXNet: gpu(0)). cast_optional_params: see this module.

    RuntimeError unless the block is hybridized and was called; AssertionError for another block,
    another dtype, a name that is no op, and an op in two lists.
    """
    assert isinstance(block, HybridBlock), "block input should be a HybridBlock"
    compiled = block.__dict__.get("forward")
    if compiled is None or not compiled.traces:
        raise RuntimeError(
            "Please first call block.hybridize() and then run forward with this block at least "
            "once before calling export."
        )
    graph, params = graph_and_arrays(block, compiled)
    casts = Casts(target_dtype, target_dtype_ops, conditional_fp32_ops, fp32_ops)
    entries = Conversion(casts, excluded_sym_names or ()).convert(graph._entries)
    if cast_optional_params:
        low = _find_low(entries, casts.target, params.keys() - graph.list_auxiliary_states())
        entries = _without_casts(entries, low)
        params = {name: x.astype(casts.target) if name in low else x for name, x in params.items()}
    nodes = topological(entries)
    inputs = [Symbol(((node, 0),)) for node in nodes if node.op is None and node.name not in params]
    converted = SymbolBlock(Symbol(tuple(entries)), inputs)
    if ctx is None:
        ctx = next((param.list_ctx() for param in block.collect_params().values()), None)
    converted.collect_params().load_dict(params, ctx, cast_dtype=True, dtype_source="saved")
    return converted
