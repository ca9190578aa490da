"""Optimizer steps of many parameters in few launches.

A net has tens of parameters, most of them tiny, and a launch costs more than a tiny update. So one
launch updates up to `MAX_PARAMETERS` parameters: row r of its blocks (blockIdx.y) works on
parameter r.

The step is an op of `ops/update.py` or `update_adaptive.py`, which computes on names in C as the
ops of a fused group do (`symbols`). Its numbers, such as a learning rate that changes at every
step, become parameters of the kernel: the text stays the same, and is compiled once.

    formula = Formula(adam_update.compute, {"lr": 0.001}, dtypes)
    update(cupy, "adam_update", formula, groups, weights)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels import symbols
from d2lmini.cuda.kernels.elementwise import broken, complete, load_name, store_text
from d2lmini.cuda.kernels.launch import C_TYPES, Kernel, index_type
from d2lmini.cuda.kernels.symbols import Body, c_type
from d2lmini.ops.symbolic import NotTraceable, trace

#: Parameters in one launch: with five arrays each, their pointers fit 4 KB, which CUDA allows.
MAX_PARAMETERS = 32


class _Array(NamedTuple):
    """An array that a step works on: its name in C, its dtype, whether the step writes it."""

    name: str
    dtype: np.dtype
    is_written: bool

    @property
    def pointer(self) -> str:
        return f"{'' if self.is_written else 'const '}{C_TYPES[self.dtype.char]}*"

    @property
    def element(self) -> str:
        sign = "&" if self.is_written else ""
        return f"{self.pointer[:-1]}{sign} {self.name}"


def update(
    xp: Any,
    name: str,
    formula: Formula,
    groups: Sequence[Sequence[Any]],
    outs: Sequence[Any],
) -> None:
    """Compute `formula` for each group of arrays into its place in `outs`. `name`: the kernel's
    name.

    All arrays are C-contiguous, and all groups have the same dtypes. Either every group's `out` is
    its first array, or no group's `out` is one of its arrays.
    """
    in_place = outs[0] is groups[0][0]
    for begin in range(0, len(groups), MAX_PARAMETERS):
        part, places = groups[begin : begin + MAX_PARAMETERS], outs[begin : begin + MAX_PARAMETERS]
        sizes = [out.size for out in places]
        args: list[Any] = []
        for arrays, out in zip(part, places):
            args += [*arrays, *([] if in_place else [out]), out.size]
        kernel = _kernel(name, formula.text, len(part), index_type(sizes))
        kernel(xp, max(sizes), *args, *formula.numbers, rows=len(part))


class _Text(NamedTuple):
    """The computation on one element of each array: lines of C, and the numbers that they need, as
    (C type, name)."""

    arrays: tuple[_Array, ...]
    lines: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]


class Formula:
    """The formula of `compute(xp, *arrays, out=out, **attrs)` for one element of each array,
    including changes of arrays in place: the formula's `text` and the `numbers` in the text.
    `out`: the dtype of the output if the output is none of the arrays. NotTraceable if `compute`
    is not an elementwise formula."""

    def __init__(
        self, compute: Callable[..., Any], attrs: dict[str, Any], dtypes: Sequence[np.dtype],
        out: np.dtype | None = None,
    ):  # fmt: skip
        body = Body(as_parameters=True)
        names = [f"x{i}" for i in range(len(dtypes))]
        values = [load_name(body, name, dtype) for name, dtype in zip(names, dtypes)]
        if out is not None:
            names.append("y")
            values.append(body.add_input("y", out))
        before = [value.expr for value in values]
        place = values[0 if out is None else -1]
        if trace(symbols.names, compute, values[: len(dtypes)], attrs, out=place) is not place:
            raise NotTraceable("a step that does not write its result to `out`")
        written = [value.expr != text for value, text in zip(values, before)]
        for value, is_written in zip(values, written):
            if is_written and set(names) & set(re.findall(r"\w+", value.expr)):
                # Compute before any array is written.
                value.expr = body.line(value.expr, value.dtype).expr
        arrays = tuple(_Array(n, v.dtype, w) for n, v, w in zip(names, values, written))
        stores = [f"{name} = {store_text(v)};" for name, v, w in zip(names, values, written) if w]
        parameters = tuple((c_type(d), name) for name, (d, _) in body.parameters.items())
        self.text = _Text(arrays, (*body.lines, *stores), parameters)
        self.numbers = [d.type(value) for d, value in body.parameters.values()]


@lru_cache(maxsize=256)
def _kernel(name: str, step: _Text, count: int, index: str) -> Kernel:
    """The kernel for `count` parameters. Its arguments: the arrays and the size of each parameter,
    then the numbers."""
    arrays, body, numbers = step
    mine = [(a.pointer, a.name) for a in arrays]
    types = [f"const {kind} {word}" for kind, word in numbers]
    parts = [*mine, (f"const {index}", "n")]
    given = [f"{kind} {word}_{r}" for r in range(count) for kind, word in parts]
    given += types
    choice = [
        f"case {r}: " + " ".join(f"{word} = {word}_{r};" for _, word in parts) + " break;"
        for r in range(count)
    ]
    elements = [a.element for a in arrays] + types
    values = [f"{word}[i]" for _, word in mine] + [word for _, word in numbers]
    lines = [
        *broken("__device__ inline void element(", elements, end=") {"),
        *(f"    {line}" for line in body),
        "}",
        "",
        "// Row r of the blocks works on parameter r.",
        *broken(f'extern "C" __global__ void {name}(', given, end=") {"),
        *(f"    {kind} {word} = nullptr;" for kind, word in mine),
        f"    {index} n = 0;",
        "    switch (blockIdx.y) {",
        *(f"        {line}" for line in choice),
        "    }",
        f"    const {index} threads = gridDim.x * blockDim.x;",
        f"    for ({index} i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads)",
        *broken("        element(", values),
        "}",
        "",
    ]
    text = "\n".join(lines)
    return complete(name, text)
