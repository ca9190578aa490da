"""`Block.export_onnx`: a net as an ONNX file.

The net is traced as `hybridize` does it, with the example inputs' shapes; what its graph uses, the
parameters and other arrays, goes into the file.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

from d2lmini import autograd, onnx
from d2lmini.gluon.flatten_args import flatten, regroup
from d2lmini.graph.symbolic_trace import SymbolicTrace, input_names, plain
from d2lmini.ndarray import NDArray
from d2lmini.onnx.graph import export
from d2lmini.onnx.writer import Sizes


def export_onnx(
    block: Any, path: str | PathLike[str], inputs: tuple, dynamic_batch: bool = False,
    batch_axis: int = 0, opset: int = 17,
) -> str:  # fmt: skip
    """Write `block` for inputs like these; see `HybridBlock.export_onnx`. Waits."""
    with autograd.pause(train_mode=False):
        block(*inputs)  # sizes that are not known yet follow from a call
        flat, form = flatten(list(inputs))
        names = input_names(len(flat))
        specs = [None if x is None else x._spec for x in flat]
        is_np = any(x is not None and x.is_np for x in flat)
        trace = SymbolicTrace(names, specs, getattr(block, "_sees_shapes", True), is_np)
        trace.run(
            lambda *args: block(*args),
            lambda values: regroup(values, form)[0],
            lambda: block.collect_params().values(),
        )
    values = {
        node.name: (used if isinstance(used, NDArray) else used._reduce()).asnumpy()
        for node, used in trace.uses.items()
    }
    shapes: dict[str, tuple[Sizes, Any]] = {}
    for name, x in zip(names, flat):
        if x is not None:
            sizes: list[int | None] = list(x.shape)
            if dynamic_batch:
                sizes[batch_axis] = None
            shapes[name] = tuple(sizes), x.dtype
    return onnx.save_model(export(plain(trace.symbol), values, shapes, opset), path)
