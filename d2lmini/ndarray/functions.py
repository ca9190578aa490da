"""Functions of `nd` that are not a single op on given arrays, and the namespaces below `nd`.

>>> from d2lmini import nd
>>> nd.array([[1, 2], [3, 4]])           # float32 for any source, as in MXNet
<BLANKLINE>
[[1. 2.]
 [3. 4.]]
<NDArray 2x2 @cpu(0)>
>>> nd.arange(3).shape, nd.zeros((2, 3)).shape
((3,), (2, 3))
>>> nd.moveaxis(nd.zeros((2, 3, 4)), 0, 2).shape
(3, 4, 2)
>>> nd.linalg.gemm2 is nd.linalg_gemm2
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

from d2lmini.base import ArgumentTypeError, MXNetError, integer_types, missing_attribute
from d2lmini.context import Context, cpu, current_context
from d2lmini.device.storage import Chunk, pool_of
from d2lmini.engine import waitall
from d2lmini.ndarray import exchange
from d2lmini.ndarray.dispatch import apply, wrap
from d2lmini.ndarray.exchange import from_dlpack, load, load_frombuffer, save
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Op, Spec, as_dtype, registry
from d2lmini.ops.fluent import FUNCTIONS
from d2lmini.ops.signature import name_function, python_signature

__all__ = [
    "arange", "array", "concatenate", "empty", "eye", "from_dlpack", "from_numpy", "full",
    "linspace", "load", "load_frombuffer", "moveaxis", "onehot_encode", "ones", "save", "waitall",
    "zeros",
]  # fmt: skip

# -- new arrays ------------------------------------------------------------------------------------


def without_inputs(
    op: Op, name: str, last: str = "out name kwargs", none: str = "float64", space: str = ""
) -> Callable[..., NDArray]:
    """An op without array inputs as `nd.NAME`, or in a namespace: takes the op's attributes, with
    the context before the dtype, and then `last`, as in MXNet. none: what dtype=None means. Without
    a shape one random number is drawn."""
    signature = python_signature(op, last)
    names = [word for word in signature.parameters if word != "kwargs"]

    def function(*args: Any, **attrs: Any) -> NDArray:
        if len(args) > len(names) or not attrs.keys().isdisjoint(names[: len(args)]):
            raise ArgumentTypeError(f"{name}: too many arguments; takes {', '.join(names)}")
        attrs |= zip(names, args)
        ctx, out, _ = (attrs.pop(word, None) for word in ("ctx", "out", "name"))
        _check_context(name, ctx, *args)
        if "stype" in names:
            check_storage(attrs.pop("stype", None))
        if "dtype" in attrs:
            attrs["dtype"] = as_dtype(attrs["dtype"], none)
        ctx = ctx or current_context() if out is None else out.context
        if op.random:
            attrs |= {} if out is None else {"shape": out.shape, "dtype": out.dtype}
            attrs["shape"] = 1 if attrs.get("shape") is None else attrs["shape"]
        pool_of(ctx)
        return apply(op, (), op.bind((), attrs)[1], out, ctx)

    function.__signature__ = signature  # type: ignore[attr-defined]
    return name_function(function, op, f"d2lmini.ndarray{space}", name)


def _check_context(name: str, ctx: Any, *args: Any) -> None:
    """ArgumentTypeError if the call gives one axis of the shape after the other: `zeros(2, 3)`."""
    if isinstance(ctx, integer_types):
        axes = ", ".join(str(axis) for axis in args if isinstance(axis, integer_types))
        raise ArgumentTypeError(
            f"{name}: the shape is one argument; the second is ctx, a Context such as cpu(), not "
            f"{ctx}; write nd.{name}(({axes}))"
        )


zeros = without_inputs(registry["_zeros"], "zeros", "stype kwargs", none="float32")
ones = without_inputs(registry["_ones"], "ones", "kwargs", none="float32")
eye = without_inputs(registry["_eye"], "eye", "kwargs", none="float32")
arange = without_inputs(registry["_arange"], "arange", "")
linspace = without_inputs(registry["_linspace"], "linspace", "")
_fill = without_inputs(registry["_full"], "full", "out", none="float32")


def full(
    shape: Any, val: Any, ctx: Context | None = None, dtype: Any = None, out: NDArray | None = None
) -> NDArray:
    """An array filled with `val`: a number, or an array that broadcasts to `shape`."""
    if isinstance(val, (NDArray, np.ndarray)):
        out = empty(shape, ctx, dtype) if out is None else out
        out[:] = val
        return out
    return _fill(shape, val, ctx, dtype, out)


def empty(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None
) -> NDArray:
    """An array with undefined contents. stype: only 'default'."""
    _check_context("empty", ctx, shape, ctx, dtype, stype)
    check_storage(stype)
    ctx, dtype = ctx or current_context(), as_dtype(dtype, "float32")
    if not ctx.is_cpu:  # on a device only tasks allocate memory
        return zeros(shape, ctx, dtype)
    spec = Spec((shape,) if isinstance(shape, int) else tuple(shape), dtype)
    chunk = Chunk(pool_of(ctx), spec.nbytes)
    chunk.allocate(spec.shape, spec.dtype)
    return wrap(chunk, spec, ctx)


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A copy of numbers, nested lists, a NumPy array or an NDArray, as an NDArray on `ctx`.

    dtype: default: the dtype of an NDArray source, else float32 (also for NumPy's int and float64).
    MXNetError for a number that no dtype holds.
    """
    ctx = ctx or current_context()
    if isinstance(source_array, NDArray):
        source_array = source_array.as_nd_ndarray()
        return source_array.astype(dtype or source_array.dtype).as_in_context(ctx)
    dtype = as_dtype(dtype, "float32")
    try:
        values = np.asarray(source_array, dtype=dtype)
    except OverflowError:  # integers wrap around, as in C
        try:
            values = np.asarray(source_array).astype(dtype)
        except OverflowError as problem:
            raise MXNetError(f"array: a number is out of range: {problem}") from None
    except (TypeError, ValueError) as problem:
        raise TypeError(f"array: expected numbers in even nesting: {problem}") from None
    return exchange.from_array(values, ctx)


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An NDArray of a NumPy array; `zero_copy` shares the memory and makes the NumPy array
    read-only, so that the program cannot write without the engine's knowledge; calling this again
    shares it again. An array that NumPy cannot make writable (the memory of a `bytes`) is copied.
    ValueError if the array is not C-contiguous."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: expected a NumPy array, got {type(ndarray).__name__}")
    as_dtype(ndarray.dtype)
    ctx = current_context()
    if not zero_copy:
        return exchange.from_array(ndarray, ctx)
    if not ndarray.flags.c_contiguous:
        raise ValueError("from_numpy: only C-contiguous arrays can be shared; use zero_copy=False")
    with suppress(ValueError):  # an earlier call made it read-only, or the memory is
        ndarray.flags.writeable = True
    shared = ndarray.view(np.ndarray)
    ndarray.flags.writeable = False
    return exchange.sharing(shared, ctx if ctx.is_cpu else cpu())


# -- arrays of arrays ------------------------------------------------------------------------------


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """`concat` of a list along `axis`; ValueError for an empty list."""
    if not arrays:
        raise ValueError("concatenate: expected at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return registry["concat"](*arrays, dim=axis)


def moveaxis(tensor: NDArray, source: Any, destination: Any) -> NDArray:
    """Move axes to new positions; the other axes keep their order."""
    # Axis i of the stand-in has size i, so the shape of NumPy's result is the order of the axes.
    order = np.moveaxis(np.empty(range(tensor.ndim)), source, destination).shape
    return registry["transpose"](tensor, axes=order)


def onehot_encode(indices: Any, out: Any) -> Any:
    """Write the one-hot rows of `indices` (N,) into `out` (N, depth); returns out.

    The older form of `one_hot`. A number outside gives a row of zeros. MXNetError when the shapes
    do not fit; unlike in MXNet any dtype is allowed.
    """
    return registry["one_hot"](indices, depth=out.shape[-1], dtype=out.dtype, out=out)


# -- namespaces ------------------------------------------------------------------------------------


class Namespace(ModuleType):
    """Ops under one of the prefixes, without the prefix; several prefixes are tried in turn."""

    def __init__(self, name: str, *prefixes: str):
        super().__init__(name, type(self).__doc__)
        self._prefixes = prefixes or ("",)

    def __getattr__(self, name: str) -> Any:
        for prefix in self._prefixes:
            found = registry.get(prefix + name) or registry.get(name if prefix == "_" else "")
            if found is not None:
                value = self._wrap_op(found, name)
                setattr(self, name, value)
                return value
        where = self.__name__
        raise missing_attribute(where, name, dir(self), f"; dir({where}) lists the names")

    def _wrap_op(self, op: Op, name: str) -> Any:
        """The object under the op's name: here the op itself."""
        return op

    def __dir__(self) -> list[str]:
        ops = {n.removeprefix(p) for n in registry for p in self._prefixes if n.startswith(p)}
        return sorted(ops | {n for n in self.__dict__ if not n.startswith("_")})


op, linalg = Namespace("nd.op"), Namespace("nd.linalg", "linalg_", "_linalg_")
contrib, sparse = Namespace("nd.contrib", "_contrib_"), Namespace("nd.sparse")
vars(sparse).update(FUNCTIONS)


def public_names() -> dict[str, Any]:
    """The public ops, whose names do not begin with an underscore, and the functions that also take
    numbers."""
    return {**{n: op for n, op in registry.items() if not n.startswith("_")}, **FUNCTIONS}
