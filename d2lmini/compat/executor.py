"""Executor: a Symbol bound to arrays; `forward` computes the outputs, `backward` the gradients.

Nets were run this way before Gluon; old programs and saved models still are. A bound Symbol is a
`CachedOp` whose inputs and outputs are always the same arrays: each `forward` writes its results
into the same output arrays.

>>> from d2lmini import cpu, nd, sym
>>> x, w = sym.var("x"), sym.var("w")
>>> ex = (x * w).bind(cpu(), {"x": nd.array([1, 2]), "w": nd.array([3, 4])},
...                   args_grad={"w": nd.zeros(2)})
>>> ex.forward(is_train=True)[0].asnumpy()
array([3., 8.], dtype=float32)
>>> ex.backward(nd.ones(2))
>>> ex.grad_dict["w"].asnumpy()
array([1., 2.], dtype=float32)

`simple_bind` makes the arrays itself, from shapes:

>>> ex = sym.FullyConnected(sym.var("x"), num_hidden=3, name="fc").simple_bind(cpu(), x=(4, 2))
>>> {name: array.shape for name, array in ex.arg_dict.items()}
{'x': (4, 2), 'fc_weight': (3, 2), 'fc_bias': (3,)}

After `mxnet.executor.Executor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini import autograd
from d2lmini.autograd.scopes import scope
from d2lmini.base import LeftOut, MXNetError
from d2lmini.context import Context
from d2lmini.graph.cached_op import CachedOp
from d2lmini.graph.ir import spec_of
from d2lmini.graph.typed import infer_types
from d2lmini.ndarray import NDArray, zeros
from d2lmini.symbol import Symbol, naming
from d2lmini.symbol.infer import infer_shape_partial, infer_type_partial

Arrays = Sequence[Any]


class Executor:
    """A Symbol bound to arrays; made by `Symbol.bind` and `Symbol.simple_bind`.

    arg_arrays, grad_arrays, aux_arrays  in the order of `list_arguments`, and of
        `list_auxiliary_states`; None for a gradient that is not wanted
    outputs                              in the order of `list_outputs`
    arg_dict, grad_dict, aux_dict            the same by name
    """

    def __init__(
        self, symbol: Symbol, ctx: Context, args: Arrays, grads: Arrays, reqs: Sequence[str],
        aux: Arrays,
    ):  # fmt: skip
        self._symbol = symbol
        self._ctx = ctx
        self._reqs = list(reqs)
        self.arg_arrays = list(args)
        self.grad_arrays = list(grads)
        self.aux_arrays = list(aux)
        self.arg_dict = _by_name(symbol.list_arguments(), self.arg_arrays)
        self.grad_dict = _by_name(symbol.list_arguments(), self.grad_arrays)
        self.aux_dict = _by_name(symbol.list_auxiliary_states(), self.aux_arrays)
        self._op = CachedOp(symbol, name=symbol.name or "executor")
        self._heads: list[NDArray] | None = None
        self._inputs = self._list_arrays()
        self.outputs: list[NDArray] = self._outputs()

    def _list_arrays(self) -> list[NDArray]:
        """The arrays in the order of the graph's variables, under the executor's own handles: on
        the tape each handle refers to its gradient."""
        nodes, states = naming.variables(self._symbol._entries)
        found = {node: self._own(x) for node, x in zip(states, self.aux_arrays)}
        for node, x, g, req in zip(nodes, self.arg_arrays, self.grad_arrays, self._reqs):
            found[node] = self._own(x)
            if g is not None and req != "null":
                autograd.mark_variables([found[node]], [self._own(g)], req)
        return [found[node] for node in self._op.variables]

    def _own(self, x: NDArray) -> NDArray:
        alias = x._alias(None)
        alias._ctx = self._ctx  # it may be another cpu(i): the memory is the same
        return alias

    def _outputs(self) -> list[NDArray]:
        """Arrays for the outputs. MXNetError if the inputs do not fit."""
        entries = self._symbol._entries
        specs = {node: x._spec for node, x in zip(self._op.variables, self._inputs)}
        typed = infer_types(entries, specs, training=False)[1]
        return [zeros(s.shape, self._ctx, dtype=s.dtype) for s in map(spec_of, typed)]

    # -- running -----------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Compute the outputs, after writing `kwargs` (arrays by name) into the arguments.

        is_train: in training mode, and keep what backward needs. TypeError for an unknown name,
        ValueError for a wrong shape and for other values than arrays.
        """
        for name, value in kwargs.items():
            if name not in self.arg_dict:
                raise TypeError(f"Unknown argument {name}; there are {list(self.arg_dict)}")
            x = self.arg_dict[name]
            if not hasattr(value, "shape"):
                raise ValueError(
                    f"only accepts kwargs with NDArray values: {name} is {type(value).__name__}"
                )
            if x.shape != value.shape:
                raise ValueError(
                    f"Shape not match! Argument {name}, need: {x.shape}, received: {value.shape}"
                )
            x[:] = value
        self._compute(is_train, is_train)
        return self.outputs

    def _compute(self, training: bool, recording: bool) -> None:
        self._heads = None
        with scope(recording, training):
            self._op(*self._inputs, out=self.outputs)
        if recording:
            self._heads = [y._alias(y._node) for y in self.outputs]
            for y in self.outputs:
                y._node = None

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Compute the gradients of the arguments that want one, each into its array.

        out_grads: gradients of the outputs: an NDArray, a list, or a dict by output name. An
        output that is a loss (SoftmaxOutput, make_loss, ...) needs none. MXNetError if one is
        missing or has the wrong shape.
        """
        grads = self._head_grads(out_grads)
        if self._heads is None:  # after a forward in prediction mode
            self._compute(False, True)
        assert self._heads is not None
        pairs = [(y, g) for y, g in zip(self._heads, grads) if y._node is not None]
        if pairs:
            autograd.backward(
                [y for y, _ in pairs], [g for _, g in pairs], retain_graph=True, train_mode=is_train
            )

    def _head_grads(self, out_grads: Any) -> list[NDArray | None]:
        names = self._symbol.list_outputs()
        if isinstance(out_grads, Mapping):
            given = [out_grads[name] for name in names]
        elif isinstance(out_grads, NDArray):
            given = [out_grads]
        else:
            given = list(out_grads or ())
        if len(given) > len(names):
            raise MXNetError(f"backward: {len(given)} head gradients for {len(names)} outputs")
        given += [None] * (len(names) - len(given))
        for i, ((node, _), name, g) in enumerate(zip(self._symbol._entries, names, given)):
            if g is None:
                if node.op is None or not node.op.is_loss:
                    raise MXNetError(
                        f"backward: output {name!r} is no loss and has no head gradient: give "
                        "backward(out_grads), or make it a loss with sym.make_loss"
                    )
                continue
            y = self.outputs[i]
            if g.shape != y.shape:
                raise MXNetError(f"backward: {name!r} has shape {y.shape}, its gradient {g.shape}")
            given[i] = self._own(g.astype(y.dtype, copy=False).as_in_context(self._ctx))
        return given

    debug_str, reshape, set_monitor_callback = LeftOut(), LeftOut(), LeftOut()

    # -- the arrays --------------------------------------------------------------------------------

    def copy_params_from(
        self, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any] | None = None,
        allow_extra_params: bool = False,
    ) -> None:  # fmt: skip
        """Write arrays, by name, into the arguments and the auxiliary states. ValueError for an
        unknown name, unless extra names are allowed."""
        for given, own, what in (
            (arg_params, self.arg_dict, "arguments"),
            (aux_params or {}, self.aux_dict, "auxiliary states"),
        ):
            for name, value in given.items():
                if name in own:
                    own[name][:] = value
                elif not allow_extra_params:
                    raise ValueError(f"Find name {name!r} that is not in the {what}: {list(own)}")


def _by_name(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    if len(set(names)) != len(names):
        raise ValueError(f"Duplicate names detected, {names}")
    return dict(zip(names, arrays))


# -- Symbol.bind -----------------------------------------------------------------------------------


def bind(
    self: Symbol, ctx: Context, args: Any, args_grad: Any = None, grad_req: Any = "write",
    aux_states: Any = None, group2ctx: Mapping[str, Context] | None = None,
    shared_exec: Executor | None = None,
) -> Executor:  # fmt: skip
    """The Symbol bound to arrays on `ctx`.

    args, aux_states: lists in the order of `list_arguments` and `list_auxiliary_states`, or dicts.
    args_grad: arrays for the gradients; a gradient without an array is not computed. grad_req:
    'write', 'add' or 'null' for all, or a list or dict of these. shared_exec is accepted and
    ignored: all memory comes from one pool.

    ValueError for missing arrays; MXNetError for shapes that do not fit; NotImplementedError for
    group2ctx.
    """
    _refuse(group2ctx)
    names, states = self.list_arguments(), self.list_auxiliary_states()
    arrays = _to_list("args", names, args)
    grads = _to_list("args_grad", names, {} if args_grad is None else args_grad, None)
    aux = _to_list("aux_states", states, [] if aux_states is None else aux_states)
    for name, x, g in zip(names, arrays, grads):
        if g is not None and g._spec != x._spec:
            raise MXNetError(f"bind: the gradient of {name} has {g._spec}, it has {x._spec}")
    return Executor(self, ctx, arrays, grads, _requests(names, grad_req), aux)


def simple_bind(
    self: Symbol, ctx: Context, grad_req: Any = "write", type_dict: Mapping[str, Any] | None = None,
    stype_dict: Mapping[str, str] | None = None,
    group2ctx: Mapping[str, Context] | None = None, **kwargs: Any,
) -> Executor:  # fmt: skip
    """The Symbol bound to new arrays, filled with zeros, for given shapes of its inputs.

    kwargs: shapes by name; names that the Symbol does not have are ignored. type_dict: dtypes by
    name, float32 where none can be inferred. grad_req: as in `bind`; a name that a dict does not
    contain gets no gradient.

    RuntimeError if the shapes do not suffice or do not fit, and for a wrong grad_req; MXNetError
    for sparse storage; NotImplementedError for memory of another Executor (`shared_exec` and its
    like) and for group2ctx.
    """
    _refuse(group2ctx, [name for name in kwargs if name.startswith("shared_")])
    if set((stype_dict or {}).values()) - {"default"}:
        raise MXNetError(f"simple_bind: arrays have the storage type 'default', got {stype_dict}")
    names, states = self.list_arguments(), self.list_auxiliary_states()
    known = {name: shape for name, shape in kwargs.items() if name in names + states}
    try:
        found = infer_shape_partial(self, **known)
        types = infer_type_partial(self, **(type_dict or {}))
    except (MXNetError, TypeError, ValueError) as problem:
        raise RuntimeError(f"simple_bind error. Arguments:\n{kwargs}\n{problem}") from None
    try:
        reqs = _requests(names, grad_req)
    except ValueError as problem:
        raise RuntimeError(f"simple_bind error: {problem}") from None
    missing = [n for n, s in zip(names + states, found[0] + found[2]) if not s or 0 in s]
    if missing:
        raise RuntimeError(
            f"simple_bind error. Arguments:\n{kwargs}\nshapes of these do not follow, give them "
            f"or more of the others: {', '.join(missing)}"
        )

    args, aux = (
        [zeros(shape, ctx, dtype=dtype or np.float32) for shape, dtype in zip(shapes, dtypes)]
        for shapes, dtypes in ((found[0], types[0]), (found[2], types[2]))
    )
    grads = [
        None if req == "null" else zeros(x.shape, x.context, dtype=x.dtype)
        for req, x in zip(reqs, args)
    ]
    return Executor(self, ctx, args, grads, reqs, aux)


def _refuse(group2ctx: Any, shared: Sequence[str] = ()) -> None:
    if group2ctx or shared:
        raise NotImplementedError(
            "bind: group2ctx and memory of another Executor are left out of d2lmini; as_in_context "
            "moves arrays between devices, and bind takes arrays of another Executor"
        )


def _in_order(what: str, names: Sequence[str], given: Any, *absent: Any) -> list[Any]:
    """A value for each of `names`, from a list or a dict; `absent` for one that a dict has not."""
    if isinstance(given, Mapping):
        lacking = [name for name in names if name not in given]
        if lacking and not absent:
            raise ValueError(f"key `{lacking[0]}` is missing in `{what}`")
        given = [given.get(name, *absent) for name in names]
    elif not isinstance(given, (list, tuple)):
        raise TypeError(f"{what}: expected a list or a dict, got {given!r:.100}")
    if len(given) != len(names):
        raise ValueError(f"{what}: {len(given)} of them for {names}")
    return list(given)


def _to_list(what: str, names: Sequence[str], given: Any, *absent: None) -> list[Any]:
    """Arrays in the order of `names`."""
    arrays = _in_order(what, names, given, *absent)
    for name, x in zip(names, arrays):
        if not isinstance(x, NDArray) and not (x is None and absent):
            raise TypeError(f"{what}: {name} must be an NDArray, got {type(x).__name__}")
    return arrays


def _requests(names: Sequence[str], grad_req: Any) -> list[str]:
    if isinstance(grad_req, str):
        grad_req = [grad_req] * len(names)
    reqs = _in_order("grad_req", names, grad_req, "null")
    for req in reqs:
        if req not in ("write", "add", "null"):
            raise ValueError(f"grad_req must be in ('write', 'add', 'null'), got {req!r}")
    return reqs


Symbol.bind = Symbol._bind = bind  # type: ignore[attr-defined]
Symbol.simple_bind = Symbol._simple_bind = simple_bind  # type: ignore[attr-defined]
