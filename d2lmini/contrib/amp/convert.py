"""A float32 graph with the casts of mixed precision in it, for prediction.

>>> from d2lmini import sym
>>> fc = sym.FullyConnected(sym.var("data"), num_hidden=2, no_bias=True, name="fc")
>>> mixed = convert_symbol(sym.softmax(fc, name="y"))
>>> [node.name for node in topological(mixed._entries) if node.op]  # doctest: +NORMALIZE_WHITESPACE
['data_amp_cast_float16', 'fc_weight_amp_cast_float16', 'fc', 'fc_output_amp_cast_float32', 'y']

The casts are those of `init`, by the same lists, with two differences: what is known to have the
dtype is not cast, so that one cast serves all ops that need the same value, and all outputs are
float32. The arrays of `convert_model` stay in float32, unless `cast_optional_params`: then those
that are used in 16 bits only are stored in 16 bits, and need no casts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.contrib.amp.casts import FLOAT32, Casts, Conditions, bound_places
from d2lmini.gluon.block import Block
from d2lmini.gluon.graphs import graph_and_arrays
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.symbol_block import SymbolBlock
from d2lmini.graph.ir import Entry, Inputs, Node, Replacement, topological, transform
from d2lmini.ndarray import NDArray
from d2lmini.ops.amp_casts import amp_cast, amp_multicast, is_castable, widest
from d2lmini.symbol import Symbol
from d2lmini.symbol.compose import dtype_number
from d2lmini.symbol.infer import label_dtype
from d2lmini.symbol.lists import auxiliary_states, output_name

Arrays = dict[str, NDArray]


class _Conversion:
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


def convert_symbol(
    sym: Symbol,
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    data_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Symbol:
    """The graph with casts: float32 in, float32 out.

    target_dtype_ops, fp32_ops, conditional_fp32_ops replace the default lists, as in `amp.init`.
    excluded_sym_names: nodes whose inputs get no casts. data_names: the inputs of the model; with
    them, all other arguments get a label with the dtype that their arrays should have, which is
    float32 or, with `cast_optional_params`, `target_dtype` for those that all users cast to it.

    AssertionError for anything but a Symbol, another dtype, a name that is no op, and an op in two
    lists.
    """
    assert isinstance(sym, Symbol), "First argument to convert_symbol should be Symbol"
    casts = Casts(target_dtype, target_dtype_ops, conditional_fp32_ops, fp32_ops)
    entries = _Conversion(casts, excluded_sym_names or ()).convert(sym._entries)
    if data_names is not None:
        entries = _label_parameters(entries, casts.target, data_names, cast_optional_params)
    return Symbol(tuple(entries))


def _label_parameters(
    entries: Sequence[Entry], target: Any, data_names: Sequence[str], optional: bool
) -> list[Entry]:
    """The graph with the dtypes of its parameters as labels, without casts that they make
    needless."""
    users: dict[Entry, list[Node]] = {}
    for node in topological(entries):
        for entry in node.sources:
            users.setdefault(entry, []).append(node)
    heads = set(entries)

    def is_low(node: Node) -> bool:
        casts = users.get((node, 0), [])
        return (
            optional
            and (node, 0) not in heads
            and all(user.op is amp_cast and user.attrs["dtype"] == target for user in casts)
        )

    fixed = {*data_names, *(node.name for node in auxiliary_states(entries))}
    low = {n for n in topological(entries) if n.op is None and n.name not in fixed and is_low(n)}

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node.op is None:
            if node.name in data_names:
                return None
            number = dtype_number(target if node in low else FLOAT32)
            return node.replace(labels={**node.labels, "__dtype__": str(number)})
        if node.op is amp_cast and node.inputs[0] is not None and node.inputs[0][0] in low:
            return list(inputs)
        return None

    return transform(entries, rule)


def convert_model(
    sym: Symbol,
    arg_params: Arrays,
    aux_params: Arrays,
    target_dtype: Any = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> tuple[Symbol, Arrays, Arrays]:
    """`convert_symbol` with the parameters by name: (symbol, arguments, auxiliary states).
    Arguments that need no float32 are cast if `cast_optional_params`. Errors as `convert_symbol`.
    """
    assert isinstance(sym, Symbol), "First argument to convert_model should be Symbol"
    for place, params in (("Second", arg_params), ("Third", aux_params)):
        assert isinstance(params, dict), (
            f"{place} argument to convert_model should be a dict of name to ndarray"
        )
    data_names = [name for name in sym.list_inputs() if name not in {**arg_params, **aux_params}]
    mixed = convert_symbol(
        sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names,
        data_names, cast_optional_params,
    )  # fmt: skip
    dtypes = {
        node.name: label_dtype(node) for node in topological(mixed._entries) if node.op is None
    }
    arguments = {
        name: x.astype(dtypes[name]) if _is_other(x, dtypes.get(name)) else x
        for name, x in arg_params.items()
    }
    return mixed, arguments, dict(aux_params)


def _is_other(x: NDArray, dtype: Any) -> bool:
    """True for a castable array that is to have another dtype."""
    return dtype is not None and x.dtype != dtype and is_castable(x.dtype)


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
    parameters; see `convert_model`.

    ctx: where they are; None: where the block has them (MXNet: gpu(0)). RuntimeError unless the
    block is hybridized and was called; AssertionError for another block, and as `convert_symbol`.
    """
    assert isinstance(block, HybridBlock), "block input should be a HybridBlock"
    compiled = block.__dict__.get("forward")
    if compiled is None or not compiled.traces:
        raise RuntimeError(
            "Please first call block.hybridize() and then run forward with this block at least "
            "once before calling export."
        )
    graph, arrays = graph_and_arrays(block, compiled)
    states = set(graph.list_auxiliary_states())
    arg_params = {name: x for name, x in arrays.items() if name not in states}
    aux_params = {name: x for name, x in arrays.items() if name in states}
    mixed, arg_params, aux_params = convert_model(
        graph, arg_params, aux_params, target_dtype, target_dtype_ops, fp32_ops,
        conditional_fp32_ops, excluded_sym_names, cast_optional_params,
    )  # fmt: skip
    params = {**arg_params, **aux_params}
    names = [name for name in graph.list_inputs() if name not in params]
    inputs = [Symbol(((node, 0),)) for node in topological(mixed._entries) if node.name in names]
    converted = SymbolBlock(mixed, inputs)
    if ctx is None:
        ctx = next((param.list_ctx() for param in block.collect_params().values()), None)
    converted.collect_params().load_dict(params, ctx, cast_dtype=True, dtype_source="saved")
    return converted
