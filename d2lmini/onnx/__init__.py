"""Nets as ONNX files, which other runtimes run without Python.

    net.export_onnx("net.onnx", nd.ones((1, 1, 28, 28)))                    # a Gluon net
    onnx.export_model("net-symbol.json", "net-0000.params", [(1, 1, 28, 28)])    # its files

It takes the package `onnx` (`pip install d2lmini[onnx]`); d2lmini imports it only here, when it is
used. A net is written for the shapes of its inputs.

`graph.py` goes from a Symbol to a model; `writer.py` says what a converter is; the other files are
the converters. After `mxnet.onnx`.

`Block.export_onnx` traces the net as `hybridize` does it, with the shapes of example inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from d2lmini import autograd
from d2lmini import symbol as symbols
from d2lmini.base import MXNetError
from d2lmini.device import files
from d2lmini.gluon.compiled import flatten, regroup
from d2lmini.graph.ir import variables_of
from d2lmini.graph.symbolic_trace import SymbolicTrace, input_names, plain
from d2lmini.ndarray import NDArray, load
from d2lmini.onnx.graph import export, labels_of
from d2lmini.onnx.writer import package
from d2lmini.ops.core import Spec, as_dtype
from d2lmini.symbol import Symbol

__all__ = ["export_model"]


def export_model(
    sym: Symbol | str | PathLike[str],
    params: Mapping[str, NDArray] | str | PathLike[str],
    in_shapes: Sequence[Sequence[int]],
    in_types: Any = np.float32,
    onnx_file_path: str | PathLike[str] = "model.onnx",
) -> str:
    """Write a Symbol with its parameters to `onnx_file_path`, and return that path.

    sym, params: a Symbol and arrays by name, with or without 'arg:' and 'aux:' before it; or the
    two files that `HybridBlock.export` writes. in_shapes: a shape for each variable that is no
    parameter and no label, in the order of `list_arguments`. in_types: their dtypes, or one for
    all.

    MXNetError, naming node and op, for what cannot be said in ONNX; ImportError without `onnx`.
    """
    symbol = sym if isinstance(sym, Symbol) else _load_symbol(sym)
    arrays = _values(load(str(params)) if isinstance(params, (str, PathLike)) else params)
    given = [tuple(shape) for shape in in_shapes]
    names = _inputs_of(symbol, arrays)
    if len(given) != len(names):
        raise MXNetError(
            f"export_model: {len(given)} shapes for {len(names)} inputs: {', '.join(names)}"
        )
    types = in_types if isinstance(in_types, (list, tuple)) else [in_types] * len(names)
    inputs = {n: Spec(s, as_dtype(t)) for n, s, t in zip(names, given, types, strict=True)}
    return _save(export(symbol, arrays, inputs), onnx_file_path)


def _save(model: Any, path: str | PathLike[str]) -> str:
    with files.replace_atomically(path, ending=True) as [place]:
        package().save(model, place)
    return str(path)


def _load_symbol(source: Any) -> Symbol:
    if not isinstance(source, (str, PathLike)):
        raise TypeError(f"export_model: expected a Symbol or a file, got {type(source).__name__}")
    return symbols.load(source)


def _values(params: Any) -> dict[str, np.ndarray]:
    """Parameters as NumPy arrays under their plain names."""
    if not isinstance(params, Mapping):
        raise TypeError(f"export_model: params are arrays by name, got {type(params).__name__}")
    return {
        name.removeprefix("arg:").removeprefix("aux:"): value.asnumpy()
        for name, value in params.items()
    }


def _inputs_of(symbol: Symbol, arrays: Mapping[str, Any]) -> list[str]:
    """Variables that are no parameters, without the labels that only training asks for."""
    labels = labels_of(symbol._entries)
    return [
        node.name for node in variables_of(symbol._entries)
        if node.name not in arrays and node not in labels
    ]  # fmt: skip


def export_onnx(block: Any, path: str | PathLike[str], inputs: tuple) -> str:
    """Write `block` for inputs like these; see `HybridBlock.export_onnx`. Waits."""
    flat, form = flatten(list(inputs))
    names = input_names(len(flat))
    is_np = any(x is not None and x.is_np for x in flat)
    specs = [None if x is None else x._spec for x in flat]
    trace = SymbolicTrace(names, specs, getattr(block, "_sees_shapes", True), is_np)
    with autograd.pause(train_mode=False):
        block(*inputs)  # sizes that are not known yet follow from a call
        trace.run(
            lambda *args: block(*args),
            lambda values: regroup(values, form)[0],
            lambda: block.collect_params().values(),
        )
    shown = tuple(plain(trace.symbol)._entries[i] for i in trace.outputs if isinstance(i, int))
    params = {
        node.name: (used if isinstance(used, NDArray) else used._reduce()).asnumpy()
        for node, used in trace.uses.items()
    }
    given = {name: spec for name, spec in zip(names, specs) if spec is not None}
    return _save(export(Symbol(shown), params, given), path)
