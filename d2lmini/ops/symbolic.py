"""An array module with symbolic arrays: running an op on them gives the formula of the op.

The formula of an elementwise op is written once, in `compute(xp, *arrays)`. If `xp` is a
`SymbolicModule` and each array is a `Proxy`, the module receives every call of a ufunc, with the
dtypes that NumPy would use. So there is no second list of formulas that could differ from the ops.

A subclass of the module decides what a call becomes: graph/lower.py makes a chain of NumPy's
ufuncs, the add-on `cuda` makes lines of C, and this example makes text:

>>> class Text(SymbolicModule):
...     def call(self, ufunc, args, loop, result):
...         texts = [a.expr if isinstance(a, Proxy) else repr(a) for a in args]
...         return Proxy(self, f"{ufunc.__name__}({', '.join(texts)})", result)
>>> xp = Text()
>>> x, b = (Proxy(xp, name, np.dtype("float32")) for name in "xb")
>>> xp.maximum(x * 2 + b, 0)
<Proxy maximum(add(multiply(x, 2), b), 0) float32>

A `compute` that needs a value (`if x > 0`), a shape or other elements is not an elementwise
formula: the trace raises `NotTraceable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class NotTraceable(LookupError):
    """An op is not an elementwise formula, or its formula has no form in the target language."""


class Proxy(NDArrayOperatorsMixin):
    """One element of an array, represented by the expression that computes the element. A write in
    place replaces the expression.

    xp    the module that made the proxy
    expr  the expression, in the form of that module
    body  the state of one trace, if the module keeps one
    """

    __slots__ = ("body", "dtype", "expr", "xp")
    __hash__ = object.__hash__
    shape: tuple[int, ...] = ()
    ndim = 0
    size = 1

    def __init__(self, xp: SymbolicModule, expr: Any, dtype: np.dtype, body: Any = None):
        self.xp = xp
        self.expr = expr
        self.dtype = dtype
        self.body = body

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
        """Operators come here, and NumPy's scalars beside a proxy."""
        return getattr(self.xp, ufunc.__name__)(*args, **options)

    def astype(self, dtype: Any, copy: bool = True, **_casting: Any) -> Proxy:
        """The value in another dtype."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return Proxy(self.xp, self.xp.convert(self.expr, self.dtype, dtype), dtype, self.body)

    def copy(self) -> Proxy:
        return Proxy(self.xp, self.expr, self.dtype, self.body)

    def fill(self, value: Any) -> None:
        self.expr = self.xp.constant(value, self.dtype)

    def reshape(self, *_shape: Any) -> Proxy:
        return self

    def __bool__(self) -> bool:
        raise NotTraceable("a decision that depends on a value")

    __float__ = __int__ = __index__ = __bool__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Proxy {self.expr} {self.dtype.name}>"


class SymbolicModule:
    """The array module. It has NumPy's ufuncs, by name. A subclass defines

    call      (ufunc, args, loop, result) -> the result of a call; some of `args` are proxies.
              `loop`: the dtypes to compute in
    constant  (value, dtype) -> the expression of an array filled with a number
    choose    (condition, x, y, dtype) -> the result of `where(condition, x, y)`

    and a conversion. Without one of these, ops that need it are not traceable."""

    inf, nan, dtype, promote_types = np.inf, np.nan, np.dtype, np.promote_types

    # -- for subclasses ----------------------------------------------------------------------------

    def convert(self, expr: Any, old: np.dtype, new: np.dtype) -> Any:
        """The expression of a value in another dtype."""
        if old == new:
            return expr
        raise NotTraceable(f"{old.name} as {new.name}")

    def operand(self, value: Any) -> Any:
        """The dtype of an operand, or the type int, float or bool, which adapts to the others."""
        if isinstance(value, (Proxy, np.generic, np.ndarray)):
            return value.dtype
        if type(value) in (int, float, bool):
            return type(value)
        raise NotTraceable(f"a {type(value).__name__}")

    def number_of(self, value: Any, dtype: np.dtype) -> Any:
        """What stands for a number of an optimizer's step (see `update_program`)."""
        return value

    # -- ufuncs ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name, None)
        if isinstance(found, np.ufunc):
            call: Callable[..., Any] = partial(self._call, found)
            setattr(self, name, call)
            return call
        if isinstance(found, type) and issubclass(found, np.generic):
            return found
        raise AttributeError(f"{name} is not a function of symbolic arrays")

    def _call(
        self, ufunc: np.ufunc, *args: Any, out: Any = None, dtype: Any = None, **options: Any
    ) -> Any:
        options.pop("casting", None)
        if options:
            raise NotTraceable(f"{ufunc.__name__} with {', '.join(options)}")
        if len(args) > ufunc.nin:
            *args, out = args  # type: ignore[assignment]
        if any(isinstance(a, Proxy) for a in args):
            given = tuple(map(self.operand, args))
            *loop, result = _loop(ufunc, given, None if dtype is None else np.dtype(dtype))
            value = self.call(ufunc, args, loop, result)
        else:
            value = ufunc(*args)
        if out is None:
            return value
        (out,) = out if isinstance(out, tuple) else (out,)
        self.copyto(out, value)
        return out

    # -- other functions ---------------------------------------------------------------------------

    def copyto(self, target: Proxy, value: Any, casting: Any = None, where: Any = True) -> None:
        """Replace the value of a proxy."""
        if where is not True:
            value = self.where(where, value, target)
        if isinstance(value, Proxy):
            target.expr = self.convert(value.expr, value.dtype, target.dtype)
            target.body = target.body or value.body
        else:
            target.fill(value)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """x where `condition` is true, else y."""
        dtype = np.result_type(*(_sample(v) for v in (x, y)))
        if not isinstance(condition, Proxy):
            chosen = x if condition else y
            return chosen.astype(dtype) if hasattr(chosen, "astype") else dtype.type(chosen)
        return self.choose(condition, x, y, dtype)

    def clip(self, x: Proxy, low: Any, high: Any, out: Any = None) -> Proxy:
        """min(max(x, low), high)"""
        return self.minimum(self.maximum(x, low), high, out=out)

    def empty(self, shape: Any, dtype: Any = float) -> Proxy:
        """A proxy without an expression."""
        return Proxy(self, None, np.dtype(dtype))

    def full(self, shape: Any, value: Any, dtype: Any) -> Proxy:
        """A proxy of a constant."""
        return Proxy(self, self.constant(value, np.dtype(dtype)), np.dtype(dtype))

    def zeros(self, shape: Any, dtype: Any = float) -> Proxy:
        return self.full(shape, 0, dtype)

    def ones(self, shape: Any, dtype: Any = float) -> Proxy:
        return self.full(shape, 1, dtype)

    def full_like(self, x: Proxy, value: Any) -> Proxy:
        return Proxy(self, self.constant(value, x.dtype), x.dtype, x.body)

    def empty_like(self, x: Proxy) -> Proxy:
        return Proxy(self, None, x.dtype, x.body)

    def asarray(self, x: Any) -> Any:
        return x


@lru_cache(maxsize=4096)
def _loop(ufunc: np.ufunc, given: tuple[Any, ...], dtype: Any) -> tuple[np.dtype, ...]:
    """The dtypes in which NumPy would compute, and the dtype of the result."""
    how: dict[str, Any] = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,)}
    return ufunc.resolve_dtypes((*given, None), **how)


def _sample(value: Any) -> Any:
    """A value for `np.result_type`: an empty array stands for a proxy."""
    return np.empty((), value.dtype) if isinstance(value, Proxy) else value


def trace(
    xp: SymbolicModule, compute: Callable[..., Any], inputs: Sequence[Any], attrs: dict[str, Any],
    **more: Any,
) -> Any:  # fmt: skip
    """The result of `compute` on proxies; NotTraceable, with the reason, if there is none."""
    try:
        return compute(xp, *inputs, **attrs, **more)
    except NotTraceable:
        raise
    except Exception as problem:
        raise NotTraceable(f"{type(problem).__name__}: {problem}") from problem
