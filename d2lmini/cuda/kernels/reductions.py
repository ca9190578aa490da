"""Kernels for "reduce along rows or columns, then map": softmax, normalizations, losses.

Elements with the same place along the kept axes are a group: a row, or a column. A formula computes
on one element of each array, and may use the sum, mean, maximum or minimum over its group:

>>> from d2lmini.cuda.kernels.symbols import names as xp
>>> def softmax(x):
...     e = xp.exp(x - xp.max(x))
...     return [e / xp.sum(e)]
>>> x = Operand("float32", (8, 100))
>>> ((kernel, threads),) = reduction("softmax", [x], (8, 100), (1,), [x], softmax).kernels
>>> print(kernel.source[kernel.source.index("        float t2") :])
        float t2 = float(-1 / 0.0f);
        for (int j = begin + lane; j < end; j += lanes) {
            const float t1 = x0[g * 100 + j];
            t2 = maximum(t2, t1);
        }
        t2 = all_lanes<'>'>(t2, lane, lanes, apart);
        float t5 = 0.0f;
        for (int j = begin + lane; j < end; j += lanes) {
            const float t1 = x0[g * 100 + j];
            const float t3 = t1 - t2;
            const float t4 = expf(t3);
            t5 = t5 + t4;
        }
        t5 = all_lanes<'+'>(t5, lane, lanes, apart);
        for (int j = begin + lane; mine < count && j < end; j += lanes) {
            const float t1 = x0[g * 100 + j];
            const float t3 = t1 - t2;
            const float t4 = expf(t3);
            const float t6 = t4 / t5;
            y0[g * 100 + j] = t6;
        }
    }
}
<BLANKLINE>

A value belongs to a *stage*: the number of loops that must end before it is known. Reductions of
one stage share a loop. A loop computes again what it needs of the elements: this costs less than
memory for it.

The threads that share a group are its *lanes*: a block for long rows, a warp for short rows. Where
neighbouring elements belong to different groups (columns), the threads of a warp work on as many
groups, so that neighbouring threads read neighbouring elements. A few long groups are cut into
parts, which occupy many blocks: then every loop is a kernel, which writes the results of all parts,
and the next kernel combines them first. The order of each sum depends only on the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.elementwise import (
    Operand,
    Shape,
    broadcast_strides,
    broken,
    complete,
    load_text,
    merge_axes,
    place_text,
    reach,
    store_text,
)
from d2lmini.cuda.kernels.launch import C_TYPES, THREADS, Kernel, index_type
from d2lmini.cuda.kernels.stages import Stages
from d2lmini.cuda.kernels.symbols import c_type, literal, names
from d2lmini.ops.symbolic import Proxy

#: The threads that share a short row.
WARP = 32
#: From this many elements on a block shares a row.
LONG = 512
#: Elements of a part, at least, for each lane and in all; parts of a group, and threads for all
#: parts, at most.
MIN_PER_LANE, MIN_PART, MAX_PARTS, MAX_THREADS = 16, 512, 256, 1 << 18

#: How threads share groups -> in C: the distance of the threads that share a group, their number,
#: and which of the block's groups is a thread's. (Blocks in tests are smaller than a warp.)
_WARP = "blockDim.x < {0} ? blockDim.x : {0}"
_WAYS = {
    "short rows": ("1", _WARP, "threadIdx.x / lanes"),
    "long rows": ("1", "blockDim.x", "0"),
    "columns": (_WARP, "blockDim.x / apart", "threadIdx.x % apart"),
}

#: Reduction -> its first value, and how two values become one: the letter of `all_lanes`, and in C.
_KINDS = {
    "sum": (0.0, "+", "{} + {}"),
    "mean": (0.0, "+", "{} + {}"),
    "max": (-np.inf, ">", "maximum({}, {})"),
    "min": (np.inf, "<", "minimum({}, {})"),
}


class Launches(NamedTuple):
    """The launches that compute a formula.

    kernels  each kernel with the number of threads that it needs
    partial  dtype and number of the results of parts, which need an array behind the outputs;
             None if there is one kernel
    sizes    the last arguments: the number of groups, of elements in each, and of parts of each
    """

    kernels: tuple[tuple[Kernel, int], ...]
    partial: tuple[np.dtype, int] | None
    sizes: tuple[int, int, int]


def reduction(
    name: str, inputs: Sequence[Operand], domain: Shape, axes: Shape, outs: Sequence[Operand],
    formula: Callable[..., Sequence[Proxy]],
) -> Launches:  # fmt: skip
    """The launches that fill a C-contiguous array for each value that `formula(*inputs)` returns,
    of the shape `domain` or with 1 at the axes of the reductions. Arguments of a kernel: the
    inputs, the outputs, and what `Launches` says. NotTraceable if the formula has no form in C."""
    writer = _Writer(name, inputs, domain, axes, outs, formula)
    threads = writer.groups * writer.lanes
    kernels = tuple(
        (
            complete(name, writer.text(stage)),
            threads * (writer.cut if writer.is_in_parts(stage) else 1),
        )
        for stage in range(writer.n_kernels)
    )
    partial = None
    if len(kernels) > 1:
        partial = writer.wide, len(writer.reductions) * writer.cut * writer.groups
    return Launches(kernels, partial, (writer.groups, writer.size, writer.cut))


def sum_rows(xp: Any, x: Any, out: Any) -> None:
    """Fill out (X,), in order, with the sums of the columns of x (R, X)."""
    strides = tuple([s // x.itemsize for s in x.strides])
    kernels, partial, sizes = _sum_rows(x.dtype, x.shape, strides)
    more = [] if partial is None else [xp.empty(partial[1], partial[0])]
    for kernel, threads in kernels:
        kernel(xp, threads, x, out, *more, *sizes)


@lru_cache(maxsize=256)
def _sum_rows(dtype: np.dtype, shape: Shape, strides: Shape) -> Launches:
    x, out = Operand(dtype, shape, strides), Operand(dtype, (1, shape[1]))
    return reduction("sum_rows", [x], shape, (0,), [out], lambda x: [names.sum(x)])


class _Writer:
    """Writes the kernels of a formula: one, or one for each stage if the groups are cut.

    stores      the text of each value that is stored, and of its place
    reductions  those that these values need
    last        the stage of these values
    """

    def __init__(
        self, name: str, inputs: Sequence[Operand], domain: Shape, axes: Shape,
        outs: Sequence[Operand], formula: Callable[..., Sequence[Proxy]],
    ):  # fmt: skip
        self.name = name
        self.body = Stages()
        kept = tuple(a for a in range(len(domain)) if a not in axes)
        self.groups, self.size = (prod(domain[a] for a in part) for part in (kept, axes))
        self.index = index_type([prod(domain), *map(reach, inputs)])
        walks = [broadcast_strides(o, domain) for o in (*inputs, *outs)]
        halves = zip(_places("g", kept, domain, walks), _places("j", axes, domain, walks))
        places = [" + ".join(half for half in pair if half != "0") or "0" for pair in halves]
        dtypes = [np.dtype(o.dtype) for o in (*inputs, *outs)]
        pointers = [f"x{i}" for i in range(len(inputs))] + [f"y{i}" for i in range(len(outs))]
        elements = [f"{pointer}[{place}]" for pointer, place in zip(pointers, places)]
        self.parameters = [
            f"{'const ' * (pointer[0] == 'x')}{C_TYPES[dtype.char]}* {pointer}"
            for pointer, dtype in zip(pointers, dtypes)
        ]
        pairs = list(zip(elements, dtypes))
        given = [self.body.line(load_text(*pair), pair[1]) for pair in pairs[: len(inputs)]]
        self.stores = list(zip(map(store_text, formula(*given)), elements[len(inputs) :]))
        live = self.body.needed([value for value, _ in self.stores])
        self.reductions = {n: r for n, r in self.body.reductions.items() if n in live}
        self.last = max((live[name].stage for name in self.reductions), default=0)
        self.wide = np.result_type("f", *(r.dtype for r in self.reductions.values()))
        self._choose_way(domain, axes)
        self.n_kernels = self.last + 1 if self.cut > 1 else 1

    def _choose_way(self, domain: Shape, axes: Shape) -> None:
        # Groups are rows if neighbouring elements belong to one group.
        is_row = next((a in axes for a in reversed(range(len(domain))) if domain[a] > 1), True)
        self.way = "columns" if not is_row else "short rows" if self.size < LONG else "long rows"
        self.lanes = {"columns": THREADS // WARP, "short rows": WARP}.get(self.way, THREADS)
        least = max(MIN_PER_LANE * self.lanes, MIN_PART)
        most = min(MAX_THREADS // (self.groups * self.lanes), MAX_PARTS)
        self.cut = max(min(self.size // least, most), 1)

    def is_in_parts(self, stage: int) -> bool:
        """True if the kernel of a stage works on parts: if it has a loop over elements."""
        has_loop = stage < self.last or any(map(self._is_in_loop, self.stores))
        return has_loop and self.cut > 1

    def text(self, stage: int) -> str:
        """The kernel that begins with the loop of a stage. If the groups are cut, it begins with
        the results of the parts in the loops before, and ends with this loop."""
        is_partial = stage < self.n_kernels - 1
        results = self._of_stage(stage + 1)
        targets = [value for value, _ in self.stores]
        if is_partial:
            targets = [self.reductions[name].source for name in results]
        needed = self.body.needed(targets, stage)
        lines: list[str] = []
        for s in range((stage if self.n_kernels > 1 else self.last) + 1):
            if 0 < s <= stage:
                lines += self._combine([name for name in self._of_stage(s) if name in needed])
            lines += [v.line for v in needed.values() if v.stage == s and v.line and not v.varies]
            if stage <= s < self.last:
                lines += self._reduce(self._of_stage(s + 1))
        lines += self._store_partial(results) if is_partial else self._store()
        inner = [f"        {line}" for line in lines]
        return "\n".join([*self._head(stage), *inner, "    }", "}", ""])

    def _of_stage(self, stage: int) -> list[str]:
        """The reductions that are known from a stage on."""
        return [name for name in self.reductions if self.body.values[name].stage == stage]

    def _is_in_loop(self, store: tuple[str, str]) -> bool:
        """True if a store is one for each element of a group."""
        value, place = store
        return "j" in place or bool(self.body.needed([value], of_elements=True))

    def _head(self, stage: int) -> list[str]:
        """The lines before those that compute: which group, or part, is this thread's."""
        index = self.index
        parameters = [*self.parameters]
        if self.n_kernels > 1:
            parameters.append(f"{c_type(self.wide)}* partial")
        parameters += [f"const {index} {word}" for word in ("groups", "size", "cut")]
        apart, lanes, own = (text.format(WARP) for text in _WAYS[self.way])
        lines = [
            *broken(f'extern "C" __global__ void {self.name}(', parameters, end=") {"),
            f"    const int apart = {apart}, lanes = {lanes};",
            "    const int lane = threadIdx.x / apart % lanes, at_once = blockDim.x / lanes;",
            f"    const {index} count = {'groups * cut' if self.is_in_parts(stage) else 'groups'};",
            f"    for ({index} first = blockIdx.x * at_once; first < count; "
            "first += gridDim.x * at_once) {",
            f"        const {index} mine = first + {own}, i = mine < count ? mine : count - 1;",
        ]
        if not self.is_in_parts(stage):
            return [*lines, f"        const {index} g = i, begin = 0, end = size;"]
        return [
            *lines,
            f"        const {index} g = i % groups, part = i / groups;",
            f"        const {index} begin = (long long) size * part / cut;",
            f"        const {index} end = (long long) size * (part + 1) / cut;",
        ]

    def _loop(self, texts: Sequence[str], lines: Sequence[str], condition: str = "") -> list[str]:
        """A loop over the elements of the part: `lines`, which use the values in `texts`."""
        values = self.body.needed(texts, of_elements=True).values()
        return [
            f"for ({self.index} j = begin + lane; {condition}j < end; j += lanes) {{",
            *(f"    {line}" for line in [value.line for value in values if value.line] + [*lines]),
            "}",
        ]

    def _of_all_lanes(self, results: Sequence[str], loop: Sequence[str]) -> list[str]:
        """A loop that changes reductions: their first values, and what all lanes found."""
        firsts, lasts = [], []
        for name in results:
            kind, _, dtype = self.reductions[name]
            first, letter, _ = _KINDS[kind]
            firsts.append(f"{c_type(dtype)} {name} = {literal(first, dtype)};")
            lasts.append(f"{name} = all_lanes<'{letter}'>({name}, lane, lanes, apart);")
        return [*firsts, *loop, *lasts]

    def _change(self, name: str, value: str) -> str:
        """The line that adds a value to a reduction."""
        return f"{name} = {_KINDS[self.reductions[name].kind][2].format(name, value)};"

    def _reduce(self, results: Sequence[str]) -> list[str]:
        sources = [self.reductions[name].source for name in results]
        return self._of_all_lanes(
            results, self._loop(sources, list(map(self._change, results, sources)))
        )

    def _combine(self, results: Sequence[str]) -> list[str]:
        """The lines that compute reductions from the results of all parts."""
        lines = [self._change(name, self._partial(name, "k")) for name in results]
        head = f"for ({self.index} k = lane; k < cut; k += lanes) {{"
        return self._of_all_lanes(results, [head, *(f"    {line}" for line in lines), "}"])

    def _partial(self, name: str, part: str) -> str:
        """The place of a reduction's result for a part."""
        return f"partial[({[*self.reductions].index(name)} * cut + {part}) * groups + g]"

    def _store_partial(self, results: Sequence[str]) -> list[str]:
        return [
            f"if (lane == 0 && mine < count) {self._partial(name, 'part')} = {name};"
            for name in results
        ]

    def _store(self) -> list[str]:
        """The lines that store values: of each element, then of each group."""
        in_loop = [store for store in self.stores if self._is_in_loop(store)]
        lines = []
        if in_loop:
            stores = [f"{place} = {value};" for value, place in in_loop]
            lines = self._loop([value for value, _ in in_loop], stores, "mine < count && ")
        return lines + [
            f"if (lane == 0 && mine < groups) {place} = {value};"
            for value, place in self.stores
            if (value, place) not in in_loop
        ]


def _places(
    variable: str, axes: Shape, domain: Shape, walks: Sequence[tuple[int, ...]]
) -> list[str]:
    """The index that each walk reaches along some axes, at number `variable` of their elements."""
    sizes, merged = merge_axes(
        tuple(domain[a] for a in axes), [tuple(walk[a] for a in axes) for walk in walks]
    )
    return [place_text(sizes, walk, variable) for walk in merged]
