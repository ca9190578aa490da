"""The array module whose expressions are C: an op computes on names and so writes its kernel.

An elementwise op says once what it does, `compute(xp, *arrays)`. Given `names` for `xp` and a
proxy for each array (`ops.symbolic`), which stands for the element at one place, every call of a
ufunc becomes a line of C. So a new op needs no formula here.

>>> body = Body()
>>> x, b = body.add_input("x", "float32"), body.add_input("b", "float32")
>>> y = names.maximum(x * 2 + b, 0)
>>> print(*body.lines, sep="\\n")
const float t1 = x * 2.0f;
const float t2 = t1 + b;
const float t3 = maximum(t2, 0.0f);
>>> y
<Proxy t3 float32>

A formula may also reduce a value over the group of its element, a row or a column (`reductions`):

>>> body = Body(has_groups=True)
>>> x = body.line("x0[g * 100 + j]", np.dtype("float32"))
>>> y = names.exp(x - names.max(x))
>>> for name, value in body.values.items():
...     print(value.stage, value.varies, value.line or name)
0 True j
0 True const float t1 = x0[g * 100 + j];
1 False t2
1 True const float t3 = t1 - t2;
1 True const float t4 = expf(t3);

`j` is the number of an element in its group. A value's *stage* is the number of loops over the
elements that must end before the value is known; reductions of the same stage share a loop.

Each ufunc of NumPy is written with exactly NumPy's rules. C has most of the functions; where C's
rules differ (`fmax` drops a nan, `%` takes the sign of the left operand, integer division by 0 is
undefined) a short function of our own replaces them (`HELPERS`). A kernel contains the helpers that
it uses at its top.

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

import math
import re
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from d2lmini.ops.symbolic import NotTraceable, Proxy, SymbolicModule

#: The C type of each dtype, and the storage type of float16.
C_TYPES = {
    "?": "bool", "b": "signed char", "B": "unsigned char", "h": "short", "H": "unsigned short",
    "i": "int", "I": "unsigned int", "l": "long long", "L": "unsigned long long",
    "q": "long long", "Q": "unsigned long long",
    "e": "half_bits", "f": "float", "d": "double",
}  # fmt: skip

#: Threads of a block: a multiple of the warp size 32; with 256 any register count fits.
THREADS = 256

#: The same for all numbers. (bools are computed as ints, and each result is a bool again.)
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

#: Integers and bools.
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

_TABLES = {
    "f": _ALL | _FLOATS,
    **dict.fromkeys("iu", _ALL | _INTEGERS),
    "b": _ALL | _INTEGERS | {"invert": "!{0}"},
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


# -- formulas --------------------------------------------------------------------------------------


def c_type(dtype: np.dtype) -> str:
    """The C type in which numbers of a dtype are computed."""
    return "float" if dtype.char == "e" else C_TYPES[dtype.char]


class Value(NamedTuple):
    """A value: the line of C that computes it (a reduction has none), the values in that line, its
    stage, and whether it differs between the elements of a group."""

    line: str
    uses: set[str]
    stage: int
    varies: bool


class Reduction(NamedTuple):
    """The sum, max or min of an expression, and the dtype of the result."""

    kind: str
    source: str
    dtype: np.dtype


class Body:
    """Lines of C being written, one for each call of a ufunc.

    values      by name, in an order in which they can be computed
    reductions  by name
    """

    def __init__(self, has_groups: bool = False) -> None:
        self.values = {"j": Value("", set(), 0, True)} if has_groups else {}
        self.reductions: dict[str, Reduction] = {}
        self.has_groups = has_groups
        self._names = (f"t{i}" for i in count(1))

    @property
    def lines(self) -> list[str]:
        return [value.line for value in self.values.values() if value.line]

    def add_input(self, text: str, dtype: Any) -> Proxy:
        """The proxy of an input, given as a C expression."""
        return Proxy(names, text, np.dtype(dtype), self)

    def load(self, text: str, dtype: np.dtype) -> Proxy:
        """A name for an element of an array, in the dtype of computations."""
        if text.isidentifier() and dtype.char != "e":
            return self.add_input(text, dtype)
        return self.line(f"widened({text})" if dtype.char == "e" else text, dtype)

    def line(self, text: str, dtype: np.dtype) -> Proxy:
        """A new name for an expression."""
        uses = self._words(text)
        varies = any(self.values[name].varies for name in uses)
        name = next(self._names)
        line = f"const {c_type(dtype)} {name} = {text};"
        self.values[name] = Value(line, uses, self._stage(uses), varies)
        return self.add_input(name, dtype)

    def reduce(self, kind: str, value: Proxy) -> Proxy:
        """The sum, mean, max or min of a value over its group."""
        if not self.has_groups or value.dtype.kind != "f":
            raise NotTraceable(f"the {kind} of {value.dtype.name}, or without groups")
        wide = np.promote_types(value.dtype, "f")
        name, uses = next(self._names), self._words(value.expr)
        self.values[name] = Value("", uses, self._stage(uses) + 1, False)
        is_mean = kind == "mean"
        self.reductions[name] = Reduction("sum" if is_mean else kind, value.expr, wide)
        result = self.add_input(name, wide)
        if is_mean:
            result = self.line(f"{name} / ({c_type(wide)}) size", wide)
        return result.astype(value.dtype)

    def needed(
        self, texts: Iterable[str], known: int = 0, of_elements: bool = False
    ) -> dict[str, Value]:
        """The values that these texts need, where reductions up to the stage `known` are given;
        `of_elements`: only those that differ between elements."""
        found: set[str] = set()
        rest = {name for text in texts for name in self._words(text)}
        while rest:
            name = rest.pop()
            value = self.values[name]
            if name in found or (of_elements and not value.varies):
                continue
            found.add(name)
            if name not in self.reductions or value.stage > known:
                rest |= value.uses
        return {name: value for name, value in self.values.items() if name in found}

    def _words(self, text: str) -> set[str]:
        """The values in a text."""
        return set(re.findall(r"\w+", text)) & self.values.keys()

    def _stage(self, uses: set[str]) -> int:
        return max((self.values[name].stage for name in uses), default=0)


def literal(value: Any, dtype: np.dtype) -> str:
    """A number in C.

    >>> [literal(v, np.dtype("float32")) for v in (0.1, -0.0, float("-inf"))]
    ['0.1f', '-0.0f', 'float(-1 / 0.0f)']
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        value = int(np.asarray(value).astype(dtype))
        if dtype.itemsize < 4:
            return f"({c_type(dtype)}) {value}"
        suffix = "u" * (dtype.kind == "u") + "ll" * (dtype.itemsize == 8)
        if 0 > value == np.iinfo(dtype).min:  # C has no such literal
            return f"({value + 1}{suffix} - 1)"
        return f"{value}{suffix}" if value >= 0 else f"({value}{suffix})"
    rounded = dtype.type(value)
    f = "" if dtype.char == "d" else "f"
    if math.isnan(rounded):
        return f'nan{f}("")'
    if math.isinf(rounded):  # the compiler knows what it is as a float, but divides doubles
        return f"{c_type(dtype)}({'-' if rounded < 0 else ''}1 / 0.0f)"
    text = repr(float(rounded)) if dtype.char == "d" else str(np.float32(rounded))
    return f"{text}{f}"


def convert(expr: str, old: np.dtype, new: np.dtype) -> str:
    """A value of one dtype as another."""
    if old == new or (old.char, new.char) == ("e", "f"):
        return expr
    if new.char == "e":
        return f"rounded(({'double' if old.char == 'd' else 'float'}) ({expr}))"
    if new.kind == "b":
        return f"(({expr}) != 0)"
    return f"({c_type(new)}) ({expr})"


def _text(value: Any, dtype: np.dtype) -> str:
    """A proxy or a number, as a value of this dtype."""
    if isinstance(value, Proxy):
        return convert(value.expr, value.dtype, dtype)
    return literal(value, dtype)


def _parenthesize(text: str) -> str:
    """An operand that binds as tightly as a name."""
    plain = text.replace("_", "").replace(".", "").isalnum()
    return text if plain or (text[0] == "(" and text[-1] == ")") else f"({text})"


class Names(SymbolicModule):
    """The module. Each call of a ufunc is a line in the body of the trace."""

    convert = staticmethod(convert)
    constant = staticmethod(literal)

    def call(
        self, ufunc: np.ufunc, args: Sequence[Any], loop: Sequence[np.dtype], result: np.dtype
    ) -> Proxy:
        body = next((a.body for a in args if isinstance(a, Proxy) and a.body is not None), None)
        if body is None:
            raise NotTraceable(f"{ufunc.__name__} of constants alone")
        texts = [_text(arg, needed) for arg, needed in zip(args, loop)]
        text = ufunc_to_c(ufunc.__name__, loop[0].char, [_parenthesize(t) for t in texts])
        return body.line(f"rounded({text})" if result.char == "e" else text, result)

    def choose(self, condition: Proxy, x: Any, y: Any, dtype: np.dtype) -> Proxy:
        body = next(a.body for a in (condition, x, y) if isinstance(a, Proxy) and a.body)
        test, yes, no = map(_parenthesize, [condition.expr, _text(x, dtype), _text(y, dtype)])
        return body.line(f"{test} ? {yes} : {no}", dtype)

    def __getattr__(self, name: str) -> Any:
        """A ufunc; or `sum(x)`, `mean(x)`, `max(x)`, `min(x)` of a value over its group."""
        if name in ("sum", "mean", "max", "min"):
            return lambda x: x.body.reduce(name, x)
        return super().__getattr__(name)

    def index_of(self, x: Proxy) -> Proxy:
        """The number of the element in its group."""
        if not x.body.has_groups:
            raise NotTraceable("an index in a kernel without groups")
        return x.body.add_input("j", "int64")  # type: ignore[no-any-return]


names = Names()
