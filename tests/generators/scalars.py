"""A number beside an array: every dtype, every kind of number, every operator, in `np` and in `nd`.

What is right is computed on single elements, by Python's numbers and NumPy's scalars. In `np` the
rule is NumPy's (NEP 50), with float32 as the float that integers become; in `nd` the number takes
the array's dtype. In both an integer out of range wraps around; `maximum`, `minimum` and `clip`
take it as it is. Each program runs eagerly and hybridized, and `nd`'s beside the real MXNet as long
as C++ defines the conversion of the number.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

import d2lmini as mx
from d2lmini.bfloat16 import is_float
from d2lmini.ops.attributes import as_dtype
from generators.agree import close, results

MXNET = 1e-3, 1e-3
HUGE = 10**400
NAN, INF = float("nan"), float("inf")

DTYPES = "bool uint8 int8 int32 int64 float16 float32 float64 bfloat16".split()
NUMBERS = [
    True, False, 0, 1, 2, 3, -1, -3, 7, 127, 128, 255, 256, 300, -128, -129, 70000, 2**24 + 1,
    2**31 - 1, 2**31, 2**40 + 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**70, 0.0, -0.0, 0.5,
    1.0, 1.5, 2.0, 2.5, -0.5, -1.5, 1e10, 1e30, INF, -INF, NAN, HUGE, -HUGE, np.float32(1.5),
    np.float64(0.1), np.int64(3), np.uint8(200), np.bool_(True), np.float16(2.5),
]  # fmt: skip
ARITHMETIC = "+ - * / % **".split()
COMPARISONS = "== != < <= > >=".split()
BITS = "& | ^".split()
FUNCTIONS = "maximum minimum hypot logical_and logical_or logical_xor".split()
OF_NP = ["//", "fmod", "arctan2", "where", "clip", "fill", "mask"]
#: Functions of x (the array) and n (the number); also with the number at the left.
TEXTS = {
    "where": "np.where(x > 1, x, n)", "clip": "np.clip(x, n, n)",
    "fill": "whole(x, n)", "mask": "masked(x, n)",
}  # fmt: skip
UFUNCS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "mod", "//": "floor_divide",
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor",
    "**": "power",
}  # fmt: skip
IN_PLACE = ("fill", "mask")


def draw(seed: int) -> str:
    """The lines of `nd` whose number the dtype holds: they mean the same in the real MXNet."""
    dtype, number, calls = _drawn(seed)
    values = _values(dtype)
    number = getattr(number, "item", lambda: number)()
    lines = [f"x, n = nd.array({values.tolist()}, dtype={dtype!r}), {number!r}"]
    if dtype == "bfloat16" or not _holds(dtype, number):
        return "keep(0)"
    for name, left in calls:
        broken = not is_float(values.dtype) and name in ("/", "%", "**")
        if name in ARITHMETIC + COMPARISONS + FUNCTIONS and name != "hypot" and not broken:
            lines.append(f"keep({_text(name, left, 'nd')})")
    return "\n".join(lines)


def check(seed: int) -> bool:
    """AssertionError where a call gives other numbers, or another dtype; True with a twin."""
    dtype, number, calls = _drawn(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for module in ("np", "nd"):
            for name, left in calls:
                if module == "np" or name not in OF_NP + BITS:
                    _check_call(module, dtype, number, name, left)
        return _check_mxnet(draw(seed), dtype)


def _check_mxnet(text: str, dtype: str) -> bool:
    from generators.check import _mxnet

    if not _mxnet.python or "\n" not in text:
        return False
    ours, theirs = results(text), _mxnet.results(text)
    room = 1e-2 if dtype == "float16" else 1e-5
    close(ours, theirs, room, room, "d2lmini and MXNet", text)
    assert [a.dtype for a in ours] == [a.dtype for a in theirs], text
    return True


def _drawn(seed: int) -> tuple[str, Any, list[tuple[str, bool]]]:
    rng = random.Random(seed)
    names = ARITHMETIC + COMPARISONS + BITS + FUNCTIONS + OF_NP
    dtype, number = rng.choice(DTYPES), rng.choice(NUMBERS)
    return dtype, number, [(rng.choice(names), rng.random() < 0.4) for _ in range(4)]


def _values(dtype: str) -> np.ndarray:
    kind = as_dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, True])
    if is_float(kind):
        return np.array([0.5, -2, 3, 0, -0.25, 7]).astype(kind)
    ends = np.iinfo(kind)
    return np.array([5, 1, 0, 2, ends.min, ends.max, ends.max - 1, ends.min + 1], kind)


def _holds(dtype: str, number: Any) -> bool:
    """True if the array's dtype holds the number, perhaps rounded."""
    if abs(number) in (INF, HUGE) or number != number:
        return False
    if is_float(as_dtype(dtype)):
        return abs(number) < 6e4
    if dtype == "bool":
        return abs(number) < 2**31
    return np.iinfo(dtype).min <= number <= min(np.iinfo(dtype).max, 2**53)


def _text(name: str, left: bool, module: str) -> str:
    if name in TEXTS:
        return TEXTS[name]
    a, b = ("n", "x") if left else ("x", "n")
    return f"({a} {name} {b})" if name in UFUNCS else f"{module}.{name}({a}, {b})"


def whole(x: Any, n: Any) -> Any:
    """A copy in which every element was overwritten."""
    y = x.copy()
    y[...] = n
    return y


def masked(x: Any, n: Any) -> Any:
    """A copy in which the elements of a mask were overwritten."""
    y = x.copy()
    y[x > 1] = n
    return y


def _check_call(module: str, dtype: str, number: Any, name: str, left: bool) -> None:
    left = left and name not in TEXTS
    text = _text(name, left, module)
    values = _values(dtype)
    wanted = _wanted(module, values, number, name, left)
    label = f"{module}: {text} with x = {values.tolist()} of {dtype}, n = {str(number)[:30]}"
    names = {"np": mx.np, "nd": mx.nd, "n": number, "whole": whole, "masked": masked}
    function = eval(f"lambda x: {text}", names)
    for how in ("eager", "hybridized"):
        if how == "hybridized" and name in IN_PLACE:
            continue
        x = mx.nd.array(values, dtype=dtype)
        x = x.as_np_ndarray() if module == "np" else x
        try:
            found = (function if how == "eager" else _net(function))(x).asnumpy()
        except (mx.MXNetError, TypeError) as problem:
            assert wanted is None, f"{how}: {label}: refused: {problem}"
            continue
        assert wanted is not None, f"{how}: {label}: got {found}, an error is right"
        assert found.dtype == wanted.dtype, f"{how}: {label}: {found.dtype}, not {wanted.dtype}"
        room = {2: 4e-3, 4: 1e-5}.get(wanted.dtype.itemsize, 1e-7) if is_float(wanted.dtype) else 0
        room = 2e-2 if wanted.dtype.name == "bfloat16" else room
        a, b = (v.astype("float64") if is_float(v.dtype) else v for v in (found, wanted))
        same = np.allclose(a, b, room, room, equal_nan=True) if room else np.array_equal(a, b)
        assert same, f"{how}: {label}: {found}, not {wanted}"


def _net(function: Any) -> Any:
    class Net(mx.gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return function(x)

    net = Net()
    net.hybridize()
    return net


# -- what is right ---------------------------------------------------------------------------------


def _wanted(
    module: str, values: np.ndarray, number: Any, name: str, left: bool
) -> np.ndarray | None:
    """The result; None if the call must be refused."""
    number = getattr(number, "item", lambda: number)()
    dtype, floating = values.dtype, is_float(values.dtype)
    logic, compares = name.startswith("logical"), name in COMPARISONS
    if abs(number) == HUGE and not (module == "np" and (logic or (compares and not floating))):
        return None
    if name in IN_PLACE or name == "full_like":
        y = values.copy()
        y[values > 1 if name == "mask" else ...] = _as(number, dtype)
        return y
    if module == "np":
        given = _kind(dtype, number)
    else:
        unclear = not floating and isinstance(number, float) and not np.isfinite(number)
        if unclear and not (compares or logic):
            return None
        given = np.dtype("int64") if dtype.kind == "b" else dtype
    if name in BITS and is_float(given):
        return None
    if compares or logic:
        if module == "np":
            result = [_truth(name, left, v, number, values.dtype) for v in values]
            return np.array(result)
        n = _as(number, given)
        return np.array([_truth(name, left, v, n, given) for v in values.astype(given)], given)
    if name == "where":
        return np.where(values > 1, values.astype(given), _as(number, given))
    if module == "np" and name in ("/", "hypot", "arctan2") and not is_float(given):
        given = np.dtype("float32")
    if given.kind == "b" and name not in BITS:
        if name in ("-", "clip"):
            return None
        flat = _arithmetic(name, left, values.astype("uint8"), int(number), np.dtype("uint8"))
        return flat.astype(bool)
    if name in ("maximum", "minimum", "clip") and not is_float(given):
        ends = np.iinfo(given)
        number = min(max(number, ends.min), ends.max)
    return _arithmetic(name, left, values.astype(given), number, given)


def _kind(dtype: np.dtype, number: Any) -> np.dtype:
    """NEP 50: the dtype of an array beside a number, with float32 as the default float."""
    if not is_float(dtype) and isinstance(number, float):
        return np.dtype("float32")
    return np.dtype("int64") if dtype.kind == "b" and type(number) is not bool else dtype


def _as(number: Any, dtype: np.dtype) -> Any:
    """The number in a dtype, as C converts."""
    if dtype.kind in "iu" and (type(number) is not float or abs(number) < 2**63):
        return np.array(int(number) % 2**64, np.uint64).astype(dtype)[()]
    if dtype.kind in "iu":
        return dtype.type(-(2**63) if dtype.itemsize == 8 else -(2**31) if dtype == "int32" else 0)
    return np.array(float(number)).astype(dtype)[()]


def _truth(name: str, left: bool, value: Any, number: Any, dtype: np.dtype) -> bool:
    if name.startswith("logical"):
        a, b = bool(value), bool(number)
        return {"and": a and b, "or": a or b, "xor": a != b}[name[8:]]
    if is_float(dtype):
        a, b = float(value), float(_as(number, dtype))
    else:
        a, b = int(value), number
        if isinstance(b, float):
            a = float(a)
        b = b if isinstance(b, (int, float)) else b.item()
    a, b = (b, a) if left else (a, b)
    return bool(eval(f"a {name} b"))


def _arithmetic(name: str, left: bool, x: np.ndarray, number: Any, dtype: np.dtype) -> np.ndarray:
    wide = np.dtype("float32") if dtype.name == "bfloat16" else dtype
    n = _as(number, wide)
    x, n = x.astype(wide), np.full(x.shape, n).astype(wide)
    a, b = (n, x) if left else (x, n)
    if name == "clip":
        return np.minimum(np.maximum(x, n), n).astype(dtype)
    if name == "**" and not is_float(dtype):
        exponents = x.tolist() if left else [int(_as(number, np.dtype("int64")))] * x.size
        return np.array([_power(int(v), e, dtype) for v, e in zip(a, exponents)], dtype)
    if name == "/" and not is_float(dtype):
        return np.array([_as(_cut(int(v), int(w)), dtype) for v, w in zip(a, b)], dtype)
    if name == "hypot" and not is_float(dtype):
        return np.hypot(a.astype("float64"), b.astype("float64")).astype(dtype)
    y = getattr(np, UFUNCS.get(name, name))(a, b)
    if name == "%":
        y = np.where(b == 0, 0, y)
    return y.astype(dtype)


def _cut(a: int, b: int) -> int:
    """a / b, cut towards zero; 0 for b = 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(base: int, exponent: int, dtype: np.dtype) -> Any:
    if exponent < 0:
        return base ** (exponent % 2) if abs(base) == 1 else 0
    return _as(pow(base, exponent, 2**64), dtype)
