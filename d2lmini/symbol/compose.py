"""Calls of ops on Symbols by name: `sym.FullyConnected(data, num_hidden=10, name="fc")`.

A missing input becomes a variable, named after the node:

>>> from d2lmini import sym
>>> fc = sym.FullyConnected(sym.var("data"), num_hidden=10, name="fc")
>>> fc.list_arguments()
['data', 'fc_weight', 'fc_bias']

Every op has its required inputs; `op.optional` tells which optional inputs a call with these
attributes uses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from d2lmini.base import ArgumentTypeError, MXNetError
from d2lmini.base.dtypes import flag_of
from d2lmini.graph.ir import Node
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Op, as_dtype
from d2lmini.ops.facts import Facts
from d2lmini.symbol.naming import HIDDEN, AttrScope, NameManager, labels_of, text_of
from d2lmini.symbol.symbol import Symbol, apply_op, tracer


def initial_label(op: Op, name: str) -> dict[str, str]:
    """The label with the initializer of the variable for a missing input."""
    return {"__init__": json.dumps(op.initial[name])} if name in op.initial else {}


def variable(
    name: str,
    attr: dict[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    **kwargs: Any,
) -> Symbol:
    """A variable: `sym.var("x")`, with known facts about it.

    attr        your own labels, strings by name; keywords of the form __name__ are labels too
    shape       as far as known: 0 stands for an unknown size
    dtype       the dtype that `infer_type` assumes
    lr_mult, wd_mult   factors of learning rate and weight decay, for optimizers
    init        an Initializer, or its name, that fills the variable
    stype       only 'default': d2lmini's arrays are dense

    All are kept as labels ('__shape__', 'lr_mult', ...), together with those of the `AttrScope`.
    """
    if not isinstance(name, str):
        raise TypeError(f"var: a variable's name is a string, got {name!r}")
    labels = dict(AttrScope.current.get(attr))
    if shape is not None:
        labels["__shape__"] = text_of((shape,) if isinstance(shape, int) else tuple(shape))
    if dtype is not None:
        try:
            labels["__dtype__"] = str(flag_of(as_dtype(dtype)))
        except TypeError as problem:
            raise MXNetError(f"dtype: {problem}") from None
    for key, value in (("lr_mult", lr_mult), ("wd_mult", wd_mult)):
        if value is not None:
            labels[key] = str(value)
    if init is not None:
        labels["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        check_storage(stype)
        labels["__storage_type__"] = "0"
    for key, value in kwargs.items():
        if not _is_label(key):
            raise ValueError(
                f"var: {key}= is not an argument; labels of your own come in attr={{...}}, or "
                f"begin and end with two underscores: __{key}__="
            )
        labels[key] = str(value)
    return Symbol(((Node(None, name, labels=labels_of(labels)), 0),))


def _said(name: str, value: Any) -> str:
    """What a graph keeps of an attribute that a caller wrote: 2 for a float stays '2'."""
    if name == "dtype" and value is None:
        return "float64"
    return str(value) if isinstance(value, (list, tuple)) else text_of(value)


def compose(op: Op, args: tuple, kwargs: dict[str, Any], hint: str | None = None) -> Any:
    """A new node of `op`: inputs by position or name, missing inputs as variables. hint: the
    node's name before its number, if the caller gives no name."""
    name, labels = kwargs.pop("name", None), {**(kwargs.pop("attr", None) or {})}
    for key in [key for key in kwargs if key in HIDDEN or _is_label(key)]:
        labels[key] = str(kwargs.pop(key))
    if kwargs.pop("out", None) is not None:
        raise MXNetError(f"{op.name}: out= is not supported for Symbols; use the result")
    name = NameManager.current.get(name, hint or op.name.lower())
    in_trace = tracer.capture is not None
    if not op.symbolic and not in_trace:
        raise MXNetError(
            f"{op.name}: MXNet makes no Symbol of this update; call nd.{op.name} on arrays"
        )
    inputs, extra = op.sort_inputs(args, kwargs)
    attrs = op.bind_attributes(extra, kwargs, len(args))
    words = {**dict(zip(op.attr_names, extra)), **kwargs}
    said = {key: _said(key, words[key]) for key in op.attr_names if key in words}
    names: Sequence[str] = op.input_names
    wanted: Sequence[str] = (*names[: op.n_required], *op.optional(attrs))
    if op.variadic:
        names = wanted = () if op.counted_inputs is None else op.counted_inputs(attrs)
        if names and len(inputs) > len(names):
            raise MXNetError(
                f"{op.name}: these attributes need {len(names)} Symbols, got {len(inputs)}"
            )
        inputs += [None] * (len(names) - len(inputs))
    for i, (arg, x) in enumerate(zip(names, inputs)):
        if in_trace:
            if x is None and i < op.n_required:
                raise ArgumentTypeError(f"{op.name}: input {arg!r} is missing; usage: {op.usage}")
        elif x is None:
            if arg in wanted:  # as in MXNet, the variable carries the attributes of the call
                inputs[i] = variable(f"{name}_{arg}", {**said, **labels, **initial_label(op, arg)})
        elif arg not in wanted and op.optional is not Facts.optional:
            raise MXNetError(f"{op.name}: these attributes use no {arg!r}; leave it out")
        elif arg in op.initial and isinstance(x, Symbol):
            _label_initial(x, initial_label(op, arg))
    while inputs and inputs[-1] is None:
        inputs.pop()
    if op.variadic and not inputs:
        raise ArgumentTypeError(f"{op.name}: expected at least one Symbol; usage: {op.usage}")
    return apply_op(op, tuple(inputs), attrs, name, labels, said)


def _label_initial(given: Symbol, label: dict[str, str]) -> None:
    """As in MXNet, a variable without an initializer gets that of the input for which it stands."""
    node = given._entry[0]
    if node.op is None and "__init__" not in node.labels:
        node.labels = {**node.labels, **label}


def _is_label(key: str) -> bool:
    return key.startswith("__") and key.endswith("__")
