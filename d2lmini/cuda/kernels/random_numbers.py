"""Random numbers on a GPU, from streams that are named by key and place.

Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a
counter into four random words. The key is that of the operation (`random_state.Key`); the counter
is the number of the stream and how often it was used. So no state is kept between launches, and the
numbers do not depend on the grid, the GPU, or the order in which operations run.

Four neighbours share a stream: in float32 they take the four words of one counter, in float64 those
of two. An integer has a stream of its own.

The numbers differ from the CPU's for the same seed: the CPU draws 2^18 numbers in sequence from one
stream (SFC64, and NumPy's ziggurat), which has no random access.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.launch import TypedKernel
from d2lmini.ops.chunking import place
from d2lmini.ops.random_ops import draw, pick, random_randint, shuffle, standard_uniform

#: The stream of one element, and how numbers are drawn from the stream: words of 32 and 64 bits;
#: numbers from 0 (included) to 1 (excluded), with all the bits that the type has; two normal ones
#: at a time (G. Box and M. Muller, 1958), whose radius takes 32 bits or more: the tails are there.
STREAM = """
typedef unsigned int Word;
struct Stream {
    Word key[2], counter[4], words[4];
    int left;
};
__device__ inline Word next_word(Stream& s) {
    if (s.left == 0) {
        Word k0 = s.key[0], k1 = s.key[1];
        Word a = s.counter[0], b = s.counter[1], c = s.counter[2], d = s.counter[3];
        for (int round = 0; round < 10; ++round) {
            const unsigned long long p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
            a = (Word) (q >> 32) ^ b ^ k0;
            c = (Word) (p >> 32) ^ d ^ k1;
            b = (Word) q;
            d = (Word) p;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        s.words[3] = a, s.words[2] = b, s.words[1] = c, s.words[0] = d;
        s.counter[2] += 1;
        s.left = 4;
    }
    return s.words[--s.left];
}
__device__ inline unsigned long long next_long(Stream& s) {
    const unsigned long long high = next_word(s);
    return high << 32 | next_word(s);
}
__device__ inline void uniform(Stream& s, float& u) { u = (next_word(s) >> 8) * 0x1p-24f; }
__device__ inline void uniform(Stream& s, double& u) { u = (next_long(s) >> 11) * 0x1p-53; }
__device__ inline void normal(Stream& s, float& y, float& z) {
    const float radius = sqrtf(-2 * logf((next_word(s) + 1.0f) * 0x1p-32f));
    sincospif(next_word(s) * 0x1p-31f, &z, &y);
    y *= radius, z *= radius;
}
__device__ inline void normal(Stream& s, double& y, double& z) {
    uniform(s, y), uniform(s, z);
    const double radius = sqrt(-2 * log(1 - y));
    sincospi(2 * z, &z, &y);
    y *= radius, z *= radius;
}
"""

_ALL = (1 << 64) - 1


def _kernel(name: str, parameters: str, value: str, standard: str = "") -> TypedKernel:
    """The kernel of a distribution with these parameters, which draws `value`: from the stream `s`,
    or from the number y of the four that `standard` draws. A stream is for AT_ONCE neighbours."""
    return TypedKernel(
        f"draw_{name}",
        f"""{STREAM}
extern "C" __global__ void draw_{name}(
    T* out, const Index n, const unsigned int key0, const unsigned int key1, {parameters}
) {{
    const Index threads = gridDim.x * blockDim.x;
    for (Index g = blockIdx.x * blockDim.x + threadIdx.x; AT_ONCE * g < n; g += threads) {{
        Stream s = {{{{key0, key1}}, {{(Word) g, (Word) ((long long) g >> 32)}}}};
        A standard[4];
        {standard}
        Four<T> drawn;
        for (int j = 0; j < AT_ONCE; ++j) {{
            const A y = standard[j];
            drawn.at[j] = stored(A({value}));
        }}
        if (AT_ONCE == 4 && 4 * g + 3 < n && aligned(out)) four(&out[4 * g]) = drawn;
        else for (int j = 0; j < AT_ONCE; ++j)
            if (AT_ONCE * g + j < n) out[AT_ONCE * g + j] = drawn.at[j];
    }}
}}
""",
    )


_KERNELS = {
    "uniform": _kernel(
        "uniform", "const double low, const double high", "A(low) + A(high - low) * y",
        "for (int j = 0; j < 4; ++j) uniform(s, standard[j]);",
    ),
    "normal": _kernel(
        "normal", "const double loc, const double scale", "A(loc) + A(scale) * y",
        "for (int j = 0; j < 4; j += 2) normal(s, standard[j], standard[j + 1]);",
    ),
    # The words of a number below 2^32 are 64 bits, so that none is likelier than others by 2^-32.
    "integers": _kernel(
        "integers", "const long long low, const unsigned long long range",
        "low + (long long) (next_long(s) % range)",
    ),
}  # fmt: skip


def words_of(key: Sequence[int]) -> tuple[int, int]:
    """The 64 bits of a key for Philox, of numbers of any size: each 64 bits are mixed in by the
    finalizer of SplitMix64 (G. Steele et al., "Fast splittable pseudorandom number generators",
    2014), in a fifth of the time of NumPy's SeedSequence."""
    mixed = 0x9E3779B97F4A7C15
    for number in key:
        while True:
            mixed = ((mixed ^ number) & _ALL) * 0xBF58476D1CE4E5B9 & _ALL
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _ALL
            mixed ^= mixed >> 31
            number >>= 64
            if number <= 0:
                break
    return mixed & 0xFFFFFFFF, mixed >> 32


def fill(
    xp: Any, name: str, key: Sequence[int], out: Any, *parameters: float, piece: Any = ()
) -> Any:
    """Fill out, an array in order, from the distribution `name`; `key`, with `piece` behind it,
    names the streams."""
    at_once = 1 if name == "integers" else 4
    kernel = _KERNELS[name](out.dtype, out.size, AT_ONCE=at_once)
    threads = -(-out.size // at_once)
    kernel(xp, threads, out, out.size, more=lambda: [*words_of((*key, *piece)), *parameters])
    return out


@standard_uniform.kernel("cuda")
def _(xp: Any, key: Any, piece: int, shape: tuple[int, ...]) -> Any:
    return fill(xp, "uniform", key, xp.empty(shape, "float32"), 0.0, 1.0, piece=(piece,))


@draw.kernel("cuda")
def _(xp: Any, name: str, rng: Any, out: Any, parameters: dict[str, Any]) -> Any:
    return fill(xp, name, rng, out, *parameters.values())


@random_randint.kernel("cuda")
def _(xp: Any, *, low: Any, high: Any, shape: Any = (), dtype: Any = "int32", rng: Any) -> Any:
    return fill(xp, "integers", rng, xp.empty(shape or (1,), dtype), low, high - low)


@pick.kernel("cuda")
def _(xp: Any, upper: Any, count: int, rng: Any) -> Any:
    # One search for all rows: sums and numbers of row n lie from n to n + 1.
    N, K = upper.shape
    row = xp.arange(N)[:, None]
    sums = upper / upper[:, -1:] + row
    drawn = fill(xp, "uniform", rng, xp.empty((N, count), "float64"), 0.0, 1.0)
    return xp.searchsorted(sums.ravel(), drawn + row, "right") - row * K


@shuffle.kernel("cuda")
def _(xp: Any, data: Any, *, rng: Any, out: Any = None) -> Any:
    # The sort order of n random numbers.
    numbers = xp.empty(data.shape[:1], np.int64)
    order = xp.argsort(fill(xp, "integers", rng, numbers, 0, 1 << 63)) if data.ndim else ...
    return place(xp, data[order], data.dtype, out)
