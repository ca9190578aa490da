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
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.current import outside
from d2lmini.cuda.kernels.elementwise import broken, complete, load_text, store_text
from d2lmini.cuda.kernels.launch import C_TYPES, Kernel, index_type
from d2lmini.cuda.kernels.symbols import Body, Names, Parameter, c_type
from d2lmini.cuda.recorder import NotRecorded
from d2lmini.ops.core import Op
from d2lmini.ops.symbolic import NotTraceable, trace
from d2lmini.ops.update import bind
from d2lmini.ops.update_multi import UpdateStep, run

#: Parameters in one launch: with five arrays each, their pointers fit 4 KB, which CUDA allows.
MAX_PARAMETERS = 32


def update(xp: Any, rule: Op, attrs: dict[str, Any], groups: Sequence[Sequence[Any]]) -> None:
    """Run the step of `rule` with these numbers for each group of arrays, in place.

    All arrays are C-contiguous, and all groups have the same dtypes. NotTraceable if the step is
    not an elementwise formula.
    """
    dtypes = tuple([a.dtype for a in groups[0]])
    numbers: list[float] = []
    bind(rule, _Numbers(numbers), dtypes[0], attrs)
    # Numbers that switch something off make another formula, all others the same one.
    kinds = tuple([(k, v if v <= 0 or v == 1 else 0.5) for k, v in attrs.items()])
    step = _formula(rule, dtypes, kinds)
    for begin in range(0, len(groups), MAX_PARAMETERS):
        part = groups[begin : begin + MAX_PARAMETERS]
        sizes = [arrays[0].size for arrays in part]
        kernel = _kernel(rule.name.strip("_"), step, len(part), index_type(sizes))
        arrays = [array for arrays in part for array in arrays]
        kernel(xp, max(sizes), *arrays, *sizes, *[numbers[i] for i in step.places], rows=len(part))


class _Step(NamedTuple):
    """The computation on element i of each array: the arrays and the numbers that it needs, as
    (C type, name), lines of C, and which numbers of the rule these are."""

    arrays: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    places: tuple[int, ...]


class _Numbers(Names):
    """The array module that lists the numbers of a step, and gives a parameter for each."""

    def __init__(self, numbers: list[float]):
        self.numbers = numbers

    def number(self, value: Any, dtype: np.dtype) -> Parameter:
        parameter = Parameter(value)
        parameter.place = len(self.numbers)
        self.numbers.append(value)
        return parameter


@lru_cache(maxsize=256)
def _formula(rule: Op, dtypes: tuple[np.dtype, ...], attrs: tuple[tuple[str, float], ...]) -> _Step:
    """The step of a rule for one element of each array, including changes of arrays in place."""
    body = Body()
    names = [f"x{i}" for i in range(len(dtypes))]
    given = [body.line(load_text(f"{n}[i]", d), d) for n, d in zip(names, dtypes)]
    before = [value.expr for value in given]
    trace(_Numbers([]), rule.compute, given, dict(attrs), out=given[0])
    arrays, stores = [], []
    for name, value, old in zip(names, given, before):
        is_written = value.expr != old
        kind = C_TYPES[value.dtype.char]
        arrays.append((f"{kind}*" if is_written else f"const {kind}*", name))
        stores += [f"{name}[i] = {store_text(value)};"] if is_written else []
    numbers = tuple([(f"const {c_type(d)}", n) for n, (d, _) in body.parameters.items()])
    places = tuple([place for _, place in body.parameters.values()])
    return _Step(tuple(arrays), numbers, (*body.lines, *stores), places)


@lru_cache(maxsize=256)
def _kernel(name: str, step: _Step, count: int, index: str) -> Kernel:
    """The kernel for `count` parameters. Its arguments: the arrays of all parameters, their sizes,
    the numbers."""
    own = [*step.arrays, (f"const {index}", "n")]
    given = [f"{kind} {word}_{r}" for r in range(count) for kind, word in step.arrays]
    given += [f"const {index} n_{r}" for r in range(count)]
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


@run.kernel("cuda")
def _(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple]) -> None:
    """Steps that differ only in their arrays are one launch."""
    alike: dict[Any, list[int]] = {}
    for i, ((rule, attrs), arrays) in enumerate(zip(steps, groups, strict=True)):
        what = tuple(attrs.items()) if _is_plain(attrs, arrays) else i
        alike.setdefault((rule, tuple(a.dtype for a in arrays), what), []).append(i)
    for members in alike.values():
        outside(partial(_update, xp, steps, members, [groups[i] for i in members]))


def _is_plain(attrs: dict[str, Any], arrays: Sequence[Any]) -> bool:
    """True if the arrays are in C order and no number is an array."""
    ordered = all([a.flags.c_contiguous for a in arrays])
    return ordered and all([isinstance(v, (int, float)) for v in attrs.values()])


def _update(
    xp: Any, steps: Sequence[UpdateStep], members: list[int], groups: Sequence[Sequence[Any]]
) -> None:
    """Run the steps `members`, which are equal; on other numbers when the call is repeated."""
    rule, attrs = steps[members[0]]
    if any([steps[i] != (rule, attrs) for i in members]):
        raise NotRecorded("steps that were equal differ")
    if _is_plain(attrs, groups[0]):
        with suppress(NotTraceable):
            return update(xp, rule, attrs, groups)
    for weight, *others in groups:
        bind(rule, xp, weight.dtype, attrs)(weight, *others, weight)
    return None
