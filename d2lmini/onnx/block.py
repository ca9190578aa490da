"""`Block.export_onnx`: a net as an ONNX file.

The net is traced as `hybridize` does it, with the example inputs' shapes; what its graph uses, the
parameters and other arrays, goes into the file.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from d2lmini import autograd, onnx
from d2lmini.base import MXNetError
from d2lmini.gluon.flatten_args import flatten, regroup
from d2lmini.graph.symbolic_trace import SymbolicTrace, input_names, plain
from d2lmini.ndarray import NDArray
from d2lmini.onnx.graph import export
from d2lmini.onnx.writer import Sizes
from d2lmini.ops.spec import Spec
from d2lmini.symbol.symbol import Symbol


def export_onnx(
    block: Any, path: str | PathLike[str], inputs: tuple, dynamic_batch: bool = False,
    batch_axis: int = 0, opset: int = 17,
) -> str:  # fmt: skip
    """Write `block` for inputs like these; see `HybridBlock.export_onnx`. Waits."""
    flat, form = flatten(list(inputs))
    names = input_names(len(flat))
    is_np = any(x is not None and x.is_np for x in flat)
    shapes: dict[str, tuple[Sizes, Any]] = {}
    for name, x in zip(names, flat):
        if x is None:
            continue
        sizes: list[int | None] = list(x.shape)
        if dynamic_batch:
            if not -len(sizes) <= batch_axis < len(sizes):
                raise MXNetError(
                    f"export to ONNX: input {name!r} of shape {x.shape} has no batch_axis="
                    f"{batch_axis}, which with dynamic_batch each input has"
                )
            sizes[batch_axis] = None
        shapes[name] = tuple(sizes), x.dtype

    def at(batch: int) -> tuple[Symbol, dict[str, np.ndarray]]:
        """The net's graph for a size of the batch, and what it uses."""
        specs = []
        for name in names:
            sizes, dtype = shapes.get(name, ((), None))
            shape = tuple(batch if n is None else n for n in sizes)
            specs.append(None if dtype is None else Spec(shape, dtype))
        trace = SymbolicTrace(names, specs, getattr(block, "_sees_shapes", True), is_np)
        trace.run(
            lambda *args: block(*args),
            lambda values: regroup(values, form)[0],
            lambda: block.collect_params().values(),
        )
        shown = tuple(plain(trace.symbol)._entries[i] for i in trace.outputs if isinstance(i, int))
        return Symbol(shown), {
            node.name: (used if isinstance(used, NDArray) else used._reduce()).asnumpy()
            for node, used in trace.uses.items()
        }

    with autograd.pause(train_mode=False):
        block(*inputs)  # sizes that are not known yet follow from a call
        model = export(at, shapes, opset)
    return onnx.save_model(model, path)
