"""A kernel for an elementwise formula: all ops of a group in one pass over the elements.

>>> from d2lmini.cuda.kernels.symbols import names
>>> x, b = Operand("float32", (8, 4)), Operand("float32", (4,))
>>> kernel = elementwise("add_relu", [x, b], (8, 4), lambda x, b: [names.maximum(x + b, 0)])
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
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.launch import C_TYPES, MOST_KERNELS, Kernel, index_type
from d2lmini.cuda.kernels.symbols import Body
from d2lmini.cuda.kernels.ufunc_to_c import helpers
from d2lmini.ops.symbolic import Proxy

Shape = tuple[int, ...]

_kernels: dict[str, Kernel] = {}
_lock = threading.Lock()


class Operand(NamedTuple):
    """An input: dtype, shape, and its strides in elements; None: the strides of a C-contiguous
    array."""

    dtype: Any
    shape: Shape
    strides: tuple[int, ...] | None = None


class _Array(NamedTuple):
    """An array of a kernel: its type and name in C, the index of element i, whether four elements
    side by side in the domain are so in memory, and whether the kernel writes it."""

    type: str
    name: str
    place: str
    is_wide: bool = True
    is_output: bool = False

    @property
    def element(self) -> str:
        """The parameter of the function of one element."""
        return f"{self.type}& {self.name}" if self.is_output else f"const {self.type} {self.name}"

    @property
    def pointer(self) -> str:
        """The parameter of the kernel."""
        return f"{'' if self.is_output else 'const '}{self.type}* {self.name}"


def elementwise(
    name: str,
    inputs: Sequence[Operand],
    domain: Shape,
    formula: Callable[..., Sequence[Proxy]],
    outs: Sequence[Operand] = (),
) -> Kernel:
    """The kernel that fills one array of the shape `domain` for each value that `formula(*inputs)`
    returns; the inputs are names in C. Kernel arguments: the inputs, which broadcast to `domain`,
    the outputs, the number of elements. Equal texts give the same kernel. outs: the strides of the
    outputs, where they are not in C order.

    NotTraceable if the formula is not elementwise.
    """
    body = Body()
    dtypes = [np.dtype(o.dtype) for o in inputs]
    results = formula(*[load_name(body, f"x{i}", dtype) for i, dtype in enumerate(dtypes)])
    given = outs or [Operand(y.dtype, domain) for y in results]
    walks = [broadcast_strides(o, domain) for o in (*inputs, *given)]
    sizes, walks = merge_axes(domain, [*walks, _straight(domain)])
    walks, behind = walks[: len(inputs)], walks[len(inputs) : -1]
    arrays = [
        _Array(C_TYPES[dtype.char], f"x{i}", place_text(sizes, walk), walk[-1:] == (1,))
        for i, (dtype, walk) in enumerate(zip(dtypes, walks))
    ]
    outputs = [
        _Array(C_TYPES[y.dtype.char], f"y{i}", place_text(sizes, walk), is_output=True)
        for i, (y, walk) in enumerate(zip(results, behind))
    ]
    arrays += outputs
    stores = [f"{y.name} = {store_text(value)};" for y, value in zip(outputs, results)]
    index = index_type([prod(domain), *map(reach, (*inputs, *given))])
    parameters = [*(a.pointer for a in arrays), f"const {index} n"]
    by_fours = _by_fours(sizes, [*walks, *behind])
    lines = [
        *broken("__device__ inline void element(", [a.element for a in arrays], end=") {"),
        *(f"    {line}" for line in [*body.lines, *stores]),
        "}",
        "",
        *broken(f'extern "C" __global__ void {name}(', parameters, end=") {"),
        f"    const {index} first = blockIdx.x * blockDim.x + threadIdx.x, "
        "threads = gridDim.x * blockDim.x;",
        *(_four_at_a_time(index, arrays) if by_fours else []),
        f"    for ({index} i = {'done + ' if by_fours else ''}first; i < n; i += threads) {{",
        *broken("        element(", [f"{a.name}[{a.place}]" for a in arrays]),
        "    }",
        "}",
        "",
    ]
    return complete(name, "\n".join(lines))


def fill(
    xp: Any, name: str, formula: Callable[..., Sequence[Proxy]], inputs: Sequence[Any],
    outs: Sequence[Any],
) -> None:  # fmt: skip
    """Fill `outs`, arrays of one shape with any strides, with the values of a formula of elements
    of the inputs, which broadcast. A kernel is made once for a formula and layouts."""
    domain = outs[0].shape
    made = _filling(name, formula, tuple(map(operand_of, inputs)), tuple(map(operand_of, outs)))
    made(xp, threads_for(made, prod(domain)), *inputs, *outs, prod(domain))


@lru_cache(maxsize=256)
def _filling(
    name: str, formula: Callable[..., Sequence[Proxy]], inputs: tuple[Operand, ...],
    outs: tuple[Operand, ...],
) -> Kernel:  # fmt: skip
    return elementwise(name, inputs, outs[0].shape, formula, outs)


def operand_of(array: Any) -> Operand:
    """An array as an operand."""
    itemsize = array.dtype.itemsize
    return Operand(array.dtype, array.shape, tuple([s // itemsize for s in array.strides]))


def threads_for(kernel: Kernel, count: int) -> int:
    """The threads that a kernel needs for so many elements."""
    return -(-count // 4) if "Four<" in kernel.source else count


def complete(name: str, text: str) -> Kernel:
    """The kernel of a text and of the helpers that the text uses; equal texts give the same, as
    long as it is kept. (CuPy keeps what it compiled: to forget a kernel unloads nothing.)"""
    source = helpers(text) + text
    with _lock:
        found = _kernels.get(source)
        if found is None:
            if len(_kernels) >= MOST_KERNELS:
                _kernels.clear()
            found = _kernels[source] = Kernel(name, source)
        return found


# -- values ---------------------------------------------------------------------------------------


def load_name(body: Body, text: str, dtype: np.dtype) -> Proxy:
    """The proxy of an array's element, in the dtype of computations."""
    loaded = load_text(text, dtype)
    return body.add_input(text, dtype) if loaded == text else body.line(loaded, dtype)


def load_text(text: str, dtype: np.dtype) -> str:
    """The C expression that loads an array's element in the dtype of computations."""
    return f"widened({text})" if dtype.char == "e" else text


def store_text(value: Proxy) -> str:
    """The C expression that stores a value in an array."""
    return f"narrowed({value.expr})" if value.dtype.char == "e" else value.expr


# -- places ---------------------------------------------------------------------------------------


def _straight(shape: Shape) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    return tuple(prod(shape[a + 1 :]) for a in range(len(shape)))


def broadcast_strides(operand: Operand, domain: Shape) -> tuple[int, ...]:
    """The strides of an operand over the domain: 0 where the operand is repeated."""
    strides = _straight(operand.shape) if operand.strides is None else operand.strides
    own = [0 if n == 1 else s for n, s in zip(operand.shape, strides)]
    return (0,) * (len(domain) - len(own)) + tuple(own)


def reach(operand: Operand) -> int:
    """The distance from the first element to the last."""
    strides = _straight(operand.shape) if operand.strides is None else operand.strides
    return sum(abs(s) * (n - 1) for n, s in zip(operand.shape, strides))


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


def _four_at_a_time(index: str, arrays: Sequence[_Array]) -> list[str]:
    """The loop over four elements at a time, as far as there are four, in arrays that allow it."""
    loads, stores, elements = [], [], []
    for a in arrays:
        if a.is_output:
            loads.append(f"Four<{a.type}> {a.name}s;")
            stores.append(f"four(&{a.name}[{a.place}]) = {a.name}s;")
        elif a.is_wide:
            loads.append(f"const Four<{a.type}> {a.name}s = four(&{a.name}[{a.place}]);")
        else:
            loads.append(f"const {a.type} {a.name}s = {a.name}[{a.place}];")
        elements.append(f"{a.name}s.at[k]" if a.is_wide else f"{a.name}s")
    return [
        f"    {index} done = 0;",
        *broken("    if (", [f"aligned({a.name})" for a in arrays if a.is_wide], " && ", ") {"),
        f"        for ({index} i = 4 * first; i < n - 3; i += 4 * threads) {{",
        *(f"            {line}" for line in loads),
        *broken("            for (int k = 0; k < 4; ++k) element(", elements),
        *(f"            {line}" for line in stores),
        "        }",
        "        done = n / 4 * 4;",
        "    }",
    ]


def broken(begin: str, parts: Sequence[str], between: str = ", ", end: str = ");") -> list[str]:
    """Break a line that is too long."""
    lines, space = [begin], " " * (len(begin) - len(begin.lstrip()) + 4)
    for i, part in enumerate(parts):
        text = part + (between if i < len(parts) - 1 else end)
        if len(lines[-1]) + len(text) > 100 and lines[-1].strip():
            lines.append(space)
        lines[-1] += text
    return [line.rstrip() for line in lines]
