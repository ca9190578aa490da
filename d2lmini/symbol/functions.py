"""Calls of ops on Symbols by name: the functions of `sym`, its sub-namespaces, methods of Symbols.

A missing input becomes a variable, named after the node:

>>> from d2lmini import sym
>>> fc = sym.FullyConnected(sym.var("data"), num_hidden=10, name="fc")
>>> fc.list_arguments()
['data', 'fc_weight', 'fc_bias']

Every op has its required inputs; `op.optional` tells which optional inputs a call with these
attributes uses.

>>> with sym.NameManager():
...     a, b = sym.var("a"), sym.var("b")
...     print(sym.linalg.gemm2(a, b), sym.SwapAxis(a), sym.maximum(a, 0), sym.arange(3))
...     print(a.reshape((0, -1)).softmax(name="p").get_internals().list_outputs())
<Symbol gemm20> <Symbol swapaxis0> <Symbol _maximumscalar0> <Symbol _arange0>
['a', 'reshape0_output', 'p_output']

A function names its node after the name it was called by: 'swapaxis0' or 'swapaxes0'. A method is
the function of the same name. Arrays have the same methods, so one `hybrid_forward` works for both.
The nodes of `sym.random` draw new numbers at each run of the graph:

>>> sym.random.normal(0, 0.1, shape=(2, 3)).infer_shape()
([], [(2, 3)], [])
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from d2lmini.base import ArgumentTypeError, MXNetError
from d2lmini.base.dtypes import flag_of
from d2lmini.graph.ir import Node
from d2lmini.ndarray import functions as nd
from d2lmini.ndarray.ndarray import target_shape
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Op, as_dtype, modes, registry
from d2lmini.ops.facts import Facts
from d2lmini.ops.fluent import FUNCTIONS, METHODS
from d2lmini.ops.signature import name_function, named
from d2lmini.symbol.naming import HIDDEN, AttrScope, NameManager, is_label, labels_of, text_of
from d2lmini.symbol.symbol import Symbol, apply_op

Function = Callable[..., Any]


def variable(
    name: str, attr: dict[str, str] | None = None, shape: Any = None, lr_mult: float | None = None,
    wd_mult: float | None = None, dtype: Any = None, init: Any = None, stype: str | None = None,
    **kwargs: Any,
) -> Symbol:  # fmt: skip
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
    check_storage(stype)
    facts = {
        "__shape__": (shape,) if isinstance(shape, int) else shape and tuple(shape),
        "__dtype__": None if dtype is None else flag_of(as_dtype(dtype)),
        "lr_mult": lr_mult,
        "wd_mult": wd_mult,
        "__init__": init if init is None or isinstance(init, str) else init.dumps(),
        "__storage_type__": None if stype is None else 0,
    }
    labels = dict(AttrScope.current.get(attr))
    labels |= {key: text_of(value) for key, value in facts.items() if value is not None}
    for key, value in kwargs.items():
        if not is_label(key):
            raise ValueError(
                f"var: {key}= is not an argument; labels of your own come in attr={{...}}, or "
                f"begin and end with two underscores: __{key}__="
            )
        labels[key] = str(value)
    return Symbol(((Node(None, name, labels=labels_of(labels)), 0),))


# -- a call of an op -------------------------------------------------------------------------------


def compose(op: Op, args: tuple, kwargs: dict[str, Any], hint: str | None = None) -> Any:
    """A new node of `op`: inputs by position or name, missing inputs as variables. hint: the
    node's name before its number, if the caller gives no name."""
    name, labels = kwargs.pop("name", None), {**(kwargs.pop("attr", None) or {})}
    for key in [key for key in kwargs if key in HIDDEN or is_label(key)]:
        labels[key] = str(kwargs.pop(key))
    if kwargs.pop("out", None) is not None:
        raise MXNetError(f"{op.name}: out= is not supported for Symbols; use the result")
    for word in ("inplace", "copy"):  # arrays take these: whether the result shares the memory
        kwargs.pop(word, None)
    name = NameManager.current.get(name, hint or op.name.lower())
    in_trace = modes.tracing is not None
    if not op.symbolic and not in_trace:
        raise MXNetError(
            f"{op.name}: MXNet makes no Symbol of this update; call nd.{op.name} on arrays"
        )
    inputs, extra = op.sort_inputs(args, kwargs)
    attrs = op.bind_attributes(extra, kwargs, len(args))
    words = {**dict(zip(op.attr_names, extra)), **kwargs}
    said = {key: _said(key, words[key]) for key in op.attr_names if key in words}
    wanted = (*op.input_names[: op.n_required], *op.optional(attrs))
    for i, (arg, x) in enumerate(zip(() if op.variadic else op.input_names, inputs)):
        initial = {"__init__": json.dumps(op.initial[arg])} if arg in op.initial else {}
        if in_trace:
            if x is None and i < op.n_required:
                raise ArgumentTypeError(f"{op.name}: input {arg!r} is missing; usage: {op.usage}")
        elif x is None:
            if arg in wanted:  # as in MXNet, the variable carries the attributes of the call
                inputs[i] = variable(f"{name}_{arg}", {**said, **labels, **initial})
        elif arg not in wanted and op.optional is not Facts.optional:
            raise MXNetError(f"{op.name}: these attributes use no {arg!r}; leave it out")
        elif isinstance(x, Symbol) and x._entry[0].op is None:
            # As in MXNet, a variable without an initializer gets that of the input.
            x._entry[0].labels = {**initial, **x._entry[0].labels}
    while inputs and inputs[-1] is None:
        inputs.pop()
    if op.variadic and not inputs:
        raise ArgumentTypeError(f"{op.name}: expected at least one Symbol; usage: {op.usage}")
    return apply_op(op, tuple(inputs), attrs, name, labels, said)


def _said(name: str, value: Any) -> str:
    """What a graph keeps of an attribute that a caller wrote: 2 for a float stays '2'."""
    if name == "dtype" and value is None:
        return "float64"
    return str(value) if isinstance(value, (list, tuple)) else text_of(value)


#: Functions whose nodes have another name in MXNet.
HINTS = {"split_v2": "_split_v2"}


def function_of(op: Op, name: str, space: str = "") -> Function:
    """The op as a function on Symbols with the name `name`, found at `sym.SPACE.NAME`."""
    hint = HINTS.get(name) or name.lower()

    def function(*args: Any, **kwargs: Any) -> Any:
        return compose(op, args, kwargs, hint)

    return name_function(function, op, "d2lmini.symbol", f"{space}{name}")


class Namespace(nd.Namespace):
    """Ops under one of the prefixes, as functions on Symbols."""

    def _wrap_op(self, op: Op, name: str) -> Function:
        return function_of(op, name, f"{self.__name__.partition('.')[2]}.")


# -- nodes without inputs, and groups --------------------------------------------------------------


def _creator(op: Op, name: str) -> Function:
    """The function that makes a node without inputs, float32 by default. A size of 0 in its shape
    is unknown; shape inference determines it, and the shape of random numbers that is not given. A
    net that is traced draws one number, as nd.random does."""

    def function(*args: Any, **kwargs: Any) -> Symbol:
        words = {**dict(zip(op.attr_names, args)), **kwargs}
        if not op.random:
            words = {**op.defaults, **words}
            words["dtype"] = words["dtype"] or "float32"
        elif words.get("shape") is None:
            words["shape"] = () if modes.tracing is None else 1
        return compose(op, (), words)

    return name_function(function, op, "d2lmini.symbol", name)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Every element is `val`."""
    words = {"shape": shape, "value": float(val), "dtype": dtype or "float32"}
    return compose(registry["_full"], (), {**words, **kwargs})


def Group(symbols: Iterable[Symbol]) -> Symbol:
    """All outputs of these Symbols as one Symbol; TypeError for other arguments."""
    given = [] if isinstance(symbols, Symbol) else list(symbols)
    if not given or not all(isinstance(s, Symbol) for s in given):
        raise TypeError(f"Group: expected a list of Symbols, got {symbols!r}")
    kind = type(given[0])
    return kind(tuple([entry for s in given for entry in s._entries]))


def public_functions() -> dict[str, Function]:
    """The public functions of `sym`: the ops whose names do not begin with an underscore, the
    functions that also take numbers, and those that make nodes and groups."""
    ops = {n: function_of(op, n) for n, op in registry.items() if not n.startswith("_")}
    created = {
        n: _creator(registry[f"_{n}"], n) for n in ("zeros", "ones", "arange", "linspace", "eye")
    }
    others: dict[str, Any] = {"full": full, "concatenate": nd.concatenate, "Group": Group}
    return {**ops, **FUNCTIONS, "pow": FUNCTIONS["power"], **created, **others}


# -- random numbers --------------------------------------------------------------------------------


def _randn(*shape: int, loc: float = 0, scale: float = 1, **kwargs: Any) -> Symbol:
    """`normal` with the sizes as arguments: randn(2, 3)."""
    return random.normal(loc, scale, shape, **kwargs)


def _multinomial(data, shape=(), get_prob=True, dtype="int32", **kwargs) -> Symbol:
    """Indices drawn with the probabilities in the last axis of data; with get_prob (the default
    here, as in MXNet) also the log of each index's probability, as a second output."""
    return compose(registry["_sample_multinomial"], (data, shape, get_prob, dtype), kwargs)


random: Any = Namespace("sym.random", "_random_")
random.__file__ = __file__
for _name in ("uniform", "normal", "randint"):
    setattr(random, _name, _creator(registry[f"_random_{_name}"], f"random.{_name}"))
random.randn = named(_randn, "d2lmini.symbol", "random.randn")
random.multinomial = named(_multinomial, "d2lmini.symbol", "random.multinomial")
random.shuffle = function_of(registry["_shuffle"], "_shuffle", "random.")
random.shuffle.__qualname__ = "random.shuffle"

# -- methods ---------------------------------------------------------------------------------------


def reshape(self: Symbol, *shape: Any, **kwargs: Any) -> Any:
    """Reshape: `reshape(2, 3)` or `reshape((2, 3))`, with MXNet's codes."""
    kwargs["shape"] = target_shape(shape, kwargs)
    return compose(registry["reshape"], (self,), kwargs, "reshape")


_methods = {
    **{name: function_of(registry[name], name) for name in METHODS},
    "astype": function_of(registry["Cast"], "cast"),
    "copy": function_of(registry["_copy"], "_copy"),
    "detach": function_of(registry["BlockGrad"], "blockgrad"),
    "reshape": reshape,
}  # fmt: skip
for _name, _function in _methods.items():
    setattr(Symbol, _name, _function)
del _name, _function, _methods
