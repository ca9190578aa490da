"""Softmax cross-entropy and its gradient, a kernel each.

Scores are (rows, classes, columns); each of the rows x columns places has a loss. One thread
computes a place if there are few classes or if they lie apart in memory, so that neighbouring
threads read neighbouring places; otherwise a block computes it, and its threads share the classes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.blocks import BLOCK
from d2lmini.cuda.kernels.launch import C_TYPES, THREADS
from d2lmini.cuda.kernels.typed import TypedKernel
from d2lmini.ops.core import as_three_axes

#: From this many classes on, contiguous in memory, a block computes a place.
MANY = 64

_THREAD = {
    "block": "",
    "places": "for (Index p = blockIdx.x * blockDim.x + threadIdx.x; p < rows * columns; "
    "p += gridDim.x * blockDim.x)",
    "classes_of_place": "for (Index c = 0; c < classes; ++c)",
    "largest": "largest",
    "sum": "sum",
    "weight": "weight",
    "is_first": "true",
}
_BLOCK = {
    "block": BLOCK,
    "places": "for (Index p = blockIdx.x; p < rows * columns; p += gridDim.x)",
    "classes_of_place": "for (Index c = threadIdx.x; c < classes; c += blockDim.x)",
    "largest": "block_reduce<true>(largest)",
    "sum": "block_reduce<false>(sum)",
    "weight": "block_reduce<false>(weight)",
    "is_first": "threadIdx.x == 0",
}

#: The beginning of both kernels: x and t are the scores of a place and its probabilities.
_PLACE = """
        const Index row = p / columns, column = p % columns;
        const T* x = data + row * classes * columns + column;
        A largest = loaded(x[0]), sum = 0;
        $classes_of_place largest = maximum(largest, loaded(x[c * columns]));
        const A top = $largest;
        $classes_of_place sum += exp(loaded(x[c * columns]) - top);
        const A total = $sum;
"""
_CLASS = """
        long long of = (long long) $label;
        of = of < 0 ? 0 : of >= classes ? classes - 1 : of;
"""
_PROBABILITIES = "        const T* t = label + row * classes * columns + column;\n"

_LOSS = {
    True: f"""{_CLASS}
        if ($is_first) loss[p] = A(factor) * (log(total) - (loaded(x[of * columns]) - top));
""",
    False: f"""{_PROBABILITIES}
        const A logarithm = log(total);
        A weight = 0;
        $classes_of_place
            weight += (logarithm - (loaded(x[c * columns]) - top)) * loaded(t[c * columns]);
        const A found = $weight;
        if ($is_first) loss[p] = A(factor) * found;
""",
}
_GRADIENT = {
    True: f"""{_CLASS}
        $classes_of_place {{
            const A share = exp(loaded(x[c * columns]) - top) * (slope / total);
            y[c * columns] = stored(c == of ? share - slope : share);
        }}
""",
    False: f"""{_PROBABILITIES}
        A weight = 0;
        $classes_of_place weight += loaded(t[c * columns]);
        const A scale = $weight / total;
        $classes_of_place {{
            const A share = exp(loaded(x[c * columns]) - top) * scale;
            y[c * columns] = stored((share - loaded(t[c * columns])) * slope);
        }}
""",
}

_PARAMETERS = "const Index rows, const Index classes, const Index columns, const double factor"


@cache
def _kernels(label: str, is_sparse: bool, is_block: bool) -> tuple[TypedKernel, TypedKernel]:
    """The forward and the backward kernel, for labels of a dtype."""
    words = dict(_BLOCK if is_block else _THREAD)
    words["label"] = "widened(label[p])" if label == "e" else "label[p]"
    kind = C_TYPES[label] if is_sparse else "T"
    forward = f"""$block
extern "C" __global__ void cross_entropy(
    const T* data, const {kind}* label, A* loss, {_PARAMETERS}
) {{
    $places {{{_PLACE}{_LOSS[is_sparse]}    }}
}}
"""
    backward = f"""$block
// Place p belongs to example p / behind % examples, of which g is the gradient.
extern "C" __global__ void cross_entropy_gradient(
    const T* g, const T* data, const {kind}* label, T* dx, {_PARAMETERS},
    const Index examples, const Index behind
) {{
    $places {{{_PLACE}
        T* y = dx + row * classes * columns + column;
        const A slope = loaded(g[p / behind % examples]) * A(factor);
{_GRADIENT[is_sparse]}    }}
}}
"""
    return (
        TypedKernel("cross_entropy", forward, **words),
        TypedKernel("cross_entropy_gradient", backward, **words),
    )


def cross_entropy(
    xp: Any, data: Any, label: Any, axis: int, is_sparse: bool, factor: float, losses: Any
) -> None:
    """Fill `losses`, of one place each, with `factor` times -log softmax(data)[label].

    Classes are along `axis` of data; labels are their numbers, of any dtype, or probabilities of
    data's. `losses` is at least float32. Arrays in order (C-contiguous), here and below."""
    kernel, places, sizes = _choose_kernel(data, label, axis, is_sparse, 0)
    kernel(xp, places, data, label, losses, *sizes, float(factor))


def cross_entropy_gradient(
    xp: Any, g: Any, data: Any, label: Any, axis: int, is_sparse: bool, factor: float, dx: Any,
    examples: int, behind: int,
) -> None:  # fmt: skip
    """Fill dx: the gradient of each place times `factor` and the g (examples,) of its example,
    which is place // behind % examples."""
    kernel, places, sizes = _choose_kernel(data, label, axis, is_sparse, 1)
    kernel(xp, places, g, data, label, dx, *sizes, float(factor), examples, behind)


def _choose_kernel(
    data: Any, label: Any, axis: int, is_sparse: bool, way: int
) -> tuple[Any, int, tuple]:
    """The kernel, the number of threads that it needs, and the sizes."""
    rows, classes, columns = as_three_axes(data.shape, axis)
    is_block = columns == 1 and classes >= MANY
    char = np.dtype(label.dtype).char if is_sparse else ""
    kernel = _kernels(char, is_sparse, is_block)[way](data.dtype, data.size)
    return kernel, rows * columns * (THREADS if is_block else 1), (rows, classes, columns)
