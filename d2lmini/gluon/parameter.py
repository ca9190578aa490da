"""Parameter: a learnt array, with one copy and one gradient on each device.

>>> from d2lmini import gluon
>>> weight = gluon.Parameter("weight", shape=(2, 0), init="ones", allow_deferred_init=True)
>>> weight.initialize()            # size 0 is unknown, so the initialization is deferred
>>> weight.shape = (2, 3)          # a layer sets the shape when it gets its first input
>>> weight._finish_deferred_init()
>>> weight.data()
<BLANKLINE>
[[1. 1. 1.]
 [1. 1. 1.]]
<NDArray 2x3 @cpu(0)>

A parameter has three states:

    declared     name, shape, dtype and initializer; no array. `initialize` moves it on
    deferred     contexts and initializer are set, the shape is incomplete: data() raises
                 DeferredInitializationError. The first call of the layer completes it
    initialized  one array in each context, and one gradient each unless grad_req is 'null'

The Trainer handles several copies: it sums their gradients and keeps the copies equal. After
`mxnet.gluon.parameter`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from d2lmini import autograd, initializer
from d2lmini import ndarray as nd
from d2lmini.base import LeftOut, MXNetError, callsite
from d2lmini.base.dtypes import flag_of
from d2lmini.base.util import is_np_array, is_np_shape
from d2lmini.context import Context, cpu, current_context
from d2lmini.device import roles
from d2lmini.gluon.utils import as_default, merge_shapes, shape_is_known
from d2lmini.graph.ir import Node
from d2lmini.graph.symbolic_trace import one_at_a_time
from d2lmini.ndarray import NDArray
from d2lmini.ops import random_state
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Spec, as_dtype, modes
from d2lmini.symbol import Symbol
from d2lmini.symbol.naming import AttrScope

Shape = tuple[int, ...]
Contexts = Context | list[Context] | None


class _Arrays:
    """`now` is replaced by a new object whenever any parameter gets new arrays. A compiled net
    checks with one comparison whether its list of arrays is current."""

    now: Any = None


arrays = _Arrays()

_STYPES = ("default", "row_sparse", "csr")
_REQS = ("write", "add", "null")


class DeferredInitializationError(MXNetError):
    """The parameter has no array yet, because its layer has not seen data to infer the shape."""


class Parameter:
    """A learnt array: `data(ctx)`, `grad(ctx)`, and the settings that the Trainer uses.

    name: the name in files and messages. grad_req: 'write' replaces the gradient at each backward,
    'add' adds to the gradient, 'null' keeps no gradient. shape: 0 or -1 for an unknown size, None
    for an unknown shape. lr_mult, wd_mult: factors on the learning rate and the weight decay. init:
    the parameter's initializer, by default that of `initialize`. allow_deferred_init: `initialize`
    may wait until the shape is known. differentiable=False: grad_req stays 'null'. stype:
    'default'; MXNetError for MXNet's sparse types, which d2lmini leaves out. grad_stype: accepted
    without effect, because all gradients are dense.
    """

    _kind: ClassVar[str] = "Parameter"

    def __init__(
        self, name: str, grad_req: str = "write", shape: int | Shape | None = None,
        dtype: Any = np.float32, lr_mult: float = 1.0, wd_mult: float = 1.0, init: Any = None,
        allow_deferred_init: bool = False, differentiable: bool = True,
        stype: str = "default", grad_stype: str = "default",
    ):  # fmt: skip
        for what, value in (("stype", stype), ("grad_stype", grad_stype)):
            assert value in _STYPES, (
                f"{what} for Parameter '{name}' must be one of 'default', 'row_sparse', or 'csr', "
                f"but got '{value}'"
            )
        check_storage(stype)
        self.name = name
        self._is_np = is_np_array()  # also for arrays that are made outside of a scope `np_array`
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self.allow_deferred_init = allow_deferred_init
        self._differentiable = differentiable
        self._stype = stype
        self._shape = (shape,) if isinstance(shape, int) else shape and tuple(shape)
        self._dtype = dtype
        self._grad_req = "null"
        self._data: list[NDArray] | None = None
        self._grad: list[NDArray] | None = None
        self._one: NDArray | None = None  # the only copy, if there is just one: for the fast path
        self._deferred_init: tuple = ()  # (init, contexts, default_init, data or None)
        self._trainer: Any = None
        self._var: Symbol | None = None  # the parameter's variable in graphs
        self._owner: Any = None  # (weak reference to the Block, name of the attribute there)
        self.grad_req = grad_req

    def __repr__(self) -> str:
        return f"{self._kind} {self.name} (shape={self.shape}, dtype={self.dtype})"

    def __getstate__(self) -> dict:
        left_out = ("_owner", "_trainer", "_grad", "_one", "_var")
        return {**self.__dict__, **dict.fromkeys(left_out)}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        if self._data is not None:
            self._adopt(self._data)

    # -- what it is --------------------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        """'write', 'add' or 'null'; setting it makes a new gradient or drops the gradient."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        assert req in _REQS, f"grad_req must be one of 'write', 'add', or 'null', but got '{req}'"
        if not self._differentiable:
            req = "null"
        if req == self._grad_req:
            return
        self._grad_req = req
        if self._data is not None:
            self._init_grad(self._data)
            arrays.now = object()

    @property
    def shape(self) -> Shape | None:
        """The shape, 0 for an unknown size, -1 with `util.np_shape`. Unknown sizes can be set,
        known sizes never change."""
        if self._shape is None or not is_np_shape():
            return self._shape
        return tuple(size or -1 for size in self._shape)

    @shape.setter
    def shape(self, shape: Shape) -> None:
        both = tuple(shape) if self._shape is None else merge_shapes(self._shape, tuple(shape))
        assert both is not None, (
            f"Expected shape {tuple(shape)} is incompatible with given shape {self._shape}"
            f"{self._place()}."
        )
        self._shape = both

    @property
    def dtype(self) -> Any:
        """The dtype as it was given: a name or a NumPy type. Setting it casts the parameter."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self.cast(dtype)

    def _place(self) -> str:
        """The parameter's path in the net, for messages: ' (features.0.weight of Net)'."""
        owner = self._owner and self._owner[0]()
        return "" if owner is None else f" ({owner._path_to(self._owner[1])})"

    # -- initialization ----------------------------------------------------------------------------

    def initialize(
        self, init: Any = None, ctx: Contexts = None, default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:  # fmt: skip
        """Make the arrays in `ctx` (a context or a list; None: the current context) and fill them.

        The values come from `init`, else the parameter's own initializer, else `default_init`
        (Uniform). With an unknown shape the initialization is deferred to the first call of the
        layer; ValueError where deferral is not allowed. A second call warns and does nothing,
        unless `force_reinit`.
        """
        if self._data is not None and not force_reinit:
            callsite.warn(
                f"Parameter '{self.name}' is already initialized, ignoring. Set force_reinit=True "
                "to re-initialize."
            )
            return
        self._data = self._grad = self._one = None
        arrays.now = object()
        if init is None:
            init = default_init if self.init is None else self.init
        known = shape_is_known(self.shape)
        if not known and not self.allow_deferred_init:
            raise ValueError(
                f"Cannot initialize Parameter '{self.name}'{self._place()} because it has "
                f"invalid shape: {self._shape}."
            )
        self._deferred_init = (init, _contexts(ctx), default_init, None)
        if known:
            self._finish_deferred_init()

    def _finish_deferred_init(self) -> None:
        """Make the deferred arrays. Does nothing if the initialization was not deferred or another
        thread has made the arrays meanwhile."""
        with one_at_a_time(), autograd.pause(), random_state.drawing_once():
            if not self._deferred_init:
                return
            init, contexts, default_init, data = self._deferred_init
            if not shape_is_known(self.shape):
                raise ValueError(
                    f"Cannot initialize Parameter '{self.name}'{self._place()} because it has "
                    f"invalid shape: {self._shape}. Please specify in_units, in_channels, etc for "
                    "`Block`s."
                )
            if data is None:
                data = self._of_kind(nd.zeros(self._shape, ctx=cpu(), dtype=self._dtype))
                # The initializer was chosen for this parameter, so its name does not matter.
                desc = initializer.InitDesc(self.name, {"__init__": initializer.create(init)})
                initializer.create(default_init)(desc, data)
            self._init_impl(data, contexts, ours=True)
            self._deferred_init = ()  # last: other threads check whether arrays exist

    def _init_impl(self, data: NDArray, contexts: list[Context], ours: bool = False) -> None:
        """Put a copy of `data` into each context; `ours`: `data` itself may serve as a copy."""
        self._adopt(
            [data if ours and ctx == data.context else data.copyto(ctx) for ctx in contexts]
        )

    def _of_kind(self, data: NDArray) -> NDArray:
        """`data` as an `np.ndarray` where programs expect one."""
        return data.as_np_ndarray() if self._is_np else as_default(data)

    def _adopt(self, copies: list[NDArray], grads: list[NDArray] | None = None) -> None:
        copies = [self._of_kind(copy) for copy in copies]
        self._init_grad(copies, grads)  # first: another thread may use the copies at once
        self._data = copies
        self._one = copies[0] if len(copies) == 1 else None
        arrays.now = object()

    def _init_grad(self, copies: list[NDArray], grads: list[NDArray] | None = None) -> None:
        """Attach gradients, by default zeros, to the arrays as `grad_req` requires."""
        roles.note("weights", copies)
        if self._grad_req == "null":
            for copy in copies:
                copy._node = None
            grads = None
        else:
            with autograd.pause():
                grads = grads or [nd.zeros_like(data) for data in copies]
            autograd.mark_variables(copies, grads, self._grad_req)
        self._grad = grads

    def _load_init(
        self, data: NDArray, ctx: Contexts, cast_dtype: bool = False, dtype_source: str = "current"
    ) -> None:
        """Set the value to `data` from a file, whether or not the parameter is initialized."""
        assert dtype_source in ("current", "saved"), (
            f"dtype_source must be 'current' or 'saved', got {dtype_source!r}"
        )
        failed = f"Failed loading Parameter '{self.name}'{self._place()} from saved params:"
        if self._shape is not None:
            assert merge_shapes(self._shape, data.shape) == data.shape, (
                f"{failed} shape incompatible expected {self._shape} vs saved {data.shape}"
            )
        self._shape = data.shape
        if np.dtype(self._dtype) != data.dtype:
            assert cast_dtype, (
                f"{failed} dtype incompatible expected {self._dtype} vs saved {data.dtype}. "
                "Set cast_dtype=True to cast the dtype of saved params."
            )
            if dtype_source == "current":
                data = data.astype(self._dtype)
            else:
                self.cast(data.dtype)
        before = self.list_ctx() if self._data is not None or self._deferred_init else None
        wanted = before or [cpu()] if ctx is None else _contexts(ctx)
        assert before is None or set(before) == set(wanted), (
            f"Failed to load Parameter '{self.name}' on {wanted} because it was previous "
            f"initialized on {before}."
        )
        self._deferred_init = ()
        if self._data is None:
            with autograd.pause():
                self._init_impl(data, wanted)
        else:
            self.set_data(data)

    # -- its arrays --------------------------------------------------------------------------------

    def data(self, ctx: Context | None = None) -> NDArray:
        """The array in `ctx`; None: the only copy, else the copy in the current context.

        While a net is traced: the parameter's variable in the graph. Raises RuntimeError before
        `initialize` and for a context without a copy, and DeferredInitializationError while the
        shape is unknown.
        """
        if modes.tracing is not None:
            return self.var()  # type: ignore[return-value]  # like an array, see graph.trace
        one = self._one
        if one is not None and (ctx is None or ctx is one._ctx):
            return one
        return self._check_and_get("_data", ctx)

    def list_data(self) -> list[NDArray]:
        """The arrays in all contexts, in the order given to `initialize`."""
        return list(self._check_and_get("_data", list))

    def grad(self, ctx: Context | None = None) -> NDArray:
        """The gradient in `ctx`, as `data`. RuntimeError when grad_req is 'null'."""
        return self._check_and_get("_grad", ctx)

    def list_grad(self) -> list[NDArray]:
        """The gradients in all contexts."""
        return list(self._check_and_get("_grad", list))

    def list_ctx(self) -> list[Context]:
        """The contexts of the arrays, made or deferred; RuntimeError before `initialize`."""
        if self._data is not None:
            return [data.context for data in self._data]
        if not self._deferred_init:
            raise RuntimeError(f"Parameter '{self.name}'{self._place()} has not been initialized")
        return self._deferred_init[1]

    def _check_and_get(self, what: str, ctx: Any) -> Any:
        """The array in `ctx`, or all with ctx=list; raises the fitting error if there is none."""
        deferred = self._deferred_init  # first: another thread may make the arrays meanwhile
        arrays: list[NDArray] | None = getattr(self, what)
        if arrays is not None:
            if ctx is list:
                return arrays
            if ctx is None:
                if len(arrays) == 1:
                    return arrays[0]
                ctx = current_context()
            for array in arrays:
                if array._ctx is ctx:
                    return array
            raise RuntimeError(
                f"Parameter '{self.name}'{self._place()} was not initialized on context {ctx}. It "
                f"was only initialized on {self.list_ctx()}."
            )
        if self._data is not None:
            raise RuntimeError(
                f"Cannot get gradient array for Parameter '{self.name}' because grad_req='null'"
            )
        if deferred:
            raise DeferredInitializationError(
                f"Parameter '{self.name}'{self._place()} has not been initialized yet because "
                "initialization was deferred. Actual initialization happens during the first "
                "forward pass. Please pass one batch of data through the network before accessing "
                "Parameters. You can also avoid deferred initialization by specifying in_units, "
                "num_features, etc., for network layers."
            )
        raise RuntimeError(
            f"Parameter '{self.name}'{self._place()} has not been initialized. Note that you "
            "should initialize parameters and create Trainer with Block.collect_params() instead "
            "of Block.params because the later does not include Parameters of nested child Blocks"
        )

    def set_data(self, data: Any) -> None:
        """Write `data` into the arrays in place; while deferred, keep `data` as the first value."""
        if not isinstance(data, NDArray):
            data = nd.array(data, dtype=self._dtype)
        self.shape = data.shape
        if self._data is None:
            assert self._deferred_init, (
                f"Parameter '{self.name}'{self._place()} has not been initialized"
            )
            self._deferred_init = (*self._deferred_init[:3], data.astype(self._dtype))
            return
        trainer = self._trainer
        if trainer and trainer._update_on_kvstore and self not in trainer._params_to_init:
            # The store holds its own copies, which would overwrite the new values.
            trainer._reset_kvstore()
        for array in self._data:
            array[:] = data

    def zero_grad(self) -> None:
        """Set the gradients to zeros; does nothing without gradients."""
        for grad in self._grad or ():
            grad[:] = 0

    def reset_ctx(self, ctx: Context | list[Context]) -> None:
        """Move the parameter to other contexts; copies that differ are averaged. ValueError before
        `initialize`."""
        contexts = _contexts(ctx)
        if self._data is not None:
            with autograd.pause():
                self._init_impl(self._reduce(), contexts)
        elif self._deferred_init:
            init, _, default_init, data = self._deferred_init
            self._deferred_init = (init, contexts, default_init, data)
        else:
            raise ValueError(
                f"Cannot reset context for Parameter '{self.name}' because it has not been "
                "initialized."
            )

    def cast(self, dtype: Any) -> None:
        """Convert the arrays and gradients to `dtype`."""
        as_dtype(dtype)  # a wrong one is refused here
        self._dtype = dtype
        if self._data is None:
            return
        with autograd.pause():
            grads = self._grad and [grad.astype(dtype) for grad in self._grad]
            self._adopt([data.astype(dtype) for data in self._data], grads)

    def _reduce(self) -> NDArray:
        """The value on the CPU: the mean of all copies, or the only copy itself if it is there."""
        copies = [data.as_in_context(cpu()) for data in self.list_data()]
        return copies[0] if len(copies) == 1 else nd.add_n(*copies) / len(copies)

    def var(self) -> Symbol:
        """The variable that represents the parameter in graphs: in each trace one, otherwise always
        the same. Its labels are MXNet's, which MXNet reads from exported files.

        >>> weight = Parameter("dense0_weight", shape=(4, 0), wd_mult=0)
        >>> weight.var().attr("__shape__"), weight.var().attr("wd_mult")
        ('(4, 0)', '0')
        """
        trace = modes.tracing
        if trace is not None:
            if not shape_is_known(self.shape):
                self._check_and_get("_data", None)  # raises the fitting error
            spec = Spec(self.shape, np.dtype(self._dtype))  # type: ignore[arg-type]
            return trace.parameter(self, spec, self._labels())
        if self._var is None:
            labels = AttrScope.current.get(self._labels())
            self._var = Symbol(((Node(None, self.name, labels=labels), 0),))
        return self._var

    def _labels(self) -> dict[str, str]:
        """The labels that MXNet writes for a parameter in graphs."""
        how = {"lr_mult": str(self.lr_mult), "wd_mult": str(self.wd_mult)}
        labels = {} if self.shape is None else {"__shape__": str(self.shape)}
        labels |= {
            "__dtype__": str(flag_of(as_dtype(self._dtype))),
            "__storage_type__": "0",
            **{f"__{name}__": value for name, value in how.items()},
            **how,
        }
        if self.init is not None:
            labels["__init__"] = self.init if isinstance(self.init, str) else self.init.dumps()
        return labels

    row_sparse_data = LeftOut()
    list_row_sparse_data = LeftOut()


def _contexts(ctx: Contexts) -> list[Context]:
    if ctx is None:
        return [current_context()]
    return [ctx] if isinstance(ctx, Context) else list(dict.fromkeys(ctx))
