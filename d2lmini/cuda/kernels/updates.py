"""Optimizer steps of many parameters in few launches.

A net has tens of parameters, most of them tiny, and a launch costs more than a tiny update. So one
launch updates up to `MAX_PARAMETERS` parameters: row r of its blocks (blockIdx.y) works on
parameter r.

The step is an op of `ops/update.py` or `update_adaptive.py`, which computes on names in C as the
ops of a fused group do (`symbols`). Its numbers, such as a learning rate that changes at every
step, become parameters of the kernel: the text stays the same, and is compiled once.

    formula = Formula(adam_update.compute, {"lr": 0.001}, dtypes)
    update(cupy, "adam_update", formula, groups)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels import symbols
from d2lmini.cuda.kernels.elementwise import broken, complete, load_text, store_text
from d2lmini.cuda.kernels.launch import C_TYPES, Kernel, index_type
from d2lmini.cuda.kernels.symbols import Body, c_type
from d2lmini.ops.symbolic import trace

#: Parameters in one launch: with five arrays each, their pointers fit 4 KB, which CUDA allows.
MAX_PARAMETERS = 32


def update(xp: Any, name: str, formula: Formula, groups: Sequence[Sequence[Any]]) -> None:
    """Compute `formula` for each group of arrays, in place. `name`: the kernel's name.

    All arrays are C-contiguous, and all groups have the same dtypes.
    """
    for begin in range(0, len(groups), MAX_PARAMETERS):
        part = groups[begin : begin + MAX_PARAMETERS]
        sizes = [arrays[0].size for arrays in part]
        args = [arg for arrays, size in zip(part, sizes) for arg in (*arrays, size)]
        kernel = _kernel(name, formula.text, len(part), index_type(sizes))
        kernel(xp, max(sizes), *args, *formula.numbers, rows=len(part))


class _Text(NamedTuple):
    """The computation on element i of each array: the arrays and the numbers that it needs, as
    (C type, name), and lines of C."""

    arrays: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


class Formula:
    """The formula of `compute(xp, *arrays, out=arrays[0], **attrs)` for one element of each array,
    including changes of arrays in place: the formula's `text` and the `numbers` in the text.
    NotTraceable if `compute` is not an elementwise formula."""

    def __init__(
        self, compute: Callable[..., Any], attrs: dict[str, Any], dtypes: Sequence[np.dtype]
    ):
        body = Body(as_parameters=True)
        names = [f"x{i}" for i in range(len(dtypes))]
        given = [body.line(load_text(f"{n}[i]", d), d) for n, d in zip(names, dtypes)]
        before = [value.expr for value in given]
        trace(symbols.names, compute, given, attrs, out=given[0])
        arrays, stores = [], []
        for name, value, old in zip(names, given, before):
            is_written = value.expr != old
            kind = C_TYPES[value.dtype.char]
            arrays.append((f"{kind}*" if is_written else f"const {kind}*", name))
            stores += [f"{name}[i] = {store_text(value)};"] if is_written else []
        numbers = tuple((f"const {c_type(d)}", n) for n, (d, _) in body.parameters.items())
        self.text = _Text(tuple(arrays), numbers, (*body.lines, *stores))
        self.numbers = [d.type(value) for d, value in body.parameters.values()]


@lru_cache(maxsize=256)
def _kernel(name: str, step: _Text, count: int, index: str) -> Kernel:
    """The kernel for `count` parameters. Its arguments: the arrays and the size of each parameter,
    then the numbers."""
    own = [*step.arrays, (f"const {index}", "n")]
    given = [f"{kind} {word}_{r}" for r in range(count) for kind, word in own]
    given += [" ".join(number) for number in step.numbers]
    choice = [
        f"case {r}: {' '.join(f'{word} = {word}_{r};' for _, word in own)} break;"
        for r in range(count)
    ]
    lines = [
        *broken(f'extern "C" __global__ void {name}(', given, end=") {"),
        *(f"    {kind} {word} = nullptr;" for kind, word in step.arrays),
        f"    {index} n = 0;",
        "    switch (blockIdx.y) {  // row r of the blocks works on parameter r",
        *(f"        {line}" for line in choice),
        "    }",
        f"    const {index} first = blockIdx.x * blockDim.x + threadIdx.x;",
        f"    for ({index} i = first; i < n; i += gridDim.x * blockDim.x) {{",
        *(f"        {line}" for line in step.lines),
        "    }",
        "}",
        "",
    ]
    return complete(name, "\n".join(lines))
