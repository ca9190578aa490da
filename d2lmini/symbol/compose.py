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
from typing import Any

from d2lmini.base import ArgumentTypeError, MXNetError
from d2lmini.graph.ir import Node
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Op, Value, as_dtype
from d2lmini.ops.facts import Facts
from d2lmini.serialize import flag_of
from d2lmini.symbol.attribute import AttrScope, labels_of
from d2lmini.symbol.attribute_text import HIDDEN, as_given, text_of
from d2lmini.symbol.naming import NameManager
from d2lmini.symbol.symbol import Symbol, apply_op, capture_array, tracer


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
        labels["__dtype__"] = str(dtype_number(dtype))
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


def dtype_number(dtype: Any) -> int:
    """The number of a dtype in MXNet's files. MXNetError for a dtype that MXNet does not have."""
    try:
        flag = flag_of(as_dtype(dtype))
    except TypeError as problem:
        raise MXNetError(f"dtype: {problem}") from None
    assert flag is not None, dtype
    return flag


def has_uses(op: Op) -> bool:
    """Whether the op says which attributes use its optional inputs."""
    return op.optional is not Facts.optional


def _said(name: str, value: Any) -> str:
    """What a graph keeps of an attribute that a caller wrote."""
    return "float64" if name == "dtype" and value is None else as_given(value)


def compose(op: Op, args: tuple, kwargs: dict[str, Any], hint: str | None = None) -> Any:
    """A new node of `op`: inputs by position or name, missing inputs as variables. hint: the
    node's name before its number, if the caller gives no name."""
    name, labels = kwargs.pop("name", None), {**(kwargs.pop("attr", None) or {})}
    for key in [key for key in kwargs if key in HIDDEN or _is_label(key)]:
        labels[key] = str(kwargs.pop(key))
    if kwargs.pop("out", None) is not None:
        raise MXNetError(f"{op.name}: out= is not supported for Symbols; use the result")
    name = NameManager.current.get(name, hint or op.name.lower())
    if not op.symbolic and tracer.capture is None:
        raise MXNetError(
            f"{op.name}: MXNet makes no Symbol of this update; call nd.{op.name} on arrays"
        )
    if op.variadic:
        said = {key: _said(key, kwargs[key]) for key in op.attr_names if key in kwargs}
        if not args and op.counted_inputs is not None:
            inputs: tuple[Any, ...] = ()
            attrs = op.bind_attributes((), kwargs, 0)
        else:
            inputs, attrs = op.bind(args, kwargs)
        if op.counted_inputs is not None and tracer.capture is None:
            inputs += _missing_inputs(op, len(inputs), attrs, name, {**said, **labels})
        if not inputs:
            raise ArgumentTypeError(f"{op.name}: expected at least one Symbol; usage: {op.usage}")
        return apply_op(op, inputs, attrs, name, labels, True, said)
    names = op.input_names
    given = list(args[: len(names)])
    # An omitted optional input leaves its position to the attributes.
    while len(given) > op.n_required and not (given[-1] is None or isinstance(given[-1], Value)):
        given.pop()
    extra = args[len(given) :]
    for i, x in enumerate(given):
        if x is not None and not isinstance(x, Symbol) and tracer.capture is None:
            capture_array(op, x)  # raises the error that advises the user
        if names[i] in kwargs:
            raise ArgumentTypeError(f"{op.name}: input {names[i]!r} was given twice")
    given += [kwargs.pop(name, None) for name in names[len(given) :]]
    words = {**dict(zip(op.attr_names, extra)), **kwargs}
    attrs = op.bind_attributes(extra, kwargs, len(args))
    said = {key: _said(key, words[key]) for key in op.attr_names if key in words}
    wanted = (*names[: op.n_required], *op.optional(attrs))
    for i, arg in enumerate(names):
        if given[i] is not None and arg not in wanted and has_uses(op) and tracer.capture is None:
            raise MXNetError(f"{op.name}: these attributes use no {arg!r}; leave it out")
        if given[i] is not None and arg in op.initial and tracer.capture is None:
            _label_initial(given[i], initial_label(op, arg))
        if given[i] is None and arg in wanted:
            if tracer.capture is not None and i < op.n_required:
                raise ArgumentTypeError(f"{op.name}: input {arg!r} is missing; usage: {op.usage}")
            if tracer.capture is not None:
                continue
            # As in MXNet, the variable carries the attributes of the call.
            given[i] = variable(f"{name}_{arg}", {**said, **labels, **initial_label(op, arg)})
    while given and given[-1] is None:
        given.pop()
    return apply_op(op, tuple(given), attrs, name, labels, True, said)


def _missing_inputs(
    op: Op, count: int, attrs: dict[str, Any], name: str, labels: dict[str, str]
) -> tuple[Symbol, ...]:
    """Variables for the inputs behind the `count` given ones. MXNetError for too many inputs."""
    names = op.counted_inputs(attrs)  # type: ignore[misc]
    if count > len(names):
        raise MXNetError(f"{op.name}: these attributes need {len(names)} Symbols, got {count}")
    return tuple([variable(f"{name}_{missing}", labels) for missing in names[count:]])


def _label_initial(given: Symbol, label: dict[str, str]) -> None:
    """As in MXNet, a variable without an initializer gets that of the input for which it stands."""
    node = given._entry[0]
    if node.op is None and "__init__" not in node.labels:
        node.labels = {**node.labels, **label}


def _is_label(key: str) -> bool:
    return key.startswith("__") and key.endswith("__")
