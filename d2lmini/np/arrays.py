"""`np.ndarray`: the array of `d2lmini.np`, and the value that stands for one while a net is traced.

An `ndarray` is an NDArray whose operators and methods have NumPy's meaning: shapes () and (0, 3)
exist, dtypes promote, comparisons give bool, `x[mask]` selects. Memory, engine and tape are the
same, so `x.as_nd_ndarray()` and `x.as_np_ndarray()` change the meaning and copy nothing.

>>> from d2lmini import np
>>> x = np.array([[1, 2], [3, 4]])
>>> x[x > 2], x[0, 1], x.sum() / 4
(array([3., 4.]), array(2.), array(2.5))
>>> f"{x.mean():.3f}", float(x[1, 1]), x.as_nd_ndarray().shape
('2.500', 4.0, (2, 2))

An op of `nd` gives the class of its first input, so Gluon's layers work with both kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as onp

from d2lmini.ndarray import dispatch, indexing
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.np.creation import FUNCTIONS as CREATION
from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.products import FUNCTIONS as PRODUCTS
from d2lmini.np.protocol import apply_function, apply_ufunc
from d2lmini.np.reductions import FUNCTIONS as REDUCTIONS
from d2lmini.np.selection import FUNCTIONS as SELECTION
from d2lmini.np.selection import read
from d2lmini.np.shapes import FUNCTIONS as SHAPES
from d2lmini.np.values import as_type
from d2lmini.ops.core import Value, registry
from d2lmini.symbol.symbol import NotImplementedForSymbol, Symbol, Traced


class NumpyMethods:
    """The operators and methods of an array with NumPy's meaning, of arrays and in traces."""

    __slots__ = ()

    is_np = True
    __hash__ = None  # type: ignore[assignment]  # == gives an array

    @property
    def dtype(self) -> onp.dtype:
        """The NumPy dtype."""
        return self._spec.dtype  # type: ignore[attr-defined]

    @property
    def T(self) -> Any:
        """The array with reversed axes (a copy)."""
        return SHAPES["transpose"](self)

    def reshape(self, *newshape: Any, order: str = "C") -> Any:
        """`np.reshape`; the sizes as arguments or as a tuple."""
        shape = newshape[0] if len(newshape) == 1 else newshape
        return SHAPES["reshape"](self, shape, order)

    reshape_view = reshape  # of an array, a view

    def transpose(self, *axes: Any) -> Any:
        """`np.transpose`; the axes as arguments or as a tuple."""
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return SHAPES["transpose"](self, given or None)

    def flatten(self, order: str = "C") -> Any:
        """The elements in one axis."""
        return SHAPES["ravel"](self, order)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Any:  # fmt: skip
        """A copy in another dtype; the array itself if it has it and `copy` is False."""
        if copy and onp.dtype(dtype) == self.dtype:
            return registry["_copy"](self)
        return as_type(self, dtype)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        """`np.clip`."""
        return ELEMENTWISE["clip"](self, min, max, out)

    def fill(self, value: Any) -> None:
        """Set every element."""
        self[...] = value  # type: ignore[index]

    def tostype(self, stype: str) -> Any:
        """The array itself. ValueError for a storage type other than 'default'."""
        if stype != "default":
            raise ValueError(f"storage type {stype!r} is not supported, only 'default'")
        return self


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "mod": "mod",
    "pow": "power", "floordiv": "floor_divide", "matmul": "matmul", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
#: Functions that are also methods.
_METHODS = (
    (ELEMENTWISE, "round"),
    (REDUCTIONS, "sum prod mean max min var std argmax argmin cumsum any all"),
    (SHAPES, "squeeze swapaxes repeat ravel broadcast_to"),
    (SELECTION, "take argsort nonzero diagonal"),
    (PRODUCTS, "dot trace"),
)


def _operator(function: Callable[..., Any], reverse: bool = False) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        return function(other, self) if reverse else function(self, other)

    return method


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        return function(self, other, out=self)

    return method


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"`np.{function.__name__}` of this array.\n\n{function.__doc__}"
    return method


for _name, _function in _OPERATORS.items():
    _called = PRODUCTS["matmul"] if _name == "matmul" else ELEMENTWISE[_function]
    setattr(NumpyMethods, f"__{_name}__", _operator(_called))
    setattr(NumpyMethods, f"__r{_name}__", _operator(_called, reverse=True))
    if _name != "pow":  # as in MXNet, x **= 2 makes a new array
        setattr(NumpyMethods, f"__i{_name}__", _in_place(_called))
for _name, _function in _COMPARISONS.items():
    setattr(NumpyMethods, f"__{_name}__", _operator(ELEMENTWISE[_function]))
for _name, _function in {"neg": "negative", "abs": "abs", "invert": "invert"}.items():
    setattr(NumpyMethods, f"__{_name}__", _method(ELEMENTWISE[_function]))
for _table, _names in _METHODS:
    for _name in _names.split():
        setattr(NumpyMethods, _name, _method(_table[_name]))


# -- elements --------------------------------------------------------------------------------------


def _plain_key(key: Any) -> Any:
    """A key as `ndarray.indexing` takes it: masks as NumPy arrays, which waits for them. True and
    False are masks of no axis."""
    if type(key) is int or type(key) is slice:
        return key
    if isinstance(key, tuple):
        return tuple(map(_plain_key, key))
    if isinstance(key, Value):
        if key._spec.dtype.kind == "b":  # type: ignore[attr-defined]
            return read(key, "ndarray: a mask as an index")
        return key.as_nd_ndarray() if isinstance(key, NDArray) else key
    if isinstance(key, list):
        if any(isinstance(item, Value) for item in key):
            return onp.array([int(item) for item in key])
        return onp.array(key) if key else onp.zeros(0, int)
    return onp.array(key) if isinstance(key, (bool, onp.bool_)) else key


def _names_one(key: Any, ndim: int) -> bool:
    """True if the key names a single element: a number for each axis."""
    items = key if type(key) is tuple else (key,)
    named = 0
    for item in items:
        if item is Ellipsis:
            continue
        if item is None or isinstance(item, (slice, range, list)):
            return False
        if getattr(item, "shape", ()) != () or getattr(item, "dtype", 0) == "bool":
            return False
        named += 1
    return named == ndim and ndim > 0


def getitem(x: Any, key: Any, select: Callable[[Any, Any], Any]) -> Any:
    """x[key] by `select`, which gives a single element the shape (1,); here the shape is ()."""
    key = _plain_key(key)
    found = select(x, key)
    if found.shape == (1,) and _names_one(key, len(x.shape)):
        return _without_axes(found)
    return found


def _without_axes(x: Any) -> Any:
    """An array of one element as a view of shape ()."""
    if isinstance(x, NDArray):
        return NDArray.reshape(x, ())
    return registry["_spread"](x, kept=(), shape=())


class ndarray(NumpyMethods, NDArray):  # type: ignore[misc]
    """An array with NumPy's meaning: see the module."""

    __slots__ = ()

    def __new__(
        cls, shape: Any, dtype: Any = onp.float32, buffer: Any = None, offset: int = 0,
        strides: Any = None, order: str = "C",
    ) -> Any:  # fmt: skip
        """An array with undefined contents."""
        if buffer is not None or strides is not None or offset:
            raise NotImplementedError("np.ndarray: buffer, offset and strides are not supported")
        return CREATION["empty"](shape, dtype, order)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Nothing is left to do after `__new__`."""

    reshape_view = NDArray.reshape

    def __getitem__(self, key: Any) -> Any:
        return getitem(self, key, indexing.getitem)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = _plain_key(key)
        if not self.shape and (key is Ellipsis or indexing.is_whole(key)):
            key = ()
        if isinstance(value, NDArray) and not value.shape:
            value = NDArray.reshape(value, (1,))
        indexing.setitem(self, key, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError(
                "The truth value of an ndarray with multiple elements is ambiguous. Use a.any() "
                "or a.all()"
            )
        return bool(self.size and self._scalar("bool"))

    def _scalar(self, by: str) -> Any:
        if self.size != 1:
            raise TypeError(
                "only size-1 arrays can be converted to Python scalars, this one has shape "
                f"{self.shape}"
            )
        return self._read(by).reshape(-1)[0]

    def item(self, *args: Any) -> Any:
        """One element as a Python number; waits. Without arguments the array must have just one."""
        return self._read("item").item(*args) if args else self._scalar("item").item()

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.shape:
            raise TypeError(
                f"unsupported format string for an array of shape {self.shape}; format a number "
                "such as x.item() or x[0]"
            )
        return format(self._scalar("format").item(), spec)

    def __str__(self) -> str:
        return str(self._read("print"))

    def __repr__(self) -> str:
        text = describe(self._read("print"))
        return text if self.ctx.is_cpu else f"{text[:-1]}, ctx={self.ctx})"

    def __contains__(self, value: Any) -> bool:
        return bool((self._read("in") == value).any())

    def copy(self, order: str = "C") -> Any:
        """A copy on the same device."""
        return NDArray.copy(self)

    def as_nd_ndarray(self) -> NDArray:
        """The same memory and history as an NDArray."""
        return self._alias(self._node, NDArray)

    def as_np_ndarray(self) -> Any:
        """This array."""
        return self

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> Any:
        """A sorted copy. (In NumPy this method sorts in place; in MXNet it returns the copy.)"""
        return SELECTION["sort"](self, axis, kind, order)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, types, args, kwargs)


def describe(values: onp.ndarray) -> str:
    """`array([1., 2.])`, as MXNet writes it: with the dtype unless it is float32 or bool."""
    if values.size or values.shape == (0,):
        text = onp.array2string(values, separator=", ", prefix="array(", suffix=")")
    else:
        text = f"[], shape={values.shape}"
    text = f"array({text}"
    kind = values.dtype.name
    if kind == "float32" or (kind == "bool" and values.size):
        return f"{text})"
    # The dtypes that NumPy shows, too, begin a line if there is no room left.
    room = onp.get_printoptions()["linewidth"] - len(text) + text.rfind("\n") + 1
    wraps = kind not in ("int64", "float64", "bool") and room < len(f", dtype={kind})")
    return f"{text},{chr(10) + ' ' * 6 if wraps else ' '}dtype={kind})"


class TracedNumpy(NumpyMethods, Traced):  # type: ignore[misc]
    """The value that stands for an `ndarray` while a net is traced: shape and dtype are known."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if len(self._entries) != 1:
            return Symbol.__getitem__(self, key)
        return getitem(self, key, Traced.__getitem__)

    __array_ufunc__ = ndarray.__array_ufunc__
    __array_function__ = ndarray.__array_function__

    def as_nd_ndarray(self) -> Traced:
        """The same value with the meaning of MXNet 1.x."""
        return Traced(self._entries)

    def as_np_ndarray(self) -> Any:
        """This value."""
        return self

    def __format__(self, spec: str) -> str:
        if spec:
            raise NotImplementedForSymbol("a number as text")
        return str(self)


dispatch.CLASSES.add(ndarray)
