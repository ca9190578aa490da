"""SymbolBlock: a Block defined by a graph instead of a class.

For example, the features inside a net, as a net that shares the parameters:

>>> from d2lmini import nd, sym
>>> from d2lmini.gluon import SymbolBlock, nn
>>> net = nn.HybridSequential(prefix="net_")
>>> with net.name_scope():
...     net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
>>> net.initialize()
>>> net(nd.ones((1, 3))).shape
(1, 2)
>>> data = sym.var("data")
>>> inside = net(data).get_internals()["net_dense0_relu_fwd_output"]
>>> features = SymbolBlock(inside, data, params=net.collect_params())
>>> features(nd.ones((1, 3))).shape
(1, 4)

`SymbolBlock.imports` reads the files of `export`, d2lmini's or MXNet's, without the class.
After `mxnet.gluon.SymbolBlock`.
"""

from __future__ import annotations

import os
from typing import Any

from d2lmini import symbol
from d2lmini.gluon.compiled import flatten, regroup
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.parameter import Contexts, Parameter
from d2lmini.gluon.parameter_dict import ParameterDict
from d2lmini.graph.ir import Node, mutated_by, topological, variables_of
from d2lmini.graph.symbolic_trace import plain
from d2lmini.ops.core import modes
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import evaluate


class SymbolBlock(HybridBlock):
    """A Block that computes `outputs` (a Symbol, or nested lists of Symbols) from `inputs`.

    inputs: a variable of the graph, or a list of variables. All other variables are parameters:
    those in `params` with the same names, and new parameters for the rest. The Block is compiled
    from the start.
    """

    def __init__(self, outputs: Any, inputs: Any, params: ParameterDict | None = None):
        super().__init__(prefix=None, params=None)
        self._prefix, self._empty_prefix = "", True
        self._params = ParameterDict("", params)
        if isinstance(inputs, Symbol) and len(inputs) == 1:
            inputs = [inputs]
        flat, self._out_form = flatten(outputs)
        self._graph = plain(Symbol(tuple(entry for output in flat for entry in output._entries)))
        nodes = [x._entry[0] for input_ in flatten(list(inputs))[0] for x in input_]
        for node in nodes:
            assert node.op is None, (
                f"SymbolBlock: an input must be a variable, {node.name!r} is computed"
            )
        self._input_names = [node.name for node in nodes]
        auxiliary = mutated_by(topological(self._graph._entries))
        for node in variables_of(self._graph._entries):
            if node.name not in self._input_names and self._params._get_impl(node.name) is None:
                req = "null" if node in auxiliary else "write"
                self._params[node.name] = Parameter(node.name, req, allow_deferred_init=True)
        prefix = os.path.commonprefix(list(self._params))  # noqa: RUF071 (letters are meant)
        self._reg_params = {name[len(prefix) :]: p for name, p in self._params.items()}
        self._active = True
        self._clear_cached_op()

    @staticmethod
    def imports(
        symbol_file: str, input_names: str | list[str], param_file: str | None = None,
        ctx: Contexts = None, allow_missing: bool = False, ignore_extra: bool = False,
    ) -> SymbolBlock:  # fmt: skip
        """The net in the files of `export`: the graph and, if given, the parameters, which are put
        into `ctx` (cpu(0)). Raises AssertionError for a variable that is neither in `input_names`
        nor in the file, unless `allow_missing`, and for a parameter that is not in the graph,
        unless `ignore_extra`.
        """
        graph = symbol.load(symbol_file)
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        net = SymbolBlock(graph, [symbol.var(name) for name in names])
        if param_file is not None:
            net.collect_params().load(
                param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved"
            )
        return net

    @property
    def _sees_shapes(self) -> bool:
        return False

    def forward(self, *args: Any) -> Any:
        flat = flatten(list(args))[0]
        if len(flat) != len(self._input_names):
            n, names = len(self._input_names), ", ".join(self._input_names)
            raise ValueError(f"SymbolBlock: {len(flat)} values for {n} inputs: {names}")
        ctx = self._context_of(args)
        trace = modes.tracing
        called = ctx is not None or trace is not None
        if called and any(p._data is None for p in self._params.values()):
            shaped = flat if trace is None else [trace.with_shape(value) for value in flat]
            self._finish_deferred(*shaped)
        given = dict(zip(self._input_names, flat))
        values: dict[Node, Any] = {}
        for node in variables_of(self._graph._entries):
            value = given.get(node.name)
            if value is None:
                parameter = self._params[node.name]
                value = parameter.var() if ctx is None else parameter.data(ctx)
            values[node] = value
        return regroup(evaluate(self._graph._entries, values, ctx=ctx), self._out_form)[0]

    def __repr__(self) -> str:
        outputs = len(self._graph)
        return f"{type(self).__name__}(\n{self._graph!r} : {len(self._input_names)} -> {outputs}\n)"
