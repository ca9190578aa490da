"""A kernel: CUDA C as text, compiled when it is first launched.

    double = Kernel("twice", '''
    extern "C" __global__ void twice(const float* x, float* y, const int n) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            y[i] = 2 * x[i];
    }''')
    double(cupy, y.size, x, y, y.size)

The text declares the arguments: `Kernel` reads the parameters from it, passes arrays as pointers
and converts each number to its declared type, so a call cannot pass 8 bytes where the kernel reads
4.

All our kernels loop over their elements with the stride of the whole grid, as this one does. So any
grid is correct, even one thread: the tests run kernels that way without a GPU, as C++.

>>> Kernel("twice", 'extern "C" __global__ void twice(const float* x, float* y, const int n) {}')
<Kernel twice>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.symbols import C_TYPES, THREADS, helpers

#: The threads of a block of all launches.
BLOCK = (THREADS, 1, 1)
#: Blocks of a grid at most: an H100 runs 132 x 8 blocks at a time, so more blocks would only wait.
MAX_BLOCKS = 2048
#: Compiler options: the C++ version; every operation is rounded, as on the CPU. (By default CUDA
#: rounds x * y + z once.) So a formula has the same bits there, if its functions have.
OPTIONS = ("-std=c++17", "-fmad=false")

_NUMBERS = {name: np.dtype(char).type for char, name in C_TYPES.items() if char != "e"}


#: So many kernels are kept: of one `TypedKernel`, and of all formulas.
MOST_KERNELS = 512


class Parameter(NamedTuple):
    """A parameter of a kernel: its C type, whether it is an array, whether the kernel may write
    it."""

    type: str
    name: str
    is_array: bool
    is_written: bool


def parameters(source: str, name: str) -> tuple[Parameter, ...]:
    """The parameters of the kernel `name` in a source text."""
    head = re.search(rf"__global__\s+void\s+{name}\s*\(([^)]*)\)", source)
    assert head is not None, f"no kernel {name} in its own source"
    meaning = {word: kind for kind, word in re.findall(r"typedef ([\w ]+) (\w+);", source)}
    found = re.findall(r" ?(const )?([\w ]+?) ?(\*?) ?(\w+) ?(?:,|$)", " ".join(head[1].split()))
    return tuple(
        [
            Parameter(meaning.get(kind, kind), label, bool(star), bool(star) and not const)
            for const, kind, star, label in found
        ]
    )


class Recording:
    """What stands for CuPy while launches are written down; see `cuda.recorder`."""

    launch: Callable[..., None]
    call: Callable[..., None]


class NotRecorded(Exception):
    """What a program asks of CuPy besides launches (`cuda.recorder`)."""


class Kernel:
    """A kernel of CUDA C.

    name        name of the function in the source
    source      the text; print it to read it
    parameters  the kernel's parameters, read from the text: arrays, then numbers
    n_arrays    how many are arrays
    """

    __slots__ = ("_compiled", "_makers", "n_arrays", "name", "parameters", "source")

    def __init__(self, name: str, source: str):
        self.name = name
        self.source = source
        self.parameters = parameters(source, name)
        self._makers: list[Any] = [_NUMBERS[p.type] for p in self.parameters if not p.is_array]
        self.n_arrays = len(self.parameters) - len(self._makers)
        # A RawKernel caches its compiled code for each device, so one per module is enough.
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self, xp: Any, size: int, *args: Any, rows: int = 1,
        more: Callable[[], Sequence[Any]] = tuple,
    ) -> None:  # fmt: skip
        """Launch the kernel on the current stream: about one thread for each of `size` elements, in
        each of `rows` (blockIdx.y). Arrays are passed as pointers to their first elements, so the
        caller must ensure that they are contiguous where the kernel needs that. No launch if `size`
        is 0. `more` returns the last numbers, where these differ each time, such as a random key: a
        recording asks it anew for each repetition."""
        if size <= 0:
            return
        grid = (min(-(-size // THREADS), MAX_BLOCKS), rows, 1)
        arrays, numbers = args[: self.n_arrays], args[self.n_arrays :]
        if isinstance(xp, Recording):
            xp.launch(self, grid, arrays, numbers, more)
        else:
            packed = self.pack(xp, (*numbers, *more()))
            self.function_on(xp)(grid, BLOCK, (*arrays, *packed))

    def function_on(self, xp: Any) -> Any:
        """The compiled kernel on the current device: (grid, block, arguments, shared, stream)."""
        kernel = self._compiled.get(xp)
        if kernel is None:
            kernel = xp.RawKernel(self.source, self.name, options=OPTIONS)
            kernel = self._compiled.setdefault(xp, kernel)
        return kernel.kernel

    def pack(self, xp: Any, numbers: Sequence[Any]) -> tuple:
        """The numbers as CuPy passes them fastest: eight bytes, of which the kernel reads as many
        as the parameter has."""
        pairs = zip(self._makers, numbers, strict=True)
        return tuple([_packed(xp, make(number)) for make, number in pairs])

    def __repr__(self) -> str:
        return f"<Kernel {self.name}>"


def _packed(xp: Any, number: np.generic) -> Any:
    bits = int.from_bytes(number.tobytes().ljust(8, b"\0"), "little", signed=True)
    return xp.cuda.function.CIntptr(bits)


def index_type(sizes: Sequence[int]) -> str:
    """The C type for indices into arrays of these sizes: 64 bits, which cost a GPU several
    instructions, only where needed. An index may step one grid of fours beyond the end.

    >>> index_type([10, 3]), index_type([1 << 31])
    ('int', 'long long')
    """
    return "int" if max(sizes, default=0) < (1 << 31) - 4 * MAX_BLOCKS * THREADS else "long long"


class TypedKernel:
    """A kernel for any dtype: `typed(dtype, *sizes)` is the kernel for arrays of that dtype, with
    at most as many elements as the largest of sizes. `constants` are numbers that the text uses:
    for other numbers it is another kernel. A header defines the types of the text:

    T         element type of the arrays    A        type of computations: float for float16
    loaded    from T to A                   stored   from A to T
    Index     an index into an array: 32 bits where they are enough
    """

    def __init__(self, name: str, body: str):
        self.name = name
        self.body = body
        self.of: Callable[..., Kernel] = lru_cache(MOST_KERNELS)(self._make)

    def __call__(self, dtype: Any, *sizes: int, **constants: int) -> Kernel:
        return self.of(np.dtype(dtype).char, index_type(sizes), **constants)

    def _make(self, char: str, index: str, **constants: int) -> Kernel:
        computed, load, store = C_TYPES[char], "x", "x"
        if char == "e":
            computed, load, store = "float", "widened(x)", "narrowed(x)"
        text = f"""typedef {C_TYPES[char]} T;
typedef {computed} A;
typedef {index} Index;
__device__ inline A loaded(T x) {{ return {load}; }}
__device__ inline T stored(A x) {{ return {store}; }}
"""
        text += "".join([f"constexpr Index {word} = {n};\n" for word, n in constants.items()])
        text += self.body
        return Kernel(self.name, helpers(text) + text)
