"""Kernels made of formulas: elementwise, or "reduce along rows or columns, then map".

An elementwise formula takes one pass over the elements.

>>> from d2lmini.cuda.kernels.symbols import names
>>> x, b = Operand("float32", (8, 4)), Operand("float32", (4,))
>>> made = elementwise("add_relu", [x, b], (8, 4), lambda x, b: [names.maximum(x + b, 0)])
>>> ((kernel, threads),) = made.kernels
>>> print(kernel.source[kernel.source.index("__device__ inline void element") :])
__device__ inline void element(const float x0, const float x1, float& y0) {
    const float t1 = x0 + x1;
    const float t2 = maximum(t1, 0.0f);
    y0 = t2;
}
<BLANKLINE>
extern "C" __global__ void add_relu(const float* x0, const float* x1, float* y0, const int n) {
    const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    int done = 0;
    if (aligned(x0) && aligned(x1) && aligned(y0)) {
        for (int i = 4 * first; i < n - 3; i += 4 * threads) {
            const Four<float> x0s = four(&x0[i]);
            const Four<float> x1s = four(&x1[i % 4]);
            Four<float> y0s;
            for (int k = 0; k < 4; ++k) element(x0s.at[k], x1s.at[k], y0s.at[k]);
            four(&y0[i]) = y0s;
        }
        done = n / 4 * 4;
    }
    for (int i = done + first; i < n; i += threads) {
        element(x0[i], x1[i % 4], y0[i]);
    }
}
<BLANKLINE>

A thread works on four elements at a time where they are contiguous: one instruction moves 16 bytes.
The text contains the shapes as far as they are needed to locate an element, so that the compiler
divides by constants; the first axis is not in the text, so the same kernel serves other batch
sizes. An output may overwrite an input: a thread reads all its inputs before it writes.

A formula with reductions is a softmax, a normalization, a loss. Elements with the same place along
the kept axes are a group: a row, or a column. The formula may use the sum, mean, maximum or minimum
over the group of its element:

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

A loop computes again what it needs of the elements: this costs less than memory for it.

The threads that share a group are its *lanes*: a block for long rows, a warp for short rows. Where
neighbouring elements belong to different groups (columns), the threads of a warp work on as many
groups, so that neighbouring threads read neighbouring elements. A few long groups are cut into
parts, which occupy many blocks: then every loop is a kernel, which writes the results of all parts,
and the next kernel combines them first. The order of each sum depends only on the sizes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.launch import MOST_KERNELS, Kernel, index_type
from d2lmini.cuda.kernels.symbols import C_TYPES, THREADS, Body, c_type, helpers, literal
from d2lmini.ops.symbolic import Proxy

Shape = tuple[int, ...]
Formula = Callable[..., Sequence[Proxy]]

#: The threads that share a short row.
WARP = 32
#: From this many elements on a block shares a row.
LONG = 512
#: Elements of a part, at least, for each lane and in all; parts of a group, and threads for all
#: parts, at most.
MIN_PER_LANE, MIN_PART, MAX_PARTS, MAX_THREADS = 16, 512, 256, 1 << 18

#: Reduction -> its first value, and how two values become one: the letter of `all_lanes`, and in C.
_KINDS = {
    "sum": (0.0, "+", "{} + {}"),
    "max": (-np.inf, ">", "maximum({}, {})"),
    "min": (np.inf, "<", "minimum({}, {})"),
}


class Operand(NamedTuple):
    """An array of a kernel: dtype, shape, and its strides in elements; None: those of a
    C-contiguous array."""

    dtype: Any
    shape: Shape
    strides: Shape | None = None

    @property
    def walk(self) -> Shape:
        """The strides, 0 where there is one element."""
        strides = _straight(self.shape) if self.strides is None else self.strides
        return tuple([0 if n == 1 else s for n, s in zip(self.shape, strides)])

    @property
    def reach(self) -> int:
        """The distance from the first element to the last."""
        return sum([abs(s) * (n - 1) for n, s in zip(self.shape, self.walk)])


def operand_of(array: Any) -> Operand:
    """An array as an operand."""
    itemsize = array.dtype.itemsize
    return Operand(array.dtype, array.shape, tuple([s // itemsize for s in array.strides]))


class Launches(NamedTuple):
    """The launches that compute a formula.

    kernels  each kernel with the number of threads that it needs
    sizes    the last arguments
    partial  dtype and number of the results of parts, which need an array behind the outputs; None
             if there are none
    """

    kernels: tuple[tuple[Kernel, int], ...]
    sizes: tuple[int, ...]
    partial: tuple[np.dtype, int] | None = None

    def __call__(self, xp: Any, *arrays: Any) -> None:
        """Launch the kernels on inputs and outputs."""
        more = () if self.partial is None else (xp.empty(self.partial[1], self.partial[0]),)
        for kernel, threads in self.kernels:
            kernel(xp, threads, *arrays, *more, *self.sizes)


def elementwise(
    name: str, inputs: Sequence[Operand], domain: Shape, formula: Formula,
    outs: Sequence[Operand] = (),
) -> Launches:  # fmt: skip
    """The launch that fills one array of the shape `domain` for each value that `formula(*inputs)`
    returns; the inputs are names in C. Kernel arguments: the inputs, which broadcast to `domain`,
    the outputs, the number of elements. Equal texts give the same kernel. outs: the strides of the
    outputs, where they are not in C order.

    NotTraceable if the formula is not elementwise.
    """
    body = Body()
    values = formula(*[body.load(f"x{i}", np.dtype(o.dtype)) for i, o in enumerate(inputs)])
    operands = [*inputs, *(outs or [Operand(y.dtype, domain) for y in values])]
    walks = [*(broadcast_strides(o, domain) for o in operands), _straight(domain)]
    sizes, (*walks, _) = merge_axes(domain, walks)
    arrays = [
        _Array(*named, place_text(sizes, walk), walk[-1:] == (1,))
        for named, walk in zip(names_of(operands, len(inputs)), walks)
    ]
    count = prod(domain)
    index = index_type([count, *(o.reach for o in operands)])
    by_fours = _by_fours(sizes, walks)
    elements = ", ".join([f"{a.name}[{a.place}]" for a in arrays])
    stores = [f"{a.name} = {store_text(value)};" for a, value in zip(arrays[len(inputs) :], values)]
    parameters = ", ".join(
        [f"{a.type}& {a.name}" if a.name[0] == "y" else f"const {a.type} {a.name}" for a in arrays]
    )
    pointers = ", ".join([pointer(a.type, a.name) for a in arrays])
    lines = [
        *broken(f"__device__ inline void element({parameters}) {{"),
        *(f"    {line}" for line in [*body.lines, *stores]),
        "}",
        "",
        *broken(f'extern "C" __global__ void {name}({pointers}, const {index} n) {{'),
        f"    const {index} first = blockIdx.x * blockDim.x + threadIdx.x, "
        "threads = gridDim.x * blockDim.x;",
        *(_four_at_a_time(index, arrays) if by_fours else []),
        f"    for ({index} i = {'done + ' if by_fours else ''}first; i < n; i += threads) {{",
        *broken(f"        element({elements});"),
        "    }",
        "}",
        "",
    ]
    threads = -(-count // 4) if by_fours else count
    return Launches(((complete(name, "\n".join(lines)), threads),), (count,))


@lru_cache(MOST_KERNELS)
def complete(name: str, text: str) -> Kernel:
    """The kernel of a text and of the helpers that the text uses; equal texts give the same, as
    long as it is kept. (CuPy keeps what it compiled: to forget a kernel unloads nothing.)"""
    return Kernel(name, helpers(text) + text)


def broken(line: str) -> list[str]:
    """Break a line that is too long."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(
        line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def fill(
    xp: Any, name: str, formula: Formula, inputs: Sequence[Any], outs: Sequence[Any],
    domain: Shape, axes: Shape = (),
) -> None:  # fmt: skip
    """Fill `outs` with the values of a formula of elements of the inputs, which broadcast to
    `domain`; with `axes` it may reduce along these, else the outputs may have any strides. A kernel
    is made once for a formula and layouts."""
    layouts = (tuple(map(operand_of, arrays)) for arrays in (inputs, outs))
    kept_launches(name, *layouts, domain, axes, formula)(xp, *inputs, *outs)


def launches_of(
    name: str, inputs: Sequence[Operand], outs: Sequence[Operand], domain: Shape, axes: Shape,
    formula: Formula,
) -> Launches:  # fmt: skip
    """The launches that fill `outs`; with `axes` the formula may reduce along these."""
    if axes:
        return reduction(name, inputs, domain, axes, outs, formula)
    return elementwise(name, inputs, domain, formula, outs)


kept_launches = lru_cache(maxsize=256)(launches_of)


# -- values ---------------------------------------------------------------------------------------


def names_of(operands: Sequence[Operand], inputs: int) -> list[tuple[str, str]]:
    """(type in C, name) of each array: inputs are x0, x1, ..., outputs y0, y1, ..."""
    return [
        (C_TYPES[np.dtype(o.dtype).char], f"x{i}" if i < inputs else f"y{i - inputs}")
        for i, o in enumerate(operands)
    ]


def pointer(kind: str, name: str) -> str:
    """An array as a parameter of a kernel."""
    return f"{'const ' * (name[0] == 'x')}{kind}* {name}"


def store_text(value: Proxy) -> str:
    """The C expression that stores a value in an array."""
    return f"narrowed({value.expr})" if value.dtype.char == "e" else value.expr


# -- places ---------------------------------------------------------------------------------------


def _straight(shape: Shape) -> Shape:
    """The strides of a C-contiguous array, in elements."""
    return tuple([prod(shape[a + 1 :]) for a in range(len(shape))])


def broadcast_strides(operand: Operand, domain: Shape) -> Shape:
    """The strides of an operand over the domain: 0 where the operand is repeated."""
    return (0,) * (len(domain) - len(operand.shape)) + operand.walk


def merge_axes(
    domain: Shape, walks: Sequence[tuple[int, ...]]
) -> tuple[Shape, list[tuple[int, ...]]]:
    """The domain with as few axes as possible: neighbours that are contiguous in all walks merge.

    >>> merge_axes((8, 3, 5), [(15, 5, 1), (0, 5, 1)])
    ((8, 15), [(15, 1), (0, 1)])
    """
    sizes: list[int] = []
    columns: list[list[int]] = []
    for axis in range(len(domain)):
        if domain[axis] == 1:
            continue
        here = [walk[axis] for walk in walks]
        if sizes and all(b == s * domain[axis] for b, s in zip(columns[-1], here)):
            sizes[-1] *= domain[axis]
            columns[-1] = here
        else:
            sizes.append(domain[axis])
            columns.append(here)
    return tuple(sizes), [tuple(column[i] for column in columns) for i in range(len(walks))]


def place_text(sizes: Shape, walk: tuple[int, ...], i: str = "i") -> str:
    """The index in an operand of element number i of the domain, as C.

    >>> place_text((8, 3, 5), (0, 5, 1)), place_text((8, 15), (15, 1)), place_text((8,), (0,))
    ('i / 5 % 3 * 5 + i % 5', 'i', '0')
    """
    if walk == _straight(sizes) and prod(sizes) > 1:
        return i
    terms = []
    for axis, stride in enumerate(walk):
        if stride:
            behind = prod(sizes[axis + 1 :])
            term = i if behind == 1 else f"{i} / {behind}"
            term += f" % {sizes[axis]}" if axis else ""
            terms.append(term if stride == 1 else f"{term} * {stride}")
    return " + ".join(terms) or "0"


def _by_fours(sizes: Shape, walks: Sequence[tuple[int, ...]]) -> bool:
    """True if four elements of the domain are contiguous, or all the same, in every operand."""
    if not sizes or (len(sizes) > 1 and sizes[-1] % 4):
        return False
    return all(
        walk[-1] == 0 or (walk[-1] == 1 and all(s % 4 == 0 for s in walk[:-1])) for walk in walks
    )


class _Array(NamedTuple):
    """An array: type and name in C, the index of element i, and whether four elements side by
    side in the domain are so in memory."""

    type: str
    name: str
    place: str
    is_wide: bool


def _four_at_a_time(index: str, arrays: Sequence[_Array]) -> list[str]:
    """The loop over four elements at a time, as far as there are four, in arrays that allow it."""
    loads, stores = [], []
    for kind, name, place, is_wide in arrays:
        if name[0] == "y":
            loads.append(f"Four<{kind}> {name}s;")
            stores.append(f"four(&{name}[{place}]) = {name}s;")
        elif is_wide:
            loads.append(f"const Four<{kind}> {name}s = four(&{name}[{place}]);")
        else:
            loads.append(f"const {kind} {name}s = {name}[{place}];")
    elements = ", ".join([f"{a.name}s{'.at[k]' * a.is_wide}" for a in arrays])
    aligned = " && ".join([f"aligned({a.name})" for a in arrays if a.is_wide])
    return [
        f"    {index} done = 0;",
        *broken(f"    if ({aligned}) {{"),
        f"        for ({index} i = 4 * first; i < n - 3; i += 4 * threads) {{",
        *(f"            {line}" for line in loads),
        *broken(f"            for (int k = 0; k < 4; ++k) element({elements});"),
        *(f"            {line}" for line in stores),
        "        }",
        "        done = n / 4 * 4;",
        "    }",
    ]


# -- reductions ------------------------------------------------------------------------------------


def reduction(
    name: str, inputs: Sequence[Operand], domain: Shape, axes: Shape, outs: Sequence[Operand],
    formula: Formula,
) -> Launches:  # fmt: skip
    """The launches that fill a C-contiguous array for each value that `formula(*inputs)` returns,
    of the shape `domain` or with 1 at the axes of the reductions. Arguments of a kernel: the
    inputs, the outputs, the results of parts, the number of groups, of elements in each, and of
    parts of each. NotTraceable if the formula has no form in C."""
    writer = _Writer(name, inputs, domain, axes, outs, formula)
    kernels = []
    for stage in range(writer.n_kernels):
        parts = writer.cut if writer.is_in_parts(stage) else 1
        kernels.append((complete(name, writer.text(stage)), writer.groups * writer.lanes * parts))
    results = writer.wide, len(writer.reductions) * writer.cut * writer.groups
    sizes = writer.groups, writer.size, writer.cut
    return Launches(tuple(kernels), sizes, results if len(kernels) > 1 else None)


class _Writer:
    """Writes the kernels of a formula: one, or one for each stage if the groups are cut.

    stores      the text of each value that is stored, and of its place
    reductions  those that these values need
    last        the stage of these values
    """

    def __init__(
        self, name: str, inputs: Sequence[Operand], domain: Shape, axes: Shape,
        outs: Sequence[Operand], formula: Formula,
    ):  # fmt: skip
        self.name = name
        self.body = Body(has_groups=True)
        kept = tuple([a for a in range(len(domain)) if a not in axes])
        self.groups, self.size = (prod([domain[a] for a in part]) for part in (kept, axes))
        self.index = index_type([prod(domain), *(o.reach for o in inputs)])
        operands = (*inputs, *outs)
        walks = [broadcast_strides(o, domain) for o in operands]
        halves = zip(_places("g", kept, domain, walks), _places("j", axes, domain, walks))
        places = [" + ".join([half for half in pair if half != "0"]) or "0" for pair in halves]
        self.arrays = names_of(operands, len(inputs))
        elements = [f"{array}[{place}]" for (_, array), place in zip(self.arrays, places)]
        given = [self.body.load(e, np.dtype(o.dtype)) for e, o in zip(elements, inputs)]
        self.stores = list(zip(map(store_text, formula(*given)), elements[len(inputs) :]))
        live = self.body.needed([value for value, _ in self.stores])
        self.reductions = {n: r for n, r in self.body.reductions.items() if n in live}
        self.last = max((live[name].stage for name in self.reductions), default=0)
        self.wide = np.result_type("f", *(r.dtype for r in self.reductions.values()))
        # Groups are rows if neighbouring elements belong to one group.
        self.is_row = next((a in axes for a in reversed(range(len(domain))) if domain[a] > 1), True)
        short = WARP if self.size < LONG else THREADS
        self.lanes = short if self.is_row else THREADS // WARP
        least = max(MIN_PER_LANE * self.lanes, MIN_PART)
        most = min(MAX_THREADS // (self.groups * self.lanes), MAX_PARTS)
        self.cut = max(min(self.size // least, most), 1)
        self.n_kernels = self.last + 1 if self.cut > 1 else 1

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
        parameters = [pointer(*array) for array in self.arrays]
        if self.n_kernels > 1:
            parameters.append(f"{c_type(self.wide)}* partial")
        parameters += [f"const {index} {word}" for word in ("groups", "size", "cut")]
        # The threads that share a group are neighbours, or `apart` from each other: then a warp
        # works on as many groups. (Blocks in tests are smaller than a warp.)
        width = self.lanes if self.is_row else WARP
        few = f"blockDim.x < {width} ? blockDim.x : {width}"
        apart, lanes, own = few, "blockDim.x / apart", "threadIdx.x % apart"
        if self.is_row:
            apart, lanes, own = "1", few, "threadIdx.x / lanes"
        part = ["g = i, begin = 0, end = size"]
        if self.is_in_parts(stage):
            part = [
                "g = i % groups, part = i / groups",
                "begin = (long long) size * part / cut",
                "end = (long long) size * (part + 1) / cut",
            ]
        return [
            *broken(f'extern "C" __global__ void {self.name}({", ".join(parameters)}) {{'),
            f"    const int apart = {apart}, lanes = {lanes};",
            "    const int lane = threadIdx.x / apart % lanes, at_once = blockDim.x / lanes;",
            f"    const {index} count = {'groups * cut' if self.is_in_parts(stage) else 'groups'};",
            f"    for ({index} first = blockIdx.x * at_once; first < count; "
            "first += gridDim.x * at_once) {",
            f"        const {index} mine = first + {own}, i = mine < count ? mine : count - 1;",
            *(f"        const {index} {text};" for text in part),
        ]

    def _loop(self, texts: Sequence[str], condition: str = "") -> list[str]:
        """The begin of a loop over the elements of the part, which computes `texts`."""
        values = self.body.needed(texts, of_elements=True).values()
        head = f"for ({self.index} j = begin + lane; {condition}j < end; j += lanes) {{"
        return [head, *(f"    {value.line}" for value in values if value.line)]

    def _fold(self, results: Sequence[str], texts: Sequence[str], loop: Sequence[str]) -> list[str]:
        """The lines that reduce `texts` to `results`: in a loop, then over all lanes."""
        firsts, changes, lasts = [], [], []
        for name, text in zip(results, texts):
            kind, _, dtype = self.reductions[name]
            first, letter, change = _KINDS[kind]
            firsts.append(f"{c_type(dtype)} {name} = {literal(first, dtype)};")
            changes.append(f"    {name} = {change.format(name, text)};")
            lasts.append(f"{name} = all_lanes<'{letter}'>({name}, lane, lanes, apart);")
        return [*firsts, *loop, *changes, "}", *lasts]

    def _reduce(self, results: Sequence[str]) -> list[str]:
        sources = [self.reductions[name].source for name in results]
        return self._fold(results, sources, self._loop(sources))

    def _combine(self, results: Sequence[str]) -> list[str]:
        """The lines that compute reductions from the results of all parts."""
        loop = f"for ({self.index} k = lane; k < cut; k += lanes) {{"
        return self._fold(results, [self._partial(name, "k") for name in results], [loop])

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
            lines = self._loop([value for value, _ in in_loop], "mine < count && ")
            lines += [*(f"    {place} = {value};" for value, place in in_loop), "}"]
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
