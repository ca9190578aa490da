"""Kernels: the CUDA C that runs on a GPU, as text that can be read.

    launch       Kernel(name, source): compiles at the first call, packs the arguments
    functions    what each ufunc of NumPy is in C, to the letter of NumPy's rules
    symbols      an array module whose arrays are names in C: ops run on it to write themselves down
    elementwise  a kernel for any elementwise formula: fused groups, broadcast or straight
    fused        such a formula on arrays at hand, compiled when first used
    updates      one launch for the optimizer steps of many parameters
    windows      im2col and col2im
    pooling      windows reduced to a number each, and their gradients
    rows         the gradient of taking rows: an embedding's
    blocks       what the threads of a block put together
    cross_entropy  softmax cross-entropy, its gradient
    moments      means and variances, and what a normalization's gradient sums up
    recurrent    what stands between the products of an LSTM's or GRU's step
    random       Philox: random numbers that depend on key and place alone

Nothing here imports CuPy: who calls a kernel hands over the array module. A module of these is
imported when somebody asks for it (`kernels.pooling`): most programs have no GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2lmini.cuda.kernels import (
        blocks,
        cross_entropy,
        depthwise,
        elementwise,
        functions,
        fused,
        launch,
        moments,
        pooling,
        random,
        recurrent,
        rows,
        symbols,
        updates,
        windows,
    )  # fmt: skip

__all__ = [
    "blocks", "cross_entropy", "depthwise", "elementwise", "functions", "fused", "launch",
    "moments", "pooling", "random", "recurrent", "rows", "symbols", "updates", "windows",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
