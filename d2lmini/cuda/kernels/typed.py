"""Kernels written once for every dtype: a header defines the types that the text uses.

    T         element type of the arrays    A        type of computations: float for float16
    loaded    from T to A                   stored   from A to T
    Index     an index into an array: 32 bits where they are enough

>>> print(header("f", "int"), end="")
typedef float T;
typedef float A;
typedef int Index;
__device__ inline A loaded(T x) { return x; }
__device__ inline T stored(A x) { return x; }
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from string import Template
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.launch import C_TYPES, MOST_KERNELS, Kernel, index_type
from d2lmini.cuda.kernels.ufunc_to_c import helpers


def header(char: str, index: str) -> str:
    """Definitions of T, A, Index, `loaded` and `stored` for a dtype's character."""
    load, store = ("widened(x)", "narrowed(x)") if char == "e" else ("x", "x")
    return (
        f"typedef {C_TYPES[char]} T;\n"
        f"typedef {'float' if char == 'e' else C_TYPES[char]} A;\n"
        f"typedef {index} Index;\n"
        f"__device__ inline A loaded(T x) {{ return {load}; }}\n"
        f"__device__ inline T stored(A x) {{ return {store}; }}\n"
    )


class TypedKernel:
    """A kernel for any dtype: `typed(dtype, *sizes)` is the kernel for arrays of that dtype, with
    at most as many elements as the largest of sizes. In the body `$word` stands for one of
    `words`. `constants` are numbers that the text uses: for other numbers it is another kernel."""

    def __init__(self, name: str, body: str, **words: str):
        self.name = name
        self.body = Template(body).substitute(words)
        self.of: Callable[..., Kernel] = lru_cache(MOST_KERNELS)(self._make)

    def __call__(self, dtype: Any, *sizes: int, **constants: int) -> Kernel:
        return self.of(np.dtype(dtype).char, index_type(sizes), **constants)

    def _make(self, char: str, index: str, **constants: int) -> Kernel:
        text = header(char, index)
        text += "".join(f"constexpr Index {word} = {n};\n" for word, n in constants.items())
        text += self.body
        return Kernel(self.name, helpers(text) + text)
