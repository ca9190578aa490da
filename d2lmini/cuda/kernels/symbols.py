"""An array module whose arrays are names in C: running an op on it writes the op in C.

An elementwise op defines its computation once, `compute(xp, *arrays)`. Given `names` for `xp` and
`Name`s for arrays, each standing for the element at one place, every call of a ufunc becomes a line
of C, with NumPy's result dtypes. So there is no second list of ops that could differ from the
first: erf, Adam and every later op work without further code.

>>> body = Body()
>>> x, b = body.given("x", "float32"), body.given("b", "float32")
>>> y = names.maximum(x * 2 + b, 0)
>>> print(*body.lines, sep="\\n")
const float t1 = x * 2.0f;
const float t2 = t1 + b;
const float t3 = maximum(t2, 0.0f);
>>> y
<Name t3 float32>

A computation that needs a value (`if x > 0`), a shape or other elements cannot be written this way
and raises `NotInC`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.functions import NotInC, written
from d2lmini.cuda.kernels.launch import C_TYPES


def c_type(dtype: np.dtype) -> str:
    """The C type in which numbers of a dtype are computed."""
    return "float" if dtype.char == "e" else C_TYPES[dtype.char]


class Body:
    """Lines of C being written, one for each call of a ufunc.

    lines       the lines so far
    parameters  the numbers that became parameters, by name
    as_parameters  make parameters of Python's numbers, so that the same text serves other numbers?
    """

    def __init__(self, as_parameters: bool = False):
        self.lines: list[str] = []
        self.parameters: dict[str, Any] = {}
        self.as_parameters = as_parameters
        self._count = 0

    def given(self, text: str, dtype: Any) -> Name:
        """A name for an existing value: a C expression."""
        return Name(self, text, np.dtype(dtype))

    def line(self, text: str, dtype: np.dtype) -> Name:
        """A new name for an expression."""
        self._count += 1
        name = f"t{self._count}"
        self.lines.append(f"const {c_type(dtype)} {name} = {text};")
        return Name(self, name, dtype)

    def number(self, value: Any, dtype: np.dtype) -> str:
        """The text of a number."""
        if self.as_parameters and dtype.kind == "f":
            name = f"p{len(self.parameters)}"
            self.parameters[name] = (dtype, value)
            return name
        return literal(value, dtype)


def literal(value: Any, dtype: np.dtype) -> str:
    """A number in C.

    >>> [literal(v, np.dtype("float32")) for v in (0.1, -0.0, float("-inf"))]
    ['0.1f', '-0.0f', '(-1 / 0.0f)']
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        value = int(np.asarray(value).astype(dtype))
        if dtype.itemsize < 4:
            return f"({c_type(dtype)}) {value}"
        suffix = "u" * (dtype.kind == "u") + "ll" * (dtype.itemsize == 8)
        if value == np.iinfo(np.int64).min:
            return "(-9223372036854775807ll - 1)"
        if value == np.iinfo(np.int32).min:
            return f"(-2147483647 - 1{suffix})"
        return f"{value}{suffix}" if value >= 0 else f"({value}{suffix})"
    rounded = dtype.type(value)
    f = "" if dtype.char == "d" else "f"
    if math.isnan(rounded):
        return f"(0.0{f} / 0.0{f})"
    if math.isinf(rounded):
        return f"({'-' if rounded < 0 else ''}1 / 0.0{f})"
    text = repr(float(rounded)) if dtype.char == "d" else str(np.float32(rounded))
    return f"{text}{f}"


class Name:
    """One element of an array, as a name in C. An in-place operation makes it name another
    value."""

    __slots__ = ("body", "dtype", "text")
    __array_ufunc__ = None  # NumPy's scalars leave operators to this class
    shape: tuple[int, ...] = ()
    ndim = 0
    size = 1

    def __init__(self, body: Body | None, text: str, dtype: np.dtype):
        self.body = body
        self.text = text
        self.dtype = dtype

    def astype(self, dtype: Any, copy: bool = True, **_casting: Any) -> Name:
        """The value in another dtype."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return Name(self.body, converted(self.text, self.dtype, dtype), dtype)

    def copy(self) -> Name:
        return Name(self.body, self.text, self.dtype)

    def fill(self, value: Any) -> None:
        self.text = literal(value, self.dtype)

    def reshape(self, *_shape: Any) -> Name:
        return self

    def __getitem__(self, index: Any) -> Name:
        if index is not Ellipsis:
            raise NotInC("a part of an array")
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index]
        names.copyto(self, value)

    def __bool__(self) -> bool:
        raise NotInC("a decision that depends on a value")

    __float__ = __int__ = __index__ = __bool__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Name {self.text} {self.dtype.name}>"


def converted(text: str, old: np.dtype, new: np.dtype) -> str:
    """A value of one dtype as another."""
    if old == new or (old.char, new.char) == ("e", "f"):
        return text
    if new.char == "e":
        return f"rounded(({'double' if old.char == 'd' else 'float'}) ({text}))"
    if new.kind == "b":
        return f"(({text}) != 0)"
    return f"({c_type(new)}) ({text})"


def _operand(value: Any) -> Any:
    """The operand's part in NumPy's dtype rule: a dtype, or int, float or bool, which adapt."""
    if isinstance(value, (Name, np.generic, np.ndarray)):
        return value.dtype
    if type(value) in (int, float, bool):
        return type(value)
    raise NotInC(f"a {type(value).__name__}")


def _call(ufunc: str, *args: Any, out: Any = None, dtype: Any = None, **options: Any) -> Any:
    """A ufunc on names and numbers."""
    options.pop("casting", None)
    if options:
        raise NotInC(f"{ufunc} with {', '.join(options)}")
    function = getattr(np, ufunc)
    if len(args) > function.nin:
        *args, out = args  # type: ignore[assignment]
    if not any(isinstance(a, Name) for a in args):
        return _kept(function(*args), out)
    body = next((a.body for a in args if isinstance(a, Name) and a.body is not None), None)
    if body is None:
        raise NotInC(f"{ufunc} of constants alone")
    given = tuple(_operand(a) for a in args)
    *loop, result = _loop(function, given, None if dtype is None else np.dtype(dtype))
    texts = []
    for arg, kind, needed in zip(args, given, loop):
        if isinstance(arg, Name):
            texts.append(converted(arg.text, kind, needed))
        else:
            texts.append(body.number(arg, needed))
    char = loop[0].char
    text = written(function.__name__, char, [_closed(t) for t in texts])
    if result.char == "e":
        text = f"rounded({text})"
    return _kept(body.line(text, result), out)


@lru_cache(maxsize=4096)
def _loop(function: np.ufunc, given: tuple[Any, ...], dtype: Any) -> tuple[np.dtype, ...]:
    """The dtypes in which NumPy would compute, and the dtype of the result."""
    how: dict[str, Any] = {} if dtype is None else {"signature": (None,) * function.nin + (dtype,)}
    return function.resolve_dtypes((*given, None), **how)


def _kept(value: Any, out: Any) -> Any:
    """The value, stored in its `out` place if there is one."""
    if out is None:
        return value
    (out,) = out if isinstance(out, tuple) else (out,)
    names.copyto(out, value)
    return out


def _closed(text: str) -> str:
    """An operand that binds as tightly as a name."""
    plain = text.replace("_", "").replace(".", "").isalnum()
    return text if plain or (text[0] == "(" and text[-1] == ")") else f"({text})"


class _Names:
    """The array module. Its ufuncs are NumPy's, by name."""

    inf, nan, pi, e = np.inf, np.nan, np.pi, np.e
    promote_types, result_type, finfo = np.promote_types, np.result_type, np.finfo
    dtype, iinfo = np.dtype, np.iinfo

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name, None)
        if isinstance(found, np.ufunc):
            call: Callable[..., Any] = partial(_call, found.__name__)
            setattr(self, name, call)
            return call
        if isinstance(found, type) and issubclass(found, np.generic):
            return found
        raise AttributeError(f"{name} is no function of names")

    def copyto(self, target: Name, value: Any, casting: Any = None, where: Any = True) -> None:
        """Give a name another value."""
        if where is not True:
            value = self.where(where, value, target)
        if isinstance(value, Name):
            target.text = converted(value.text, value.dtype, target.dtype)
            target.body = target.body or value.body
        else:
            target.fill(value)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """x where condition holds, else y."""
        dtype = np.result_type(*(_sample(v) for v in (x, y)))
        if not isinstance(condition, Name):
            chosen = x if condition else y
            return chosen.astype(dtype) if hasattr(chosen, "astype") else dtype.type(chosen)
        body = next(a.body for a in (condition, x, y) if isinstance(a, Name) and a.body)
        sides = [
            converted(v.text, v.dtype, dtype) if isinstance(v, Name) else literal(v, dtype)
            for v in (x, y)
        ]
        return body.line(
            f"{_closed(condition.text)} ? {_closed(sides[0])} : {_closed(sides[1])}", dtype
        )

    def clip(self, x: Name, low: Any, high: Any, out: Any = None) -> Name:
        """min(max(x, low), high)"""
        return self.minimum(self.maximum(x, low), high, out=out)

    def empty(self, shape: Any, dtype: Any = float) -> Name:
        """A name without a value yet."""
        return Name(None, "0", np.dtype(dtype))

    def full(self, shape: Any, value: Any, dtype: Any) -> Name:
        """A constant."""
        return Name(None, literal(value, np.dtype(dtype)), np.dtype(dtype))

    def zeros(self, shape: Any, dtype: Any = float) -> Name:
        return self.full(shape, 0, dtype)

    def ones(self, shape: Any, dtype: Any = float) -> Name:
        return self.full(shape, 1, dtype)

    def full_like(self, x: Name, value: Any) -> Name:
        return Name(x.body, literal(value, x.dtype), x.dtype)

    def zeros_like(self, x: Name) -> Name:
        return self.full_like(x, 0)

    def ones_like(self, x: Name) -> Name:
        return self.full_like(x, 1)

    empty_like = zeros_like

    def asarray(self, x: Any) -> Any:
        return x


def _sample(value: Any) -> Any:
    """A sample argument for NumPy's dtype rule."""
    return np.empty((), value.dtype) if isinstance(value, Name) else value


names: Any = _Names()


def _two_sided(symbol: str, ufunc: str) -> None:
    """x + y, y + x and x += y."""

    def forward(self: Name, other: Any) -> Any:
        return _call(ufunc, self, other)

    def backward(self: Name, other: Any) -> Any:
        return _call(ufunc, other, self)

    def in_place(self: Name, other: Any) -> Any:
        return _call(ufunc, self, other, out=self)

    for prefix, method in (("", forward), ("r", backward), ("i", in_place)):
        setattr(Name, f"__{prefix}{symbol}__", method)


for _symbol, _ufunc in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    _two_sided(_symbol, _ufunc)

for _symbol, _ufunc in {
    "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "lt": "less",
    "le": "less_equal",
}.items():  # fmt: skip
    setattr(Name, f"__{_symbol}__", lambda self, other, _ufunc=_ufunc: _call(_ufunc, self, other))

for _symbol, _ufunc in {
    "neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert",
}.items():  # fmt: skip
    setattr(Name, f"__{_symbol}__", lambda self, _ufunc=_ufunc: _call(_ufunc, self))


def traced(
    compute: Callable[..., Any], inputs: Sequence[Any], attrs: dict[str, Any], **more: Any
) -> Any:
    """The result of `compute` on names; NotInC, with its reason, if `compute` cannot be written."""
    try:
        return compute(names, *inputs, **attrs, **more)
    except NotInC:
        raise
    except Exception as problem:
        raise NotInC(f"{type(problem).__name__}: {problem}") from problem
