"""Optimizer steps of many parameters in few launches.

A net has tens of parameters, most of them tiny, and a launch costs more than a tiny update. So one
launch updates up to `MAX_PARAMETERS` parameters: row r of its blocks (blockIdx.y) works on
parameter r.

The step is an op of `ops/update.py` or `update.py`, which computes on names in C as the
ops of a fused group do (`symbols`). Its numbers, such as a learning rate that changes at every
step, become parameters of the kernel: the text is made once, and compiled once.

    dtypes = (np.dtype("float32"),) * 4
    update(cupy, adam_update, {"lr": 0.001}, groups)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.formulas import broken, complete, load_text, store_text
from d2lmini.cuda.kernels.launch import C_TYPES, Kernel, NotRecorded, index_type, outside
from d2lmini.cuda.kernels.symbols import Body, Names, c_type
from d2lmini.ops.symbolic import NotTraceable, Proxy, trace
from d2lmini.ops.update import UpdateStep, run
from d2lmini.ops.update_program import Update

#: Parameters in one launch: with five arrays each, their pointers fit 4 KB, which CUDA allows.
MAX_PARAMETERS = 32


def update(xp: Any, rule: Update, attrs: dict[str, Any], groups: Sequence[Sequence[Any]]) -> None:
    """Run the step of `rule` with these numbers for each group of arrays, in place.

    All arrays are C-contiguous, and all groups have the same dtypes. NotTraceable if the step is
    not an elementwise formula.
    """
    dtypes = tuple([a.dtype for a in groups[0]])
    numbers = _Numbers(None)
    rule.step(numbers, dtypes[0], attrs)
    # Numbers that switch something off make another formula, all others the same one.
    kinds = tuple([(k, v if v <= 0 or v == 1 else 0.5) for k, v in attrs.items()])
    for begin in range(0, len(groups), MAX_PARAMETERS):
        part = groups[begin : begin + MAX_PARAMETERS]
        sizes = [arrays[0].size for arrays in part]
        kernel = _kernel(rule, dtypes, kinds, len(part), index_type(sizes))
        arrays = [array for arrays in part for array in arrays]
        kernel(xp, max(sizes), *arrays, *sizes, *numbers.values, rows=len(part))


class _Numbers(Names):
    """The array module for a step: each number is a parameter of the kernel: p0, p1, ..."""

    def __init__(self, body: Body | None):
        self.body = body
        self.values: list[float] = []
        self.types: list[str] = []

    def number_of(self, value: Any, dtype: np.dtype) -> Proxy:
        self.values.append(value)
        self.types.append(c_type(dtype))
        return Proxy(self, f"p{len(self.values) - 1}", dtype, self.body)


@lru_cache(maxsize=256)
def _kernel(
    rule: Update, dtypes: tuple[np.dtype, ...], attrs: tuple[tuple[str, float], ...], count: int,
    index: str,
) -> Kernel:  # fmt: skip
    """The kernel for `count` parameters: its arguments are the arrays of all parameters, their
    sizes, and the numbers."""
    body = Body()
    names = [f"x{i}" for i in range(len(dtypes))]
    values = [body.line(load_text(f"{n}[i]", d), d) for n, d in zip(names, dtypes)]
    before = [value.expr for value in values]
    numbers = _Numbers(body)
    trace(numbers, rule.compute, values, dict(attrs), out=values[0])
    is_written = [value.expr != old for value, old in zip(values, before)]
    kinds = [f"{'' if w else 'const '}{C_TYPES[d.char]}*" for d, w in zip(dtypes, is_written)]
    arrays = list(zip(kinds, names))
    given = [f"{kind} {name}_{r}" for r in range(count) for kind, name in arrays]
    given += [f"const {index} n_{r}" for r in range(count)]
    given += [f"const {kind} p{i}" for i, kind in enumerate(numbers.types)]
    stores = [f"{n}[i] = {store_text(v)};" for n, v, w in zip(names, values, is_written) if w]
    title = rule.name.strip("_")
    lines = [
        *broken(f'extern "C" __global__ void {title}({", ".join(given)}) {{'),
        *(f"    {kind} {name} = nullptr;" for kind, name in arrays),
        f"    {index} n = 0;",
        "    switch (blockIdx.y) {  // row r of the blocks works on parameter r",
        *(
            f"        case {r}: {' '.join([f'{x} = {x}_{r};' for x in (*names, 'n')])} break;"
            for r in range(count)
        ),
        "    }",
        f"    const {index} first = blockIdx.x * blockDim.x + threadIdx.x;",
        f"    for ({index} i = first; i < n; i += gridDim.x * blockDim.x) {{",
        *(f"        {line}" for line in [*body.lines, *stores]),
        "    }",
        "}",
        "",
    ]
    return complete(title, "\n".join(lines))


@run.kernel("cuda")
def _(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple]) -> None:
    """Steps that differ only in their arrays are one launch."""
    alike: dict[Any, list[int]] = {}
    for i, ((rule, attrs), arrays) in enumerate(zip(steps, groups, strict=True)):
        key = rule, tuple(a.dtype for a in arrays), tuple(attrs.items())
        alike.setdefault(key, []).append(i)
    for members in alike.values():
        outside(xp, partial(_update, xp, steps, members, [groups[i] for i in members]))


def _update(
    xp: Any, steps: Sequence[UpdateStep], members: list[int], groups: Sequence[Sequence[Any]]
) -> None:
    """Run the steps `members`, which are equal; on other numbers when the call is repeated."""
    rule, attrs = steps[members[0]]
    if any([steps[i] != (rule, attrs) for i in members]):
        raise NotRecorded("steps that were equal differ")
    with suppress(NotTraceable):
        return update(xp, rule, attrs, groups)
    for weight, *others in groups:
        rule.step(xp, weight.dtype, attrs)(weight, *others, weight)
    return None
