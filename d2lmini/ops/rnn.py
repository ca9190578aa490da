"""Recurrent layers as ops: `RNN`, several layers in one or both directions, and a cell's layer.

>>> from d2lmini import nd
>>> x = nd.ones((3, 2, 4))                                # T=3 steps of N=2 sequences
>>> w = nd.ones(network_on(x.shape, "rnn_tanh", 5).parameters) / 10
>>> y, h = nd.RNN(x, w, nd.zeros((1, 2, 5)), state_size=5, num_layers=1, mode="rnn_tanh",
...               state_outputs=True)
>>> y.shape, h.shape
((3, 2, 5), (1, 2, 5))

Only the product with the state depends on the previous step. So a layer begins with the products of
all inputs at once, (T N, I) with (I, gates), and then goes through the steps, each one product
(N, H) with (H, gates) and a few passes over the gates, all in place. Backward likewise computes the
derivatives of all gates at once, then goes through the steps in reverse, and then computes the
gradients of the weights, each one product over all steps (`rnn_compute.py`).

The parameters of `RNN` are one vector, in the order of MXNet and cuDNN: for each layer and
direction i2h weight, h2h weight; then, in the same order, i2h bias, h2h bias. `_rnn_layer`, the op
of the cells, is one layer in one direction, whose parameters are four arrays; its data may be a
single step (N, C). A sequence is one operation, which takes a third of the time of T single steps.

A hidden output, the `reserve`, holds what backward needs of forward: the gates of all steps, the
cell states (LSTM) or the state's part of n (GRU), and the outputs of inner layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape, require
from d2lmini.ops.core import ALL, Shape, Spec, op
from d2lmini.ops.facts import Conflict
from d2lmini.ops.random_ops import standard_uniform
from d2lmini.ops.rnn_compute import KINDS, Weights, layer_of, views_of


class Network:
    """A stack of L recurrent layers of H units, each in one or both directions, on T steps of N
    sequences of I inputs. These sizes determine all shapes:

    state, output      of the states of all layers, and of the last layer's outputs
    parameter_shapes   of the weights, then of the biases, in the order of the vector `parameters`
    reserve_shapes     of the kept arrays of each layer and direction, then of inner layers' outputs
    """

    def __init__(self, mode: str, T: int, N: int, I: int, H: int, L: int, directions: int):
        kind, n = KINDS[mode], L * directions
        self.input, self.H, self.L, self.directions = (T, N, I), H, L, directions
        self.n_states, self.n_kept = 1 + (mode == "lstm"), len(kind.keeps)
        self.state: Shape = (n, N, H)
        self.output: Shape = (T, N, directions * H)
        weights: list[Shape] = []
        for k in range(n):
            inner = I if k < directions else directions * H
            weights += [(kind.n_gates * H, inner), (kind.n_gates * H, H)]
        self.parameter_shapes = (*weights, *[(kind.n_gates * H,)] * len(weights))
        self.parameters: Shape = (sum(map(prod, self.parameter_shapes)),)
        kept = [(T, N, k * H) for k in kind.keeps]
        self.reserve_shapes = (*kept * n, *[self.output] * (L - 1))

    def outputs(self, dtype: Any) -> list[Spec]:
        """Specs of the outputs of `RNN`."""
        states = [self.state] * self.n_states
        reserve = (sum(map(prod, self.reserve_shapes)),)
        return [Spec(shape, dtype) for shape in (self.output, *states, reserve)]

    def weights(self, parameters: Sequence[Any]) -> list[Weights]:
        """The parameters of each layer and direction: the arrays themselves of a single layer, or
        views into one vector."""
        if len(parameters) > 1:
            return [Weights(*parameters)]
        views = views_of(parameters[0], self.parameter_shapes)
        n = len(views) // 2
        return [Weights(*views[k : k + 2], *views[n + k : n + k + 2]) for k in range(0, n, 2)]

    def reserve_parts(self, reserve: Any) -> tuple[list[list[Any]], list[Any]]:
        """The contents of the reserve: kept arrays per layer and direction, inner outputs."""
        views, n = views_of(reserve, self.reserve_shapes), self.n_kept
        layers = self.state[0]
        return [views[n * k : n * k + n] for k in range(layers)], views[n * layers :]

    def halves(self, y: Any) -> list[Any]:
        """The outputs of each direction, views of y (T, N, directions * H)."""
        return [y[:, :, k * self.H : (k + 1) * self.H] for k in range(self.directions)]

    def forward(
        self, layer: Any, x: Any, parameters: Any, states: Any, out: Any, mask_of: Any = None
    ) -> None:
        """Fill out: y, last states, reserve. mask_of(i): the dropout mask of layer i's inputs."""
        y, *last, reserve = out
        kept, inner = self.reserve_parts(reserve)
        weights = self.weights(parameters)
        x = x.reshape(self.input)
        states, last = ([a.reshape(self.state) for a in arrays] for arrays in (states, last))
        for i, outputs in enumerate([*inner, y.reshape(self.output)]):
            if i and mask_of is not None:
                x = x * mask_of(i)
            for direction, part in enumerate(self.halves(outputs)):
                k = i * self.directions + direction
                first = [state[k] for state in states]
                ends = layer.forward(x, weights[k], first, part, kept[k], direction == 1)
                for place, end in zip(reversed(last), reversed(ends)):
                    place[k] = end
            x = outputs

    def backward(
        self, layer: Any, g: Any, y: Any, reserve: Any, x: Any, parameters: Any, states: Any,
        heads: Any, dparameters: Any, dx: Any, mask_of: Any = None,
    ) -> None:  # fmt: skip
        """Fill dparameters and dx (None: not needed). heads: the gradients of the last states;
        these arrays become those of `states`."""
        kept, inner = self.reserve_parts(reserve)
        weights, grads = self.weights(parameters), self.weights(dparameters)
        g, y = (a.reshape(self.output) for a in (g, y))
        states, heads = ([a.reshape(self.state) for a in arrays] for arrays in (states, heads))
        inputs, outputs = [x.reshape(self.input), *inner], [*inner, y]
        for i in reversed(range(self.L)):
            mask = mask_of(i) if i and mask_of is not None else None
            x = inputs[i] if mask is None else inputs[i] * mask
            below = layer.xp.empty(x.shape, x.dtype) if i else dx
            below = None if below is None else below.reshape(x.shape)
            for direction, (part, g_part) in enumerate(
                zip(self.halves(outputs[i]), self.halves(g))
            ):
                k = i * self.directions + direction
                first, last = ([a[k] for a in arrays] for arrays in (states, heads))
                layer.backward(
                    x, weights[k], first, part, kept[k], g_part, last, grads[k], below,
                    direction == 1,
                )  # fmt: skip
            g = below if mask is None else below * mask


@lru_cache(maxsize=1024)
def network_on(
    data: Shape, mode: str, state_size: int, num_layers: int = 1, bidirectional: bool = False
) -> Network:
    """The network on data (T, N, C), or on one step (N, C)."""
    N, C = data[-2:]
    return Network(mode, prod(data[:-2]), N, C, state_size, num_layers, 1 + bidirectional)


def _places(xp: Any, out: Any, specs: Sequence[Any]) -> tuple:
    """`out` if given, else new arrays of the shapes and dtypes of specs, or of other arrays."""
    return out or tuple([xp.empty(spec.shape, spec.dtype) for spec in specs])


def _given(*arrays: Any) -> list[Any]:
    """Those of the arrays that are not None."""
    return [a for a in arrays if a is not None]


def _check_arrays(mode: str, state_cell: Spec | None, *arrays: Spec) -> None:
    """A kind of layer, and the arrays that it takes, of one dtype."""
    check_choice("mode", mode, tuple(KINDS))
    check_float(*arrays, state_cell)
    check_optional("state_cell", state_cell, mode == "lstm", f"mode={mode!r}")


# -- all layers ------------------------------------------------------------------------------------


def _infer(
    data: Spec, parameters: Spec, state: Spec, state_cell: Spec | None = None, *, state_size: int,
    num_layers: int, bidirectional: bool, mode: str, p: float, **_: Any,
) -> list[Spec]:  # fmt: skip
    _check_arrays(mode, state_cell, data, parameters, state)
    if len(data.shape) != 3:
        raise MXNetError(f"data is {data.shape}, need (T, N, C): steps, sequences, inputs")
    require("state_size", "1 or more", state_size)
    require("num_layers", "1 or more", num_layers)
    require("p", "from 0 to 1", p)
    network = network_on(data.shape, mode, state_size, num_layers, bidirectional)
    check_shape("state", state, network.state, why="layers times directions, batch, state_size")
    check_shape("state_cell", state_cell, network.state, why="as state")
    check_shape(
        "parameters", parameters, network.parameters,
        why=f"all weights and biases of {num_layers} layers on data {data.shape}, mode={mode!r}",
    )  # fmt: skip
    return network.outputs(data.dtype)


def _flops(data: Spec, *arrays: Spec, out: Spec, mode: str, **_: Any) -> float:
    states = 2 if mode == "lstm" else 1
    size = sum([spec.size for spec in arrays[: len(arrays) - states]])
    return 2.0 * size * prod(data.shape[:-1]) + 40 * out.size


@op(
    infer=_infer, flops=_flops, compute_in_float32="eE",
    optional=lambda attrs: ("state_cell",) if attrs["mode"] == "lstm" else (),
    outputs=lambda mode="", state_outputs=False, **_: 1 + state_outputs * (1 + (mode == "lstm")),
    output_names=("output", "state_output", "statecell_output"),
    draws=lambda p, num_layers, training, **_: p > 0 and num_layers > 1 and training,
    left_out=(
        "projection_size", "lstm_state_clip_min", "lstm_state_clip_max", "lstm_state_clip_nan",
        "use_sequence_length",
    ),
)  # fmt: skip
def RNN(
    xp, data, parameters, state, state_cell=None, *, state_size: int, num_layers: int,
    bidirectional: bool = False, mode: str, p: float = 0.0, state_outputs: bool = False, rng,
    training, out=None,
):  # fmt: skip
    """A recurrent network over (T, N, C) -> (T, N, directions * state_size).

    mode: 'rnn_relu', 'rnn_tanh', 'lstm', 'gru' (formulas in `rnn_compute.py`). parameters: all
    weights and biases, a vector (for the order see the module's docstring). state, and state_cell
    for the LSTM: (num_layers * directions, N, state_size), forward before backward in each layer;
    state_outputs also returns the last states. In training a fraction p of the inputs of each layer
    but the first is dropped.

    One dtype; 16 bits are computed in float32. MXNetError at the call for shapes and dtypes. Not
    twice differentiable, as in MXNet. (On the CPU MXNet 1.9 ignores p.)

    Cost: 2 T N FLOPs for each number in parameters. After cuDNN's and MXNet's RNN.
    """
    network = network_on(data.shape, mode, state_size, num_layers, bidirectional)
    out = _places(xp, out, network.outputs(data.dtype))
    masks = _masks(xp, rng, p * training, network, data.dtype)
    states = _given(state, state_cell)
    network.forward(layer_of(xp, mode), data, [parameters], states, out, masks)
    return out


def _masks(xp: Any, key: Any, p: float, network: Network, dtype: Any) -> Any:
    """A function i -> the dropout mask of layer i's inputs: 0 with probability p, else 1 / (1 - p);
    None without dropout."""
    if not p:
        return None
    scale = dtype.type(0 if p == 1 else 1 / (1 - p))
    return lambda i: (standard_uniform(xp, key, i, network.output) >= p) * scale


def _heads(gs: Any, states: list[Any]) -> list[Any]:
    """The gradients of the last states; nothing if all of them are zero."""
    gs = gs[: len(states)]
    if all(g is None for g in gs):
        return []
    return [state.zeros_like() if g is None else g for g, state in zip(gs, states)]


@RNN.gradient(saves="y data parameters state state_cell")
def _(
    g, y, data, parameters, state, state_cell, *, num_layers, bidirectional, mode, p, rng, training,
    needs=ALL,
):  # fmt: skip
    states = _given(state, state_cell)
    found = rnn_backward(
        g[0], y[0], y[-1], data, parameters, *states, *_heads(g[1:], states), mode=mode,
        num_layers=num_layers, bidirectional=bidirectional, p=p if training else 0.0, key=rng,
        wants_data=needs[0], n_parameters=1,
    )  # fmt: skip
    return found if needs[0] else (None, *found)


@RNN.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if not data:
        return {}
    if len(data) != 3:
        raise Conflict(f"data is {data}, need (T, N, C)")
    how = [attrs[name] for name in ("mode", "state_size", "num_layers", "bidirectional")]
    network = network_on(data, *how)
    found = {name: network.state for name in ("state", "state_cell")}
    return {**found, "parameters": network.parameters} if data[2] else found


# -- one layer with its parameters apart -----------------------------------------------------------

_ARRAYS = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias", "state", "state_cell")


def _infer_layer(data: Spec, *arrays: Spec, mode: str) -> list[Spec]:
    state, state_cell = arrays[4], arrays[5] if len(arrays) > 5 else None
    _check_arrays(mode, state_cell, data, *arrays[:5])
    if len(data.shape) not in (2, 3) or len(state.shape) != 2:
        raise MXNetError(
            f"data is {data.shape}, state {state.shape}, need (N, C) or (T, N, C), and (N, H)"
        )
    network = network_on(data.shape, mode, state.shape[1])
    shapes = (*network.parameter_shapes, *[network.state[1:]] * 2)
    for name, spec, shape in zip(_ARRAYS, arrays, shapes):
        check_shape(name, spec, shape, why=f"for data {data.shape} and mode={mode!r}")
    return _layer_outputs(data, state, mode)


def _layer_outputs(data: Any, state: Any, mode: str) -> list[Spec]:
    """Specs of the outputs of `_rnn_layer`: those of `RNN` without the last state h."""
    y, _, *cell, reserve = network_on(data.shape, mode, state.shape[1]).outputs(data.dtype)
    y = Spec((*data.shape[:-1], state.shape[1]), y.dtype)
    return [y, *[Spec(state.shape, spec.dtype) for spec in cell], reserve]


@op(
    "_rnn_layer", infer=_infer_layer, flops=_flops, compute_in_float32="eE",
    outputs=lambda mode, **_: 1 + (mode == "lstm"),
)  # fmt: skip
def rnn_layer(
    xp, data, i2h_weight, h2h_weight, i2h_bias, h2h_bias, state, state_cell=None, *, mode: str,
    out=None,
):  # fmt: skip
    """A layer over one step (N, C) -> (N, H) or a sequence (T, N, C) -> (T, N, H): all states.

    mode and formulas as in `RNN`; state, and state_cell for 'lstm', (N, H) precede the first step;
    'lstm' also returns the last cell state. i2h_weight (G, C), h2h_weight (G, H), biases (G,),
    G = H times 1, 4 or 3. One dtype; 16 bits are computed in float32. MXNetError at the call
    for shapes and dtypes.

    >>> w = [nd.ones((6, 3)) / 9, nd.ones((6, 2)) / 9, nd.zeros(6), nd.zeros(6)]
    >>> h = nd.ones((1, 2))
    >>> one = nd._internal._rnn_layer(nd.ones((1, 3)), *w, h, mode="gru")
    >>> all = nd._internal._rnn_layer(nd.ones((4, 1, 3)), *w, h, mode="gru")
    >>> one.shape, all.shape, (one == all[0]).asnumpy().all()
    ((1, 2), (4, 1, 2), np.True_)
    """
    out = _places(xp, out, _layer_outputs(data, state, mode))
    parameters = i2h_weight, h2h_weight, i2h_bias, h2h_bias
    network, states = network_on(data.shape, mode, state.shape[1]), _given(state, state_cell)
    network.forward(layer_of(xp, mode), data, parameters, states, out)
    return out


@rnn_layer.gradient(saves=f"y data {' '.join(_ARRAYS)}")
def _(g, y, data, i2h, h2h, i2h_bias, h2h_bias, state, state_cell, *, mode, needs=ALL):
    found = rnn_backward(
        g[0], y[0], y[-1], data, i2h, h2h, i2h_bias, h2h_bias, *_given(state, state_cell),
        *_heads(g[1:], _given(state_cell)), mode=mode, wants_data=needs[0], n_parameters=4,
    )  # fmt: skip
    return found if needs[0] else (None, *found)


# -- back ------------------------------------------------------------------------------------------


def _n_given(mode: str, n_parameters: int) -> int:
    """The number of parameters and states."""
    return n_parameters + 1 + (mode == "lstm")


def _infer_backward(
    g: Spec, y: Spec, reserve: Spec, data: Spec, *arrays: Spec, mode: str, n_parameters: int,
    wants_data: bool, **_: Any,
) -> list[Spec]:  # fmt: skip
    return [*[data] * wants_data, *arrays[: _n_given(mode, n_parameters)]]


def _flops_backward(
    g: Spec, y: Spec, reserve: Spec, data: Spec, *arrays: Spec, n_parameters: int, **_: Any
) -> float:
    size = sum([spec.size for spec in arrays[:n_parameters]])
    return 4.0 * size * prod(y.shape[:-1]) + 20 * y.size


@op(
    "_rnn_backward", infer=_infer_backward, flops=_flops_backward, compute_in_float32="eE",
    outputs=lambda mode, n_parameters, wants_data, **_: wants_data + _n_given(mode, n_parameters),
)  # fmt: skip
def rnn_backward(
    xp, *arrays, mode: str, num_layers: int = 1, bidirectional: bool = False, p: float = 0.0,
    key=None, n_parameters: int, wants_data: bool, out=None,
):  # fmt: skip
    """Gradients of `RNN` and `_rnn_layer`: of data if needed, the parameters and the states.

    arrays: g, y, reserve and data; the parameters; the states before; the gradients of the last
    states, of which those of the first may lack (zeros).
    """
    g, y, reserve, data, *rest = arrays
    n = _n_given(mode, n_parameters)
    parameters, states, heads = rest[:n_parameters], rest[n_parameters:n], rest[n:]
    out = _places(xp, out, [*[data] * wants_data, *rest[:n]])
    dparameters, dstates = out[wants_data : -len(states)], out[-len(states) :]
    for place, given in zip(dstates, [None] * (len(states) - len(heads)) + heads):
        place[...] = 0 if given is None else given.reshape(place.shape)
    network = network_on(data.shape, mode, states[0].shape[-1], num_layers, bidirectional)
    network.backward(
        layer_of(xp, mode), g, y, reserve, data, parameters, states, dstates, dparameters,
        out[0] if wants_data else None, _masks(xp, key, p, network, y.dtype),
    )  # fmt: skip
    return out


@rnn_backward.gradient()
def _(g):
    raise MXNetError(
        "a recurrent layer is not differentiable twice (nor is MXNet's RNN); compute its steps by "
        "nd.dot, nd.sigmoid and nd.tanh instead"
    )
