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
>>> import numpy
>>> numpy.exp(np.zeros(2)), numpy.float64(2) * np.ones(1)       # NumPy's functions call those of np
(array([1., 1.]), array([2.]))

An op of `nd` gives the class of its first input, so Gluon's layers work with both kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from d2lmini.ndarray import dispatch, indexing
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.np import creation, elementwise, fallback, reductions, shapes
from d2lmini.np.values import as_type, functions_of, read
from d2lmini.ops.core import Value, registry
from d2lmini.symbol.symbol import NotImplementedForSymbol, Traced

#: Every function of `np` by its name.
FUNCTIONS: dict[str, Callable[..., Any]] = fallback.FUNCTIONS | elementwise.FUNCTIONS
for _module in (reductions, shapes, creation):
    FUNCTIONS |= functions_of(vars(_module))


class NumpyMethods:
    """The operators and methods of an array with NumPy's meaning, of arrays and in traces.

    By NumPy's protocols `numpy.sum(x)` calls `np.sum`, and `numpy.exp(x)` `np.exp`."""

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
        return FUNCTIONS["transpose"](self)

    def reshape(self, *newshape, order="C") -> Any:
        """`np.reshape`; the sizes as arguments or as a tuple."""
        shape = newshape[0] if len(newshape) == 1 else newshape
        return FUNCTIONS["reshape"](self, shape, order)

    reshape_view = reshape  # of an array, a view

    def transpose(self, *axes) -> Any:
        """`np.transpose`; the axes as arguments or as a tuple."""
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return FUNCTIONS["transpose"](self, given or None)

    def astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True) -> Any:
        """A copy in another dtype; the array itself if it has it and `copy` is False."""
        if copy and onp.dtype(dtype) == self.dtype:
            return registry["_copy"](self)
        return as_type(self, dtype)

    def clip(self, min=None, max=None, out=None) -> Any:
        """`np.clip`."""
        return FUNCTIONS["clip"](self, min, max, out)

    def as_np_ndarray(self) -> Any:
        """This array."""
        return self

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        """A ufunc of NumPy. NotImplemented, which raises TypeError, for what `np` has not, and
        TypeError for NumPy arrays beside the array: the program must say where to compute."""
        function = FUNCTIONS.get({"conjugate": "positive"}.get(ufunc.__name__, ufunc.__name__))
        if method != "__call__" or function is None:
            return NotImplemented
        return function(*inputs, **{k: x[0] if k == "out" else x for k, x in kwargs.items()})

    def __array_function__(self, func, types, args, kwargs):
        """A function of NumPy: that of `np`; NumPy's on copies where `np` has none, or where
        NumPy's arrays take part."""
        if func.__module__.startswith("numpy.linalg"):
            from d2lmini.np import linalg

            return getattr(linalg, func.__name__)(*args, **kwargs)
        known = None if onp.ndarray in types else FUNCTIONS.get(func.__name__)
        return (known or fallback.by_numpy(func))(*args, **kwargs)


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "mod": "mod",
    "pow": "power", "floordiv": "floor_divide", "matmul": "matmul", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
#: Functions that are methods as they are: comparisons, operators of one operand, and those of the
#: same name.
_METHODS = {
    "__eq__": "equal", "__ne__": "not_equal", "__lt__": "less", "__le__": "less_equal",
    "__gt__": "greater", "__ge__": "greater_equal", "__neg__": "negative", "__abs__": "abs",
    "__invert__": "invert", "flatten": "ravel",
}  # fmt: skip
_SAME_NAME = """
    round sum prod mean max min var std argmax argmin cumsum any all squeeze swapaxes repeat ravel
    broadcast_to take sort argsort nonzero dot
""".split()


def _add_operator(name: str, function: Callable[..., Any]) -> None:
    def operator(self, other):
        return function(self, other)

    def reflected(self, other):
        return function(other, self)

    def in_place(self, other):
        return function(self, other, out=self)

    setattr(NumpyMethods, f"__{name}__", operator)
    setattr(NumpyMethods, f"__r{name}__", reflected)
    if name != "pow":  # as in MXNet, x **= 2 makes a new array
        setattr(NumpyMethods, f"__i{name}__", in_place)


for _name, _function in _OPERATORS.items():
    _add_operator(_name, FUNCTIONS[_function])
for _name, _function in (_METHODS | dict(zip(_SAME_NAME, _SAME_NAME))).items():
    setattr(NumpyMethods, _name, FUNCTIONS[_function])


# -- elements --------------------------------------------------------------------------------------


def _plain_key(key):
    """A key as `ndarray.indexing` takes it: masks as NumPy arrays, which waits for them. True and
    False are masks of no axis."""
    if type(key) is int or type(key) is slice:
        return key
    if isinstance(key, tuple):
        return tuple(map(_plain_key, key))
    if isinstance(key, Value) and key._spec.dtype.kind == "b":  # type: ignore[attr-defined]
        return read(key, "ndarray: a mask as an index")
    if isinstance(key, list) and any(isinstance(item, Value) for item in key):
        return onp.array([int(item) for item in key])
    return onp.array(key) if isinstance(key, (bool, onp.bool_)) else key


class ndarray(NumpyMethods, NDArray):  # type: ignore[misc]
    """An array with NumPy's meaning: see the module."""

    __slots__ = ()

    def __new__(cls, shape, dtype=onp.float32, buffer=None, offset=0, strides=None, order="C"):
        """An array with undefined contents."""
        if buffer is not None or strides is not None or offset:
            raise NotImplementedError("np.ndarray: buffer, offset and strides are not supported")
        return FUNCTIONS["empty"](shape, dtype, order)

    def __init__(self, *_, **__) -> None:
        """Nothing is left to do after `__new__`."""

    reshape_view = NDArray.reshape

    def __getitem__(self, key):
        return indexing.getitem(self, _plain_key(key))

    def __setitem__(self, key, value) -> None:
        indexing.setitem(self, _plain_key(key), value)

    def _scalar(self, by: str):
        if self.size != 1:
            raise TypeError(
                "only size-1 arrays can be converted to Python scalars, this one has shape "
                f"{self.shape}"
            )
        return self._read(by).reshape(-1)[0]

    def item(self, *args) -> Any:
        """One element as a Python number; waits. Without arguments the array must have just one."""
        return self._read("item").item(*args) if args else self._scalar("item").item()

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        values = self._read("format")
        return format(values if values.shape else values.item(), spec)  # NumPy refuses an array

    def __str__(self) -> str:
        return str(self._read("print"))

    def __repr__(self) -> str:
        text = describe(self._read("print"))
        return text if self.ctx.is_cpu else f"{text[:-1]}, ctx={self.ctx})"

    def __contains__(self, value) -> bool:
        return bool((self._read("in") == value).any())

    def copy(self, order="C") -> Any:
        """A copy on the same device."""
        return NDArray.copy(self)

    def as_nd_ndarray(self) -> NDArray:
        """The same memory and history as an NDArray."""
        return self._alias(self._node, NDArray)


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

    def __getitem__(self, key):
        return Traced.__getitem__(self, _plain_key(key) if len(self._entries) == 1 else key)

    def as_nd_ndarray(self) -> Traced:
        """The same value with the meaning of MXNet 1.x."""
        return Traced(self._entries)

    def __format__(self, spec: str) -> str:
        if spec:
            raise NotImplementedForSymbol("a number as text")
        return str(self)


dispatch.CLASSES.add(ndarray)
