"""Each ufunc of NumPy in C, with exactly NumPy's rules.

C has most of the functions; where C's rules differ (`fmax` drops a nan, `%` takes the sign of the
left operand, integer division by 0 is undefined) a short function of our own replaces them
(`HELPERS`). A kernel contains the helpers that it uses at its top.

>>> ufunc_to_c("multiply", "f", ["x", "y"])
'x * y'
>>> ufunc_to_c("exp", "f", ["x"]), ufunc_to_c("exp", "d", ["x"])
('expf(x)', 'exp(x)')
>>> print(helpers("maximum(x, 0)"), end="")
template <class T> __device__ T maximum(T a, T b) {
    return a > b || a != a ? a : b;
}

float16 is stored in 16 bits, `half_bits`, and computed in float; each result is rounded back, as in
NumPy.

A GPU's results do not equal NumPy's to the bit: exp, tanh and so on may differ in the last digit or
two, a product and a sum may become one operation with one rounding, and CuPy compiles so that
numbers below 1e-38 are flushed to 0. Floats beyond an integer's range convert to other integers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from d2lmini.ops.symbolic import NotTraceable

#: Threads of a block: a multiple of the warp size 32; with 256 any register count fits.
THREADS = 256

#: The same for all numbers.
_ALL = {
    **{
        name: f"{{0}} {operator} {{1}}"
        for name, operator in {
            "add": "+", "subtract": "-", "multiply": "*", "logical_and": "&&", "logical_or": "||",
            "equal": "==", "not_equal": "!=", "greater": ">", "greater_equal": ">=", "less": "<",
            "less_equal": "<=",
        }.items()
    },
    "square": "{0} * {0}",
    "negative": "-{0}",
    "positive": "{0}",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "sign": "sign({0})",
    "logical_xor": "!{0} != !{1}",
    "logical_not": "!{0}",
    "isnan": "{0} != {0}",
    "isinf": "{0} == {0} && {0} - {0} != 0",
    "isfinite": "{0} - {0} == 0",
}  # fmt: skip

#: float and double; {f} is the suffix that C adds to the name of a function on floats.
_FLOATS = {
    "divide": "{0} / {1}",
    "reciprocal": "1 / {0}",
    **dict.fromkeys(("absolute", "fabs"), "fabs{f}({0})"),
    "floor_divide": "floor_divide({0}, {1})",
    "power": "pow{f}({0}, {1})",
    "arctan2": "atan2{f}({0}, {1})",
    **dict.fromkeys(("degrees", "rad2deg"), "{0} * ({T}) 57.295779513082320877"),
    **dict.fromkeys(("radians", "deg2rad"), "{0} * ({T}) 0.017453292519943295769"),
    **{name: f"{name}{{f}}({{0}}, {{1}})" for name in ("fmod", "hypot", "copysign")},
    **{
        name: f"{name.replace('arc', 'a')}{{f}}({{0}})"
        for name in (
            "sqrt cbrt exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan "
            "sinh cosh tanh arcsinh arccosh arctanh floor ceil trunc rint"
        ).split()
    },
}

_INTEGERS = {
    **dict.fromkeys(("floor", "ceil", "trunc"), "{0}"),
    "absolute": "{0} < 0 ? -{0} : {0}",
    "floor_divide": "floor_divide({0}, {1})",
    "remainder": "remainder_of({0}, {1})",
    "fmod": "rest_of({0}, {1})",
    "power": "power({0}, {1})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "invert": "~{0}",
}

#: Sums of bools are "or", products "and".
_BOOLS = {
    **dict.fromkeys(("add", "maximum", "bitwise_or"), "{0} || {1}"),
    **dict.fromkeys(("multiply", "minimum", "bitwise_and"), "{0} && {1}"),
    **dict.fromkeys(("absolute", "square", "floor", "ceil", "trunc"), "{0}"),
    "bitwise_xor": "{0} != {1}",
    "invert": "!{0}",
}

_TABLES = {
    "f": {**_ALL, **_FLOATS},
    "i": {**_ALL, **_INTEGERS},
    "u": {**_ALL, **_INTEGERS},
    "b": {**_ALL, **_BOOLS},
}

#: Our own functions by name, in an order in which they can be declared.
HELPERS = {
    "half_bits": "typedef unsigned short half_bits;\n",
    "widened": r"""__device__ inline float widened(half_bits h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
""",
    "narrowed": r"""__device__ inline half_bits narrowed(float x) {
    half_bits h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
__device__ inline half_bits narrowed(double x) {
    half_bits h;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x));
    return h;
}
""",
    "rounded": """template <class T> __device__ float rounded(T x) { return widened(narrowed(x)); }
""",
    # nan if a or b is nan; of 0 and -0 the second, as NumPy on x86.
    "maximum": """template <class T> __device__ T maximum(T a, T b) {
    return a > b || a != a ? a : b;
}
""",
    "minimum": """template <class T> __device__ T minimum(T a, T b) {
    return a < b || a != a ? a : b;
}
""",
    "sign": """template <class T> __device__ T sign(T x) {
    return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x;
}
""",
    # The remainder with the sign of a; 0 if b is 0 or -1.
    "rest_of": """template <class T> __device__ T rest_of(T a, T b) {
    return b == 0 || (b == T(-1) && b < 0) ? T(0) : T(a % b);
}
""",
    # The quotient rounded down; for b = 0: integers 0, floats a / b.
    "floor_divide": """template <class T> __device__ T floor_divide(T a, T b) {
    if constexpr (T(0.5) == 0) {
        if (b == 0) return 0;
        if (b == T(-1) && b < 0) return -a;
        T q = a / b;
        return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
    } else {
        if (b == 0) return a / b;
        T rest = fmod(a, b), q = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) q -= 1;
        if (q == 0) return copysign(T(0), a / b);
        T whole = floor(q);
        return q - whole > T(0.5) ? whole + 1 : whole;
    }
}
""",
    # The remainder with the sign of b; 0 if b is 0.
    "remainder_of": """template <class T> __device__ T remainder_of(T a, T b) {
    T rest = rest_of(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
""",
    # The power of integers, by squaring; results that are too large wrap around.
    "power": """template <class T> __device__ T power(T a, T n) {
    T y = 1;
    for (; n > 0; n >>= 1, a *= a) if (n & 1) y *= a;
    return y;
}
""",
    # Four elements side by side.
    "Four": """template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Four { T at[4]; };
template <class T> __device__ const Four<T>& four(const T* x) { return *(const Four<T>*) x; }
template <class T> __device__ Four<T>& four(T* x) { return *(Four<T>*) x; }
template <class T> __device__ bool aligned(const T* x) {
    return (size_t) x % alignof(Four<T>) == 0;
}
""",
    # The sum (+), maximum (>) or minimum (<) over the threads that share a group. (Before it, other
    # threads may still read the values of the last one.)
    "all_lanes": f"""template <char kind, class T>
__device__ T all_lanes(T mine, int lane, int lanes, int apart) {{
    __shared__ T all[{THREADS}];
    const int me = threadIdx.x;
    __syncthreads();
    all[me] = mine;
    __syncthreads();
    for (int half = lanes / 2; half > 0; half /= 2) {{
        if (lane < half) {{
            const T a = all[me], b = all[me + half * apart];
            all[me] = kind == '+' ? a + b : kind == '>' ? maximum(a, b) : minimum(a, b);
        }}
        __syncthreads();
    }}
    return all[me - lane * apart];
}}
""",
}


def ufunc_to_c(ufunc: str, char: str, args: Sequence[str]) -> str:
    """A ufunc on numbers of one dtype (its character) as C; float16 is written as float."""
    dtype = np.dtype("f" if char == "e" else char)
    pattern = _TABLES[dtype.kind].get(ufunc) if dtype.kind in _TABLES else None
    if pattern is None:
        raise NotTraceable(f"{ufunc} of {dtype.name} is not written in C")
    return pattern.format(
        *args, f="f" if dtype.char == "f" else "", T="float" if dtype.char == "f" else "double"
    )


def helpers(text: str) -> str:
    """The helper functions that a text uses, directly or indirectly."""
    used = set(re.findall(r"\w+", text))
    for name, source in reversed(HELPERS.items()):  # a helper calls earlier ones
        if name in used:
            used.update(re.findall(r"\w+", source))
    return "".join(source for name, source in HELPERS.items() if name in used)
