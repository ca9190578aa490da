"""NDArray: an array whose contents may not be computed yet.

An NDArray is a light handle: shape and dtype are known at once; the memory (a `Chunk`, which is
also the engine's Var) is filled when the operation that computes it has run. Several handles may
share one chunk: `x[1:3]` and `x.reshape(...)` are views that write through.

>>> from d2lmini import nd
>>> x = nd.arange(6).reshape((2, 3))
>>> y = x + 1                    # queued or computed: the handle exists either way
>>> y.shape
(2, 3)
>>> y                            # printing waits
<BLANKLINE>
[[1. 2. 3.]
 [4. 5. 6.]]
<NDArray 2x3 @cpu(0)>

The functions that wait: `wait_to_read`, `wait_to_write`, `asnumpy`, `asscalar`/`item`, printing,
`bool`/`float`/`int`, NumPy and DLPack export, `nd.save`, `nd.waitall`. No other function waits.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini import autograd, engine
from d2lmini.autograd import tape
from d2lmini.base import LeftOut, alias, instrument, loaders
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.storage import Chunk
from d2lmini.engine.budget import Handle
from d2lmini.ndarray import dispatch, exchange, indexing
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import apply, hand_over, wrap
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Spec, invoke, modes, registry
from d2lmini.ops.fluent import Fluent, Typed
from d2lmini.ops.shape import infer_reshape


class NDArray(Typed, Fluent):
    """A dense array on a device; made by `nd.array`, `nd.zeros`, ... and by operations.

    Operators and methods are those of MXNet 1.x: arithmetic broadcasts, a number takes the array's
    dtype, comparisons give 0 and 1 in that dtype, two arrays must have the same dtype.
    """

    __slots__ = ("_chunk", "_ctx", "_handle", "_node", "_offset", "_spec", "__weakref__")

    _chunk: Chunk  # the memory
    _offset: int | None  # the first element in the chunk; None: the whole chunk
    _spec: Spec
    _ctx: Context
    _handle: Handle | None  # counts handles, for chunks that the bound on pending bytes counts
    _node: Any  # the node on the tape

    # NumPy arrays on the left of an operator leave the operation to NDArray.
    __array_priority__ = 1000.0

    _apply = staticmethod(apply)

    # -- properties --------------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """The device of the array."""
        return self._ctx

    ctx = context

    # -- waiting -----------------------------------------------------------------------------------

    def wait_to_read(self) -> None:
        """Block until the contents are computed; raises the error of the operation that failed."""
        engine.current.wait("wait_to_read", self._chunk)

    def wait_to_write(self) -> None:
        """Block until every pushed operation that reads or writes the array is done."""
        engine.current.wait("wait_to_write", self._chunk, write=True)

    def asnumpy(self) -> np.ndarray:
        """A NumPy copy; waits. Under `install_as_mxnet` a copy of one element also works as a
        number, as with the NumPy versions of MXNet's time."""
        array = self._read("asnumpy")
        return array if alias.array is None else array.view(alias.array)

    def asscalar(self) -> Any:
        """The element of an array of size 1 as a NumPy scalar; waits. ValueError otherwise."""
        return self._scalar("asscalar")

    def item(self) -> Any:
        """The element of an array of size 1 as a Python number; waits. ValueError otherwise."""
        return self._scalar("item").item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers; waits."""
        return self._read("tolist").tolist()

    def _read(self, by: str) -> np.ndarray:
        """Wait, recorded as `by` in the ledger, and copy the contents with writers excluded."""
        if not self._ctx.is_cpu:
            array = exchange.read(self, by)
        else:
            operand = (self._chunk, self._offset, self._spec)
            array = engine.current.read(by, self._chunk, lambda: array_of(operand).copy())
        if instrument.listeners:
            instrument.emit("copied", array)
        return array

    def _scalar(self, by: str) -> Any:
        if self._spec.size != 1:
            raise ValueError(
                f"{by}: the array has shape {self.shape}, only arrays of size 1 become a scalar; "
                "reduce it first, e.g. with .sum() or .mean()"
            )
        return self._read(by).reshape(-1)[0]

    def __bool__(self) -> bool:
        return self._spec.size != 0 and bool(self._scalar("bool"))

    def __float__(self) -> float:
        """The single element as a number. (MXNet 1.9 refuses; many programs expect it.)"""
        return float(self._scalar("float"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __index__(self) -> int:
        if self._spec.dtype.kind not in "iu":
            raise TypeError(
                f"only an integer array can be an index here, this is {self._spec.dtype}"
            )
        return int(self._scalar("index"))

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"\n{self._read('print')}\n<NDArray {size} @{self._ctx}>"

    # -- elements ----------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NDArray:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        indexing.setitem(self, key, value)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value)._read("in").any())

    # Comparison gives an array, so a dictionary key compares by identity.
    def __hash__(self) -> int:
        return id(self) // 16

    # -- views -------------------------------------------------------------------------------------

    def _view(self, offset: int | None, shape: tuple[int, ...]) -> NDArray:
        """A handle on the same memory: from element `offset` of this array, of `shape`."""
        chunk = self._chunk
        spec = Spec(shape, self._spec.dtype)
        begin = self._offset if not offset else (self._offset or 0) + offset
        if begin is None and spec.nbytes != chunk.nbytes:
            begin = 0
        return wrap(chunk, spec, self._ctx, self._handle, begin, kind=type(self))

    _note_write = hand_over

    def _reshaped(self, shape: tuple[int, ...]) -> NDArray:
        """A view of this shape, with the history."""
        view = self._view(None, shape)
        if modes.recording and self._node is not None:
            view._continue(self)
        return view

    def _continue(self, other: NDArray) -> None:
        """Record this array as `other` in another shape."""
        attrs = {"shape": self.shape, "reverse": False}
        autograd.record_op(registry["reshape"], (other,), attrs, [self])

    def _alias(self, node: Any, kind: type | None = None) -> Any:
        """Another handle on the whole array, with `node` as its node on the tape."""
        kind = kind or type(self)
        return wrap(self._chunk, self._spec, self._ctx, self._handle, self._offset, node, kind)

    def reshape(self, *shape: Any, reverse: bool = False, **kwargs: Any) -> NDArray:
        """A view with another shape: `reshape(2, 3)` or `reshape((2, 3))`, with MXNet's codes 0
        (keep this axis), -1 (infer the size), -2 (keep all further axes), -3 (merge two axes),
        -4 (split an axis). ArgumentValueError, an MXNetError and a ValueError, when the sizes do
        not fit."""
        target = map(index, target_shape(shape, kwargs))
        if kwargs:
            raise TypeError(f"reshape: takes shape and reverse, got {sorted(kwargs)}")
        return self._reshaped(infer_reshape(self.shape, tuple(target), reverse))

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """A new axis of size 1; a view if `inplace`."""
        return self._reshape_by("expand_dims", inplace, axis=axis)

    def squeeze(self, axis: Any = None, inplace: bool = False) -> NDArray:
        """The array without axes of size 1; a view if `inplace`."""
        return self._reshape_by("squeeze", inplace, axis=axis)

    def flatten(self, inplace: bool = False) -> NDArray:
        """Merge all axes but the first; a view if `inplace`."""
        return self._reshape_by("flatten", inplace)

    def _reshape_by(self, name: str, inplace: bool, **attrs: Any) -> NDArray:
        """Apply the op, or if `inplace` return a view in the shape of the op's result."""
        op = registry[name]
        _, attrs = op.bind((self,), attrs)
        if inplace:
            return self._reshaped(plan_of(op, [self._spec], attrs).outputs[0].shape)
        return invoke(op, (self,), attrs, None)

    # -- gradients ---------------------------------------------------------------------------------

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Request the array's gradient: `backward` stores it in `self.grad`, of the same shape and
        dtype, initially zeros. The array is detached from its history.

        grad_req: 'write' replaces the gradient at each backward, 'add' adds to it, 'null' leaves it
        unchanged. stype: only 'default'."""
        check_storage(stype)
        autograd.mark_variables(self, invoke(registry["zeros_like"], (self,), {}), grad_req)

    @property
    def grad(self) -> NDArray | None:
        """The array's gradient as `backward` stored it; None without `attach_grad`."""
        return self._node and self._node[0].grad

    @property
    def _fresh_grad(self) -> bool:
        """True if backward has written `grad` since this was last set to False."""
        return self._node is not None and self._node[0].fresh

    @_fresh_grad.setter
    def _fresh_grad(self, fresh: bool) -> None:
        if self.grad is not None:
            self._node[0].fresh = bool(fresh)

    def detach(self) -> NDArray:
        """The same memory without history: a constant for autograd."""
        return self._alias(None)

    def backward(
        self, out_grad: NDArray | None = None, retain_graph: bool = False, train_mode: bool = True
    ) -> None:
        """Compute the gradients of the array's sum (weighted by `out_grad`) for all arrays with
        `attach_grad` that the array depends on; see `autograd.backward`."""
        autograd.backward([self], [out_grad], retain_graph, train_mode)

    # -- copies ------------------------------------------------------------------------------------

    def copy(self) -> NDArray:
        """A copy on the same device."""
        return invoke(registry["_copy"], (self,), {}, None)

    __copy__ = copy

    def __deepcopy__(self, memo: dict) -> NDArray:
        return self.copy()

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Copy into `other`, or into a new array on that context, and return the copy. Converts the
        dtype; MXNetError when the shapes differ."""
        return exchange.copyto(self, other)

    def as_in_context(self, context: Context) -> NDArray:
        """This array if it is on `context`, else a copy there."""
        return self if self._ctx == context else self.copyto(context)

    as_in_ctx = as_in_context

    def tostype(self, stype: str) -> NDArray:
        """A copy, for the only storage type 'default'; MXNetError for sparse types."""
        check_storage(stype)
        return registry["_copy"](self)

    def as_nd_ndarray(self) -> NDArray:
        """This array; of an `np.ndarray`, the same memory and history as an NDArray."""
        return self

    def as_np_ndarray(self) -> Any:
        """The same memory and history as an `np.ndarray`."""
        return self._alias(self._node, loaders["np.ndarray"]())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._read("__array__")
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """For other libraries; waits. The lint of waits goes by this name."""
        return exchange.to_dlpack(self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if self._ctx.is_cpu else device_of(self._ctx).dlpack_device()

    def __reduce__(self) -> tuple:
        return exchange.unpickle, (type(self), *exchange.entry_of(self, "pickle"))

    # Not by a `__getattr__`, which would slow down every attribute look-up of every array.
    slice_assign, slice_assign_scalar = LeftOut(), LeftOut()
    to_dlpack_for_read, to_dlpack_for_write = LeftOut(), LeftOut()
    argmax_channel, nanprod, slice_like = LeftOut(), LeftOut(), LeftOut()

    if TYPE_CHECKING:  # the methods that `Fluent` derives from ops

        def __getattr__(self, name: str) -> Any: ...


def target_shape(shape: tuple, kwargs: dict[str, Any]) -> tuple:
    """The shape that `x.reshape(2, 3)`, `x.reshape((2, 3))` or `x.reshape(shape=(2, 3))` asks for;
    taken out of `kwargs`."""
    target = shape or kwargs.pop("shape", None)
    if target is None:
        raise TypeError("reshape: takes a shape, as in x.reshape((2, 3))")
    if isinstance(target, (tuple, list)) and len(target) == 1:
        target = target[0]
    return tuple(target) if isinstance(target, (tuple, list)) else (target,)


def _zeros(spec: Spec, ctx: Context) -> NDArray:
    return apply(registry["_zeros"], (), {"shape": spec.shape, "dtype": spec.dtype}, None, ctx)


dispatch.Array = NDArray
dispatch.CLASSES.add(NDArray)
tape.zeros = _zeros
