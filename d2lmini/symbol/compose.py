"""Calls of ops on Symbols by name: `sym.FullyConnected(data, num_hidden=10, name="fc")`.

What is not given becomes a variable, named after the node:

>>> from d2lmini import sym
>>> fc = sym.FullyConnected(sym.var("data"), num_hidden=10, name="fc")
>>> fc.list_arguments()
['data', 'fc_weight', 'fc_bias']

Every op asks for its required inputs; of the optional ones `WANTED` says which a call with such
attributes uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.ops.core import Op, Value
from d2lmini.symbol.attribute import AttrScope
from d2lmini.symbol.naming import NameManager
from d2lmini.symbol.node import Node
from d2lmini.symbol.symbol import Symbol, captured, op_hint, tracer, written


def _unless_no_bias(attrs: dict[str, Any]) -> tuple[str, ...]:
    return () if attrs["no_bias"] else ("bias",)


#: op -> (attributes -> names of the optional inputs that are made when they are not given).
WANTED: dict[str, Callable[[dict[str, Any]], tuple[str, ...]]] = {
    "FullyConnected": _unless_no_bias,
    "Convolution": _unless_no_bias,
    "Deconvolution": _unless_no_bias,
    "LeakyReLU": lambda attrs: ("gamma",) if attrs["act_type"] == "prelu" else (),
    "RNN": lambda attrs: (
        *(("state_cell",) if attrs["mode"] == "lstm" else ()),
        *(("sequence_length",) if attrs["use_sequence_length"] else ()),
    ),
    "SequenceMask": lambda attrs: ("sequence_length",) if attrs["use_sequence_length"] else (),
    "SequenceLast": lambda attrs: ("sequence_length",) if attrs["use_sequence_length"] else (),
    "SequenceReverse": lambda attrs: ("sequence_length",) if attrs["use_sequence_length"] else (),
    "CTCLoss": lambda attrs: (
        *(("data_lengths",) if attrs["use_data_lengths"] else ()),
        *(("label_lengths",) if attrs["use_label_lengths"] else ()),
    ),
}


def variable(name: str, **labels: str) -> Symbol:
    """A variable with these labels and those of the scope."""
    return Symbol(((Node(None, name, labels=AttrScope.current.get(labels)), 0),))


def composed(op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A new node of `op`: inputs by position or name, what is missing as variables."""
    name, labels = kwargs.pop("name", None), kwargs.pop("attr", None)
    name = NameManager.current.get(name, op_hint(op))
    if op.variadic:
        inputs, attrs = op.bind(args, kwargs)
        return written(op, inputs, attrs, name, labels, named=True)
    names = op.input_names
    given = list(args[: len(names)])
    # An optional input that was left out makes room for attributes by position.
    while len(given) > op.n_required and not (given[-1] is None or isinstance(given[-1], Value)):
        given.pop()
    extra = args[len(given) :]
    for i, x in enumerate(given):
        if x is not None and not isinstance(x, Symbol):
            captured(op, x)
        if names[i] in kwargs:
            raise TypeError(f"{op.name}: input {names[i]!r} was given twice")
    given += [kwargs.pop(each, None) for each in names[len(given) :]]
    attrs = op.bind_attributes(extra, kwargs, len(args))
    wanted = (*names[: op.n_required], *WANTED.get(op.name, _nothing)(attrs))
    for i, each in enumerate(names):
        if given[i] is None and each in wanted:
            if tracer.capture is not None:
                raise TypeError(f"{op.name}: input {each!r} is missing; usage: {op.usage}")
            given[i] = variable(f"{name}_{each}", **_passed_on(labels))
    while given and given[-1] is None:
        given.pop()
    return written(op, tuple(given), attrs, name, labels, named=True)


def _nothing(attrs: dict[str, Any]) -> tuple[str, ...]:
    return ()


def _passed_on(labels: dict[str, str] | None) -> dict[str, str]:
    """Labels of a node that its own variables get too."""
    return {k: v for k, v in (labels or {}).items() if not k.startswith("__")}
