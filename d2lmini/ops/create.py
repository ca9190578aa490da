"""Arrays from nothing (constant, range, identity matrix), and copies of others: casts, `where`,
sums of many arrays, ops that stop or start gradients.

>>> from d2lmini import nd
>>> nd.arange(1, 7, 2)
<BLANKLINE>
[1. 3. 5.]
<NDArray 3 @cpu(0)>
>>> nd.cast(nd.array([0.9, 1.3, -2.7]), dtype="int32")
<BLANKLINE>
[ 0  1 -2]
<NDArray 3 @cpu(0)>
>>> nd.where(nd.array([1, 0]), nd.array([[1, 2], [3, 4]]), nd.array([[5, 6], [7, 8]]))
<BLANKLINE>
[[1. 2.]
 [7. 8.]]
<NDArray 2x2 @cpu(0)>

The casts of mixed precision are between float16, bfloat16 and float32, and nothing else.
`contrib.amp` puts these casts before other ops. A cast of an array that has the dtype already is a
copy; compiled programs drop it.

>>> half, single = nd.ones(2, dtype="float16"), nd.ones(2)
>>> [x.dtype.__name__ for x in nd.amp_multicast(half, single, num_outputs=2)]
['float32', 'float32']
>>> nd.amp_cast(nd.ones(2, dtype="int32"), dtype="float16").dtype.__name__
'int32'
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_one_dtype, check_one_shape
from d2lmini.ops.chunking import place
from d2lmini.ops.core import ALL, DType, Number, Op, Shape, Spec, op
from d2lmini.ops.scalar_cache import convert


def _of_shape(*, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    if any(size < 0 for size in shape):
        raise MXNetError(f"shape {shape} has a negative size")
    return Spec(tuple(shape), dtype)


@op("_full", infer=_of_shape, flops=0, grad=None, in_mxnet=True, always_written=("value",))
def full(xp, *, shape: Shape, value: Number = 0.0, dtype: DType = "float32", out=None):
    """Every element is `value`, converted as C converts. Cost: the bytes written."""
    element = convert(value, np.dtype(dtype))[()]
    if out is None:
        return xp.full(shape, element, dtype)
    out.fill(element)
    return out


def _constant(name: str, value: int) -> tuple[Op, Op]:
    """Declare `_NAME` and `NAME_like`, arrays of one number."""

    def of_shape(xp, *, shape: Shape, dtype: DType = "float32", out=None):
        if out is None:
            return getattr(xp, name)(shape, dtype)
        out.fill(value)
        return out

    def like(xp, data, *, out=None):
        return of_shape(xp, shape=data.shape, dtype=data.dtype, out=out)

    of_shape.__doc__ = f"{name.capitalize()}."
    like.__doc__ = f"{name.capitalize()} in the shape and dtype of data."
    declared: Op = op(f"_{name}", infer=_of_shape, flops=0, grad=None, in_mxnet=True)(of_shape)
    return declared, op(f"{name}_like", flops=0, elementwise=True, grad=None)(like)


(zeros, zeros_like), (ones, ones_like) = _constant("zeros", 0), _constant("ones", 1)


def _range(start: float, stop: float | None, step: float) -> tuple[float, int]:
    """Where a range begins, and how many numbers it has."""
    begin, end = (0.0, start) if stop is None else (start, stop)
    if step == 0:
        raise MXNetError(f"step must not be 0 (start={begin}, stop={end})")
    count = (end - begin) / step
    if not isfinite(count):
        raise MXNetError(f"no range from start={begin} to stop={end} by step={step}: not finite")
    return begin, max(0, ceil(count))


def _of_range(*, start: float, stop: float | None, step: float, repeat: int, dtype: Any, **_: Any):
    return Spec((_range(start, stop, step)[1] * repeat,), dtype)


@op("_arange", infer=_of_range, grad=None, in_mxnet=True)
def arange(
    xp, *, start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1,
    infer_range: bool = False, dtype: DType = "float32",
):  # fmt: skip
    """start, start + step, ... below stop, each `repeat` times; arange(n) counts from 0.

    The number of elements is ceil((stop - start) / step), computed in float64, so arange(0, 3, .3)
    has 10. Element i is start + i * step in the arithmetic of `dtype`, as in MXNet: an integer
    dtype truncates start and step first.
    """
    begin, count = _range(start, stop, step)
    # float16 is computed in float32, integers in int64.
    floating = xp.dtype(dtype).kind == "f"
    wide = xp.promote_types(dtype, "float32") if floating else xp.dtype("int64")
    values = xp.arange(count, dtype=wide)
    values *= wide.type(step)
    values += wide.type(begin)
    values = values.astype(dtype, copy=False)
    return xp.repeat(values, repeat) if repeat != 1 else values


@op("_linspace", infer=lambda *, num, dtype, **_: _of_shape(shape=(num,), dtype=dtype), grad=None,
    in_mxnet=True)  # fmt: skip
def linspace(
    xp, *, start: float, stop: float, num: int, endpoint: bool = True, dtype: DType = "float32"
):
    """`num` evenly spaced numbers from start to stop, including stop if `endpoint`."""
    return xp.linspace(start, stop, num, endpoint=endpoint).astype(dtype)


@op("_eye", infer=lambda *, N, M, k, dtype: Spec((N, M or N), dtype), flops=0, grad=None,
    in_mxnet=True)  # fmt: skip
def eye(xp, *, N: int, M: int = 0, k: int = 0, dtype: DType = "float32"):
    """(N, M or N) with ones on diagonal k."""
    return xp.eye(N, M or None, k, dtype=dtype)


# -- copies and casts ----------------------------------------------------------------------------


def cast_into(xp: Any, y: Any, dtype: np.dtype, out: Any) -> Any:
    """`y` in another dtype: floats are truncated towards zero and integers wrap around."""
    if dtype.itemsize == 1 and dtype.kind in "iu" and y.dtype.kind == "f":
        y = y.astype(np.int64)  # -7.0 as uint8 is undefined in C; -7 as uint8 is not
    return place(xp, y, dtype, out, copy=True)


def _cast(data: Spec, *, dtype: np.dtype) -> Spec:
    return Spec(data.shape, dtype)


@op(mxnet_name="Cast", infer=_cast, flops=0, elementwise=True, free_dtypes=("data",))
def cast(xp, data, *, dtype: DType, out=None):
    """Every element as `dtype`: floats are truncated towards zero, integers wrap around (-7 as
    uint8 is 249), everything but 0 is True. The gradient is cast back."""
    return cast_into(xp, data, np.dtype(dtype), out)


cast.gradient(saves="data.dtype")(lambda g, dtype: cast(g, dtype=dtype))


@op("_copyto", infer=_cast, flops=0, elementwise=True, free_dtypes=("data",), in_mxnet=True)
def copyto(xp, data, *, dtype: DType, out=None):
    """The same elements in new memory, perhaps on another device, converted to `dtype`."""
    return place(xp, data, dtype, out, copy=True)


copyto.written_in_mxnet(lambda data, *, dtype: cast(data, dtype=dtype))


@copyto.gradient(saves="data.dtype data.context")
def _(g, dtype, ctx):
    return g.astype(dtype, copy=False).as_in_context(ctx)


def copy_values(xp: Any, data: Any, out: Any) -> Any:
    """Copy the values into other memory."""
    if out is None:
        return data.copy()
    xp.copyto(out, data)
    return out


@op("_copy", aliases=["identity"], flops=0, elementwise=True, in_mxnet=True, onnx="Identity")
def copy(xp, data, *, out=None):
    """A copy."""
    return copy_values(xp, data, out)


copy.gradient()(lambda g: g)


def _like_lhs(lhs: Spec, rhs: Spec) -> Spec:
    check_one_shape(lhs=lhs, rhs=rhs)
    return lhs


@op("_identity_with_attr_like_rhs", infer=_like_lhs, flops=0, same_shape=True, in_mxnet=True,
    free_dtypes=("rhs",))  # fmt: skip
def identity_with_attr_like_rhs(xp, lhs, rhs, *, out=None):
    """A copy of lhs; a graph uses rhs to infer the shape."""
    return copy_values(xp, lhs, out)


identity_with_attr_like_rhs.gradient()(lambda g: (g, None))


# -- where gradients stop and start ----------------------------------------------------------------


@op(aliases=["stop_gradient"], flops=0, elementwise=True, grad=None, is_loss=True, onnx="Identity")
def BlockGrad(xp, data, *, out=None):
    """A copy through which no gradient flows."""
    return copy_values(xp, data, out)


@op(flops=0, elementwise=True, is_loss=True, output_names=("loss",), onnx="Identity")
def make_loss(xp, data, *, out=None):
    """A copy where the gradient starts: it is 1, whatever gradient arrives."""
    return copy_values(xp, data, out)


make_loss.gradient()(lambda g: ones_like(g))


# -- several inputs ------------------------------------------------------------------------------


def _infer_where(condition: Spec, x: Spec, y: Spec) -> Spec:
    check_one_dtype(x, y)
    check_one_shape(x=x, y=y)
    if condition.shape not in (x.shape, x.shape[:1]):
        raise MXNetError(
            f"condition is {condition.shape}, need x's shape {x.shape}"
            + (f", or {x.shape[:1]} to choose whole rows" if len(x.shape) > 1 else "")
        )
    return x


@op(infer=_infer_where, flops=1, free_dtypes=("condition",), same_shape=("x", "y"))
def where(xp, condition, x, y, *, out=None):
    """x where condition is not 0, else y.

    x and y have the same shape and dtype; condition has their shape, or is a vector that selects
    rows: (n,) for (n, ...). No gradient flows to condition.

    >>> nd.where(nd.array([1, 0]), nd.array([1, 2]), nd.array([3, 4])).asnumpy().tolist()
    [1.0, 4.0]
    """
    mask = condition.astype(bool, copy=False)
    mask = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    if out is None:
        return xp.where(mask, x, y)
    xp.copyto(out, y)
    xp.copyto(out, x, where=mask)
    return out


@where.gradient(saves="condition")
def _(g, condition, *, needs=ALL):
    zeros = zeros_like(g)
    return (
        None,
        where(condition, g, zeros) if needs[1] else None,
        where(condition, zeros, g) if needs[2] else None,
    )


def _infer_sum(*args: Spec) -> Spec:
    if not args:
        raise MXNetError("needs at least one array")
    check_one_dtype(*args)
    check_one_shape(**{f"input {i}": spec for i, spec in enumerate(args)})
    return args[0]


@op(
    aliases=["ElementWiseSum", "elemwise_sum", "_sum"], infer=_infer_sum, elementwise=True,
    flops=lambda *args, out, **_: (len(args) - 1) * out.size, same_shape=True, writes_num_args=True,
)  # fmt: skip
def add_n(xp, *args, out=None):
    """The sum of all inputs, from left to right; all have the same shape and dtype."""
    if len(args) == 1:
        return copy_values(xp, args[0], out)
    # `out` may be one of the inputs: it is written when all of them were read.
    y = args[0]
    for x in args[1:-1]:
        y = xp.add(y, x)
    return xp.add(y, args[-1], out=out)


add_n.gradient(saves="args.shape")(lambda g, shapes: [g] * len(shapes))


# -- the casts of mixed precision ------------------------------------------------------------------


def is_castable(dtype: Any) -> bool:
    """True for the dtypes that mixed precision converts: float16, float32 and bfloat16."""
    return np.dtype(dtype).char in "efE"


def _cast_dtype(attrs: dict[str, Any], data: Any, n: int) -> list[Any]:
    """The dtype of the output, from that of the input (None: unknown)."""
    return [attrs["dtype"] if data is None or is_castable(data) else data]


@op(
    infer=lambda data, **attrs: Spec(data.shape, *_cast_dtype(attrs, data.dtype, 1)), flops=0,
    elementwise=True, free_dtypes=("data",), output_dtypes=_cast_dtype,
)  # fmt: skip
def amp_cast(xp, data, *, dtype: DType, out=None):
    """`cast` of float16, bfloat16 and float32; other arrays do not change."""
    return cast_into(xp, data, np.dtype(dtype) if is_castable(data.dtype) else data.dtype, out)


amp_cast.gradient(saves="data.dtype")(lambda g, dtype: cast(g, dtype=dtype))


def _common(dtypes: list[Any]) -> list[Any]:
    """The dtypes of the outputs, from those of the inputs (None: unknown)."""
    floats = {dtype for dtype in dtypes if dtype is not None and is_castable(dtype)}
    common = floats.pop() if len(floats) == 1 else np.dtype("float32")
    return [common if d is not None and is_castable(d) else d for d in dtypes]


def _multicast(*data: Spec, num_outputs: int) -> list[Spec]:
    if len(data) != num_outputs:
        raise MXNetError(f"num_outputs={num_outputs}, but there are {len(data)} arrays")
    dtypes = _common([spec.dtype for spec in data])
    return [Spec(spec.shape, dtype) for spec, dtype in zip(data, dtypes, strict=True)]


@op(
    infer=_multicast, flops=0, outputs=lambda num_outputs, **_: num_outputs, free_dtypes=("data",),
    output_dtypes=lambda attrs, data, n: _common(data), left_out=("cast_narrow",),
)  # fmt: skip
def amp_multicast(xp, *data, num_outputs: int):
    """The arrays in the widest dtype among them; only float16, bfloat16 and float32 count and
    change. `num_outputs` is the number of arrays."""
    dtypes = _common([x.dtype for x in data])
    results = [cast_into(xp, x, dtype, None) for x, dtype in zip(data, dtypes, strict=True)]
    return results if num_outputs > 1 else results[0]


@amp_multicast.gradient(saves="data.dtype")
def _(g, dtypes):
    gs = g if isinstance(g, (list, tuple)) else [g]
    return [cast(part, dtype=dtype) for part, dtype in zip(gs, dtypes, strict=True)]
