"""`Symbol.bind` and `Symbol.simple_bind`: from a Symbol to an Executor.

>>> from d2lmini import cpu, sym
>>> ex = sym.FullyConnected(sym.var("x"), num_hidden=3, name="fc").simple_bind(cpu(), x=(4, 2))
>>> {name: array.shape for name, array in ex.arg_dict.items()}
{'x': (4, 2), 'fc_weight': (3, 2), 'fc_bias': (3,)}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.compat.executor import Executor
from d2lmini.context import Context
from d2lmini.ndarray import NDArray, zeros
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import infer_shape_partial, infer_type_partial


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
    _refuse_groups(group2ctx)
    names, states = self.list_arguments(), self.list_auxiliary_states()
    arrays = _to_list("args", names, args)
    grads = _to_list("args_grad", names, {} if args_grad is None else args_grad, missing=True)
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
    _refuse_groups(group2ctx)
    for name in kwargs:
        if name.startswith("shared_"):
            raise NotImplementedError(
                f"simple_bind: {name} is left out of d2lmini; bind takes arrays of another Executor"
            )
    for name, stype in (stype_dict or {}).items():
        if stype != "default":
            raise MXNetError(f"simple_bind: {name} of storage type {stype!r}: there is 'default'")
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


def _refuse_groups(group2ctx: Any) -> None:
    if group2ctx:
        raise NotImplementedError(
            "bind: group2ctx is left out of d2lmini; as_in_context moves arrays between the devices"
        )


def _to_list(what: str, names: Sequence[str], given: Any, missing: bool = False) -> list[Any]:
    """Arrays in the order of `names`, from a list or a dict."""
    if isinstance(given, Mapping):
        absent = [name for name in names if name not in given]
        if absent and not missing:
            raise ValueError(f"key `{absent[0]}` is missing in `{what}`")
        given = [given.get(name) for name in names]
    elif not isinstance(given, (list, tuple)):
        kind = type(given).__name__
        raise TypeError(
            f"{what}: Only accept list of NDArrays or dict of str to NDArray, got {kind}"
        )
    if len(given) != len(names):
        raise ValueError(
            f"Length of {what} does not match the number of arguments: {len(given)} for {names}"
        )
    for name, x in zip(names, given):
        if not isinstance(x, NDArray) and not (x is None and missing):
            raise TypeError(f"{what}: {name} must be an NDArray, got {type(x).__name__}")
    return list(given)


def _requests(names: Sequence[str], grad_req: Any) -> list[str]:
    if isinstance(grad_req, str):
        reqs = [grad_req] * len(names)
    elif isinstance(grad_req, Mapping):
        reqs = [grad_req.get(name, "null") for name in names]
    elif isinstance(grad_req, (list, tuple)):
        reqs = list(grad_req)
        if len(reqs) != len(names):
            raise ValueError(f"{len(reqs)} grad_req for {len(names)} arguments: {names}")
    else:
        raise TypeError(f"grad_req is a str, a list or a dict, got {type(grad_req).__name__}")
    for req in reqs:
        if req not in ("write", "add", "null"):
            raise ValueError(f"grad_req must be in ('write', 'add', 'null'), got {req!r}")
    return reqs


Symbol.bind = Symbol._bind = bind  # type: ignore[attr-defined]
Symbol.simple_bind = Symbol._simple_bind = simple_bind  # type: ignore[attr-defined]
