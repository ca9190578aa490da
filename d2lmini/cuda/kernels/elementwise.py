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
            const Four<float> a0 = four(x0 + i), a1 = four(x1 + i % 4);
            Four<float> b0;
            for (int k = 0; k < 4; ++k) element(a0.at[k], a1.at[k], b0.at[k]);
            four(y0 + i) = b0;
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
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.launch import C_TYPES, Kernel, index_type
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


def elementwise(
    name: str,
    inputs: Sequence[Operand],
    domain: Shape,
    formula: Callable[..., Sequence[Proxy]],
) -> Kernel:
    """The kernel that fills one C-contiguous array of the shape `domain` for each value that
    `formula(*inputs)` returns; the inputs are names in C. Kernel arguments: the inputs, which
    broadcast to `domain`, the outputs, the number of elements. Equal texts give the same kernel.

    NotTraceable if the formula is not elementwise.
    """
    body = Body()
    texts = [f"x{i}" for i in range(len(inputs))]
    given = [load_name(body, text, np.dtype(o.dtype)) for text, o in zip(texts, inputs)]
    results = list(formula(*given))
    outs = [f"y{i}" for i in range(len(results))]
    stored = [f"{y} = {store_text(value)};" for y, value in zip(outs, results)]
    types = [C_TYPES[np.dtype(o.dtype).char] for o in inputs]
    out_types = [C_TYPES[value.dtype.char] for value in results]

    element = broken(
        "__device__ inline void element(",
        [f"const {t} {x}" for t, x in zip(types, texts)]
        + [f"{t}& {y}" for t, y in zip(out_types, outs)],
        end=") {",
    )
    index = index_type([prod(domain), *(reach(o) for o in inputs)])
    kernel = broken(
        f'extern "C" __global__ void {name}(',
        [f"const {t}* {x}" for t, x in zip(types, texts)]
        + [f"{t}* {y}" for t, y in zip(out_types, outs)]
        + [f"const {index} n"],
        end=") {",
    )
    lines = [*element, *(f"    {line}" for line in [*body.lines, *stored]), "}", "", *kernel]
    lines += _loops(
        index,
        texts,
        types,
        [broadcast_strides(o, domain) for o in inputs],
        domain,
        outs,
        out_types,
    )
    text = "\n".join([*lines, "}", ""])
    return complete(name, text)


def complete(name: str, text: str) -> Kernel:
    """The kernel of a text and of the helpers that the text uses; equal texts give the same."""
    source = helpers(text) + text
    with _lock:
        if source not in _kernels:
            _kernels[source] = Kernel(name, source)
        return _kernels[source]


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


def _loops(
    index: str, inputs: Sequence[str], types: Sequence[str], walks: Sequence[tuple[int, ...]],
    domain: Shape, outputs: Sequence[str], out_types: Sequence[str],
) -> list[str]:  # fmt: skip
    """The kernel's loops: four elements at a time where possible, then one at a time."""
    sizes, found = merge_axes(domain, [*walks, _straight(domain)])
    places = [place_text(sizes, walk) for walk in found[:-1]]
    lines = [
        f"    const {index} first = blockIdx.x * blockDim.x + threadIdx.x, "
        "threads = gridDim.x * blockDim.x;"
    ]
    start = "first"
    if _by_fours(sizes, found):
        start = "done + first"
        wide = [walk[-1:] == (1,) for walk in found[:-1]]
        lines += _four_at_a_time(index, inputs, types, places, wide, outputs, out_types)
    call = [f"{x}[{place}]" for x, place in zip(inputs, places)] + [f"{y}[i]" for y in outputs]
    lines += [
        f"    for ({index} i = {start}; i < n; i += threads) {{",
        *broken("        element(", call),
        "    }",
    ]
    return lines


def _by_fours(sizes: Shape, walks: Sequence[tuple[int, ...]]) -> bool:
    """True if four elements of the domain are contiguous, or all the same, in every operand."""
    if not sizes or (len(sizes) > 1 and sizes[-1] % 4):
        return False
    return all(
        walk[-1] == 0 or (walk[-1] == 1 and all(s % 4 == 0 for s in walk[:-1])) for walk in walks
    )


def _four_at_a_time(
    index: str, inputs: Sequence[str], types: Sequence[str], places: Sequence[str],
    wide: Sequence[bool], outputs: Sequence[str], out_types: Sequence[str],
) -> list[str]:  # fmt: skip
    ready = [f"aligned({x})" for x in [*(x for x, w in zip(inputs, wide) if w), *outputs]]
    lines = [
        f"    {index} done = 0;",
        *broken("    if (", ready, " && ", ") {"),
        f"        for ({index} i = 4 * first; i < n - 3; i += 4 * threads) {{",
    ]
    args = []
    loads: dict[str, list[str]] = {}
    for i, (x, t, place) in enumerate(zip(inputs, types, places)):
        if wide[i]:
            at = place if place == "i" or " " not in place else f"({place})"
            loads.setdefault(f"Four<{t}>", []).append(f"a{i} = four({x} + {_bare(at)})")
            args.append(f"a{i}.at[k]")
        else:
            loads.setdefault(t, []).append(f"a{i} = {x}[{place}]")
            args.append(f"a{i}")
    for kind, found in loads.items():
        lines += broken(f"            const {kind} ", found, end=";")
    spaces: dict[str, list[str]] = {}
    for i, t in enumerate(out_types):
        spaces.setdefault(t, []).append(f"b{i}")
        args.append(f"b{i}.at[k]")
    lines += [f"            Four<{t}> {', '.join(found)};" for t, found in spaces.items()]
    lines += broken("            for (int k = 0; k < 4; ++k) element(", args)
    lines += [f"            four({y} + i) = b{i};" for i, y in enumerate(outputs)]
    return [*lines, "        }", "        done = n / 4 * 4;", "    }"]


def _bare(text: str) -> str:
    """The text without needless brackets: around products and remainders in a sum."""
    return text[1:-1] if text[0] == "(" and " + " not in text else text


def broken(begin: str, parts: Sequence[str], between: str = ", ", end: str = ");") -> list[str]:
    """Break a line that is too long."""
    lines, space = [begin], " " * (len(begin) - len(begin.lstrip()) + 4)
    for i, part in enumerate(parts):
        text = part + (between if i < len(parts) - 1 else end)
        if len(lines[-1]) + len(text) > 100 and lines[-1].strip():
            lines.append(space)
        lines[-1] += text
    return [line.rstrip() for line in lines]
