"""What an op's inputs must be like, for an op whose other inputs or output are known.

An op itself says what comes out of known inputs (`op.infer`). A graph also asks the other way: of
what shape are the weights of a layer whose data is (32, 784)? `RULES` answers for the ops that have
parameters, labels or states; ops that work element by element need no rule.

A rule takes the shapes of the inputs by name (None: nothing is known, 0: this size is not), that
of the output, and the attributes; it returns what it knows of inputs and output ("out").

>>> fc = RULES["FullyConnected"]
>>> fc({"data": (32, 28, 28), "weight": None, "bias": None}, None,
...    {"num_hidden": 10, "flatten": True, "no_bias": False})
{'weight': (10, 784), 'bias': (10,), 'out': (32, 10)}
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from d2lmini.ops.core import Op

#: A shape as far as it is known.
Partial = tuple[int, ...] | None
Inputs = dict[str, Partial]
Rule = Callable[[Inputs, Partial, dict[str, Any]], dict[str, Partial]]

RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def declare(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return declare


# -- layers with parameters ------------------------------------------------------------------------


@_rule("FullyConnected")
def _fully_connected(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, hidden = given["data"], attrs["num_hidden"]
    weight = given.get("weight")
    found: dict[str, Partial] = {"weight": (hidden, 0), "bias": (hidden,)}
    if data:
        inner = prod(data[1:]) if attrs["flatten"] else data[-1]
        found["weight"] = (hidden, inner)
        found["out"] = (data[0], hidden) if attrs["flatten"] else (*data[:-1], hidden)
    if out and data and len(data) == 2:
        found["data"] = (out[0], weight[1] if weight else 0)
    return found


@_rule("Convolution")
def _convolution(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, kernel, filters = given["data"], attrs["kernel"], attrs["num_filter"]
    channels = data[1] // attrs["num_group"] if data and len(data) > 1 else 0
    return {"weight": (filters, channels, *kernel), "bias": (filters,), **_sized(data, attrs)}


@_rule("Deconvolution")
def _deconvolution(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, filters = given["data"], attrs["num_filter"]
    channels = data[1] if data and len(data) > 1 else 0
    weight = (channels, filters // attrs["num_group"], *attrs["kernel"])
    return {"weight": weight, "bias": (filters,), **_sized(data, attrs)}


def _sized(data: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    """What is known of images whose sizes are not: how many, and their channels."""
    if not data or len(data) != 2 + len(attrs["kernel"]):
        return {}
    return {"out": (data[0], attrs["num_filter"], *(0 for _ in attrs["kernel"]))}


@_rule("Embedding")
def _embedding(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, dim = given["data"], attrs["output_dim"]
    found: dict[str, Partial] = {"weight": (attrs["input_dim"], dim)}
    return {**found, "out": (*data, dim)} if data is not None else found


def _norm(axis_of: Callable[[dict[str, Any]], int]) -> Rule:
    """A rule for one number per place along an axis of data, which keeps its shape."""

    def rule(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
        data = given["data"]
        if not data:
            return {"data": out}
        axis = axis_of(attrs)
        per = (data[axis],) if -len(data) <= axis < len(data) else None
        found = {name: per for name in given if name != "data"}
        return {**found, "out": data, "data": out}

    return rule


RULES["BatchNorm"] = RULES["LayerNorm"] = _norm(lambda attrs: attrs["axis"])
RULES["InstanceNorm"] = _norm(lambda attrs: 1)


@_rule("GroupNorm")
def _group_norm(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    # One number per channel will do as well, so a shape that is known stays.
    per = (attrs["num_groups"],)
    found = {name: given[name] or per for name in ("gamma", "beta")}
    return {**found, "out": given["data"], "data": out}


@_rule("LeakyReLU")
def _leaky_relu(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data = given["data"]
    found: dict[str, Partial] = {"out": data, "data": out}
    if attrs["act_type"] == "prelu" and data and given.get("gamma") is None:
        found["gamma"] = (data[1] if len(data) > 1 else 1,)
    return found


@_rule("RNN")
def _rnn(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, hidden = given["data"], attrs["state_size"]
    ways = 2 if attrs["bidirectional"] else 1
    batch = data[1] if data and len(data) == 3 else 0
    state = (ways * attrs["num_layers"], batch, hidden)
    found: dict[str, Partial] = {"state": state, "state_cell": state, "sequence_length": (batch,)}
    if data and len(data) == 3:
        found["out"] = (data[0], batch, ways * hidden)
        gates = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}[attrs["mode"]]
        if data[2]:
            found["parameters"] = (_rnn_size(data[2], hidden, attrs["num_layers"], ways, gates),)
    return found


def _rnn_size(inputs: int, hidden: int, layers: int, ways: int, gates: int) -> int:
    """How many numbers all weights and biases of all layers are."""
    first = inputs + hidden + 2
    further = ways * hidden + hidden + 2
    return ways * gates * hidden * (first + (layers - 1) * further)


# -- labels of outputs -----------------------------------------------------------------------------


@_rule("SoftmaxOutput")
def _softmax_output(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, label = given["data"], given["label"]
    found: dict[str, Partial] = {"out": data, "data": out}
    if data and label is None:
        along = (data[0], *data[2:])
        found["label"] = along if attrs["multi_output"] else data[:-1]
    return found


@_rule("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput")
def _regression(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data, label = given["data"], given["label"]
    found: dict[str, Partial] = {"out": data, "data": out}
    if data and label is None:
        found["label"] = data[:1] if len(data) == 2 and data[1] == 1 else data
    return found


# -- others ----------------------------------------------------------------------------------------


@_rule("SequenceMask", "SequenceLast", "SequenceReverse")
def _sequence(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data = given["data"]
    batch = data[1 - attrs.get("axis", 0)] if data and len(data) > 1 else 0
    return {"sequence_length": (batch,)}


_KEEP_SHAPE = frozenset(
    "Dropout softmax log_softmax softmin SoftmaxActivation L2Normalization LRN "
    "_identity_with_attr_like_rhs".split()
)


def same_shape(op: Op) -> bool:
    """Are all inputs and the output of this op of one shape?"""
    name = op.name
    if name in ("add_n", *_KEEP_SHAPE):
        return True
    if not op.elementwise or op.variadic or name.startswith("broadcast_") or name == "_assign":
        return False
    return not name.endswith(("_update", "_phase1", "_phase2")) and name != "where"


def broadcasts(op: Op) -> bool:
    """Is it an op on a pair that an operator such as + stands for?"""
    return op.elementwise and op.name.startswith("broadcast_") and len(op.input_names) == 2


# -- dtypes ----------------------------------------------------------------------------------------

#: Inputs whose dtype says nothing of the others', and which others say nothing of.
FREE: dict[str, tuple[str, ...]] = {
    "BatchNorm": ("gamma", "beta", "moving_mean", "moving_var"),
    "CTCLoss": ("label", "data_lengths", "label_lengths"),
    "Embedding": ("data",),
    "RNN": ("sequence_length",),
    "SequenceLast": ("sequence_length",),
    "SequenceMask": ("sequence_length",),
    "SequenceReverse": ("sequence_length",),
    "_contrib_index_copy": ("index_vector",),
    "_getitem": ("indices",),
    "_identity_with_attr_like_rhs": ("rhs",),
    "amp_cast": ("data",),
    "batch_take": ("indices",),
    "broadcast_like": ("rhs",),
    "cast": ("data",),
    "_copyto": ("data",),
    "gather_nd": ("indices",),
    "one_hot": ("indices",),
    "pick": ("index",),
    "reshape_like": ("rhs",),
    "scatter_nd": ("indices",),
    "shape_array": ("data",),
    "size_array": ("data",),
    "slice_like": ("shape_like",),
    "softmax": ("length",),
    "take": ("indices",),
    "topk": ("data",),
    "argsort": ("data",),
    "where": ("condition",),
}


def output_dtypes(name: str, attrs: dict[str, Any], data: Any, n: int) -> list[Any]:
    """Dtypes of the `n` outputs of an op, where its inputs share `data` (None: not known)."""
    if name in ("shape_array", "size_array"):
        return ["int64"] * n
    if name == "topk":
        picked = {"value": [data], "both": [data, attrs["dtype"]], "mask": [data]}
        return picked.get(attrs["ret_typ"], [attrs["dtype"]])
    if attrs.get("dtype") is not None:
        return [attrs["dtype"], *[data] * (n - 1)]
    return [data] * n
